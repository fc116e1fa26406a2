// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Attention of a few queries over keys and values that are not quantized, on CUDA devices.
///
/// decode_attention.hpp includes this header where nvcc compiles: call run_decode_attention as on the CPU, with a
/// tessera::cuda executor. On sm_90 TMA and mma.sync do it (program/attention/decode_dense.cuh), for 64, 128 or 256
/// channels of bfloat16 or float16 in rows that begin at multiples of 16 bytes, and heads that lie one behind the other
/// or side by side; eight rows of the query heads of a key head share a read. Otherwise the portable program runs.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/attention/decode_attention.hpp>
#include <tessera/algorithm/attention/decode_splits.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/program/attention/decode_dense.cuh>
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
inline bool has_places_for_decoding(attention_shape const& s, std::int64_t splits) {
  constexpr std::int64_t most = std::int64_t{1} << 30;
  return s.batch > 0 && s.queries > 0 && s.keys < most && splits * s.batch * s.query_heads * s.queries < most / 4;
}

/// Enqueues the merging of splits of the keys, if there are any; at most most_attention_splits.
template <class Executor, class Result>
void merge_decoded(Executor const& exec, attention_writer<decode_method, Result> const& writer,
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

/// Enqueues dense_decode, if that can take the call. Returns whether it did.
template <int Channels, class Architectures, class T, class Result>
bool try_dense_decode(basic_cuda<Architectures> const& exec, decode_attention_call<T, Result> const& call) {
  using program_type = dense_decode<Channels, T, Result, policy_of<dense_decode_tuning<Channels>>(900)>;
  using piece = typename program_type::piece;
  constexpr char const* where = "decode_attention";
  auto const keys = dense_matrix<T>::of(call.source.keys);
  auto const values = dense_matrix<T>::of(call.source.values);
  bool const has_blocks = call.source.blocks.data == nullptr || call.source.block_tokens() % program_type::tokens == 0;
  if (!keys.exists || !values.exists || !has_blocks || !has_whole_rows(call.queries) ||
      !has_places_for_decoding(call.shape, call.partials.splits()) || !exec.template has<program_type>()) {
    return false;
  }
  int const multiprocessors = exec.state->multiprocessors();
  auto const partials = decode_partials(call.shape, call.partials, program_type::tokens * program_type::warps,
                                        multiprocessors * program_type::blocks_per_multiprocessor);
  box_shape const box{program_type::tokens, piece::panel_channels};
  auto const rows_of = [&](dense_matrix<T> const& matrix) {
    return dense_rows{make_tensor_map(where, matrix.rows, box), static_cast<std::int32_t>(matrix.block_rows),
                      static_cast<std::int32_t>(matrix.head_rows), static_cast<std::int32_t>(matrix.head_columns)};
  };
  program_type const program{program_type::works_type::of(call.queries, call.is_causal, writer_of(call), partials),
                             rows_of(keys),
                             rows_of(values),
                             call.source.lengths,
                             call.source.blocks,
                             static_cast<std::int32_t>(call.source.block_tokens()),
                             call.softmax_scale * 1.4426950408889634F};
  std::int64_t const most = std::int64_t{multiprocessors} * program_type::blocks_per_multiprocessor;
  exec.run(program, min(std::int64_t{program.works.count}, most));
  merge_decoded(exec, writer_of(call), partials);
  return true;
}

}  // namespace detail

/// Enqueues attention of a few queries on CUDA devices. On sm_90 keys and values of 16 bits with 64, 128 or 256
/// channels are read once for all query heads that share them; otherwise the portable program runs.
template <int... Architectures, class T, class Result>
void run_decode_attention(basic_cuda<arch_list<Architectures...>> const& exec,
                          decode_attention_call<T, Result> const& call) {
  constexpr bool has_hopper = ((Architectures == 900) || ...);
  if constexpr (has_hopper && (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>)) {
    std::int64_t const channels = call.shape.channels;
    if ((channels == 64 && detail::try_dense_decode<64>(exec, call)) ||
        (channels == 128 && detail::try_dense_decode<128>(exec, call)) ||
        (channels == 256 && detail::try_dense_decode<256>(exec, call))) {
      return;
    }
  }
  detail::decode_portably(exec, call);
}

}  // namespace v0
}  // namespace tessera
