// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Quantized attention on CUDA devices.
///
/// Include it and call attention as on the CPU, with a tessera::cuda executor. Nothing waits or allocates.
///
/// Codes, where queries and keys have 8 or 4 bits per_thread, queries are not smoothed, values are e4m3, and inputs are
/// bfloat16 or float16 of 64 or 128 channels that lie next to each other in rows that begin at multiples of 16 bytes:
/// one launch for all (program/quantize_heads.cuh). Attention, on sm_90a, over such codes of any number of channels, to
/// bfloat16 or float16, without a bias, sinks, lists of tiles or lengths: by warpgroups and the copy engine
/// (program/attention_on_warpgroups.cuh), in a program of 64, 128 or 256 channels, the next that is large enough: 80
/// channels take as long as 128. Keys of the last blocks of queries, or of all if they are few, are shared among
/// multiprocessors, so that all of them have something to do until the end. Its log-sum-exps are of weights that are
/// rounded to e4m3, by which results are divided: the right ones to merge results by. They are within 0.061
/// (log(17 / 16)) of those of the portable program, and usually within 0.03 / sqrt(keys that matter). Sequences of up
/// to 16 queries, on sm_90, over such codes, without a bias or lists of tiles: with one read of keys and values for all
/// query heads that share them (program/attention_of_few_queries.cuh). Else the portable programs with mma.sync.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <type_traits>

#include <tessera/algorithm/attention.hpp>
#include <tessera/core/arch.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/program/attention_of_few_queries.cuh>
#include <tessera/program/attention_on_warpgroups.cuh>
#include <tessera/program/encode_tiles.cuh>
#include <tessera/program/finish_tiles.cuh>
#include <tessera/program/summarize_tiles.cuh>
#include <tessera/quantize/granularity.hpp>
#include <tessera/tile/cuda/gemm_tile.cuh>
#include <tessera/tuning/attention.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Whether codes and scales of a method are those that the programs for CUDA make and read.
template <class Method>
inline constexpr bool has_lane_scales =
    std::is_same_v<typename Method::score_quantizer::granularity_type, std::remove_cvref_t<decltype(per_thread)>>&&
        std::is_same_v<typename Method::value_code, float8_e4m3> &&
    !quantized_regions<Method>::smooths_queries;

template <class T>
inline constexpr bool has_16_bits = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

inline constexpr std::int64_t most_rows = 0x7fffffff - 4096;  // places of rows of codes are 32-bit

/// Whether rows begin at multiples of 16 bytes and their elements lie next to each other. So do those of nothing.
template <class T>
bool has_whole_vectors(head_view<T> heads) {
  if (heads.data == nullptr) {
    return true;
  }
  bool is_whole = heads.stride(3) == 1 && reinterpret_cast<std::uintptr_t>(heads.data) % 16 == 0;
  for (int dimension = 0; dimension < 3; ++dimension) {
    const std::int64_t bytes = heads.stride(dimension) * static_cast<std::int64_t>(sizeof(T));
    is_whole = is_whole && (heads.extent(dimension) < 2 || bytes % 16 == 0);
  }
  return is_whole;
}

inline bool is_aligned(void const* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

// Codes.

template <class Method, class T>
bool suits_quantize_heads(quantize_call<Method, T> const& call) {
  attention_shape const& s = call.shape;
  const std::int64_t queries = s.batch * s.query_heads * padded_tokens(s.queries);
  const std::int64_t keys = s.batch * s.key_heads * padded_tokens(s.keys);
  auto const& out = call.out;
  const bool has_places = is_aligned(out.queries.codes.data) && is_aligned(out.keys.codes.data) &&
                          is_aligned(out.keys.mean.data) && is_aligned(out.values.codes.data) &&
                          is_aligned(out.values.mean.data);
  const bool has_strides = call.in.query_starts.first.data == nullptr && call.in.key_starts.first.data == nullptr;
  return s.channels % 8 == 0 && s.channels <= 256 && has_places && has_strides && s.keys > 0 && s.batch > 0 && queries < most_rows && keys < most_rows &&
         has_whole_vectors(call.in.queries) && has_whole_vectors(call.in.keys) && has_whole_vectors(call.in.values);
}

inline long tq_knob(char const* name, long otherwise) {
  char const* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atol(text);
}

template <int Channels, class Architectures, class Method, class T>
void run_quantize_heads(basic_cuda<Architectures> const& exec, quantize_call<Method, T> const& call) {
  using regions = quantized_regions<Method>;
  constexpr quantized_means means{regions::smooths_keys, regions::smooths_values};
  attention_shape const& s = call.shape;
  auto const& out = call.out;
  const auto tiles_of = [](std::int64_t tokens) { return static_cast<std::int32_t>(padded_tokens(tokens) / 128); };
  const auto wanted = [](auto const& from, auto const& lengths, void const* to) {
    return from.data != nullptr && to != nullptr ? tiled_heads<T>(from, lengths) : tiled_heads<T>{};
  };
  const auto queries = wanted(call.in.queries, call.in.query_lengths, out.queries.codes.data);
  const auto keys = wanted(call.in.keys, call.in.key_lengths, out.keys.codes.data);
  const auto values = wanted(call.in.values, call.in.key_lengths, out.values.codes.data);
  const auto heads = static_cast<std::int32_t>(s.batch * s.key_heads);
  auto* const of_keys = reinterpret_cast<float*>(call.space[call.places.key_summaries].data);
  auto* const of_values = reinterpret_cast<float*>(call.space[call.places.value_summaries].data);
  const std::int64_t plane = std::int64_t{heads} * tiles_of(s.keys) * s.channels;
  const tile_summaries summaries{of_keys, of_values, of_values + plane, of_values + 2 * plane};
  float* const reciprocals = call.space[call.places.value_reciprocals].data;

  summarize_tiles<T, Channels, means> first{};
  first.keys = means.of_keys ? keys : tiled_heads<T>{};
  first.values = values;
  first.summaries = summaries;
  first.tiles = divisor(tiles_of(s.keys));
  first.channels = static_cast<std::int32_t>(s.channels);
  first.keeping = static_cast<l2_keeping>(tq_knob("TQ_S", 1));
  finish_tiles<T, means> second{};
  second.keys = first.keys;
  second.values = values;
  second.summaries = summaries;
  second.tiles = tiles_of(s.keys);
  second.channels = first.channels;
  second.pieces = divisor(static_cast<std::int32_t>(divide_up(s.channels, std::int64_t{32})));
  second.key_mean = out.keys.mean.data;
  second.value_mean = out.values.mean.data;
  second.value_scales = out.values.scales.data;
  second.value_reciprocals = reciprocals;
  encode_tiles<T, Channels, Method::score_quantizer::highest, means> third{};
  third.next = first;
  third.queries = queries;
  third.keys = keys;
  third.values = values;
  third.query_tiles = divisor(tiles_of(s.queries));
  third.key_tiles = first.tiles;
  third.group_heads = divisor(static_cast<std::int32_t>(s.query_heads / s.key_heads));
  third.channels = first.channels;
  third.factor = call.softmax_scale * log2_of_e;
  third.softmax_scale = call.softmax_scale;
  third.query_codes = out.queries.codes.data;
  third.query_scales = out.queries.scales.data;
  third.mean_scores = means.of_keys ? out.queries.mean_scores.data : nullptr;
  third.key_codes = out.keys.codes.data;
  third.key_scales = out.keys.scales.data;
  third.key_mean = out.keys.mean.data;
  third.value_codes = out.values.codes.data;
  third.value_mean = out.values.mean.data;
  third.value_reciprocals = reciprocals;
  third.keeping_queries = static_cast<l2_keeping>(tq_knob("TQ_Q", 0));
  third.keeping_keys = static_cast<l2_keeping>(tq_knob("TQ_K", 0));
  third.keeping_codes = static_cast<l2_keeping>(tq_knob("TQ_C", 1));

  const long chunk_bytes = tq_knob("TQ_CHUNK", 0);
  const std::int64_t head_bytes = 4 * s.keys * s.channels;
  const auto chunk = static_cast<std::int32_t>(
      chunk_bytes == 0 ? heads : clamp(chunk_bytes * 1024 / head_bytes, std::int64_t{1}, std::int64_t{heads}));
  const std::int32_t query_tiles =
      queries.heads.data == nullptr ? 0 : static_cast<std::int32_t>(s.batch * s.query_heads) * tiles_of(s.queries);
#if defined(TQ_MERGED)
  const bool merged = chunk_bytes != 0 && tq_knob("TQ_MERGE", 1) != 0;
#else
  const bool merged = false;
#endif
  const auto size_of = [&](std::int32_t at) { return max(min(chunk, heads - at), 0); };
  first.heads = size_of(0);
  const bool has_first = first.count() > 0;
  const int ablate = static_cast<int>(tq_knob("TQ_ONLY", 7));
  for (std::int32_t at = 0; at < heads; at += chunk) {
    if (at == 0 || !merged) {
      first.first_head = at;
      first.heads = size_of(at);
      if (ablate & 1) exec.run(first, first.count());
    }
    second.first_head = at;
    second.heads = size_of(at);
    if (ablate & 2) exec.run(second, second.count());
    third.next.first_head = at + chunk;
    third.next.heads = merged ? size_of(at + chunk) : 0;
    third.first_head = at;
    third.heads = size_of(at);
    third.first_query_tile = static_cast<std::int32_t>(std::int64_t{query_tiles} * at / heads);
    third.all_query_tiles =
        static_cast<std::int32_t>(std::int64_t{query_tiles} * min(at + chunk, heads) / heads) - third.first_query_tile;
    third.queries_first = static_cast<std::int32_t>(min(tq_knob("TQ_QF", 0), static_cast<long>(third.all_query_tiles)));
    third.mixed = tq_knob("TQ_MIX", 0) != 0 && third.all_query_tiles > 0;
    third.is_after_summaries = has_first && tq_knob("TQ_EARLY", 1) != 0;
    if (ablate & 4) exec.run(third, third.count());
  }
}

// Attention.

/// Of queries, of the program for sm_90a.
inline int block_rows_of(attention_shape const& s) {
  return 64 *
         (s.channels > 128 ? warpgroup_attention_tuning<256>{}(900) : warpgroup_attention_tuning<128>{}(900)).consumers;
}

/// Whether there are keys, and places of everything have 32 bits.
inline bool has_places_for_warpgroups(attention_shape const& s) {
  constexpr std::int64_t most = std::int64_t{1} << 29;
  const std::int64_t query_rows = s.batch * s.query_heads * padded_tokens(s.queries);
  const std::int64_t key_rows = s.batch * s.key_heads * padded_tokens(s.keys);
  return s.keys > 0 && s.queries < most && s.keys < most && query_rows < most_rows && key_rows < most_rows &&
         key_rows / attention_padding * s.channels < most_rows;
}

/// What blocks of queries cost: less where they have fewer rows than warpgroups.
struct attention_work_cost {
  attention_schedule schedule;
  key_band band;
  std::int32_t queries;
  std::int32_t keys;
  std::int32_t rows;  ///< of a block

  [[nodiscard]] std::int64_t operator()(std::int32_t index) const {
    constexpr attention_sharing_policy policy = attention_sharing_tuning{}(900);
    constexpr int most = 2;
    const std::int32_t first = schedule.at(index).block * rows;
    const std::int32_t end = min(first + rows, queries);
    return std::int64_t{band.tiles({first, end}, keys).count()} * policy.tile[min((end - first - 1) / 64, most)];
  }
  /// Whether the first and the last block of a head see as many tiles.
  [[nodiscard]] bool is_even() const {
    const std::int32_t last = (schedule.blocks - 1) * rows;
    return band.tiles({0, min(rows, queries)}, keys).count() == band.tiles({last, queries}, keys).count();
  }
  [[nodiscard]] attention_shares shared(int multiprocessors, std::int64_t most_ranges) const {
    const std::int64_t most = min(most_ranges, std::int64_t{1} << 20);
    return attention_shares::of({schedule.count(), multiprocessors, static_cast<std::int32_t>(most), is_even()}, *this,
                                attention_sharing_tuning{}(900));
  }
};

/// All keys are seen. The shape has places.
inline attention_work_cost cost_without_mask(attention_shape const& s) {
  const auto queries = static_cast<std::int32_t>(s.queries);
  const auto heads = static_cast<std::int32_t>(s.batch * s.query_heads);
  const std::int32_t rows = block_rows_of(s);
  const attention_schedule schedule{heads, divide_up(queries, rows), 1, false};
  return {schedule, key_band{}, queries, static_cast<std::int32_t>(s.keys), rows};
}

/// Whether keys of few works are worth sharing: there are queries, keys and places.
inline bool has_long_works(attention_shape const& s) {
  constexpr attention_sharing_policy policy = attention_sharing_tuning{}(900);
  return s.batch * s.queries > 0 && has_places_for_warpgroups(s) &&
         cost_without_mask(s)(0) > policy.least + policy.share + policy.merging;
}

/// Memory for as many shares as there may be, whatever the mask is.
inline std::int64_t floats_of_work_shares(attention_shape const& s, int multiprocessors) {
  using slots = typename attention_share_output::slots_type;
  constexpr attention_sharing_policy policy = attention_sharing_tuning{}(900);
  if (s.queries <= few_queries || !has_long_works(s)) {
    return 0;
  }
  const attention_work_cost work = cost_without_mask(s);
  const std::int64_t most = std::int64_t{multiprocessors} * policy.ranges;
  const std::int64_t works = work.schedule.count();
  const std::int64_t ranges = works > attention_shares::most_works ? work.shared(multiprocessors, most).ranges
                                                                   : min(most, works * work(0) / policy.least);
  return 2 * ranges * slots::floats_of_slot(block_rows_of(s), s.channels);
}

template <class Method, class T, class Bias>
bool suits_attention_on_warpgroups(attention_call<Method, T, Bias> const& call, int multiprocessors) {
  attention_shape const& s = call.shape;
  const std::int64_t blocks = s.batch * s.query_heads * divide_up(s.queries, std::int64_t{block_rows_of(s)});
  const bool is_shared = call.partials.rows.data != nullptr && call.work_shares.data == nullptr &&
                         2 * blocks < multiprocessors && has_long_works(s);
  const bool has_extras = call.sinks.data != nullptr || call.block_list.counts.data != nullptr ||
                          call.query_lengths.data != nullptr || call.key_lengths.data != nullptr ||
                          call.query_starts.first.data != nullptr || call.heads.queries.corrections.data != nullptr;
  return !is_shared && !has_extras && has_places_for_warpgroups(s) && call.counters.data != nullptr &&
         call.out.result.stride(3) == 1;
}

/// Codes of heads as rows of a matrix.
template <class T, int Rank>
matrix_view<T const> rows_of_heads(view<T, Rank> codes) {
  std::int64_t rows = 1;
  for (int dimension = 0; dimension + 1 < Rank; ++dimension) {
    rows *= codes.extent(dimension);
  }
  return {codes.data, {rows, codes.extent(Rank - 1)}};
}

template <class Program, class Architectures, class Method, class T, class Bias>
void run_attention_on_warpgroups(basic_cuda<Architectures> const& exec, attention_call<Method, T, Bias> const& call,
                                 int multiprocessors) {
  using shape = typename Program::shape;
  constexpr char const* where = "attention.forward";
  constexpr std::int64_t cached_bytes = std::int64_t{32} << 20;  // of codes of keys and values, in L2
  attention_shape const& s = call.shape;
  auto const& heads = call.heads;
  const std::int64_t right = call.options.is_causal ? 0 : call.options.window_right;
  const std::int64_t head_bytes = max(2 * padded_tokens(s.keys) * s.channels * s.key_heads / s.query_heads, 1);
  const auto all_heads = static_cast<std::int32_t>(s.batch * s.query_heads);
  const auto blocks = static_cast<std::int32_t>(divide_up(s.queries, std::int64_t{shape::rows}));
  Program program{};
  auto& pieces = program.pieces;
  pieces.query_map =
      make_tensor_map(where, rows_of_heads(heads.queries.codes), {shape::rows, shape::row_bytes}, shape::swizzle);
  pieces.key_map = make_tensor_map(where, rows_of_heads(heads.keys.codes),
                                   {static_cast<int>(attention_padding), shape::row_bytes}, shape::swizzle);
  pieces.value_map = make_tensor_map(where, rows_of_heads(heads.values.codes),
                                     {static_cast<int>(s.channels), static_cast<int>(attention_padding)});
  pieces.query_scales = heads.queries.scales.data;
  pieces.key_scales = heads.keys.scales.data;
  pieces.queries = static_cast<std::int32_t>(s.queries);
  pieces.keys = static_cast<std::int32_t>(s.keys);
  pieces.padded_queries = static_cast<std::int32_t>(padded_tokens(s.queries));
  pieces.padded_keys = static_cast<std::int32_t>(padded_tokens(s.keys));
  pieces.query_heads = static_cast<std::int32_t>(s.query_heads);
  pieces.key_heads = static_cast<std::int32_t>(s.key_heads);
  pieces.band = key_band::of({s.queries, s.keys, call.options.window_left, right});
  pieces.schedule = {all_heads, blocks,
                     static_cast<std::int32_t>(clamp(cached_bytes / head_bytes, std::int64_t{1},
                                                     max(std::int64_t{all_heads}, std::int64_t{1}))),
                     right >= 0};
  pieces.taken = reinterpret_cast<std::int32_t*>(call.counters.data);
  pieces.channels = static_cast<std::int32_t>(s.channels);
  using slots = typename attention_share_output::slots_type;
  const bool has_memory = is_aligned(call.work_shares.data) && call.work_shares.is_contiguous();
  const std::int64_t range_floats = 2 * slots::floats_of_slot(shape::rows, s.channels);
  pieces.shares = attention_work_cost{pieces.schedule, pieces.band, pieces.queries, pieces.keys, shape::rows}.shared(
      multiprocessors, has_memory ? call.work_shares.size() / range_floats : 0);
  program.share_output.slots =
      slots::in(call.work_shares, 2 * pieces.shares.ranges, shape::rows, static_cast<std::int32_t>(s.channels));
  program.output = {
      call.out.result,          has_whole_vectors(call.out.result),
      heads.values.scales.data, heads.values.mean.data,
      call.out.log_sum_exp,     call.out.log_sum_exp.data != nullptr ? heads.queries.mean_scores.data : nullptr};
  exec.clear(call.counters.slice(0, 0, 1));
  exec.run(program, min(pieces.shares.turns(), multiprocessors));
  if (pieces.shares.ranges > 0) {
    const merge_attention_shares<Method, T> merge{pieces.shares, pieces.schedule, program.share_output.slots,
                                                  writer_of(call),
                                                  merge_attention_shares<Method, T>::parts_of(pieces.shares)};
    exec.run(merge, merge.groups());
  }
}

/// Whether it did. The call has so many channels, or fewer.
template <int Channels, class Architectures, class Method, class T, class Bias>
bool try_attention_on_warpgroups(basic_cuda<Architectures> const& exec, attention_call<Method, T, Bias> const& call) {
  using program = attention_on_warpgroups<Channels, T, warpgroup_attention_tuning<Channels>{}(900)>;
  const int multiprocessors = exec.state->multiprocessors();
  if (!suits_attention_on_warpgroups(call, multiprocessors) || !can_map(rows_of_heads(call.heads.queries.codes)) ||
      !can_map(rows_of_heads(call.heads.keys.codes)) || !can_map(rows_of_heads(call.heads.values.codes)) ||
      !exec.template has<program>()) {
    return false;
  }
  run_attention_on_warpgroups<program>(exec, call, multiprocessors);
  return true;
}

template <class Method, class T, class Bias>
bool suits_attention_of_few_queries(attention_call<Method, T, Bias> const& call) {
  constexpr std::int64_t most = std::int64_t{1} << 29;
  attention_shape const& s = call.shape;
  auto const& heads = call.heads;
  const bool has_extras = call.block_list.counts.data != nullptr || heads.queries.corrections.data != nullptr;
  const std::int64_t key_rows = s.batch * s.key_heads * padded_tokens(s.keys);
  const bool is_small = s.keys < most && key_rows < most_rows &&
                        key_rows / attention_padding * s.channels < most_rows &&
                        call.partials.shares() * s.batch * s.query_heads * s.queries < most_rows;
  const bool is_whole = is_aligned(heads.queries.codes.data) && is_aligned(heads.keys.scales.data);
  return s.queries <= few_queries && s.keys > 0 && !has_extras && is_small && is_whole;
}

/// Whether it did. The call has so many channels, or fewer.
template <int Channels, class Architectures, class Method, class T, class Bias>
bool try_attention_of_few_queries(basic_cuda<Architectures> const& exec, attention_call<Method, T, Bias> const& call) {
  using program_type = attention_of_few_queries<Channels, Method, T, few_queries_tuning<Channels>{}(900)>;
  using shape = typename program_type::shape;
  constexpr char const* where = "attention.forward";
  auto const& heads = call.heads;
  const auto keys = rows_of_heads(heads.keys.codes);
  const auto values = rows_of_heads(heads.values.codes);
  if (!suits_attention_of_few_queries(call) || !can_map(keys) || !can_map(values) ||
      !exec.template has<program_type>()) {
    return false;
  }
  const program_type program{make_tensor_map(where, keys, {shape::keys, shape::row_bytes}, shape::swizzle),
                             make_tensor_map(where, values, {static_cast<int>(call.shape.channels), shape::keys}),
                             heads.queries.codes.data,
                             heads.queries.scales.data,
                             heads.keys.scales.data,
                             {call.shape, call.query_lengths, call.key_lengths, call.options.window_left,
                              call.options.is_causal ? 0 : call.options.window_right, call.partials.shares()},
                             writer_of(call),
                             call.partials};
  const std::int64_t most = std::int64_t{exec.state->multiprocessors()} * program_type::blocks_per_multiprocessor;
  exec.run(program, min(std::int64_t{program.works.count()}, most));
  merge_shares(exec, call);
  return true;
}

/// Whether one of the programs for sm_90 did.
template <int Channels, class Architectures, class Method, class T, class Bias>
bool try_attention_by_copy_engine(basic_cuda<Architectures> const& exec, attention_call<Method, T, Bias> const& call) {
  return try_attention_of_few_queries<Channels>(exec, call) || try_attention_on_warpgroups<Channels>(exec, call);
}

}  // namespace detail

template <int... Architectures, class Method, class T>
void quantize_attention(basic_cuda<arch_list<Architectures...>> const& exec, quantize_call<Method, T> const& call) {
  if constexpr (detail::has_lane_scales<Method> && detail::has_16_bits<T>) {
    if (detail::suits_quantize_heads(call)) {
      const std::int64_t channels = call.shape.channels;
      return channels <= 64    ? detail::run_quantize_heads<64>(exec, call)
             : channels <= 128 ? detail::run_quantize_heads<128>(exec, call)
                               : detail::run_quantize_heads<256>(exec, call);
    }
  }
  detail::quantize_attention_portably(exec, call);
}

/// Of programs for sm_90a.
template <int... Architectures, class Method>
std::int64_t floats_of_work_shares(basic_cuda<arch_list<Architectures...>> const& exec,
                                   quantized_regions<Method> const& regions) {
  attention_shape const& s = regions.shape;
  constexpr bool has_hopper = ((Architectures == 900) || ...);
  const bool has_channels = s.channels % 16 == 0 && s.channels <= 256;
  if (!has_hopper || !detail::has_lane_scales<Method> || !has_channels) {
    return 0;
  }
  return detail::floats_of_work_shares(s, exec.state->multiprocessors());
}

template <int... Architectures, class Method, class T, class Bias>
void run_attention(basic_cuda<arch_list<Architectures...>> const& exec, attention_call<Method, T, Bias> const& call) {
  constexpr bool has_hopper = ((Architectures == 900) || ...);
  if constexpr (has_hopper && detail::has_lane_scales<Method> && detail::has_16_bits<T> &&
                std::is_same_v<Bias, no_bias> && std::is_same_v<typename Method::softmax, online_softmax<float>>) {
    const std::int64_t channels = call.shape.channels;
    if (call.shape.batch * call.shape.queries == 0 ||
        (channels <= 64 && detail::try_attention_by_copy_engine<64>(exec, call)) ||
        (channels > 64 && channels <= 128 && detail::try_attention_by_copy_engine<128>(exec, call)) ||
        (channels > 128 && detail::try_attention_by_copy_engine<256>(exec, call))) {
      return;
    }
  }
  detail::run_attention_portably(exec, call);
}

}  // namespace v0
}  // namespace tessera
