// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The cache of a model whose layers write one after the other, as modules of neural networks do. tensors.hpp describes
/// a Device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/algorithm/paged_cache/block_pool.hpp>
#include <tessera/algorithm/paged_cache/direction_codecs.hpp>
#include <tessera/minicache.hpp>

#include "handles.hpp"
#include "tensors.hpp"

namespace tessera_torch {

/// Keys and values of all layers of a batch, in pages of codes, except for the newest tokens. A pass of tokens is
/// begin(), write() of each layer in turn, end(). In it, attend() of a layer comes after its write() and before that of
/// the next layer, and restore() gives the tokens before the pass.
class layered_cache {
 public:
  virtual ~layered_cache() = default;
  /// Begins a pass of up to `tokens` tokens of each sequence, or of so many as `counts` says if it is not empty.
  virtual void begin(std::int64_t tokens, std::vector<std::int64_t> const& counts) = 0;
  /// Keys and values of a layer, sequences x key heads x tokens x channels; those of a sequence come first.
  virtual void write(std::int64_t layer, Tensor const& keys, Tensor const& values) = 0;
  /// Attention of the pass's queries, sequences x query heads x tokens x channels, over all tokens up to each. For
  /// passes of at most 64 tokens. `scale` is the factor of scores.
  virtual Tensor attend(std::int64_t layer, Tensor const& queries, double scale) = 0;
  /// Writes the keys and values of the tokens before the pass, which end where the tensors or a sequence end.
  virtual void restore(std::int64_t layer, Tensor const& keys, Tensor const& values) = 0;
  virtual void end() = 0;
  /// Removes the newest tokens of each sequence.
  virtual void crop(std::int64_t tokens) = 0;
  /// Sequence i continues what was sequence origins[i].
  virtual void reorder(std::vector<std::int64_t> const& origins) = 0;
  /// Removes all tokens, and ends a pass that was begun.
  virtual void reset() = 0;
  /// The tokens of each sequence, with those of a pass that was begun.
  [[nodiscard]] virtual std::vector<std::int64_t> lengths() const = 0;
  /// The bytes in use, those of the same tokens in 16 bits an element, and those that the cache has reserved. Waits.
  [[nodiscard]] virtual std::tuple<std::int64_t, std::int64_t, std::int64_t> bytes() const = 0;
};

struct layered_cache_shape {
  std::int64_t sequences;
  std::int64_t tokens;  ///< tokens that each sequence has room for
  std::int64_t heads;
  std::int64_t channels;
  std::int64_t window;                   ///< the newest tokens that stay as they are, a multiple of 64
  std::vector<std::int64_t> layers;      ///< of each part: 1 for a single layer, 2 for a pair that shares directions
  std::vector<std::int64_t> key_bits;    ///< of each part
  std::vector<std::int64_t> value_bits;  ///< of each part
  bool reorders;                         ///< whether reorder() may be called, which takes memory for it
};

/// All that Python has.
handles<layered_cache>& layered_caches();

/// A program that adds a number, or one of a list, to each element.
struct add_counts {
  static constexpr int lanes = 32;
  struct scratch_type {};

  tessera::array_view<std::int32_t> values;
  tessera::array_view<std::int32_t const> counts;  ///< null: `amount` to each
  std::int32_t amount;

  [[nodiscard]] std::int64_t groups() const { return tessera::divide_up(values.size(), std::int64_t{lanes}); }

  template <tessera::Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      std::int64_t const at = which * lanes + lane;
      if (at < values.size()) {
        values[at] += counts.data == nullptr ? amount : counts[at];
      }
    }
  }
};

/// MiniCache with kernels for all bits that Python offers.
using many_bits_cache = tessera::cross_layer_cache<
    tessera::slerp_merger<float>, tessera::retain_most_different,
    tessera::direction_codecs<tessera::direction_codec<4, 64>, tessera::direction_codec<8, 64>,
                              tessera::direction_codec<3, 64>, tessera::direction_codec<2, 64>,
                              tessera::direction_codec<4, 64, 2>>,
    bfloat16>;

template <class Device>
class layered_cache_on final : public layered_cache {
  static constexpr std::int64_t page = 64;
  using executor_type = typename Device::executor_type;

 public:
  layered_cache_on(layered_cache_shape const& shape, torch::stable::Device device)
      : device_(device),
        sequences_(shape.sequences),
        table_(tessera::divide_up(shape.tokens, page)),
        room_(shape.tokens),
        window_(shape.window),
        reorders_(shape.reorders),
        cache_(Device::executor(device),
               {.slots = shape.sequences * (shape.reorders ? 2 : 1),
                .tokens = shape.tokens,
                .blocks = shape.sequences * table_,
                .heads = shape.heads,
                .channels = shape.channels,
                .window = shape.window},
               {.parts = parts_of(shape)}),
        pool_(0) {
    forget();
  }

  void begin(std::int64_t tokens, std::vector<std::int64_t> const& counts) override {
    constexpr char const* function = "layered_cache.begin";
    check_no_pass(function);
    tessera::check<tessera::shape_error>(tokens >= 0, function, ": a pass has ", tokens,
                                         " tokens but at least 0 are needed");
    tessera::check<tessera::shape_error>(counts.empty() || std::ssize(counts) == sequences_, function, ": there are ",
                                         counts.size(), " counts but ", sequences_, " sequences");
    for (std::int64_t i = 0; i < sequences_; ++i) {
      std::int64_t const count = counts.empty() ? tokens : counts[as_index(i)];
      tessera::check<tessera::shape_error>(count >= 0 && count <= tokens, function, ": sequence ", i, " has ", count,
                                           " tokens of ", tokens);
      tessera::check<tessera::shape_error>(lengths_[as_index(i)] + count <= room_, function, ": sequence ", i,
                                           " would have ", lengths_[as_index(i)] + count, " tokens but has room for ",
                                           room_);
    }
    counts_ = counts.empty() ? std::optional<Tensor>() : numbers(counts);
    for (std::int64_t i = 0; i < sequences_; ++i) {
      lengths_[as_index(i)] += counts.empty() ? tokens : counts[as_index(i)];
    }
    tokens_ = tokens;
    written_ = 0;
    sealed_parts_ = 0;
    auto const& exec = Device::executor(device_);
    add_counts const add{list(after_), counts_list(), static_cast<std::int32_t>(tokens)};
    exec.run(add, add.groups());
  }

  void write(std::int64_t layer, Tensor const& keys, Tensor const& values) override {
    constexpr char const* function = "layered_cache.write";
    check_pass(function, layer);
    auto const& exec = Device::executor(device_);
    auto const at = static_cast<int>(layer);
    auto const k = view_of<bfloat16, 4>(keys, device_, {function, "keys"});
    auto const v = view_of<bfloat16, 4>(values, device_, {function, "values"});
    tessera::check<tessera::shape_error>(k.extent(2) == tokens_ && v.extent(2) == tokens_, function, ": keys have ",
                                         k.extent(2), " tokens and values ", v.extent(2), " but the pass has ",
                                         tokens_);
    settle();
    if (tokens_ <= page) {
      cache_.write(exec, at, k, v, sequences(after_), added());
    } else {
      append(at, keys, values);
    }
    ++written_;
  }

  Tensor attend(std::int64_t layer, Tensor const& queries, double scale) override {
    constexpr char const* function = "layered_cache.attend";
    tessera::check<tessera::value_error>(written_ != none && layer == written_ - 1, function, ": layer ", layer,
                                         " was given but the one that was written last is ", written_ - 1);
    tessera::check<tessera::shape_error>(tokens_ <= page, function, ": a pass has ", tokens_,
                                         " tokens but may have at most ", page);
    auto const& exec = Device::executor(device_);
    auto const asked = view_of<bfloat16, 4>(queries, device_, {function, "queries"});
    auto const plan = cache_.plan_attend(exec, cache_.shape_of(asked, sequences(after_)));
    auto space = scratch(exec, plan);
    Tensor result = empty_as<bfloat16>(queries);
    tessera::attention_outputs<bfloat16> const out{writable<bfloat16, 4>(result)};
    cache_.attend(exec, static_cast<int>(layer), asked, sequences(after_),
                  {.softmax_scale = static_cast<float>(scale), .is_causal = true}, out, tessera::workspace(plan, space),
                  counts_list());
    return result;
  }

  void restore(std::int64_t layer, Tensor const& keys, Tensor const& values) override {
    constexpr char const* function = "layered_cache.restore";
    tessera::check<tessera::value_error>(
        layer >= 0 && layer < cache_.layers() && (written_ == none || layer == written_), function, ": layer ", layer,
        " was given but the next one is ", written_ == none ? 0 : written_, " of ", cache_.layers());
    static_cast<void>(view_of<bfloat16, 4>(keys, device_, {function, "keys"}));
    static_cast<void>(view_of<bfloat16, 4>(values, device_, {function, "values"}));
    cache_.restore(Device::executor(device_), static_cast<int>(layer), sequences(before_), writable<bfloat16, 4>(keys),
                   writable<bfloat16, 4>(values));
  }

  void end() override {
    tessera::check<tessera::value_error>(written_ == cache_.layers(),
                                         "layered_cache.end: ", written_ == none ? 0 : written_,
                                         " layers of a pass were written but there are ", cache_.layers());
    settle();
    auto const& exec = Device::executor(device_);
    cache_.advance(exec, sequences(after_), list(pages_list_), tokens_);
    add_counts const add{list(before_), counts_list(), static_cast<std::int32_t>(tokens_)};
    exec.run(add, add.groups());
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      std::int64_t const most =
          std::min(pages_[i] + tessera::divide_up(std::max(tokens_, std::int64_t{1}), page), table_);
      pages_[i] = std::max(pages_[i], std::min(tessera::sealed_pages(lengths_[i], window_), most));
    }
    written_ = none;
  }

  void crop(std::int64_t tokens) override {
    constexpr char const* function = "layered_cache.crop";
    check_no_pass(function);
    tessera::check<tessera::value_error>(tokens >= 0, function, ": ", tokens,
                                         " tokens are to be removed but at least 0 must be");
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      std::int64_t const open = lengths_[i] - page * pages_[i];
      tessera::check<tessera::value_error>(tokens <= open, function, ": ", tokens, " tokens of sequence ", i,
                                           " are to be removed but only the newest ", open, " are not compressed yet");
    }
    auto const& exec = Device::executor(device_);
    for (Tensor const& of : {before_, after_}) {
      add_counts const add{list(of), {}, static_cast<std::int32_t>(-tokens)};
      exec.run(add, add.groups());
    }
    for (std::int64_t& length : lengths_) {
      length -= tokens;
    }
  }

  void reorder(std::vector<std::int64_t> const& origins) override {
    constexpr char const* function = "layered_cache.reorder";
    check_no_pass(function);
    tessera::check<tessera::value_error>(reorders_, function, ": the option `reorders` of the cache is ", 0,
                                         " but must be ", 1);
    tessera::check<tessera::shape_error>(std::ssize(origins) == sequences_, function, ": there are ", origins.size(),
                                         " origins but ", sequences_, " sequences");
    for (std::int64_t const origin : origins) {
      tessera::check<tessera::value_error>(origin >= 0 && origin < sequences_, function, ": sequence ", origin,
                                           " is none of ", sequences_);
    }
    std::vector<std::int64_t> const from = picked(slots_, origins);
    std::vector<std::int64_t> to(slots_.size());
    std::int64_t const first = slots_.empty() || slots_[0] < sequences_ ? sequences_ : 0;
    std::iota(to.begin(), to.end(), first);
    Tensor const froms = numbers(from);
    Tensor const tos = numbers(to);
    cache_.fork(Device::executor(device_), list(froms), list(tos));
    share_blocks(origins);
    slots_ = to;
    lengths_ = picked(lengths_, origins);
    pages_ = picked(pages_, origins);
    upload();
  }

  void reset() override {
    std::vector<std::int64_t> all(as_index(sequences_ * (reorders_ ? 2 : 1)));
    std::iota(all.begin(), all.end(), 0);
    Tensor const slots = numbers(all);
    cache_.reset(Device::executor(device_), list(slots));
    forget();
  }

  [[nodiscard]] std::vector<std::int64_t> lengths() const override { return lengths_; }

  [[nodiscard]] std::tuple<std::int64_t, std::int64_t, std::int64_t> bytes() const override {
    auto const found = cache_.wait_for_statistics(Device::executor(device_), sequences(before_));
    return {found.used(), found.uncompressed, found.reserved};
  }

 private:
  static std::size_t as_index(std::int64_t i) { return static_cast<std::size_t>(i); }
  static std::vector<std::int64_t> picked(std::vector<std::int64_t> const& from,
                                          std::vector<std::int64_t> const& which) {
    std::vector<std::int64_t> made;
    for (std::int64_t const i : which) {
      made.push_back(from[as_index(i)]);
    }
    return made;
  }
  void check_no_pass(char const* function) const {
    tessera::check<tessera::value_error>(written_ == none, function, ": a pass was begun, and ", written_, " of its ",
                                         cache_.layers(), " layers written, but it has not ended; reset() forgets it");
  }
  void check_pass(char const* function, std::int64_t layer) const {
    tessera::check<tessera::value_error>(written_ != none, function, ": layer ", layer,
                                         " was given before begin(), of ", cache_.layers());
    tessera::check<tessera::value_error>(layer == written_ && layer < cache_.layers(), function, ": layer ", layer,
                                         " was given but the next one is ", written_, " of ", cache_.layers());
  }
  static std::vector<tessera::cache_layers> parts_of(layered_cache_shape const& shape) {
    constexpr char const* function = "layered_cache";
    std::size_t const count = shape.layers.size();
    tessera::check<tessera::shape_error>(shape.sequences >= 1 && shape.tokens >= 1, function, ": there are ",
                                         shape.sequences, " sequences of ", shape.tokens,
                                         " tokens but at least one of each is needed");
    tessera::check<tessera::shape_error>(count >= 1, function, ": there are ", count,
                                         " parts but at least 1 is needed");
    tessera::check<tessera::shape_error>(shape.key_bits.size() == count && shape.value_bits.size() == count, function,
                                         ": there are ", count, " parts but bits of ", shape.key_bits.size(), " and ",
                                         shape.value_bits.size());
    std::vector<tessera::cache_layers> parts;
    for (std::size_t i = 0; i < count; ++i) {
      std::int64_t const layers = shape.layers[i];
      tessera::check<tessera::value_error>(layers == 1 || layers == 2, function, ": a part has ", layers,
                                           " layers but must have 1 or ", 2);
      parts.push_back(layers == 1 ? many_bits_cache::single() : many_bits_cache::pair());
      parts.back().key_bits = static_cast<int>(std::clamp(shape.key_bits[i], std::int64_t{0}, std::int64_t{99}));
      parts.back().value_bits = static_cast<int>(std::clamp(shape.value_bits[i], std::int64_t{0}, std::int64_t{99}));
    }
    return parts;
  }

  /// A list of numbers on the device.
  [[nodiscard]] Tensor numbers(std::vector<std::int64_t> const& from) const {
    return copied(std::vector<std::int32_t>(from.begin(), from.end()), device_);
  }
  [[nodiscard]] tessera::array_view<std::int32_t> list(Tensor const& of) const {
    return {data_of<std::int32_t>(of), of.numel() / static_cast<std::int64_t>(sizeof(std::int32_t))};
  }
  [[nodiscard]] tessera::array_view<std::int32_t const> counts_list() const {
    return counts_ ? tessera::array_view<std::int32_t const>(list(*counts_))
                   : tessera::array_view<std::int32_t const>();
  }
  [[nodiscard]] tessera::cache_tokens added() const { return {.tokens = tokens_, .new_tokens = counts_list()}; }
  [[nodiscard]] tessera::cache_sequences sequences(Tensor const& lengths) const {
    return {.blocks = {data_of<std::int32_t>(blocks_list_), {sequences_, table_}},
            .slots = list(slots_list_),
            .lengths = list(lengths),
            .pages = list(pages_list_),
            .count = sequences_};
  }

  /// Appends more tokens than a tail has room for. A pair's layers are appended together.
  void append(int layer, Tensor const& keys, Tensor const& values) {
    constexpr char const* function = "layered_cache.write";
    int const part = cache_.part_of(layer);
    bool const is_second = cache_.side_of(layer) == 1;
    if (!is_second && cache_.layers_of(part).layers == 2) {
      waiting_ = {keys, values};
      return;
    }
    tessera::cache_inputs<bfloat16> inputs;
    int const side = is_second ? 1 : 0;
    if (is_second) {
      inputs.keys[0] = view_of<bfloat16, 4>(waiting_[0], device_, {function, "keys"});
      inputs.values[0] = view_of<bfloat16, 4>(waiting_[1], device_, {function, "values"});
    }
    inputs.keys[side] = view_of<bfloat16, 4>(keys, device_, {function, "keys"});
    inputs.values[side] = view_of<bfloat16, 4>(values, device_, {function, "values"});
    auto const& exec = Device::executor(device_);
    auto const plan = cache_.plan_append(exec, {sequences_, tokens_});
    auto space = scratch(exec, plan);
    cache_.append(exec, part, inputs, sequences(after_), added(), tessera::workspace(plan, space));
    waiting_.clear();
  }

  /// Seals the pages of parts all of whose layers were written to the tail.
  void settle() {
    int const done = written_ == cache_.layers() ? cache_.parts() : cache_.part_of(written_);
    if (tokens_ > page || sealed_parts_ == done) {
      return;
    }
    auto const& exec = Device::executor(device_);
    auto const plan = cache_.plan_seal(exec, sequences_);
    auto space = scratch(exec, plan);
    for (; sealed_parts_ < done; ++sealed_parts_) {
      cache_.seal(exec, sealed_parts_, sequences(after_), tessera::workspace(plan, space));
    }
  }

  /// Empties the host's lists and copies them to the device.
  void forget() {
    auto const count = as_index(sequences_);
    pool_ = tessera::block_pool(sequences_ * table_);
    blocks_.clear();
    for (std::int64_t i = 0; i < sequences_ * table_; ++i) {
      blocks_.push_back(pool_.take());
    }
    slots_.resize(count);
    std::iota(slots_.begin(), slots_.end(), 0);
    lengths_.assign(count, 0);
    pages_.assign(count, 0);
    written_ = none;
    waiting_.clear();
    counts_.reset();
    upload();
  }
  void upload() {
    blocks_list_ = copied(blocks_, device_);
    slots_list_ = numbers(slots_);
    before_ = numbers(lengths_);
    after_ = numbers(lengths_);
    pages_list_ = numbers(pages_);
  }

  /// Gives sequences the sealed pages of their origins, and blocks of their own for later ones.
  void share_blocks(std::vector<std::int64_t> const& origins) {
    std::vector<std::int32_t> made(blocks_.size(), -1);
    for (std::int64_t i = 0; i < sequences_; ++i) {
      std::int64_t const origin = origins[as_index(i)];
      for (std::int64_t p = 0; p < pages_[as_index(origin)]; ++p) {
        made[as_index(i * table_ + p)] = blocks_[as_index(origin * table_ + p)];
        pool_.share(made[as_index(i * table_ + p)]);
      }
    }
    for (std::int32_t const block : blocks_) {
      pool_.give_back(block);
    }
    for (std::int32_t& block : made) {
      block = block < 0 ? pool_.take() : block;
    }
    blocks_ = std::move(made);
  }

  static constexpr int none = -1;

  torch::stable::Device device_;
  std::int64_t sequences_;
  std::int64_t table_;  ///< pages of a sequence's block table
  std::int64_t room_;   ///< tokens that a sequence has room for
  std::int64_t window_;
  bool reorders_;
  many_bits_cache cache_;
  tessera::block_pool pool_;

  // What the host knows of the sequences, and the same on the device.
  std::vector<std::int32_t> blocks_;
  std::vector<std::int64_t> slots_;
  std::vector<std::int64_t> lengths_;  ///< with the tokens of the pass
  std::vector<std::int64_t> pages_;
  Tensor blocks_list_;
  Tensor slots_list_;
  Tensor before_;  ///< lengths without the tokens of the pass
  Tensor after_;
  Tensor pages_list_;

  // The pass.
  int written_ = none;  ///< layers that were written; none between passes
  int sealed_parts_ = 0;
  std::int64_t tokens_ = 0;
  std::optional<Tensor> counts_;
  std::vector<Tensor> waiting_;  ///< keys and values of the first layer of a pair
};

/// Makes a cache on the device of a tensor, and gives its number.
template <class Device>
std::int64_t make_layered_cache(Tensor on, std::int64_t sequences, std::int64_t tokens, std::int64_t heads,
                                std::int64_t channels, std::int64_t window, std::vector<std::int64_t> layers,
                                std::vector<std::int64_t> key_bits, std::vector<std::int64_t> value_bits,
                                bool reorders) {
  layered_cache_shape const shape{
      sequences, tokens, heads, channels, window, std::move(layers), std::move(key_bits), std::move(value_bits),
      reorders};
  return layered_caches().add(
      std::make_shared<layered_cache_on<Device>>(shape, device_of<Device>(on, {"layered_cache", "elements"})));
}

}  // namespace tessera_torch
