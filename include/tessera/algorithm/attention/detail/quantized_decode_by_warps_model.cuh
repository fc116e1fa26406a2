// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// attention_of_few_queries for calls of attention over codes: which calls it takes, how it is enqueued, and the model
/// of GPUs without wgmma. That of sm_90 is in algorithm/attention/attention.cuh.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/attention/detail/call_programs.hpp>
#include <tessera/algorithm/attention/quantized_attention.cuh>
#include <tessera/algorithm/attention/quantized_regions.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/exec/refusal.hpp>
#include <tessera/map/listed_tiles.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/lane_weights.cuh>
#include <tessera/program/attention/quantized_decode.cuh>
#include <tessera/program/attention/split_keys.cuh>
#include <tessera/tuning/attention/attention.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Whether attention_of_few_queries multiplies a method's codes of queries and keys.
template <class Method>
inline constexpr bool multiplies_few_queries = std::is_same_v<typename Method::score_code, std::int8_t>;

/// Whether a lane can make codes of the softmax's weights (program/attention/lane_weights.cuh).
template <class Softmax>
inline constexpr bool has_lane_weights = requires {
  lane_weights<Softmax>::steps;
};

/// Why attention_of_few_queries does not take a call of these types, or none.
template <class Call>
constexpr refusal refuses_types_of_few_queries() {
  using method = typename Call::method;
  return first_of(unless(multiplies_few_queries<method>, "codes of queries and keys are not integers"),
                  unless(!is_listed<decltype(Call::bias)>, "there is a list of tiles"),
                  unless(std::is_same_v<decltype(Call::bias), no_bias>, "there is a bias"),
                  unless(!quantized_regions<method>::smooths_queries, "queries are smoothed"));
}

/// Why neither sm_90's programs nor attention_of_few_queries take a call, or none.
template <class Call>
refusal refuses_extras(Call const& call) {
  attention_shape const& s = call.shape;
  refusal const why = first_of(
      unless(call.block_list.counts.data == nullptr, "the list of tiles is no part of the type, as listed_tiles are"),
      unless(s.keys > 0, "there are no keys"));
  if constexpr (is_listed<decltype(Call::bias)>) {
    return first_of(why, unless(call.bias.list.counts.data != nullptr, "the list of tiles is null"));
  }
  return why;
}

/// The codes of heads as rows of one matrix.
template <class T, int Rank>
matrix_view<T const> rows_of_heads(view<T, Rank> codes) {
  std::int64_t rows = 1;
  for (int dimension = 0; dimension + 1 < Rank; ++dimension) {
    rows *= codes.extent(dimension);
  }
  return {codes.data, {rows, codes.extent(Rank - 1)}};
}

/// Why attention_of_few_queries does not take a call whose types it takes, but for its codes, or none.
template <class Call>
refusal refuses_few_queries(Call const& call) {
  constexpr std::int64_t most = std::int64_t{1} << 29;
  attention_shape const& s = call.shape;
  if (refusal const why =
          first_of(unless(s.queries <= few_queries, "the number of queries", s.queries, "at most 16"),
                   unless(s.has_equal_channels(), "values have other channels than keys"), refuses_extras(call))) {
    return why;
  }
  auto const& heads = call.heads;
  std::int64_t const key_rows = s.batch * s.key_heads * padded_tokens(s.keys);
  bool const is_small = s.keys < most && key_rows < most_rows &&
                        key_rows / attention_padding * s.channels < most_rows &&
                        call.partials.splits() * s.batch * s.query_heads * s.queries < most_rows / 8;
  return first_of(
      unless(is_small, "rows of keys or of splits do not fit into 31 bits"),
      unless(is_aligned(heads.queries.codes.data), "codes of queries do not begin at a multiple of 16 bytes"),
      unless(is_aligned(heads.keys.scales.data), "scales of keys do not begin at a multiple of 16 bytes"),
      unless(call.partials.rows.data == nullptr || is_aligned(call.partials.rows.data),
             "memory for splits does not begin at a multiple of 16 bytes"));
}

/// Enqueues attention_of_few_queries, which takes the call.
template <class Decoder, class Architectures, class Call>
void run_few_queries(basic_cuda<Architectures> const& exec, Call const& call) {
  auto const& heads = call.heads;
  Decoder const program{
      Decoder::feed::source("attention.forward", rows_of_heads(heads.keys.codes), rows_of_heads(heads.values.codes),
                            call.shape),
      heads.queries.codes.data,
      heads.queries.scales.data,
      heads.keys.scales.data,
      few_query_schedule::of(call.shape, call.query_lengths, call.key_lengths, call.options.window_left,
                             call.options.keys_behind(), call.partials.splits()),
      writer_of(call),
      call.partials};
  std::int64_t const most = std::int64_t{exec.state->multiprocessors()} * Decoder::blocks_per_multiprocessor;
  exec.run(program, min(std::int64_t{program.schedule.count()}, most));
  if (call.partials.rows.data != nullptr) {
    auto const join =
        join_decoded<typename Call::method, typename Call::value_type>::of(call.partials, writer_of(call));
    exec.run(join, join.groups());
  }
}

/// attention_of_few_queries by cp.async: sm_80 and later, where the code is not that of sm_90a.
struct quantized_decode_by_warps_model {
  static constexpr char const* name = "quantized_decode (cp.async, mma.sync)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    using method = typename Call::method;
    return first_of(refuses_codes<method>(),
                    unless(is_16_bit_float<typename Call::value_type>, "results do not have 16 bits"),
                    unless(has_lane_weights<typename method::softmax>, "lanes do not make weights of the softmax"),
                    refuses_types_of_few_queries<Call>());
  }
  template <class Architectures, class Call>
  static refusal refuses(basic_cuda<Architectures> const& exec, Call const& call) {
    std::int64_t const channels = call.shape.channels;
    auto const& heads = call.heads;
    refusal const why = first_of(
        unless(call.queries.data == nullptr, "queries have no codes yet"),
        unless(!exec.template has<specific_program>(), "the device runs code for sm_90a, which has programs with TMA"),
        refuses_few_queries(call), unless(channels <= 256, "head_dim", channels, "at most 256"),
        unless(channels % 16 == 0, "head_dim", channels, "a multiple of 16"),
        unless(is_aligned(heads.keys.codes.data), "codes of keys do not begin at a multiple of 16 bytes"),
        unless(is_aligned(heads.values.codes.data), "codes of values do not begin at a multiple of 16 bytes"));
    return why ? why : with_constant<64, 128, 256>(channels_of_tiles(channels), [&](auto constant) {
      return exec.template lacks<program_for<constant.value, Call>>();
    });
  }
  template <class Architectures, class Call>
  static void run(basic_cuda<Architectures> const& exec, Call const& call) {
    with_constant<64, 128, 256>(channels_of_tiles(call.shape.channels),
                                [&](auto constant) { run_few_queries<program_for<constant.value, Call>>(exec, call); });
  }

 private:
  template <int Channels, class Call>
  using program_for = attention_of_few_queries<Channels, typename Call::method, typename Call::value_type,
                                               policy_of<few_queries_tuning<Channels>>(800)>;
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
