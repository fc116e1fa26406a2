// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The quantization of attention's queries, keys and values: `quantized_regions` says where codes and scales lie in a
/// workspace, `run(exec, quantize_call)` makes them.
///
/// Format: program/attention/quantized_operands.hpp. Means of keys and values are taken over their own sequence, all of
/// its tokens or a sample: see quantize/smoothed.hpp and sampled_range.hpp. Means of keys are means of middles
/// (program/attention/channel_statistics.hpp), which outliers do not move; those of queries are rounded to their type.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/attention/attention_types.hpp>
#include <tessera/algorithm/attention/quantized_regions.hpp>
#include <tessera/concepts/attention_quantizer.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/map/as_stored.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/channel_statistics.hpp>
#include <tessera/program/attention/head_source.hpp>
#include <tessera/program/attention/quantize_heads.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/smoothing_terms.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>

namespace tessera {
inline namespace v0 {

/// A caller's own functions: a bias added to scores (map/no_bias.hpp), and functions through which queries and keys are
/// read, such as a rotary embedding or a norm (map/as_stored.hpp).
template <class Bias = no_bias, class Queries = as_stored, class Keys = as_stored>
struct attention_functions {
  /// The function that gives what is added to scores.
  using bias_type = Bias;

  Bias bias = {};        ///< function of a sequence, head, query and key
  Queries queries = {};  ///< function through which queries are read
  Keys keys = {};        ///< function through which keys are read

  /// Those through which operands are read, so that their codes are made by one program whatever the bias is.
  [[nodiscard]] attention_functions<no_bias, Queries, Keys> of_reading() const { return {{}, queries, keys}; }
};

/// A call that quantizes the inputs that are not null. Queries need the mean of keys if keys are smoothed, and the keys
/// or their codes if queries are smoothed. Functions: attention_functions, whose bias does not matter.
template <class Method, class T, class Functions = attention_functions<>>
struct quantize_call {
  /// How operands are coded.
  using method = Method;
  using value_type = T;
  static constexpr char const* function = "attention.quantize";
  /// Whether queries and keys are read as they are; a bias makes no difference.
  static constexpr bool has_plain_inputs =
      std::is_same_v<decltype(Functions::queries), decltype(attention_functions<>::queries)> &&
      std::is_same_v<decltype(Functions::keys), decltype(attention_functions<>::keys)>;

  attention_shape shape;                        ///< extents of the operands
  float softmax_scale;                          ///< the softmax's scale, which goes into the scales of queries
  attention_inputs<T> in;                       ///< what is quantized; inputs that are null are not
  quantized_heads<Method> out;                  ///< where codes, scales and means go
  quantization_regions<Method> const& regions;  ///< regions of the workspace
  workspace const& space;                       ///< the workspace of these regions
  Functions functions = {};                     ///< functions through which queries and keys are read
  /// How many keys after its own a query sees; -1: all. Scores of mean queries and keys beyond may stay unwritten.
  std::int64_t keys_behind = -1;

  /// This call with functions that read queries and keys as they are stored.
  [[nodiscard]] quantize_call<Method, T> without_functions() const {
    static_assert(has_plain_inputs);
    return {shape, softmax_scale, in, out, regions, space, {}, keys_behind};
  }
  /// The queries, read through the caller's function.
  [[nodiscard]] auto queries() const {
    using map = decltype(functions.queries);
    return head_source<T, map>{{in.queries, in.query_lengths, in.query_starts}, functions.queries};
  }
  /// The keys, read through the caller's function.
  [[nodiscard]] auto keys() const {
    using map = decltype(functions.keys);
    return head_source<T, map>{{in.keys, in.key_lengths, in.key_starts}, functions.keys};
  }
  /// The values.
  [[nodiscard]] auto values() const { return head_source<T>{{in.values, in.key_lengths, in.key_starts}}; }
};

namespace detail {

inline constexpr float log2_of_e = 1.4426950408889634F;

/// A view of one mean for each head, as a view of rank 4 that has a list of means for each head.
template <class T>
view<T, 4> as_only_mean(view<T, 3> means) {
  return {means.data,
          {means.extent(0), means.extent(1), 1, means.extent(2)},
          {means.stride(0), means.stride(1), 0, means.stride(2)}};
}

/// Enqueues the summaries of blocks of tokens and returns them; `memory` may be larger than they are.
template <Executor Exec, class Source>
view<channel_summary, 4> summarize_blocks(Exec const& exec, Source const& source, std::int64_t block,
                                          array_view<channel_summary> memory, bool is_of_middle = false) {
  std::int64_t const blocks = divide_up(source.tokens(), block);
  auto const summaries = view_of(memory, {source.batch(), source.heads(), blocks, source.channels()});
  summarize_heads<Source> const program{source, summaries, block, is_of_middle};
  exec.run(program, program.groups());
  return summaries;
}

/// Enqueues summaries and then `finish`, a finish_summaries, whose inputs it fills in.
template <Executor Exec, class Source, class Finish>
void summarize(Exec const& exec, Source const& source, Finish finish, array_view<channel_summary> memory) {
  auto const summaries_of = [&](auto const& tokens) {
    return summarize_blocks(exec, tokens, finish.block, memory, finish.is_of_middle);
  };
  finish.summaries = finish.sample.longest_step == 1 ? summaries_of(source)
                                                     : summaries_of(sampled_heads<Source>{source, finish.sample});
  finish.lengths = source.stored.lengths;
  finish.tokens = source.tokens();
  exec.run(finish, finish.groups());
}

template <ScoreQuantizer Q, TokenGroups Groups, Executor Exec, class Source>
void encode(Exec const& exec, smoothed_heads<Source> const& source, array_view<std::uint32_t> magnitudes, float factor,
            head_view<stored_code<Q>> codes, view<float, 3> scales) {
  auto const of_heads = view_of(magnitudes, {codes.extent(0), codes.extent(1)});
  if constexpr (Groups::is_whole) {
    measure_heads<Source> const measure{source, of_heads};
    exec.run(measure, measure.groups());
  }
  encode_tokens<Q, Groups, Source> const program{source, of_heads, factor, codes, scales};
  exec.run(program, program.groups());
}

/// The keys, minus their mean if they are smoothed.
template <class Call>
auto smoothed_keys(Call const& call) {
  constexpr bool is_smooth = quantized_regions<typename Call::method>::smooths_keys;
  auto const means = is_smooth ? as_only_mean(call.out.keys.mean) : view<float, 4>{};
  auto const source = call.keys();
  return smoothed_heads<std::remove_const_t<decltype(source)>>{source, means, max(call.shape.keys, std::int64_t{1})};
}

template <Executor Exec, class Call>
void quantize_keys(Exec const& exec, Call const& call) {
  using method = typename Call::method;
  if constexpr (quantized_regions<method>::smooths_keys) {
    std::int64_t const blocks = max(divide_up(call.shape.keys, attention_padding), std::int64_t{1});
    finish_summaries<> finish{{}, {}, 0, attention_padding, blocks, as_only_mean(call.out.keys.mean), {}, 0.0F, 1};
    finish.sample = quantized_regions<method>::key_sample;
    finish.is_of_middle = true;
    summarize(exec, call.keys(), finish, call.space[call.regions.key_summaries]);
  }
  std::int64_t const before = call.shape.batch * call.shape.query_heads;
  auto const magnitudes = call.space[call.regions.magnitudes];
  encode<typename method::score_quantizer, typename method::key_groups>(
      exec, smoothed_keys(call), magnitudes.slice(0, before, magnitudes.size() - before), 1.0F, call.out.keys.codes,
      call.out.keys.scales);
}

template <Executor Exec, class Call>
void quantize_values(Exec const& exec, Call const& call) {
  using pv = typename Call::method::value_quantizer;
  using regions = quantized_regions<typename Call::method>;
  auto const& out = call.out.values;
  std::int64_t const blocks = max(divide_up(call.shape.keys, attention_padding), std::int64_t{1});
  auto const means = regions::smooths_values ? as_only_mean(out.mean) : view<float, 4>{};
  auto const source = call.values();
  auto const memory = call.space[call.regions.value_summaries];
  float const highest = static_cast<float>(pv::highest);
  finish_summaries<> finish{{}, {}, 0, attention_padding, blocks, means, as_only_mean(out.scales), highest, 1};
  if constexpr (regions::samples_values) {
    finish.sample = regions::value_sample;
    finish.room = pv::room;
  }
  summarize(exec, source, finish, memory);
  if constexpr (regions::samples_values) {
    settle_scales<pv> const settle{summarize_blocks(exec, source, attention_padding, memory),
                                   regions::smooths_values ? out.mean : view<float, 3>{},
                                   source.stored.lengths,
                                   source.tokens(),
                                   regions::value_sample,
                                   out.scales};
    exec.run(settle, settle.groups());
  }
  using source_type = std::remove_const_t<decltype(source)>;
  encode_values<pv, source_type> const program{
      {source, means, max(call.shape.keys, std::int64_t{1})}, out.scales, out.codes};
  exec.run(program, program.groups());
}

/// Enqueues the scores of mean queries, against the keys or, where these were quantized before, against their codes.
template <Executor Exec, class Call>
void correct_queries(Exec const& exec, Call const& call, view<float, 4> query_means, float factor) {
  auto const run = [&](auto const& keys) {
    using source_type = std::remove_cvref_t<decltype(keys.source)>;
    query_corrections<source_type, std::remove_cvref_t<decltype(call.out.queries)>> const program{
        query_means, keys, factor, call.out.queries};
    exec.run(program, program.groups());
  };
  if (call.in.keys.data != nullptr) {
    run(smoothed_keys(call));
  } else {
    using method = typename Call::method;
    using source = decoded_keys<typename method::score_code, typename method::key_groups>;
    run(smoothed_heads<source>{{call.out.keys, call.in.key_lengths, call.shape.keys}, {}, 1});
  }
}

template <Executor Exec, class Call>
void quantize_queries(Exec const& exec, Call const& call) {
  using method = typename Call::method;
  auto const& out = call.out.queries;
  float const factor = call.softmax_scale * log2_of_e;
  auto const source = call.queries();
  using source_type = std::remove_const_t<decltype(source)>;
  view<float, 4> means;
  if constexpr (quantized_regions<method>::smooths_queries) {
    finish_summaries<typename Call::value_type> finish{
        {}, {}, 0, block_mean::part, block_mean::tokens / block_mean::part, {}, {}, 0.0F, 0};
    finish.means_a_head = call.regions.query_blocks();
    finish.means = means = view_of(call.space[call.regions.query_means], {call.shape.batch, call.shape.query_heads,
                                                                          finish.means_a_head, call.shape.channels});
    summarize(exec, source, finish, call.space[call.regions.query_summaries]);
    correct_queries(exec, call, means, factor);
  }
  encode<typename method::score_quantizer, typename method::query_groups>(
      exec, smoothed_heads<source_type>{source, means, block_mean::tokens}, call.space[call.regions.magnitudes], factor,
      out.codes, out.scales);
  if (out.mean_scores.data != nullptr) {
    mean_scores<source_type> const scores{source, call.out.keys.mean, call.softmax_scale, out.mean_scores};
    exec.run(scores, scores.groups());
  }
}

}  // namespace detail

/// Enqueues the quantization of a call's inputs by the portable programs; run() (exec/run.hpp) may have faster ones.
template <Executor Exec, class Method, class T, class Functions>
void run_portably(Exec const& exec, quantize_call<Method, T, Functions> const& call) {
  if (call.in.keys.data != nullptr && call.out.keys.codes.data != nullptr) {
    detail::quantize_keys(exec, call);
  }
  if (call.in.values.data != nullptr && call.out.values.codes.data != nullptr) {
    detail::quantize_values(exec, call);
  }
  if (call.in.queries.data != nullptr && call.out.queries.codes.data != nullptr) {
    detail::quantize_queries(exec, call);
  }
}

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/algorithm/attention/quantized_attention.cuh>
#endif
