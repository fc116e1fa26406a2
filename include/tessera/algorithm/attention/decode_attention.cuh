// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Attention of a few queries over keys and values that are not quantized, on CUDA devices.
///
/// decode_attention.hpp includes this header where nvcc compiles: run a call as on the CPU, with a tessera::cuda
/// executor. On sm_90 a kernel with TMA and mma.sync (program/attention/decode_dense.cuh) runs calls with 64, 128 or
/// 256 channels of bfloat16 or float16 in rows that begin at multiples of 16 bytes, and heads that lie one behind the
/// other or side by side; eight rows of the query heads of a key head share a read. On GPUs without wgmma a kernel with
/// cp.async and mma.sync (program/attention/detail/dense_decode_by_warps.cuh) runs them, wherever heads lie. Otherwise
/// the portable program runs.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/attention/decode_attention.hpp>
#include <tessera/algorithm/attention/decode_splits.hpp>
#include <tessera/algorithm/attention/quantized_attention.cuh>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/fast_divisor.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/exec/refusal.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/program/attention/decode_dense.cuh>
#include <tessera/program/attention/detail/dense_decode_by_warps.cuh>
#include <tessera/program/attention/split_keys.cuh>
#include <tessera/tuning/attention/decode.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Whether rows of 16-bit queries can be loaded in units of 16 bytes.
template <class T>
bool has_whole_rows(head_view<T const> const& heads) {
  bool is_whole = heads.stride(3) == 1 && reinterpret_cast<std::uintptr_t>(heads.data) % 16 == 0;
  for (int dimension = 0; dimension < 3; ++dimension) {
    is_whole = is_whole && (heads.extent(dimension) < 2 || heads.stride(dimension) % 8 == 0);
  }
  return is_whole;
}

/// Whether there is anything to do, and the numbers of work items, rows and tokens fit into 31 bits.
inline bool has_room_for_decoding(attention_shape const& s, std::int64_t splits) {
  constexpr std::int64_t most = std::int64_t{1} << 30;
  return s.batch > 0 && s.queries > 0 && s.keys < most && splits * s.batch * s.query_heads * s.queries < most / 4;
}

/// Enqueues the merging of splits of the keys, if there are any; at most most_attention_splits.
template <Executor Exec, class Result>
void merge_decoded(Exec const& exec, attention_writer<decode_method, Result> const& writer,
                   attention_partials<online_softmax<float>::state_type> const& partials) {
  if (partials.rows.data != nullptr) {
    auto const join = join_decoded<decode_method, Result>::of(partials, writer);
    exec.run(join, join.groups());
  }
}

/// The heads of blocks of tokens as rows of one matrix.
template <class T>
struct dense_matrix {
  matrix_view<T const> rows;
  std::int64_t block_rows = 0;
  std::int64_t head_rows = 0;
  std::int64_t head_columns = 0;
  bool exists = false;

  static dense_matrix of(head_view<T const> const& heads) {
    dense_matrix found;
    std::int64_t const row = heads.extent(2) > 1 ? heads.stride(2) : heads.extent(3);
    bool const has_rows = row > 0 && heads.stride(3) == 1 && heads.data != nullptr;
    if (!has_rows || (heads.extent(0) > 1 && heads.stride(0) % row != 0)) {
      return found;
    }
    bool const is_behind = heads.extent(1) < 2 || heads.stride(1) % row == 0;
    bool const is_beside = heads.extent(1) * heads.stride(1) <= row && heads.stride(1) >= heads.extent(3);
    found.block_rows = heads.extent(0) > 1 ? heads.stride(0) / row : 0;
    found.head_rows = is_behind && heads.extent(1) > 1 ? heads.stride(1) / row : 0;
    found.head_columns = is_behind ? 0 : heads.stride(1);
    std::int64_t const last = (heads.extent(0) - 1) * found.block_rows + (heads.extent(1) - 1) * found.head_rows;
    std::int64_t const columns =
        is_behind ? heads.extent(3) : (heads.extent(1) - 1) * heads.stride(1) + heads.extent(3);
    found.rows = {heads.data, {last + heads.extent(2), columns}, {row, 1}};
    found.exists = (is_behind || is_beside) && found.block_rows >= 0 && found.head_rows >= 0 && can_map(found.rows);
    return found;
  }
};

/// dense_decode for `Channels` channels.
template <int Channels, class T, class Result>
using dense_decode_program = dense_decode<Channels, T, Result, policy_of<dense_decode_tuning<Channels>>(900)>;

/// Why a program that takes tiles of tokens does not take a call whose keys and values it can load, or none.
template <class P, class Architectures, class T, class Result>
refusal refuses_tiles_of_tokens(basic_cuda<Architectures> const& exec, decode_attention_call<T, Result> const& call) {
  bool const has_blocks = call.source.blocks.data == nullptr || call.source.block_tokens() % P::tokens == 0;
  return first_of(
      unless(has_blocks, "blocks have no whole number of the program's tiles of tokens"),
      unless(has_whole_rows(call.queries), "queries do not lie in rows that begin at multiples of 16 bytes"),
      unless(has_room_for_decoding(call.shape, call.partials.splits()),
             "there are no queries, or rows and splits do not fit into 31 bits"),
      exec.template lacks<P>());
}

/// Why dense_decode does not take a call of 64, 128 or 256 channels, or none.
template <int Channels, class Architectures, class T, class Result>
refusal refuses_dense_decode(basic_cuda<Architectures> const& exec, decode_attention_call<T, Result> const& call) {
  using program_type = dense_decode_program<Channels, T, Result>;
  return first_of(unless(dense_matrix<T>::of(call.source.keys).exists, "TMA cannot load keys of these strides"),
                  unless(dense_matrix<T>::of(call.source.values).exists, "TMA cannot load values of these strides"),
                  refuses_tiles_of_tokens<program_type>(exec, call));
}

/// Enqueues dense_decode, which takes the call.
template <int Channels, class Architectures, class T, class Result>
void run_dense_decode(basic_cuda<Architectures> const& exec, decode_attention_call<T, Result> const& call) {
  using program_type = dense_decode_program<Channels, T, Result>;
  using stage = typename program_type::stage_layout;
  constexpr char const* where = "decode_attention.forward";
  auto const keys = dense_matrix<T>::of(call.source.keys);
  auto const values = dense_matrix<T>::of(call.source.values);
  int const multiprocessors = exec.state->multiprocessors();
  auto const partials = decode_partials(call.shape, call.partials, program_type::tokens * program_type::warps,
                                        multiprocessors * program_type::blocks_per_multiprocessor);
  box_shape const box{program_type::tokens, stage::panel_channels};
  auto const rows_of = [&](dense_matrix<T> const& matrix) {
    return dense_rows{make_tensor_map(where, matrix.rows, box), static_cast<std::int32_t>(matrix.block_rows),
                      static_cast<std::int32_t>(matrix.head_rows), static_cast<std::int32_t>(matrix.head_columns)};
  };
  program_type const program{program_type::schedule_type::of(call.queries, call.is_causal, writer_of(call), partials),
                             rows_of(keys),
                             rows_of(values),
                             call.source.lengths,
                             call.source.blocks,
                             static_cast<std::int32_t>(call.source.block_tokens()),
                             call.softmax_scale * 1.4426950408889634F};
  std::int64_t const most = std::int64_t{multiprocessors} * program_type::blocks_per_multiprocessor;
  exec.run(program, min(std::int64_t{program.schedule.count}, most));
  merge_decoded(exec, writer_of(call), partials);
}

/// dense_decode_by_warps for `Channels` channels.
template <int Channels, class T, class Result>
using dense_decode_by_warps_program =
    dense_decode_by_warps<Channels, T, Result, policy_of<dense_decode_tuning<Channels>>(800)>;

/// Why dense_decode_by_warps does not take a call of 64, 128 or 256 channels, or none.
template <int Channels, class Architectures, class T, class Result>
refusal refuses_dense_decode_by_warps(basic_cuda<Architectures> const& exec,
                                      decode_attention_call<T, Result> const& call) {
  using program_type = dense_decode_by_warps_program<Channels, T, Result>;
  return first_of(
      unless(has_whole_rows(call.source.keys), "keys do not lie in rows that begin at multiples of 16 bytes"),
      unless(has_whole_rows(call.source.values), "values do not lie in rows that begin at multiples of 16 bytes"),
      refuses_tiles_of_tokens<program_type>(exec, call));
}

/// Enqueues dense_decode_by_warps, which takes the call.
template <int Channels, class Architectures, class T, class Result>
void run_dense_decode_by_warps(basic_cuda<Architectures> const& exec, decode_attention_call<T, Result> const& call) {
  using program_type = dense_decode_by_warps_program<Channels, T, Result>;
  constexpr int blocks = program_type::blocks_per_multiprocessor;
  // Blocks of a multiprocessor share what it reads, so that the costs of steps are those of all of them.
  constexpr int tokens = blocks * program_type::warps * program_type::tokens;
  int const multiprocessors = exec.state->multiprocessors();
  auto const partials = decode_partials(call.shape, call.partials, tokens, multiprocessors, decode_rows,
                                        policy_of<decode_split_tuning>(800));
  std::int64_t const most = std::int64_t{multiprocessors} * blocks;
  program_type const program{program_type::schedule_type::of(call.queries, call.is_causal, writer_of(call), partials),
                             call.source, fast_divisor::of_count(max(call.source.block_tokens(), std::int64_t{1})),
                             call.softmax_scale * 1.4426950408889634F};
  exec.run(program, min(std::int64_t{program.schedule.count}, most));
  merge_decoded(exec, writer_of(call), partials);
}

}  // namespace detail

/// dense_decode: keys and values of 16 bits with 64, 128 or 256 channels, read once for all query heads that share
/// them.
struct dense_decode_model {
  static constexpr char const* name = "decode_dense (TMA, mma.sync)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    using value_type = typename Call::value_type;
    return first_of(unless(Exec::template is_compiled_for<900>, "this source is not compiled for sm_90a"),
                    unless(is_16_bit_float<value_type>, "keys and values do not have 16 bits"));
  }
  template <class Architectures, class T, class Result>
  static refusal refuses(basic_cuda<Architectures> const& exec, decode_attention_call<T, Result> const& call) {
    std::int64_t const channels = call.shape.channels;
    refusal const why =
        unless(channels == 64 || channels == 128 || channels == 256, "head_dim", channels, "64, 128 or 256");
    return why ? why : with_constant<64, 128, 256>(channels, [&](auto constant) {
      return detail::refuses_dense_decode<constant.value>(exec, call);
    });
  }
  template <class Architectures, class T, class Result>
  static void run(basic_cuda<Architectures> const& exec, decode_attention_call<T, Result> const& call) {
    with_constant<64, 128, 256>(call.shape.channels,
                                [&](auto constant) { detail::run_dense_decode<constant.value>(exec, call); });
  }
};

/// dense_decode_by_warps: sm_80 and later, where the code is not that of sm_90a.
struct dense_decode_by_warps_model {
  static constexpr char const* name = "decode_dense (cp.async, mma.sync)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return unless(is_16_bit_float<typename Call::value_type>, "keys and values do not have 16 bits");
  }
  template <class Architectures, class T, class Result>
  static refusal refuses(basic_cuda<Architectures> const& exec, decode_attention_call<T, Result> const& call) {
    std::int64_t const channels = call.shape.channels;
    refusal const why =
        first_of(unless(!exec.template has<detail::specific_program>(),
                        "the device runs code for sm_90a, which has a program with TMA"),
                 unless(channels == 64 || channels == 128 || channels == 256, "head_dim", channels, "64, 128 or 256"));
    return why ? why : with_constant<64, 128, 256>(channels, [&](auto constant) {
      return detail::refuses_dense_decode_by_warps<constant.value>(exec, call);
    });
  }
  template <class Architectures, class T, class Result>
  static void run(basic_cuda<Architectures> const& exec, decode_attention_call<T, Result> const& call) {
    with_constant<64, 128, 256>(call.shape.channels,
                                [&](auto constant) { detail::run_dense_decode_by_warps<constant.value>(exec, call); });
  }
};

/// The programs that CUDA devices have for this call.
template <class Architectures, class T, class Result>
struct models_for<basic_cuda<Architectures>, decode_attention_call<T, Result>> {
 private:
  static constexpr bool has_others = detail::may_have_architecture(Architectures{}, 0, 900) ||
                                     detail::may_have_architecture(Architectures{}, 1000, 10000);

 public:
  /// The list of models. Sources that are compiled for sm_90 alone do not name the second.
  using type = std::conditional_t<has_others, model_list<dense_decode_model, dense_decode_by_warps_model>,
                                  model_list<dense_decode_model>>;
};

}  // namespace v0
}  // namespace tessera
