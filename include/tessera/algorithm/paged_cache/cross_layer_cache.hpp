// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `cross_layer_cache`: the keys and values of all layers of a model, compressed to pages except for the newest tokens.
/// Neighbouring layers may share the directions of their keys and values.
///
///     #include <tessera/algorithm/paged_cache/cross_layer_cache.hpp>
///
///     using cache_type = tessera::cross_layer_cache<slerp_merger<float>, retain_most_different,
///                                                   direction_codec<4, 64>>;
///     cache_type cache(exec, extents, {.parts = cache_type::half_merged(32)});
///     auto const append_plan = cache.plan_append(exec, {.sequences = 8, .tokens = n});      // once, as for attend()
///     tessera::workspace const append_space(append_plan, memory);
///
///     // Prefill. `sequences`: block tables, slots and lengths with the new tokens, where the executor runs.
///     cache.append(exec, cache.part_of(layer), {{k0, k1}, {v0, v1}}, sequences, {.tokens = n}, append_space);
///     // A step of decoding, for each layer:
///     cache.write(exec, layer, k, v, sequences, {.tokens = 1});
///     cache.attend(exec, layer, q, sequences, {.is_causal = true}, attention_outputs<bfloat16>{result},
///                  attention_space);
///     // ... and when both layers of a pair have been through:
///     cache.seal(exec, cache.part_of(layer), sequences, append_space);
///     // ... and at the end of prefill or of a step:
///     cache.advance(exec, sequences, pages);
///
/// Errors, costs and when to merge: minicache.hpp. The operations without the class:
/// algorithm/paged_cache/paged_cache.hpp.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <math.h>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/algorithm/attention/attention_types.hpp>
#include <tessera/algorithm/paged_cache/cache_append.hpp>
#include <tessera/algorithm/paged_cache/cache_bytes.hpp>
#include <tessera/algorithm/paged_cache/cache_layout.hpp>
#include <tessera/algorithm/paged_cache/cross_layer_cache_types.hpp>
#include <tessera/algorithm/paged_cache/detail/cache_checks.hpp>
#include <tessera/algorithm/paged_cache/direction_codec.hpp>
#include <tessera/algorithm/paged_cache/paged_cache.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/merger.hpp>
#include <tessera/concepts/page_codec.hpp>
#include <tessera/concepts/refused_call.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/math.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/explain.hpp>
#include <tessera/exec/status_calls.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/merge/no_merger.hpp>
#include <tessera/merge/retain_most_different.hpp>
#include <tessera/merge/slerp.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/cache_slots.hpp>
#include <tessera/view/cache_inputs.hpp>
#include <tessera/view/cache_sequences.hpp>

namespace tessera {
inline namespace v0 {

/// M merges the vectors of a pair of layers, with the state that the options hold. Retention:
/// retain_most_different or retain_most_different_tokens, the rule of pairs for which the caller gives no other. C
/// codes and reads pages: direction_codec, or quantized_codec with any Quantizers. T: bfloat16 or float16.
template <Merger M = slerp_merger<float>, std::derived_from<retain_most_different> Retention = retain_most_different,
          PageCodec C = direction_codec<4, 64>, class T = bfloat16>
class cross_layer_cache {
 public:
  using value_type = T;
  /// How pages are coded.
  using codec_type = C;
  static_assert(sizeof(T) == 2, "tessera: cross_layer_cache holds bfloat16 or float16");

  /// How layers are kept.
  using options_type = cross_layer_cache_options<M, Retention, C>;

  /// A single layer, which is not in a pair.
  [[nodiscard]] static cache_layers single() { return options_type::single(); }
  /// Two neighbouring layers that share directions.
  [[nodiscard]] static cache_layers pair() { return options_type::pair(); }
  /// The paper's choice: the first half of the layers are single, the others pairs; if their number is odd, the first
  /// of them is single, too.
  [[nodiscard]] static std::vector<cache_layers> half_merged(int layers) { return options_type::half_merged(layers); }

  /// The memory that a cache takes.
  template <Executor Exec>
  [[nodiscard]] static workspace_plan plan(Exec const&, cache_extents const& extents,
                                           options_type const& options = {}) {
    return layout_of(extents, options.parts, options.merger, options.codec).plan;
  }

  /// Allocates all memory of the cache from the executor's memory; no other call allocates.
  template <Executor Exec>
  cross_layer_cache(Exec const& exec, cache_extents const& extents, options_type options = {})
      : extents_(extents), merger_(options.merger), codec_(options.codec), parts_(std::move(options.parts)) {
    layout const planned = layout_of(extents_, parts_, merger_, codec_);
    bytes_ = buffer<std::byte>(exec, planned.plan.bytes());
    open(exec, planned, workspace(planned.plan, bytes_.view()));
  }
  /// Makes a cache in the caller's memory: a workspace of plan() with the same extents and options. The memory must
  /// outlive the cache, and nothing else may use it. Nothing is allocated.
  template <Executor Exec>
  cross_layer_cache(Exec const& exec, cache_extents const& extents, options_type options, workspace const& space)
      : extents_(extents), merger_(options.merger), codec_(options.codec), parts_(std::move(options.parts)) {
    layout const planned = layout_of(extents_, parts_, merger_, codec_);
    space.check_room("cross_layer_cache", planned.plan.bytes(), parts_.size(), " parts of ", extents_.slots,
                     " slots and ", extents_.blocks, " blocks");
    check_reach(exec, "cross_layer_cache", "bytes of the workspace", space);
    open(exec, planned, space);
  }

  /// The extents that the cache has room for.
  [[nodiscard]] cache_extents const& extents() const { return extents_; }
  /// The number of layers of the model.
  [[nodiscard]] int layers() const { return static_cast<int>(part_of_.size()); }
  /// The number of parts: pairs of layers, and single layers.
  [[nodiscard]] int parts() const { return static_cast<int>(parts_.size()); }
  /// How the layers of a part are kept.
  [[nodiscard]] cache_layers const& layers_of(int part) const { return parts_[checked("part", part, parts())]; }
  /// The pair that a layer belongs to, or the layer's own part.
  [[nodiscard]] int part_of(int layer) const { return part_of_[checked("layer", layer, layers())]; }
  /// 0 for the first layer of its part, 1 for the second.
  [[nodiscard]] int side_of(int layer) const { return layer > 0 && part_of(layer) == part_of_[as_index(layer - 1)]; }
  /// Which programs append pages to a part and attend to them with one query of each key head, as explain()
  /// (exec/explain.hpp) would.
  template <Executor Exec>
  [[nodiscard]] explanation programs_of(Exec const& exec, int part) const {
    std::int64_t const heads = extents_.heads;
    std::int64_t const page = cache_page_format::tokens;
    cache_sequences const one{{nullptr, {1, 1}}, {}, {}, {}, 1};
    return explain(exec, [&, this](auto const& dry) {
      enqueue_append(dry, part, {memory(part), {}, one, page, 1, {}, nullptr}, {nullptr, {1, 1, heads, 2, page}},
                     {nullptr, {1, 1, heads}});
      head_view<T const> const queries(nullptr, {1, heads, 1, extents_.channels});
      run(dry, cached_attention_call<T, T, C>{
                   shape_of(queries, one), memory(part), one, 0, queries, 1.0F, true, {}, {}, {}, nullptr, codec_});
    });
  }
  /// The codec that writes and reads the pages.
  [[nodiscard]] C const& codec() const { return codec_; }
  /// The memory of a part, for programs; the codec has the bytes of its pages.
  [[nodiscard]] cache_memory<T> const& memory(int part) const { return memory_[checked("part", part, parts())]; }

  /// The workspace of append().
  template <Executor Exec>
  [[nodiscard]] workspace_plan plan_append(Exec const&, cache_append_shape const& shape) const {
    return regions("cross_layer_cache.append", shape.sequences, shape.tokens).plan;
  }
  /// The workspace of seal() for so many sequences.
  template <Executor Exec>
  [[nodiscard]] workspace_plan plan_seal(Exec const&, std::int64_t sequences) const {
    return regions("cross_layer_cache.seal", sequences, 0).plan;
  }
  /// The workspace of attend() for queries of this shape. No option changes it.
  template <Executor Exec>
  [[nodiscard]] workspace_plan plan_attend(Exec const&, attention_shape const& shape,
                                           attention_options const& /*options*/ = {}) const {
    detail::check_equal_channels("cross_layer_cache.attend", shape);
    return cached_attention_regions("cross_layer_cache.attend", shape).plan;
  }

  /// Enqueues the compression of new tokens of all layers of a part; tokens that are not sealed yet go to the tail.
  template <Executor Exec>
  void append(Exec const& exec, int part, cache_inputs<T> const& inputs, cache_sequences const& sequences,
              cache_tokens const& added, workspace const& space) const {
    constexpr char const* where = "cross_layer_cache.append";
    detail::check_cache_sequences(exec, where, extents_, sequences);
    for (int layer = 0; layer < layers_of(part).layers; ++layer) {
      detail::check_cache_heads(where, "keys", extents_, inputs.keys[layer], sequences, added.tokens);
      detail::check_cache_heads(where, "values", extents_, inputs.values[layer], sequences, added.tokens);
      check_reach(exec, where, "keys", inputs.keys[layer], "values", inputs.values[layer]);
    }
    run_append(exec, where, part, inputs, sequences, added, space);
  }

  /// Enqueues the copy of new tokens of one layer to the tail: at most 64 of a sequence before the next seal().
  template <Executor Exec>
  void write(Exec const& exec, int layer, head_view<T const> keys, head_view<T const> values,
             cache_sequences const& sequences, cache_tokens const& added) const {
    constexpr char const* where = "cross_layer_cache.write";
    detail::check_cache_sequences(exec, where, extents_, sequences);
    check<shape_error>(added.tokens <= cache_page_format::tokens, where, ": there are ", added.tokens,
                       " new tokens but the tail has room for ", cache_page_format::tokens);
    detail::check_cache_heads(where, "keys", extents_, keys, sequences, added.tokens);
    detail::check_cache_heads(where, "values", extents_, values, sequences, added.tokens);
    detail::check_sequence_list(where, "counts of new tokens", added.new_tokens, sequences.size());
    check_reach(exec, where, "keys", keys, "values", values, "counts of new tokens", added.new_tokens);
    cache_inputs<T> inputs;
    inputs.keys[side_of(layer)] = keys;
    inputs.values[side_of(layer)] = values;
    keep_tail<T> const keep{{memory(part_of(layer)), inputs, sequences, added.tokens, 0, added.new_tokens,
                             status_of(exec, {where, "sequence"})},
                            false};
    exec.run(keep, keep.groups());
  }

  /// Enqueues the compression of pages that are complete in the tail, of all layers of a part.
  template <Executor Exec>
  void seal(Exec const& exec, int part, cache_sequences const& sequences, workspace const& space) const {
    constexpr char const* where = "cross_layer_cache.seal";
    detail::check_cache_sequences(exec, where, extents_, sequences);
    check<value_error>(sequences.pages.data != nullptr, where, ": the counts of sealed pages are null");
    run_append(exec, where, part, {}, sequences, {}, space);
  }

  /// Enqueues the counting of pages that all layers have sealed. `pages` holds the counts of the sequences.
  template <Executor Exec>
  void advance(Exec const& exec, cache_sequences const& sequences, array_view<std::int32_t> pages,
               std::int64_t tokens = 1) const {
    constexpr char const* where = "cross_layer_cache.advance";
    detail::check_cache_sequences(exec, where, extents_, sequences);
    check_memory(where, "counts of pages", pages);
    check<shape_error>(pages.size() >= sequences.size(), where, ": there are ", pages.size(), " counts of pages but ",
                       sequences.size(), " sequences");
    check_reach(exec, where, "counts of pages", pages);
    advance_pages const program{sequences, extents_.window,
                                divide_up(max(tokens, std::int64_t{1}), std::int64_t{cache_page_format::tokens}), pages,
                                status_of(exec, {where, "sequence"})};
    exec.run(program, program.groups());
  }

  /// Enqueues attention of queries over a layer. Options: softmax_scale and is_causal.
  template <Executor Exec, class Result = T>
  void attend(Exec const& exec, int layer, head_view<T const> queries, cache_sequences const& sequences,
              attention_options const& options, attention_outputs<Result> const& out, workspace const& space,
              sequence_lengths query_lengths = {}) const {
    constexpr char const* where = "cross_layer_cache.attend";
    detail::check_cache_sequences(exec, where, extents_, sequences);
    attention_shape const shape = shape_of(queries, sequences);
    detail::check_cached_attention(where, shape, queries, options, out);
    detail::check_sequence_list(where, "lengths of queries", query_lengths, sequences.size());
    check_reach(exec, where, "queries", queries, "results", out.result, "log-sum-exps", out.log_sum_exp,
                "lengths of queries", query_lengths, "bytes of the workspace", space);
    double const plain = 1.0 / ::sqrt(static_cast<double>(extents_.channels));
    cached_attention_call<T, Result, C> call{
        shape,
        memory(part_of(layer)),
        sequences,
        side_of(layer),
        queries,
        options.softmax_scale > 0 ? options.softmax_scale : static_cast<float>(plain),
        options.is_causal,
        out};
    cached_attention_regions const planned(where, shape);
    space.check_room(where, planned.plan.bytes(), shape.batch, " sequences of ", shape.query_heads, " heads and ",
                     shape.queries, " queries");
    call.partials = planned.partials(space);
    call.query_lengths = query_lengths;
    call.status = status_of(exec, {where, "sequence"});
    call.codec = codec_;
    run(exec, call);
  }
  /// Refuses calls of attend() with arguments that it does not take, and says at compile time what it takes.
  template <class Exec, class Queries = head_view<T const>, class Sequences = cache_sequences,
            class Options = attention_options, class Out = anything, class... More>
  requires(!(IsFirst<head_view<T const>, Queries> && IsFirst<cache_sequences, Sequences> &&
             IsFirst<attention_options, Options> && MadeOrBraces<Out, attention_outputs> &&
             IsFirst<workspace, More...>)) void attend(Exec const&, int, Queries const&, Sequences const&,
                                                       Options const&, Out const&, More const&...) const {
    refuse_attend<Queries>();
  }
  /// Refuses calls of attend() that give outputs before options, and says at compile time what it takes.
  template <class Exec, class Queries = head_view<T const>, class Sequences = cache_sequences,
            class Out = attention_outputs<T>, class... More>
  requires Made<Out, attention_outputs>
  void attend(Exec const&, int, Queries const&, Sequences const&, Out const&, attention_options const&,
              More const&...) const {
    refuse_attend<Queries>();
  }
  /// Refuses calls of attend() with other types in braces, and says at compile time what it takes.
  template <class... None>
  void attend(anything, anything, anything, anything, attention_options const&, anything, anything,
              anything = {}) const {
    refuse_attend<None...>();
  }

  /// The shape of attention of such queries, for plan_attend().
  [[nodiscard]] attention_shape shape_of(head_view<T const> queries, cache_sequences const& sequences) const {
    return {sequences.size(),
            queries.extent(1),
            extents_.heads,
            queries.extent(2),
            min(extents_.tokens, sequences.blocks.extent(1) * cache_page_format::tokens + tail_tokens()),
            extents_.channels};
  }

  /// Enqueues the restoring of a layer's keys and values, as the cache holds them, to `keys` and `values`.
  template <Executor Exec, class Result>
  void restore(Exec const& exec, int layer, cache_sequences const& sequences, head_view<Result> keys,
               head_view<Result> values) const {
    constexpr char const* where = "cross_layer_cache.restore";
    detail::check_cache_sequences(exec, where, extents_, sequences);
    detail::check_cache_heads(where, "keys", extents_, keys, sequences, keys.extent(2));
    detail::check_cache_heads(where, "values", extents_, values, sequences, keys.extent(2));
    check_reach(exec, where, "keys", keys, "values", values);
    run(exec, cache_restore_call<T, Result, shared_codec_t<C>>{memory(part_of(layer)), sequences, side_of(layer), keys,
                                                               values, status_of(exec, {where, "sequence"}),
                                                               codec_.shared()});
  }

  /// Enqueues the preparation of slots for new sequences. It changes no other sequence, not even forks of these slots'
  /// sequences.
  template <Executor Exec>
  void reset(Exec const& exec, array_view<std::int32_t const> slots) const {
    check_memory("cross_layer_cache.reset", "slots", slots);
    check_reach(exec, "cross_layer_cache.reset", "slots", slots);
    for (cache_memory<T> const& of : memory_) {
      reset_slots<T> const program{of, slots, slots.size(), status_of(exec, {"cross_layer_cache.reset", "index"})};
      exec.run(program, program.groups());
    }
  }

  /// Enqueues a fork: the sequences in the slots `to` continue those in `from`, whose tails, retained tokens and
  /// thresholds are copied. The block tables of a fork hold the same sealed pages as its origin's, or the first of
  /// them. A fork shares nothing else with its origin, so that either sequence can end, and its slot be used again,
  /// while the other one continues. A slot in `to` must not be in any other pair of slots.
  template <Executor Exec>
  void fork(Exec const& exec, array_view<std::int32_t const> from, array_view<std::int32_t const> to) const {
    check<shape_error>(from.size() == to.size(), "cross_layer_cache.fork: there are ", from.size(),
                       " slots to go on from but ", to.size(), " to go on in");
    check_memory("cross_layer_cache.fork", "slots to go on from", from);
    check_memory("cross_layer_cache.fork", "slots to go on in", to);
    check_reach(exec, "cross_layer_cache.fork", "slots to go on from", from, "slots to go on in", to);
    for (cache_memory<T> const& of : memory_) {
      fork_slots<T> const program{of, from, to, status_of(exec, {"cross_layer_cache.fork", "pair"})};
      exec.run(program, program.groups());
    }
  }

  /// Waits for enqueued work, and counts the bytes that the sequences use; a page that several sequences share counts
  /// once.
  template <Executor Exec>
  [[nodiscard]] cache_bytes wait_for_statistics(Exec const& exec, cache_sequences const& sequences) const {
    detail::check_cache_sequences("cross_layer_cache.wait_for_statistics", extents_, sequences);
    cache_bytes found = count_cache_bytes(exec, extents_, memory_, sequences, codec_);
    found.reserved = reserved_;
    return found;
  }

 private:
  template <class... Given>
  static void refuse_attend() {
    static_assert(never<Given...>,
                  "tessera: cross_layer_cache.attend takes an executor, the layer, queries, cache_sequences, "
                  "attention_options, attention_outputs<Result>, a workspace of plan_attend(), and perhaps lengths; "
                  "in braces without a type Result is what queries are");
  }
  using layout = cache_layout<T, C>;
  /// Throws for impossible extents, parts and options of the merger, and for pairs if the merger merges none.
  [[nodiscard]] static layout layout_of(cache_extents const& extents, std::vector<cache_layers> const& parts,
                                        M const& merger, C const& codec) {
    if constexpr (requires { merger.check_options("cross_layer_cache"); }) {
      merger.check_options("cross_layer_cache");
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      check<value_error>(merges_pairs<M> || parts[i].layers == 1, "cross_layer_cache: part ", i, " has ",
                         parts[i].layers, " layers but parts of this merger, which merges no pairs, must have ", 1);
    }
    return {extents, parts, codec};
  }
  /// Makes views of all parts, and enqueues making slots ready.
  template <Executor Exec>
  void open(Exec const& exec, layout const& planned, workspace const& space) {
    reserved_ = planned.plan.bytes();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      memory_.push_back(planned.memory(i, extents_, space));
      for (int layer = 0; layer < parts_[i].layers; ++layer) {
        part_of_.push_back(static_cast<int>(i));
      }
    }
    for (cache_memory<T> const& of : memory_) {
      reset_slots<T> const program{of, {}, extents_.slots, status_of(exec, {"cross_layer_cache", "slot"})};
      exec.run(program, program.groups());
    }
  }

  [[nodiscard]] static std::size_t as_index(int i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] static std::size_t checked(char const* what, int i, int count) {
    check<value_error>(i >= 0 && i < count, "cross_layer_cache: ", what, " ", i, " is none of ", count);
    return as_index(i);
  }
  [[nodiscard]] std::int64_t tail_tokens() const { return extents_.window + 2 * cache_page_format::tokens; }
  [[nodiscard]] cache_append_regions regions(char const* where, std::int64_t sequences, std::int64_t tokens) const {
    return {where, sequences, max(tokens, std::int64_t{1}), extents_.heads};
  }

  template <Executor Exec>
  void run_append(Exec const& exec, char const* where, int part, cache_inputs<T> const& inputs,
                  cache_sequences const& sequences, cache_tokens const& added, workspace const& space) const {
    cache_append_regions const planned = regions(where, sequences.size(), added.tokens);
    space.check_room(where, planned.plan.bytes(), sequences.size(), " sequences of ", added.tokens, " new tokens");
    detail::check_sequence_list(where, "counts of new tokens", added.new_tokens, sequences.size());
    check_reach(exec, where, "counts of new tokens", added.new_tokens, "bytes of the workspace", space);
    enqueue_append(exec, part,
                   {memory(part), inputs, sequences, added.tokens, planned.pages, added.new_tokens,
                    status_of(exec, {where, "sequence"})},
                   planned.rows_in(space), planned.marks_in(space));
  }
  template <Executor Exec>
  void enqueue_append(Exec const& exec, int part, cache_source<T> const& source, view<merged_row, 5> rows,
                      view<page_mark, 3> marks) const {
    cache_layers const& as = layers_of(part);
    auto const append_by = [&, this](auto const& merger) {
      run(exec, cache_append_call<std::remove_cvref_t<decltype(merger)>, T, C>{merger, as.retention, as.whole_tokens,
                                                                               source, rows, marks, codec_});
    };
    if constexpr (!keeps_single_vectors<M>) {
      if (as.layers == 1) {
        append_by(no_merger{});
        return;
      }
    }
    append_by(merger_);
  }

  cache_extents extents_;
  M merger_;
  C codec_;
  std::vector<cache_layers> parts_;
  std::vector<cache_memory<T>> memory_;
  std::vector<int> part_of_;
  std::int64_t reserved_ = 0;
  buffer<std::byte> bytes_;
};

}  // namespace v0
}  // namespace tessera
