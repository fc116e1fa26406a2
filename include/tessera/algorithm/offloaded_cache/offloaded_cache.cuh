// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Offloaded caches on CUDA devices: which kernels run the steps of caches of bfloat16 or float16 whose heads have 64
/// or 128 channels.
///
/// offloaded_cache.hpp includes this header where nvcc compiles: use a cache as on the CPU, with a tessera::cuda
/// executor and a side_queue<tessera::cuda>. The kernels ask for more than that; where it is not met, the portable
/// programs run:
///
///     score_means       landmarks that are means, in bfloat16 or in codes, of a cache of bfloat16
///     choose_largest    sequences of up to 40960 chunks
///     fetch_records     records of codes of up to 2560 bytes; up to 2048 key heads of all sequences of a step
///     rebuild_rotated   a rank of 32, 64, ... 192, chunks of 8, 16, ... tokens; rotations that turn neighbouring
///                       channels, a multiple of 4, or halves of whole heads, or none; their tables at multiples of 16
///     project_rows      chunks of 8 or 16 tokens, a rank of 8, 16, ... 192
///     archive_rows      heads of a multiple of 8 channels, records of up to 2560 bytes
///     attend_rows, join_chunks
///
/// One layer of a sequence of 128K tokens with the paper's parameters (8 key heads of 128 channels, 32 query heads, 256
/// chunks of 8 selected, of which 40 % are missed) reads and writes, at 4.55 TB/s, and over the bus at 55 GB/s:
///
///     scores      17.3 MB of landmarks in 8 bits, 2.1 MB of scores         4.3 us
///     selection   2.1 MB of scores                                         0.5 us
///     values      1.68 MB over the bus, 0.89 MB as e4m3                    30.5 us, 16.2 us
///     keys        2.1 MB of coefficients, 1.7 MB of keys, 0.27 GFLOP       0.8 us
///     attention   2.4 MB that are resident, 8.4 MB that are selected       2.4 us
///
/// Dense attention over the whole sequence reads 537 MB, in 118 us. The transfer of values over the bus overlaps with
/// everything except the scores and the selection of a batch's first part and the attention over the chunks that its
/// last part selects. By these numbers a step of many sequences takes 3.6 times less time than dense attention at best,
/// 6.5 times with e4m3, 14 times with values on the device. On an H200 16 sequences take 3.2, 4.6 and 8.9 times less.
/// One sequence alone waits for launches most of its time: 1.5, 1.6 and 2.1 times less.
/// bench/offloaded_cache/shadow_kv_bench.cu measures it.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/algorithm/subspace/factorize_keys.cuh>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/program/offloaded_cache/archive_chunks.cuh>
#include <tessera/program/offloaded_cache/attend_chunks.cuh>
#include <tessera/program/offloaded_cache/detail/merge_chunks.cuh>
#include <tessera/program/offloaded_cache/fetch_values.hpp>
#include <tessera/program/offloaded_cache/project_archived.cuh>
#include <tessera/program/offloaded_cache/rebuild_keys.cuh>
#include <tessera/program/offloaded_cache/score_chunks.cuh>
#include <tessera/program/offloaded_cache/select_chunks.cuh>

namespace tessera {
inline namespace v0 {
namespace detail {

template <class T>
inline constexpr bool has_pieces = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

/// Whether there are groups, and so few that programs can divide their numbers in 31 bits.
inline bool has_places(std::int64_t groups) {
  return groups > 0 && groups < std::int64_t{1} << 31;
}

template <int Channels, int Rows, class Architectures, ChunkSelector S>
bool run_scores(basic_cuda<Architectures> const& exec, score_chunks<bfloat16, S> const& call) {
  using program_type = score_means<Channels, Rows, S>;
  if (!exec.template has<program_type>()) {
    return false;
  }
  std::int64_t const most = exec.state->multiprocessors();
  auto const program = program_type::of(call, most);
  exec.run(program, min(std::int64_t{program.works}, most));
  return true;
}
template <int Channels, class Architectures, ChunkSelector S>
bool try_scores(basic_cuda<Architectures> const& exec, score_chunks<bfloat16, S> const& call) {
  if (call.extents.channels != Channels || !has_places(call.groups())) {
    return false;
  }
  std::int64_t const rows = call.extents.group();
  return rows <= 4   ? run_scores<Channels, 4>(exec, call)
         : rows <= 8 ? run_scores<Channels, 8>(exec, call)
                     : run_scores<Channels, 16>(exec, call);
}

/// How many blocks share a list of missed chunks, if `most` blocks run at a time: so many that full lists take the
/// least time. A block has `of_block` tokens at a time.
inline std::int64_t rebuild_splits(offload_extents const& n, std::int64_t steps, std::int64_t most,
                                   std::int64_t of_block) {
  std::int64_t const lists = max(steps * n.key_heads, std::int64_t{1});
  std::int64_t const end = min(max(most / lists, std::int64_t{4}), n.budget * n.chunk / of_block);
  auto const rounds = [&](std::int64_t splits) { return divide_up(lists * splits, most); };
  std::int64_t best = 1;
  for (std::int64_t splits = 2; splits <= end; ++splits) {
    best = rounds(splits) * best < rounds(best) * splits ? splits : best;
  }
  return best;
}

/// Enqueues a Program, which is a rebuild_rotated for the call.
template <class Program, class Architectures, class Call>
void run_pairs(basic_cuda<Architectures> const& exec, Call const& call) {
  std::int64_t const most = Program::blocks_per_multiprocessor * std::int64_t{exec.state->multiprocessors()};
  auto const program = Program::of(call, rebuild_splits(call.extents, call.step.steps(), most, Program::of_block));
  exec.run(program, program.groups());
}
template <int Channels, class Architectures, class T, class E>
void run_rebuild(basic_cuda<Architectures> const& exec, rebuild_keys<T, E> const& call) {
  if (call.rotary.pairs == rotary_pairs::halves) {
    run_pairs<rebuild_rotated<Channels, T, E, rotary_pairs::halves>>(exec, call);
  } else {
    run_pairs<rebuild_rotated<Channels, T, E, rotary_pairs::neighbours>>(exec, call);
  }
}

/// Whether rebuild_rotated can take the call.
template <class T, class E>
bool can_rebuild(rebuild_keys<T, E> const& call) {
  offload_extents const& n = call.extents;
  std::int64_t const turning = call.rotary.channels();
  auto const has_twos = [](matrix_view<rotation const> const& table) {
    return reinterpret_cast<std::uintptr_t>(table.data) % 16 == 0 && table.stride(0) % 2 == 0 && table.stride(1) == 1;
  };
  bool const are_aligned =
      has_twos(call.rotary.within) && (call.rotary.blocks.data == nullptr || has_twos(call.rotary.blocks));
  bool const are_pairs = call.rotary.pairs == rotary_pairs::neighbours ? turning % 4 == 0 : turning == n.channels;
  bool const can_turn = turning == 0 || (are_pairs && are_aligned);
  return n.rank % 32 == 0 && n.rank <= 192 && n.chunk % 8 == 0 && can_turn;
}

/// Enqueues a Program, which is a fetch_records for the call, if it takes the call. Returns whether it does.
template <class Program, class Architectures, class Call>
bool try_fetch(basic_cuda<Architectures> const& exec, Call const& call) {
  if (!Program::takes(call)) {
    return false;
  }
  constexpr std::int64_t over_bus = 64;  // groups that keep the bus busy; memory of the device needs more of them
  std::int64_t const most = divide_up(call.groups(), std::int64_t{Program::records});
  std::int64_t const count = call.crosses_bus ? over_bus : 4 * std::int64_t{exec.state->multiprocessors()};
  Program const program{call, max(min(count, most), std::int64_t{1})};
  exec.run(program, program.groups());
  return true;
}

}  // namespace detail

/// Enqueues the scoring of chunks: by score_means for heads of 64 or 128 channels on devices of compute capability 9,
/// else by the portable program.
template <class Architectures, ChunkSelector S>
requires requires {
  landmark_lines<128, S>::bytes;
}
void run_program(basic_cuda<Architectures> const& exec, score_chunks<bfloat16, S> const& call) {
  if (!detail::try_scores<128>(exec, call) && !detail::try_scores<64>(exec, call)) {
    exec.run(call, call.groups());
  }
}

/// Enqueues the selection of chunks: by choose_largest for sequences of up to 40960 chunks where a block can have 227
/// KiB of shared memory, else by the portable program.
template <class Architectures, class T, ChunkSelector S>
void run_program(basic_cuda<Architectures> const& exec, select_chunks<T, S> const& call) {
  using program_type = choose_largest<T, S>;
  if (program_type::takes(call) && detail::has_places(call.groups()) && exec.state->shared_bytes() >= 227 * 1024) {
    exec.run(program_type::of(call), call.groups());
  } else {
    exec.run(call, call.groups());
  }
}

/// Enqueues the fetching of values: by fetch_records for values of 16 bits and heads of 64 or 128 channels where it
/// `takes` them, else by the portable program.
template <class Architectures, class T, class E, class Codec>
void run_program(basic_cuda<Architectures> const& exec, fetch_values<T, E, Codec> const& call) {
  if constexpr (detail::has_pieces<T>) {
    if (detail::try_fetch<fetch_records<128, T, E, Codec>>(exec, call) ||
        detail::try_fetch<fetch_records<64, T, E, Codec>>(exec, call)) {
      return;
    }
  }
  exec.run(call, call.groups());
}

/// Enqueues the rebuilding of keys: by rebuild_rotated for 16 bits and heads of 64 or 128 channels, for the ranks,
/// chunks and rotations that can_rebuild() accepts; else by the portable program.
template <class Architectures, class T, class E>
void run_program(basic_cuda<Architectures> const& exec, rebuild_keys<T, E> const& call) {
  if constexpr (detail::has_pieces<T>) {
    if (detail::can_rebuild(call) && (call.extents.channels == 128 || call.extents.channels == 64)) {
      call.extents.channels == 128 ? detail::run_rebuild<128>(exec, call) : detail::run_rebuild<64>(exec, call);
      return;
    }
  }
  exec.run(call, call.groups());
}

/// Enqueues attention over chunks: by attend_rows for 16 bits and heads of 64 or 128 channels, else by the portable
/// program.
template <class Architectures, class T, class E>
void run_program(basic_cuda<Architectures> const& exec, attend_chunks<T, E> const& call) {
  if constexpr (detail::has_pieces<T>) {
    std::int64_t const channels = call.extents.channels;
    if (channels == 128 && detail::has_places(call.groups())) {
      exec.run(attend_rows<128, T, E>::of(call), call.groups());
      return;
    }
    if (channels == 64 && detail::has_places(call.groups())) {
      exec.run(attend_rows<64, T, E>::of(call), call.groups());
      return;
    }
  }
  exec.run(call, call.groups());
}

/// Enqueues the projection of archived chunks: by project_rows for 16 bits where it `takes` the call and a block can
/// have its 99 KiB of shared memory, else by the portable program.
template <class Architectures, class T, class E>
void run_program(basic_cuda<Architectures> const& exec, project_archived<T, E> const& call) {
  if constexpr (detail::has_pieces<T>) {
    using program_type = project_rows<T, E>;
    if (program_type::takes(call) && exec.state->shared_bytes() >= detail::launch_shape<program_type>::shared_bytes) {
      exec.run(program_type{call}, call.groups());
      return;
    }
  }
  exec.run(call, call.groups());
}

/// Enqueues the archiving of chunks: by archive_rows for 16 bits where it `takes` the call, else by the portable
/// program.
template <class Architectures, class T, ChunkSelector S, class Codec>
void run_program(basic_cuda<Architectures> const& exec, archive_chunks<T, S, Codec> const& call) {
  if constexpr (detail::has_pieces<T>) {
    if (archive_rows<T, S, Codec>::takes(call)) {
      exec.run(archive_rows<T, S, Codec>{call}, call.groups());
      return;
    }
  }
  exec.run(call, call.groups());
}

/// Enqueues the merging of results of chunks: by join_chunks for fewer than 2^31 rows of results, else by the portable
/// program.
template <class Architectures, class T, class E, class Result>
void run_program(basic_cuda<Architectures> const& exec, merge_chunks<T, E, Result> const& call) {
  if (detail::has_places(call.groups())) {
    exec.run(join_chunks<T, E, Result>::of(call), call.groups());
  } else {
    exec.run(call, call.groups());
  }
}

}  // namespace v0
}  // namespace tessera
