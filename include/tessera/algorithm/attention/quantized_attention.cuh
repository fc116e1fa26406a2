// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The quantization of attention's queries, keys and values on CUDA devices, in three to five launches.
///
/// The launches are for queries and keys in integers of 8 or 4 bits or in e4m3 per_thread, for values in e4m3, and
/// for inputs in bfloat16 or float16 of up to 256 channels, a multiple of 8, that lie next to each other in rows that
/// begin at multiples of 16 bytes. The first launch reads keys and values, or samples of them, and summarizes tiles of
/// 128 tokens (program/attention/channel_statistics.cuh). The second merges the tiles of each head
/// (attention/detail/finish_channel_statistics.cuh). The third reads everything and writes codes
/// (attention/quantize_heads.cuh). Where values were sampled, a fourth recomputes the codes of heads in which values
/// exceeded the range of their sample (attention/detail/quantize_heads_again.cuh); for other heads it reads one word
/// and ends. Where queries are smoothed, the third launch subtracts means from tiles of queries that it holds, and a
/// last one makes the scores of these means (program/attention/detail/query_corrections.cuh). There are programs of 64,
/// 128 and 256 channels; a call takes the next one that is large enough. Everything else runs in the portable programs.
///
/// H200, 8 x 16 heads of 4096 tokens of 128 channels, with samples: 155 us; inputs read once and codes written once
/// would take 142 us at the rate of a copy. The third launch takes 141 us, the first 13 us (1/8 of keys and values;
/// alone, from cold), the fourth 1.3 us. Samples of 256 tokens instead of 512 take 4 us less at 4096 tokens and save
/// nothing elsewhere. Samples read with an L2 hint that leaves the cache to others take 1 to 2 us more. Values beyond
/// their range in all heads take 50 us more: then the call takes as long as without samples.
///
/// Without samples: 202 us. A kernel that only reads as many bytes as the first launch takes 62 us, and launching a
/// kernel 3 us. The L2 hint takes 3 us off the first launch, and adds 13 us to the third. Sections of heads that are
/// summarized and then encoded while they are in L2, by separate launches, take 242 us with sections of 32 MiB, 254
/// with 16 and 443 with 4, since each waits 4 us or more for its summaries. The third launch with 3 thread blocks a
/// multiprocessor instead of 4: 202 us; with 96 channels, where lanes are idle, 160 us instead of 155.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/attention/quantized_attention.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/refusal.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/program/attention/channel_statistics.cuh>
#include <tessera/program/attention/detail/finish_channel_statistics.cuh>
#include <tessera/program/attention/detail/quantize_heads_again.cuh>
#include <tessera/program/attention/detail/query_corrections.cuh>
#include <tessera/program/attention/quantize_heads.cuh>
#include <tessera/quantize/granularity.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Whether codes of queries and keys are multiplied as they lie in memory by programs for sm_90a: a byte each.
template <class Code>
inline constexpr bool is_code_in_byte = std::is_same_v<Code, std::int8_t> || std::is_same_v<Code, float8_e4m3>;

/// Why the programs for CUDA do not make the codes and scales of a method, or none.
template <class Method>
constexpr refusal refuses_to_make_codes() {
  using granularity = typename Method::score_quantizer::granularity_type;
  return first_of(
      unless(std::is_same_v<granularity, std::remove_cvref_t<decltype(per_thread)>>,
             "scales of queries and keys are not per_thread"),
      unless(is_code_in_byte<typename Method::score_code> || std::is_same_v<typename Method::score_code, int4x2>,
             "codes of queries and keys are neither integers nor e4m3"),
      unless(std::is_same_v<typename Method::value_code, float8_e4m3>, "codes of values are not e4m3"));
}
/// Why the programs for CUDA do not read the codes and scales of a method, or none.
template <class Method>
constexpr refusal refuses_codes() {
  return first_of(refuses_to_make_codes<Method>(), unless(is_code_in_byte<typename Method::score_code>,
                                                          "codes of queries and keys are not in a byte each"));
}

inline constexpr std::int64_t most_rows = 0x7fffffff - 4096;  // numbers of rows of codes are 32-bit

/// Whether rows begin at multiples of 16 bytes and their elements lie next to each other; true for null.
template <class T>
bool has_whole_vectors(head_view<T> heads) {
  if (heads.data == nullptr) {
    return true;
  }
  bool is_whole = heads.stride(3) == 1 && reinterpret_cast<std::uintptr_t>(heads.data) % 16 == 0;
  for (int dimension = 0; dimension < 3; ++dimension) {
    std::int64_t const bytes = heads.stride(dimension) * static_cast<std::int64_t>(sizeof(T));
    is_whole = is_whole && (heads.extent(dimension) < 2 || bytes % 16 == 0);
  }
  return is_whole;
}

inline bool is_aligned(void const* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

/// Why encode_tiles does not take a call of its types, or none.
template <class Method, class T>
refusal refuses_tiles(quantize_call<Method, T> const& call) {
  attention_shape const& s = call.shape;
  std::int64_t const queries = s.batch * s.query_heads * padded_tokens(s.queries);
  std::int64_t const keys = s.batch * s.key_heads * padded_tokens(s.keys);
  auto const& out = call.out;
  auto const& corrections = out.queries.corrections;
  bool const are_aligned = is_aligned(corrections.data) && is_aligned(out.queries.correction_ranges.data) &&
                           is_aligned(out.queries.codes.data) && is_aligned(out.keys.codes.data) &&
                           is_aligned(out.keys.mean.data) && is_aligned(out.values.codes.data) &&
                           is_aligned(out.values.mean.data);
  return first_of(
      unless(are_aligned, "codes, means or corrections do not begin at multiples of 16 bytes"),
      unless(corrections.data == nullptr || corrections.is_contiguous(), "corrections do not lie one behind the other"),
      unless(s.keys > 0, "there are no keys"), unless(s.batch > 0, "there are no sequences"),
      unless(queries < most_rows && keys < most_rows, "rows of queries or keys do not fit into 31 bits"),
      unless(has_whole_vectors(call.in.queries), "queries do not lie in rows that begin at multiples of 16 bytes"),
      unless(has_whole_vectors(call.in.keys), "keys do not lie in rows that begin at multiples of 16 bytes"),
      unless(has_whole_vectors(call.in.values), "values do not lie in rows that begin at multiples of 16 bytes"));
}

/// The programs of a call's launches.
template <int Channels, class Method, class T>
struct tile_programs {
  using regions = quantized_regions<Method>;
  static constexpr quantized_means means{regions::smooths_keys, regions::smooths_values, regions::samples_values,
                                         regions::smooths_queries};
  using encode_type = encode_tiles<T, Channels, code_form::of<Method>(), means>;

  summarize_tiles<T, Channels, means> summarize{};
  finish_tiles<T, means> finish{};
  encode_type encode{};

  /// The programs for the inputs of a call that have memory, which have so many channels.
  tile_programs(quantize_call<Method, T> const& call, std::int64_t channels) {
    auto const& in = call.in;
    auto const wanted = [](auto const& from, auto const& lengths, auto const& starts, void const* to) {
      return from.data != nullptr && to != nullptr && from.extent(2) > 0 ? tiled_heads<T>(from, lengths, starts)
                                                                         : tiled_heads<T>{};
    };
    encode.queries = wanted(in.queries, in.query_lengths, in.query_starts, call.out.queries.codes.data);
    encode.keys = wanted(in.keys, in.key_lengths, in.key_starts, call.out.keys.codes.data);
    encode.values = wanted(in.values, in.key_lengths, in.key_starts, call.out.values.codes.data);
    prepare_summaries(call, channels);
    prepare_codes(call);
  }

  /// The program of the fourth launch, where scales of values are fitted to a sample.
  [[nodiscard]] encode_again<encode_type> again() const {
    using again_type = encode_again<encode_type>;
    std::int32_t const blocks = divide_up(std::int32_t{again_type::enough_blocks}, encode.key_heads);
    return {encode, finish.value_scales, finish.value_reciprocals,
            fast_divisor::of_count(min(blocks, encode.key_tiles.value()))};
  }

 private:
  static fast_divisor tiles_of(std::int64_t tokens) {
    return fast_divisor::of_count(static_cast<std::int32_t>(divide_up(tokens, attention_padding)));
  }

  /// The most tokens that the samples of a sequence's keys or values have; 1 if they are not wanted.
  static std::int64_t sampled_tokens(token_sample sample, tiled_heads<T> const& of, std::int64_t tokens) {
    return of.heads.data == nullptr ? 1 : of.lengths.data == nullptr ? sample.count(tokens) : sample.most(tokens);
  }

  void prepare_summaries(quantize_call<Method, T> const& call, std::int64_t channels) {
    attention_shape const& s = call.shape;
    auto* const of_keys = reinterpret_cast<float*>(call.space[call.regions.key_summaries].data);
    auto* const of_values = reinterpret_cast<float*>(call.space[call.regions.value_summaries].data);
    summarize.keys = means.of_keys ? encode.keys : tiled_heads<T>{};
    summarize.values = encode.values;
    summarize.heads = static_cast<std::int32_t>(s.batch * s.key_heads);
    summarize.key_sample = regions::key_sample;
    summarize.value_sample = regions::value_sample;
    summarize.tiles = tiles_of(max(sampled_tokens(regions::key_sample, summarize.keys, s.keys),
                                   sampled_tokens(regions::value_sample, summarize.values, s.keys)));
    summarize.channels = static_cast<std::int32_t>(channels);
    std::int64_t const plane = std::int64_t{summarize.heads} * summarize.tiles.value() * channels;
    summarize.summaries = {of_keys, of_values, of_values + plane, of_values + 2 * plane};
    finish.keys = summarize.keys;
    finish.values = summarize.values;
    finish.summaries = summarize.summaries;
    finish.key_sample = summarize.key_sample;
    finish.value_sample = summarize.value_sample;
    finish.heads = summarize.heads;
    finish.tiles = summarize.tiles.value();
    finish.channels = summarize.channels;
    finish.pieces = fast_divisor::of_count(divide_up(finish.channels, std::int32_t{decltype(finish)::piece}));
    finish.key_mean = call.out.keys.mean.data;
    finish.value_mean = call.out.values.mean.data;
    finish.value_scales = call.out.values.scales.data;
    finish.value_reciprocals = call.space[call.regions.value_reciprocals].data;
    if constexpr (means.samples_values) {
      finish.room = Method::value_quantizer::room;
      finish.beyond = call.space[call.regions.values_beyond].data;
    }
  }

  void prepare_codes(quantize_call<Method, T> const& call) {
    attention_shape const& s = call.shape;
    auto const& out = call.out;
    encode.query_heads = static_cast<std::int32_t>(s.batch * s.query_heads);
    encode.key_heads = summarize.heads;
    encode.query_tiles = tiles_of(s.queries);
    encode.key_tiles = tiles_of(s.keys);
    encode.group_heads = fast_divisor::of_count(static_cast<std::int32_t>(s.query_heads / s.key_heads));
    encode.channels = summarize.channels;
    encode.is_after_summaries = summarize.count() > 0;
    encode.factor = call.softmax_scale * log2_of_e;
    encode.softmax_scale = call.softmax_scale;
    encode.query_codes = reinterpret_cast<std::int8_t*>(out.queries.codes.data);
    encode.query_scales = out.queries.scales.data;
    encode.mean_scores = means.of_keys ? out.queries.mean_scores.data : nullptr;
    encode.query_blocks = static_cast<std::int32_t>(call.regions.query_blocks());
    encode.query_means = means.of_queries ? call.space[call.regions.query_means].data : nullptr;
    encode.mean_queries = {means.of_queries ? reinterpret_cast<T*>(call.space[call.regions.query_summaries].data)
                                            : nullptr};  // the launches for CUDA make no summaries of queries
    encode.key_codes = reinterpret_cast<std::int8_t*>(out.keys.codes.data);
    encode.key_scales = out.keys.scales.data;
    encode.key_mean = out.keys.mean.data;
    encode.value_codes = out.values.codes.data;
    encode.value_mean = out.values.mean.data;
    encode.value_reciprocals = finish.value_reciprocals;
    encode.value_sample = regions::value_sample;
    encode.beyond = finish.beyond;
  }
};

/// How many keys behind its own number a query sees, for correct_tiles: all of them, unless all sequences are as long
/// as their memory and the call says that no query sees more.
template <class Method, class T>
std::int32_t keys_behind_of(quantize_call<Method, T> const& call) {
  attention_shape const& s = call.shape;
  bool const is_known =
      call.keys_behind >= 0 && call.in.query_lengths.data == nullptr && call.in.key_lengths.data == nullptr;
  constexpr std::int64_t most = correct_tiles<T, 64>::most_keys_behind;
  return static_cast<std::int32_t>(is_known ? min(s.keys - s.queries + call.keys_behind, most) : most);
}

/// Enqueues the scores of mean queries, which an encode_tiles has made: those of keys, or of their codes if a call
/// before this one has made them.
template <int Channels, class Architectures, class Method, class T, class Encode>
void correct_by_tiles(basic_cuda<Architectures> const& exec, quantize_call<Method, T> const& call,
                      Encode const& encode) {
  attention_shape const& s = call.shape;
  if (call.in.keys.data == nullptr) {
    auto const means = view_of(call.space[call.regions.query_means],
                               {s.batch, s.query_heads, call.regions.query_blocks(), s.channels});
    return correct_queries(exec, call, means, encode.factor);
  }
  correct_tiles<T, Channels> program{};
  program.keys = tiled_heads<T>(call.in.keys, call.in.key_lengths, call.in.key_starts);
  program.key_heads = encode.key_heads;
  program.key_tiles = encode.key_tiles;
  program.rows = static_cast<std::int32_t>(s.query_heads / s.key_heads * call.regions.query_blocks());
  program.parts = fast_divisor::of_count(divide_up(program.rows, std::int32_t{program.part}));
  program.channels = encode.channels;
  program.factor = encode.factor;
  program.keys_behind = keys_behind_of(call);
  program.blocks_of_head = fast_divisor::of_count(static_cast<std::int32_t>(call.regions.query_blocks()));
  program.means = encode.mean_queries;
  program.corrections = call.out.queries.corrections.data;
  program.ranges = call.out.queries.correction_ranges.data;
  exec.run(program, program.count());
}

template <int Channels, class Architectures, class Method, class T>
void quantize_by_tiles(basic_cuda<Architectures> const& exec, quantize_call<Method, T> const& call,
                       std::int64_t channels) {
  tile_programs<Channels, Method, T> const programs(call, channels);
  exec.run(programs.summarize, programs.summarize.count());
  exec.run(programs.finish, programs.finish.count());
  exec.run(programs.encode, programs.encode.count());
  using regions = quantized_regions<Method>;
  if constexpr (regions::samples_values) {
    if (programs.encode.values.heads.data != nullptr && regions::value_sample.step(call.shape.keys) > 1) {
      auto const again = programs.again();
      exec.run(again, again.count());
    }
  }
  if constexpr (regions::smooths_queries) {
    if (programs.encode.queries.heads.data != nullptr) {
      correct_by_tiles<Channels>(exec, call, programs.encode);
    }
  }
}

}  // namespace detail

/// The quantization in three to five launches, where a lane has one scale.
struct quantize_heads_model {
  static constexpr char const* name = "quantize_heads";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return first_of(unless(Call::has_plain_inputs, "queries or keys are read through functions of the caller"),
                    detail::refuses_to_make_codes<typename Call::method>(),
                    unless(is_16_bit_float<typename Call::value_type>, "inputs do not have 16 bits"));
  }
  template <class Architectures, class Method, class T, class Functions>
  static refusal refuses(basic_cuda<Architectures> const&, quantize_call<Method, T, Functions> const& call) {
    return detail::refuses_tiles(call.without_functions());
  }
  template <class Architectures, class Method, class T, class Functions>
  static void run(basic_cuda<Architectures> const& exec, quantize_call<Method, T, Functions> const& call) {
    quantize_call<Method, T> const plain = call.without_functions();
    if (plain.shape.has_equal_channels()) {
      return run_channels(exec, plain, plain.shape.channels);
    }
    quantize_call<Method, T> of_scores = plain;  // values have launches of their own
    of_scores.in.values = {};
    run_channels(exec, of_scores, plain.shape.channels);
    quantize_call<Method, T> of_values = plain;
    of_values.in.queries = {};
    of_values.in.keys = {};
    run_channels(exec, of_values, plain.shape.channels_of_values());
  }

 private:
  template <class Architectures, class Method, class T>
  static void run_channels(basic_cuda<Architectures> const& exec, quantize_call<Method, T> const& call,
                           std::int64_t channels) {
    return channels <= 64    ? detail::quantize_by_tiles<64>(exec, call, channels)
           : channels <= 128 ? detail::quantize_by_tiles<128>(exec, call, channels)
                             : detail::quantize_by_tiles<256>(exec, call, channels);
  }
};

/// The programs that CUDA devices have for this call.
template <class Architectures, class Method, class T, class Functions>
struct models_for<basic_cuda<Architectures>, quantize_call<Method, T, Functions>> {
  /// The list of models.
  using type = model_list<quantize_heads_model>;
};

}  // namespace v0
}  // namespace tessera
