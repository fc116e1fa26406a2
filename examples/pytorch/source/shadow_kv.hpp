// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// ShadowKV for tensors. tensors.hpp describes a Device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/exec/side_queue.hpp>
#include <tessera/project/rotary_tables.hpp>
#include <tessera/shadow_kv.hpp>

#include "handles.hpp"
#include "tensors.hpp"

namespace tessera_torch {

/// A layer's keys in few directions, its values elsewhere (tessera/shadow_kv.hpp).
class shadow_kv_cache {
 public:
  virtual ~shadow_kv_cache() = default;
  /// Caches the prompt of one sequence: key heads x tokens x channels, keys before their rotation.
  virtual void prefill(std::int64_t sequence, Tensor const& keys, Tensor const& values) = 0;
  /// Decodes a token of each sequence: sequences x heads x channels, queries and keys before their rotation.
  virtual Tensor decode(Tensor const& queries, Tensor const& keys, Tensor const& values) = 0;
  /// Bytes on the device and on the host.
  [[nodiscard]] virtual std::tuple<std::int64_t, std::int64_t> bytes() const = 0;
  /// The part of the selected chunks that were on the device already. Waits.
  [[nodiscard]] virtual double hit_rate() const = 0;
};

struct shadow_kv_shape {
  std::int64_t query_heads;
  std::int64_t key_heads;
  std::int64_t channels;
  std::vector<std::int64_t> tokens;  ///< tokens that each sequence has room for
  std::int64_t chunks;               ///< chunks that each head selects
  double rotary_base;
};

/// All that Python has.
handles<shadow_kv_cache>& shadow_kvs();

template <class Device>
class shadow_kv_on final : public shadow_kv_cache {
  using method = tessera::shadow_kv;
  using executor_type = typename Device::executor_type;

 public:
  shadow_kv_on(shadow_kv_shape const& shape, torch::stable::Device device)
      : device_(device),
        exec_(Device::executor(device)),
        side_(exec_, method::side_marks, true),
        plan_(method::plan<bfloat16>(exec_, {shape.query_heads, shape.key_heads, shape.channels, shape.tokens}, {},
                                     selector_of(shape))),
        prompt_plan_(method::plan_prefill(exec_, plan_)),
        step_plan_(method::plan_decode(exec_, plan_)),
        on_device_(bytes_on(device, plan_.device.bytes())),
        on_host_(Device::host_bytes(plan_.host.bytes())),
        tables_(tessera::rotary_frequencies(shape.rotary_base, static_cast<int>(shape.channels)), longest(shape) + 64),
        within_(copied(tables_.within(), device)),
        blocks_(copied(tables_.blocks(), device)),
        cache_(method::open(exec_, plan_, aligned_bytes(on_device_), aligned_bytes(on_host_),
                            tables_.embedding(tessera::rotary_pairs::halves, data_of<tessera::rotation>(within_),
                                              data_of<tessera::rotation>(blocks_)))) {}

  void prefill(std::int64_t sequence, Tensor const& keys, Tensor const& values) override {
    auto space = scratch(exec_, prompt_plan_);
    method::prefill(exec_, side_, cache_, sequence, view_of<bfloat16, 3>(keys, device_, {"prefill", "keys"}),
                    view_of<bfloat16, 3>(values, device_, {"prefill", "values"}),
                    tessera::workspace(prompt_plan_, space));
  }

  Tensor decode(Tensor const& queries, Tensor const& keys, Tensor const& values) override {
    auto const asked = view_of<bfloat16, 3>(queries, device_, {"decode", "queries"});
    auto space = scratch(exec_, step_plan_);
    Tensor result = empty_as<bfloat16>(queries);
    method::decode(exec_, side_, cache_,
                   {asked, view_of<bfloat16, 3>(keys, device_, {"decode", "keys"}),
                    view_of<bfloat16, 3>(values, device_, {"decode", "values"})},
                   tessera::offload_outputs<bfloat16>{writable<bfloat16, 3>(result)},
                   tessera::workspace(step_plan_, space));
    return result;
  }

  [[nodiscard]] std::tuple<std::int64_t, std::int64_t> bytes() const override {
    return {plan_.device.bytes(), plan_.host.bytes()};
  }
  [[nodiscard]] double hit_rate() const override { return method::wait_for_statistics(exec_, cache_).hit_rate(); }

 private:
  static std::int64_t longest(shadow_kv_shape const& shape) {
    tessera::check<tessera::value_error>(!shape.tokens.empty(), "shadow_kv: there are ", shape.tokens.size(),
                                         " sequences but at least 1 is needed");
    return *std::max_element(shape.tokens.begin(), shape.tokens.end());
  }
  static method::selector_type selector_of(shadow_kv_shape const& shape) {
    tessera::check<tessera::value_error>(shape.chunks >= 0, "shadow_kv: ", shape.chunks,
                                         " chunks are to be selected but at least 0 must be");
    tessera::check<tessera::value_error>(std::isfinite(shape.rotary_base) && shape.rotary_base > 0,
                                         "shadow_kv: the rotary base is ", shape.rotary_base,
                                         " but must be finite and positive");
    method::selector_type selector;
    selector.chunks = shape.chunks;
    return selector;
  }

  torch::stable::Device device_;
  executor_type const& exec_;
  tessera::side_queue<executor_type> side_;
  method::plan_type<bfloat16> plan_;
  tessera::workspace_plan prompt_plan_;
  tessera::workspace_plan step_plan_;
  Tensor on_device_;
  Tensor on_host_;
  tessera::rotary_tables tables_;
  Tensor within_;
  Tensor blocks_;
  method::cache_type<bfloat16> cache_;
};

/// Makes a cache on the device of a tensor, and gives its number.
template <class Device>
std::int64_t make_shadow_kv(Tensor on, std::int64_t query_heads, std::int64_t key_heads, std::int64_t channels,
                            std::vector<std::int64_t> tokens, std::int64_t chunks, double rotary_base) {
  shadow_kv_shape const shape{query_heads, key_heads, channels, std::move(tokens), chunks, rotary_base};
  return shadow_kvs().add(
      std::make_shared<shadow_kv_on<Device>>(shape, device_of<Device>(on, {"shadow_kv", "elements"})));
}

}  // namespace tessera_torch
