// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// MiniCache and ShadowKV for tensors. tensors.hpp describes a Device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <tuple>
#include <vector>

#include <tessera/minicache.hpp>
#include <tessera/project/rotary_tables.hpp>
#include <tessera/shadow_kv.hpp>

#include "backend.hpp"
#include "tensors.hpp"

namespace tessera_torch {

template <class Device>
class kv_cache_on final : public kv_cache {
 public:
  kv_cache_on(kv_cache_shape const& shape, torch::Device device)
      : device_(device),
        blocks_of_sequence_(tessera::divide_up(shape.tokens, std::int64_t{64})),
        cache_(Device::executor(device),
               {.slots = shape.sequences,
                .tokens = shape.tokens,
                .blocks = shape.sequences * blocks_of_sequence_,
                .heads = shape.heads,
                .channels = shape.channels},
               {.parts = parts_of(shape)}) {
    auto const ints = torch::TensorOptions().dtype(torch::kInt32).device(device);
    blocks_ = torch::arange(shape.sequences * blocks_of_sequence_, ints).view({shape.sequences, blocks_of_sequence_});
    lengths_ = torch::zeros({shape.sequences}, ints);
    pages_ = torch::zeros({shape.sequences}, ints);
  }

  void append(std::vector<torch::Tensor> const& keys, std::vector<torch::Tensor> const& values) override {
    TORCH_CHECK(static_cast<int>(keys.size()) == cache_.layers() && keys.size() == values.size(), "append: there are ",
                cache_.layers(), " layers but keys of ", keys.size(), " and values of ", values.size());
    check_no_token("append");
    auto const& exec = Device::executor(device_);
    std::vector<tessera::cache_inputs<bfloat16>> parts;
    for (int layer = 0; layer < cache_.layers(); ++layer) {
      int const part = cache_.part_of(layer);
      bool const is_first = layer == 0 || cache_.part_of(layer - 1) != part;
      if (is_first) {
        parts.emplace_back();
      }
      auto const side = static_cast<std::size_t>(is_first ? 0 : 1);
      auto const at = static_cast<std::size_t>(layer);
      parts.back().keys[side] = view_of<bfloat16, 4>(keys[at], device_, {"append", "keys"});
      parts.back().values[side] = view_of<bfloat16, 4>(values[at], device_, {"append", "values"});
    }
    std::int64_t const tokens = parts[0].keys[0].extent(2);
    lengths_.add_(tokens);
    try {
      auto const plan = cache_.plan_append(exec, {lengths_.size(0), tokens});
      auto space = scratch(exec, plan);
      for (std::size_t part = 0; part < parts.size(); ++part) {
        cache_.append(exec, static_cast<int>(part), parts[part], sequences(), {.tokens = tokens},
                      tessera::workspace(plan, space));
      }
    } catch (...) {
      lengths_.sub_(tokens);  // a call with right arguments can follow
      throw;
    }
    cache_.advance(exec, sequences(), writable<std::int32_t>(pages_), tokens);
  }

  void begin_token() override {
    check_no_token("begin_token");
    lengths_.add_(1);
    written_ = 0;
  }

  torch::Tensor write_and_attend(std::int64_t layer, torch::Tensor const& keys, torch::Tensor const& values,
                                 torch::Tensor const& queries) override {
    constexpr char const* function = "write_and_attend";
    TORCH_CHECK(written_ != none, "write_and_attend: layer ", layer, " was given before begin_token()");
    TORCH_CHECK(layer == written_ && layer < cache_.layers(), "write_and_attend: layer ", layer,
                " was given but the next one is ", written_, " of ", cache_.layers());
    auto const& exec = Device::executor(device_);
    auto const at = static_cast<int>(layer);
    auto const asked = view_of<bfloat16, 4>(queries, device_, {function, "queries"});
    cache_.write(exec, at, view_of<bfloat16, 4>(keys, device_, {function, "keys"}),
                 view_of<bfloat16, 4>(values, device_, {function, "values"}), sequences(), {.tokens = 1});
    auto const plan = cache_.plan_attend(exec, cache_.shape_of(asked, sequences()));
    auto space = scratch(exec, plan);
    torch::Tensor result = torch::empty(queries.sizes(), queries.options());
    tessera::attention_outputs<bfloat16> const out{writable<bfloat16, 4>(result)};
    cache_.attend(exec, at, asked, sequences(), {.is_causal = true}, out, tessera::workspace(plan, space));
    bool const is_last = at + 1 == cache_.layers() || cache_.part_of(at + 1) != cache_.part_of(at);
    if (is_last) {
      auto const sealing = cache_.plan_seal(exec, lengths_.size(0));
      auto memory = scratch(exec, sealing);
      cache_.seal(exec, cache_.part_of(at), sequences(), tessera::workspace(sealing, memory));
    }
    ++written_;
    return result;
  }

  void end_token() override {
    TORCH_CHECK(written_ == cache_.layers(), "end_token: ", written_ == none ? 0 : written_,
                " layers of a token were written but there are ", cache_.layers());
    cache_.advance(Device::executor(device_), sequences(), writable<std::int32_t>(pages_));
    written_ = none;
  }

  [[nodiscard]] std::tuple<std::int64_t, std::int64_t> bytes() const override {
    auto const found = cache_.wait_for_statistics(Device::executor(device_), sequences());
    return {found.used(), found.uncompressed};
  }

 private:
  void check_no_token(char const* function) const {
    TORCH_CHECK(written_ == none, function, ": a token was begun, and ", written_, " of its ", cache_.layers(),
                " layers written, but end_token() has not ended it");
  }
  static std::vector<tessera::cache_layers> parts_of(kv_cache_shape const& shape) {
    TORCH_CHECK(!shape.parts.empty(), "minicache: there are ", shape.parts.size(), " parts but at least 1 is needed");
    std::vector<tessera::cache_layers> parts;
    for (std::int64_t const layers : shape.parts) {
      TORCH_CHECK(layers == 1 || layers == 2, "minicache: a part has ", layers, " layers but must have 1 or 2");
      parts.push_back(layers == 1 ? tessera::minicache::single() : tessera::minicache::pair());
    }
    return parts;
  }
  [[nodiscard]] tessera::cache_sequences sequences() const {
    return {.blocks = writable<std::int32_t, 2>(blocks_),
            .lengths = writable<std::int32_t>(lengths_),
            .pages = writable<std::int32_t>(pages_),
            .count = lengths_.size(0)};
  }

  static constexpr int none = -1;

  torch::Device device_;
  int written_ = none;  ///< layers of the token that was begun; none between tokens
  std::int64_t blocks_of_sequence_;
  tessera::minicache cache_;
  torch::Tensor blocks_;
  torch::Tensor lengths_;
  torch::Tensor pages_;
};

template <class Device>
class long_cache_on final : public long_cache {
  using method = tessera::shadow_kv;
  using executor_type = typename Device::executor_type;

 public:
  long_cache_on(long_cache_shape const& shape, torch::Device device)
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

  void prefill(std::int64_t sequence, torch::Tensor const& keys, torch::Tensor const& values) override {
    auto space = scratch(exec_, prompt_plan_);
    method::prefill(exec_, side_, cache_, sequence, view_of<bfloat16, 3>(keys, device_, {"prefill", "keys"}),
                    view_of<bfloat16, 3>(values, device_, {"prefill", "values"}),
                    tessera::workspace(prompt_plan_, space));
  }

  torch::Tensor decode(torch::Tensor const& queries, torch::Tensor const& keys, torch::Tensor const& values) override {
    auto const asked = view_of<bfloat16, 3>(queries, device_, {"decode", "queries"});
    auto space = scratch(exec_, step_plan_);
    torch::Tensor result = torch::empty(queries.sizes(), queries.options());
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
  static std::int64_t longest(long_cache_shape const& shape) {
    TORCH_CHECK(!shape.tokens.empty(), "shadow_kv: there are ", shape.tokens.size(),
                " sequences but at least 1 is needed");
    return *std::max_element(shape.tokens.begin(), shape.tokens.end());
  }
  static method::selector_type selector_of(long_cache_shape const& shape) {
    TORCH_CHECK(shape.chunks >= 0, "shadow_kv: ", shape.chunks, " chunks are to be selected but at least 0 must be");
    TORCH_CHECK(std::isfinite(shape.rotary_base) && shape.rotary_base > 0, "shadow_kv: the rotary base is ",
                shape.rotary_base, " but must be finite and positive");
    method::selector_type selector;
    selector.chunks = shape.chunks;
    return selector;
  }

  torch::Device device_;
  executor_type const& exec_;
  tessera::side_queue<executor_type> side_;
  method::plan_type<bfloat16> plan_;
  tessera::workspace_plan prompt_plan_;
  tessera::workspace_plan step_plan_;
  torch::Tensor on_device_;
  torch::Tensor on_host_;
  tessera::rotary_tables tables_;
  torch::Tensor within_;
  torch::Tensor blocks_;
  method::cache_type<bfloat16> cache_;
};

template <class Device>
class caches_on final : public caches_backend {
 public:
  std::shared_ptr<kv_cache> make_kv_cache(kv_cache_shape const& shape, torch::Device device) override {
    return std::make_shared<kv_cache_on<Device>>(shape, device);
  }
  std::shared_ptr<long_cache> make_long_cache(long_cache_shape const& shape, torch::Device device) override {
    return std::make_shared<long_cache_on<Device>>(shape, device);
  }
};

}  // namespace tessera_torch
