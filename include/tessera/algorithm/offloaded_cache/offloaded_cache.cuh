// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Offloaded caches on CUDA devices: which kernels run the steps of caches of bfloat16 or float16 whose heads have 64
/// or 128 channels.
///
/// offloaded_cache.hpp includes this header where nvcc compiles: use a cache as on the CPU, with a tessera::cuda
/// executor and a side_queue<tessera::cuda>. The kernels have further conditions; if one of them is not met, the
/// portable program runs:
///
///     score_means, score_tiles (sm_80)
///                       landmarks that are means, in bfloat16 or in codes, or quest's boxes, of a cache of bfloat16
///     choose_largest    sequences of up to 40960 chunks in code for sm_90 and sm_100, else of 20480
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
/// last part selects. By these numbers a step of many sequences can be at most 3.6 times as fast as dense attention,
/// 6.5 times with e4m3, and 14 times with values on the device. On an H200, steps of 16 sequences are 3.2, 4.6 and 8.9
/// times as fast. A step of a single sequence spends most of its time on launches: it is 1.5, 1.6 and 2.1 times as
/// fast. bench/offloaded_cache/shadow_kv_bench.cu measures these ratios.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/algorithm/subspace/factorize_keys.cuh>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/refusal.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/program/offloaded_cache/archive_chunks.cuh>
#include <tessera/program/offloaded_cache/attend_chunks.cuh>
#include <tessera/program/offloaded_cache/detail/merge_chunks.cuh>
#include <tessera/program/offloaded_cache/detail/score_tiles.cuh>
#include <tessera/program/offloaded_cache/fetch_values.hpp>
#include <tessera/program/offloaded_cache/project_archived.cuh>
#include <tessera/program/offloaded_cache/rebuild_keys.cuh>
#include <tessera/program/offloaded_cache/score_chunks.cuh>
#include <tessera/program/offloaded_cache/select_chunks.cuh>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Why programs cannot divide so many groups in 31 bits, or none.
inline refusal refuses_groups(std::int64_t groups) {
  return unless(groups < std::int64_t{1} << 31, "the number of groups", groups, "below 2^31");
}
/// Why heads have no program for 64 or 128 channels, or none.
inline refusal refuses_channels(std::int64_t channels) {
  return unless(channels == 64 || channels == 128, "head_dim", channels, "64 or 128");
}
/// What models of calls of any types have in common.
struct model_of_any_types {
  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return {};
  }
};
/// What models of calls whose keys and values have 16 bits have in common.
struct model_of_16_bits {
  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return unless(is_16_bit_float<typename Call::value_type>, "keys and values do not have 16 bits");
  }
};
/// Calls `use` with the type of score_means for a call of 64 or 128 channels.
template <ChunkSelector S, class Use>
auto with_score_means(score_chunks<bfloat16, S> const& call, Use const& use) {
  return with_constant<64, 128>(call.extents.channels, [&](auto channels) {
    std::int64_t const rows = call.extents.group();
    return rows <= 4   ? use(std::type_identity<score_means<channels.value, 4, S>>{})
           : rows <= 8 ? use(std::type_identity<score_means<channels.value, 8, S>>{})
                       : use(std::type_identity<score_means<channels.value, 16, S>>{});
  });
}
/// Calls `use` with the type of score_tiles for a call of 64 or 128 channels.
template <ChunkSelector S, class Use>
auto with_score_tiles(score_chunks<bfloat16, S> const& call, Use const& use) {
  return with_constant<64, 128>(call.extents.channels, [&](auto channels) {
    return call.extents.group() <= 8 ? use(std::type_identity<score_tiles<channels.value, 8, S>>{})
                                     : use(std::type_identity<score_tiles<channels.value, 16, S>>{});
  });
}
/// What models of programs that multiply landmarks' lines by tensor cores have in common.
struct model_of_landmark_lines {
  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return first_of(unless(std::is_same_v<typename Call::value_type, bfloat16>, "keys are not bfloat16"),
                    unless(
                        requires { landmark_lines<128, typename Call::selector_type>::bytes; },
                        "landmarks of this selector are neither means nor boxes"));
  }
};

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

/// Enqueues a Kernel, which is a rebuild_rotated for the call.
template <class Kernel, class Architectures, class Call>
void run_pairs(basic_cuda<Architectures> const& exec, Call const& call) {
  std::int64_t const most = Kernel::blocks_per_multiprocessor * std::int64_t{exec.state->multiprocessors()};
  auto const program = Kernel::of(call, rebuild_splits(call.extents, call.step.steps(), most, Kernel::of_block));
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

/// Why rebuild_rotated does not take a call of 16 bits, or none.
template <class T, class E>
refusal refuses_rebuild(rebuild_keys<T, E> const& call) {
  offload_extents const& n = call.extents;
  std::int64_t const turning = call.rotary.channels();
  auto const has_twos = [](matrix_view<rotation const> const& table) {
    return reinterpret_cast<std::uintptr_t>(table.data) % 16 == 0 && table.stride(0) % 2 == 0 && table.stride(1) == 1;
  };
  bool const are_aligned =
      has_twos(call.rotary.within) && (call.rotary.blocks.data == nullptr || has_twos(call.rotary.blocks));
  bool const are_pairs = call.rotary.pairs == rotary_pairs::neighbours ? turning % 4 == 0 : turning == n.channels;
  return first_of(refuses_channels(n.channels), unless(n.rank % 32 == 0, "the rank", n.rank, "a multiple of 32"),
                  unless(n.rank <= 192, "the rank", n.rank, "at most 192"),
                  unless(n.chunk % 8 == 0, "the number of tokens of a chunk", n.chunk, "a multiple of 8"),
                  unless(turning == 0 || are_pairs, "the number of rotated channels", turning,
                         "head_dim, or a multiple of 4 where neighbours are rotated"),
                  unless(turning == 0 || are_aligned, "tables of rotations do not begin at multiples of 16 bytes"));
}

/// Enqueues a Kernel, which is a fetch_records that takes the call.
template <class Kernel, class Architectures, class Call>
void run_fetch(basic_cuda<Architectures> const& exec, Call const& call) {
  constexpr std::int64_t over_bus = 64;  // groups that keep the bus busy; memory of the device needs more of them
  std::int64_t const most = divide_up(call.groups(), std::int64_t{Kernel::records});
  std::int64_t const count = call.crosses_bus ? over_bus : 4 * std::int64_t{exec.state->multiprocessors()};
  Kernel const program{call, max(min(count, most), std::int64_t{1})};
  exec.run(program, program.groups());
}

}  // namespace detail

/// Programs of a device call no functions of the host.
template <class Architectures>
inline constexpr bool runs_host_functions<basic_cuda<Architectures>> = false;

/// score_means: landmarks that are means or boxes, heads of 64 or 128 channels, devices of compute capability 9.
struct score_means_model : detail::model_of_landmark_lines {
  static constexpr char const* name = "score_means (TMA, mma.sync)";

  template <class Architectures, class T, ChunkSelector S>
  static refusal refuses(basic_cuda<Architectures> const& exec, score_chunks<T, S> const& call) {
    refusal const why =
        first_of(detail::refuses_channels(call.extents.channels), detail::refuses_groups(call.groups()));
    return why ? why : detail::with_score_means(call, [&]<class Kernel>(std::type_identity<Kernel>) {
      return exec.template lacks<Kernel>();
    });
  }
  template <class Architectures, class T, ChunkSelector S>
  static void run(basic_cuda<Architectures> const& exec, score_chunks<T, S> const& call) {
    detail::with_score_means(call, [&]<class Kernel>(std::type_identity<Kernel>) {
      std::int64_t const most = exec.state->multiprocessors();
      Kernel const program = Kernel::of(call, most);
      exec.run(program, min(std::int64_t{program.work_items}, most));
    });
  }
};
/// score_tiles: landmarks that are means or boxes, heads of 64 or 128 channels, from compute capability 8 on.
struct score_tiles_model : detail::model_of_landmark_lines {
  static constexpr char const* name = "score_tiles (cp.async, mma.sync)";

  template <class Architectures, class T, ChunkSelector S>
  static refusal refuses(basic_cuda<Architectures> const& exec, score_chunks<T, S> const& call) {
    refusal const why =
        first_of(detail::refuses_channels(call.extents.channels), detail::refuses_groups(call.groups()),
                 unless(call.step.scores.strides[0] == 1, "scores of neighbouring chunks are not neighbours"));
    return why ? why : detail::with_score_tiles(call, [&]<class Kernel>(std::type_identity<Kernel>) {
      return exec.template lacks<Kernel>();
    });
  }
  template <class Architectures, class T, ChunkSelector S>
  static void run(basic_cuda<Architectures> const& exec, score_chunks<T, S> const& call) {
    detail::with_score_tiles(call, [&]<class Kernel>(std::type_identity<Kernel>) {
      std::int64_t const multiprocessors = exec.state->multiprocessors();
      Kernel const program = Kernel::of(call, multiprocessors);
      exec.run(program, min(std::int64_t{program.work_items}, Kernel::blocks_per_multiprocessor * multiprocessors));
    });
  }
};
/// The programs that CUDA devices have for this call.
template <class Architectures, class T, ChunkSelector S>
struct models_for<basic_cuda<Architectures>, score_chunks<T, S>> {
  /// The list of models.
  using type = model_list<score_means_model, score_tiles_model>;
};

/// choose_largest: sequences of up to 40960 chunks in code for sm_90 and sm_100, else of 20480.
struct choose_largest_model : detail::model_of_any_types {
  static constexpr char const* name = "choose_largest";

  template <class Architectures, class T, ChunkSelector S>
  static refusal refuses(basic_cuda<Architectures> const& exec, select_chunks<T, S> const& call) {
    using program = choose_largest<T, S>;
    architecture const code = exec.template architecture_of_code<program>();
    return first_of(detail::refuses_groups(call.groups()),
                    unless(program::takes(call, code), "the most chunks of a sequence", call.extents.longest,
                           most_chunks_on(code) == 40960 ? "at most 40960" : "at most 20480"),
                    exec.template lacks<program>());
  }
  template <class Architectures, class T, ChunkSelector S>
  static void run(basic_cuda<Architectures> const& exec, select_chunks<T, S> const& call) {
    exec.run(choose_largest<T, S>::of(call), call.groups());
  }
};
/// The programs that CUDA devices have for this call.
template <class Architectures, class T, ChunkSelector S>
struct models_for<basic_cuda<Architectures>, select_chunks<T, S>> {
  /// The list of models.
  using type = model_list<choose_largest_model>;
};

/// fetch_records: values of 16 bits and heads of 64 or 128 channels.
struct fetch_records_model : detail::model_of_16_bits {
  static constexpr char const* name = "fetch_records";

  template <class Architectures, class T, class E, class Codec>
  static refusal refuses(basic_cuda<Architectures> const&, fetch_values<T, E, Codec> const& call) {
    return first_of(detail::refuses_channels(call.extents.channels),
                    unless(fetch_records<128, T, E, Codec>::takes(call) || fetch_records<64, T, E, Codec>::takes(call),
                           "records are too large, not aligned, or there are too many lists of them"));
  }
  template <class Architectures, class T, class E, class Codec>
  static void run(basic_cuda<Architectures> const& exec, fetch_values<T, E, Codec> const& call) {
    fetch_records<128, T, E, Codec>::takes(call) ? detail::run_fetch<fetch_records<128, T, E, Codec>>(exec, call)
                                                 : detail::run_fetch<fetch_records<64, T, E, Codec>>(exec, call);
  }
};
/// The programs that CUDA devices have for this call.
template <class Architectures, class T, class E, class Codec>
struct models_for<basic_cuda<Architectures>, fetch_values<T, E, Codec>> {
  /// The list of models.
  using type = model_list<fetch_records_model>;
};

/// rebuild_rotated: 16 bits, heads of 64 or 128 channels, ranks that are multiples of 32.
struct rebuild_rotated_model : detail::model_of_16_bits {
  static constexpr char const* name = "rebuild_rotated (mma.sync)";

  template <class Architectures, class T, class E>
  static refusal refuses(basic_cuda<Architectures> const&, rebuild_keys<T, E> const& call) {
    return detail::refuses_rebuild(call);
  }
  template <class Architectures, class T, class E>
  static void run(basic_cuda<Architectures> const& exec, rebuild_keys<T, E> const& call) {
    call.extents.channels == 128 ? detail::run_rebuild<128>(exec, call) : detail::run_rebuild<64>(exec, call);
  }
};
/// The programs that CUDA devices have for this call.
template <class Architectures, class T, class E>
struct models_for<basic_cuda<Architectures>, rebuild_keys<T, E>> {
  /// The list of models.
  using type = model_list<rebuild_rotated_model>;
};

/// attend_rows: 16 bits and heads of 64 or 128 channels.
struct attend_rows_model : detail::model_of_16_bits {
  static constexpr char const* name = "attend_rows (mma.sync)";

  template <class Architectures, class T, class E>
  static refusal refuses(basic_cuda<Architectures> const&, attend_chunks<T, E> const& call) {
    return first_of(detail::refuses_channels(call.extents.channels), detail::refuses_groups(call.groups()));
  }
  template <class Architectures, class T, class E>
  static void run(basic_cuda<Architectures> const& exec, attend_chunks<T, E> const& call) {
    with_constant<64, 128>(call.extents.channels, [&](auto channels) {
      exec.run(attend_rows<channels.value, T, E>::of(call), call.groups());
    });
  }
};
/// The programs that CUDA devices have for this call.
template <class Architectures, class T, class E>
struct models_for<basic_cuda<Architectures>, attend_chunks<T, E>> {
  /// The list of models.
  using type = model_list<attend_rows_model>;
};

/// project_rows: 16 bits, where a thread block can have 99 KiB of shared memory.
struct project_rows_model : detail::model_of_16_bits {
  static constexpr char const* name = "project_rows (mma.sync)";

  template <class Architectures, class T, class E>
  static refusal refuses(basic_cuda<Architectures> const& exec, project_archived<T, E> const& call) {
    constexpr int needed = detail::launch_shape<project_rows<T, E>>::shared_bytes;
    return first_of(unless(project_rows<T, E>::takes(call),
                           "chunks do not have 8 or 16 tokens, or the rank is no multiple of 8 "
                           "up to 192"),
                    unless(exec.state->shared_bytes() >= needed, "a thread block's shared memory in bytes",
                           exec.state->shared_bytes(), "at least 99 KiB"));
  }
  template <class Architectures, class T, class E>
  static void run(basic_cuda<Architectures> const& exec, project_archived<T, E> const& call) {
    exec.run(project_rows<T, E>{call}, call.groups());
  }
};
/// The programs that CUDA devices have for this call.
template <class Architectures, class T, class E>
struct models_for<basic_cuda<Architectures>, project_archived<T, E>> {
  /// The list of models.
  using type = model_list<project_rows_model>;
};

/// archive_rows: 16 bits, heads of a multiple of 8 channels, records of up to 2560 bytes.
struct archive_rows_model : detail::model_of_16_bits {
  static constexpr char const* name = "archive_rows";

  template <class Architectures, class T, ChunkSelector S, class Codec>
  static refusal refuses(basic_cuda<Architectures> const&, archive_chunks<T, S, Codec> const& call) {
    return unless(archive_rows<T, S, Codec>::takes(call),
                  "heads have no multiple of 8 channels, or records of more than 2560 bytes");
  }
  template <class Architectures, class T, ChunkSelector S, class Codec>
  static void run(basic_cuda<Architectures> const& exec, archive_chunks<T, S, Codec> const& call) {
    exec.run(archive_rows<T, S, Codec>{call}, call.groups());
  }
};
/// The programs that CUDA devices have for this call.
template <class Architectures, class T, ChunkSelector S, class Codec>
struct models_for<basic_cuda<Architectures>, archive_chunks<T, S, Codec>> {
  /// The list of models.
  using type = model_list<archive_rows_model>;
};

/// join_chunks: fewer than 2^31 rows of results.
struct join_chunks_model : detail::model_of_any_types {
  static constexpr char const* name = "merge_chunks";

  template <class Architectures, class T, class E, class Result>
  static refusal refuses(basic_cuda<Architectures> const&, merge_chunks<T, E, Result> const& call) {
    return detail::refuses_groups(call.groups());
  }
  template <class Architectures, class T, class E, class Result>
  static void run(basic_cuda<Architectures> const& exec, merge_chunks<T, E, Result> const& call) {
    exec.run(join_chunks<T, E, Result>::of(call), call.groups());
  }
};
/// The programs that CUDA devices have for this call.
template <class Architectures, class T, class E, class Result>
struct models_for<basic_cuda<Architectures>, merge_chunks<T, E, Result>> {
  /// The list of models.
  using type = model_list<join_chunks_model>;
};

}  // namespace v0
}  // namespace tessera
