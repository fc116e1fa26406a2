// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// MiniCache for tensors. tensors.hpp describes a Device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/minicache.hpp>

#include "handles.hpp"
#include "tensors.hpp"

namespace tessera_torch {

/// Keys and values of all layers of a batch, compressed (tessera/minicache.hpp).
class minicache_cache {
 public:
  virtual ~minicache_cache() = default;
  /// Appends keys and values of each layer: sequences x key heads x tokens x channels.
  virtual void append(std::vector<Tensor> const& keys, std::vector<Tensor> const& values) = 0;
  /// Makes room for a token; call write_and_attend() for each layer in turn afterwards.
  virtual void begin_token() = 0;
  /// Writes a token's keys and values, and attends with its queries: sequences x query heads x 1 x channels.
  virtual Tensor write_and_attend(std::int64_t layer, Tensor const& keys, Tensor const& values,
                                  Tensor const& queries) = 0;
  virtual void end_token() = 0;
  /// For all sequences: the bytes in use, and the bytes of the same tokens in 16 bits an element. Waits.
  [[nodiscard]] virtual std::tuple<std::int64_t, std::int64_t> bytes() const = 0;
};

struct minicache_shape {
  std::int64_t sequences;
  std::int64_t tokens;
  std::int64_t heads;
  std::int64_t channels;
  std::vector<std::int64_t> parts;  ///< 1: a single layer, 2: a pair that shares directions
};

/// All that Python has.
handles<minicache_cache>& minicaches();

/// A program that adds a number to each element.
struct add_to_each {
  static constexpr int lanes = 32;
  struct scratch_type {};

  tessera::array_view<std::int32_t> values;
  std::int32_t amount;

  [[nodiscard]] std::int64_t groups() const { return tessera::divide_up(values.size(), std::int64_t{lanes}); }

  template <tessera::Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      std::int64_t const at = which * lanes + lane;
      if (at < values.size()) {
        values[at] += amount;
      }
    }
  }
};

template <class Device>
class minicache_on final : public minicache_cache {
 public:
  minicache_on(minicache_shape const& shape, torch::stable::Device device)
      : device_(device),
        sequences_(shape.sequences),
        blocks_of_sequence_(tessera::divide_up(shape.tokens, std::int64_t{64})),
        cache_(Device::executor(device),
               {.slots = shape.sequences,
                .tokens = shape.tokens,
                .blocks = shape.sequences * blocks_of_sequence_,
                .heads = shape.heads,
                .channels = shape.channels},
               {.parts = parts_of(shape)}) {
    std::vector<std::int32_t> blocks(static_cast<std::size_t>(sequences_ * blocks_of_sequence_));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::vector<std::int32_t> const zeros(static_cast<std::size_t>(sequences_));
    blocks_ = copied(blocks, device);
    lengths_ = copied(zeros, device);
    pages_ = copied(zeros, device);
  }

  void append(std::vector<Tensor> const& keys, std::vector<Tensor> const& values) override {
    tessera::check<tessera::value_error>(
        static_cast<int>(keys.size()) == cache_.layers() && keys.size() == values.size(), "append: there are ",
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
    grow(tokens);
    try {
      auto const plan = cache_.plan_append(exec, {sequences_, tokens});
      auto space = scratch(exec, plan);
      for (std::size_t part = 0; part < parts.size(); ++part) {
        cache_.append(exec, static_cast<int>(part), parts[part], sequences(), {.tokens = tokens},
                      tessera::workspace(plan, space));
      }
    } catch (...) {
      grow(-tokens);  // a call with right arguments can follow
      throw;
    }
    cache_.advance(exec, sequences(), pages(), tokens);
  }

  void begin_token() override {
    check_no_token("begin_token");
    grow(1);
    written_ = 0;
  }

  Tensor write_and_attend(std::int64_t layer, Tensor const& keys, Tensor const& values,
                          Tensor const& queries) override {
    constexpr char const* function = "write_and_attend";
    tessera::check<tessera::value_error>(written_ != none, "write_and_attend: layer ", layer,
                                         " was given before begin_token()");
    tessera::check<tessera::value_error>(layer == written_ && layer < cache_.layers(), "write_and_attend: layer ",
                                         layer, " was given but the next one is ", written_, " of ", cache_.layers());
    auto const& exec = Device::executor(device_);
    auto const at = static_cast<int>(layer);
    auto const asked = view_of<bfloat16, 4>(queries, device_, {function, "queries"});
    cache_.write(exec, at, view_of<bfloat16, 4>(keys, device_, {function, "keys"}),
                 view_of<bfloat16, 4>(values, device_, {function, "values"}), sequences(), {.tokens = 1});
    auto const plan = cache_.plan_attend(exec, cache_.shape_of(asked, sequences()));
    auto space = scratch(exec, plan);
    Tensor result = empty_as<bfloat16>(queries);
    tessera::attention_outputs<bfloat16> const out{writable<bfloat16, 4>(result)};
    cache_.attend(exec, at, asked, sequences(), {.is_causal = true}, out, tessera::workspace(plan, space));
    bool const is_last = at + 1 == cache_.layers() || cache_.part_of(at + 1) != cache_.part_of(at);
    if (is_last) {
      auto const sealing = cache_.plan_seal(exec, sequences_);
      auto memory = scratch(exec, sealing);
      cache_.seal(exec, cache_.part_of(at), sequences(), tessera::workspace(sealing, memory));
    }
    ++written_;
    return result;
  }

  void end_token() override {
    tessera::check<tessera::value_error>(written_ == cache_.layers(), "end_token: ", written_ == none ? 0 : written_,
                                         " layers of a token were written but there are ", cache_.layers());
    cache_.advance(Device::executor(device_), sequences(), pages());
    written_ = none;
  }

  [[nodiscard]] std::tuple<std::int64_t, std::int64_t> bytes() const override {
    auto const found = cache_.wait_for_statistics(Device::executor(device_), sequences());
    return {found.used(), found.uncompressed};
  }

 private:
  void check_no_token(char const* function) const {
    tessera::check<tessera::value_error>(written_ == none, function, ": a token was begun, and ", written_, " of its ",
                                         cache_.layers(), " layers written, but end_token() has not ended it");
  }
  static std::vector<tessera::cache_layers> parts_of(minicache_shape const& shape) {
    tessera::check<tessera::value_error>(!shape.parts.empty(), "minicache: there are ", shape.parts.size(),
                                         " parts but at least 1 is needed");
    std::vector<tessera::cache_layers> parts;
    for (std::int64_t const layers : shape.parts) {
      tessera::check<tessera::value_error>(layers == 1 || layers == 2, "minicache: a part has ", layers,
                                           " layers but must have 1 or 2");
      parts.push_back(layers == 1 ? tessera::minicache::single() : tessera::minicache::pair());
    }
    return parts;
  }
  [[nodiscard]] tessera::array_view<std::int32_t> lengths() const {
    return {data_of<std::int32_t>(lengths_), sequences_};
  }
  [[nodiscard]] tessera::array_view<std::int32_t> pages() const { return {data_of<std::int32_t>(pages_), sequences_}; }
  void grow(std::int64_t tokens) {
    add_to_each const add{lengths(), static_cast<std::int32_t>(tokens)};
    Device::executor(device_).run(add, add.groups());
  }
  [[nodiscard]] tessera::cache_sequences sequences() const {
    return {.blocks = tessera::matrix_view<std::int32_t const>(data_of<std::int32_t>(blocks_),
                                                               {sequences_, blocks_of_sequence_}),
            .lengths = lengths(),
            .pages = pages(),
            .count = sequences_};
  }

  static constexpr int none = -1;

  torch::stable::Device device_;
  std::int64_t sequences_;
  std::int64_t blocks_of_sequence_;
  tessera::minicache cache_;
  Tensor blocks_;
  Tensor lengths_;
  Tensor pages_;
  int written_ = none;  ///< layers of the token that was begun; none between tokens
};

/// Makes a cache on the device of a tensor, and gives its number.
template <class Device>
std::int64_t make_minicache(Tensor on, std::int64_t sequences, std::int64_t tokens, std::int64_t heads,
                            std::int64_t channels, std::vector<std::int64_t> parts) {
  minicache_shape const shape{sequences, tokens, heads, channels, std::move(parts)};
  return minicaches().add(
      std::make_shared<minicache_on<Device>>(shape, device_of<Device>(on, {"minicache", "elements"})));
}

}  // namespace tessera_torch
