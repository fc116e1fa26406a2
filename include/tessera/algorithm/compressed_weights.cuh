// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Compressed weights on CUDA devices: lossless streams go through programs of their own, all else through the portable ones.
///
/// Include it and call compressed_weights as on the CPU, with a tessera::cuda executor; nothing else changes. Lossless encoding is
/// four launches for up to 24 tensors, decoding one; nothing waits, allocates or looks at data on the host.
#pragma once

#include <cstdint>

#include <tessera/algorithm/compressed_weights.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/program/decode_weights.cuh>
#include <tessera/program/encode_weights.cuh>
#include <tessera/tuning/neuzip.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

#ifdef DECODE_POLICY
inline constexpr tessera::neuzip_decode_policy decode_policy DECODE_POLICY;
#else
inline constexpr tessera::neuzip_decode_policy decode_policy = neuzip_decode_tuning{}(0);
#endif
#ifdef ENCODE_POLICY
inline constexpr tessera::neuzip_encode_policy encode_policy ENCODE_POLICY;
#else
inline constexpr tessera::neuzip_encode_policy encode_policy = neuzip_encode_tuning{}(0);
#endif

/// As many thread blocks as the device runs at a time.
template <class Architectures>
std::int64_t resident_blocks(basic_cuda<Architectures> const& exec, int blocks_per_multiprocessor) {
  int multiprocessors = 0;
  check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, exec.state->device()), "neuzip",
             "cudaDeviceGetAttribute");
  return std::int64_t{multiprocessors} * blocks_per_multiprocessor;
}

/// Blocks of weights that one thread block encodes at a time.
inline constexpr std::int64_t blocks_per_tile = encode_policy.threads / 32;

inline std::int64_t tiles_of(weight_stream_spec const& spec) { return divide_up(spec.block_count(), blocks_per_tile); }

/// Up to 24 lossless tensors: histograms, codebooks, blocks.
template <class T, class Architectures>
void encode_on_warps(basic_cuda<Architectures> const& exec, array_view<weight_encoding<T> const> list) {
  count_exponents_on_blocks<T> count{};
  write_codebooks_on_blocks<T> codebooks{};
  encode_weights_on_warps<T, encode_policy> encode{};
  std::int64_t sampled = 0;
  std::int64_t tiles = 0;
  for (std::int64_t i = 0; i < list.size(); ++i) {
    weight_encoding<T> const& encoding = list[i];
    // The first word is the counter of tiles taken, of which only the first tensor's is used.
    count.task[i] = encode_task<T>::of(encoding, encoding.tile_sums + 1, sampled);
    codebooks.encoding[i] = encoding;
    encode.task[i] = encode_task<T>::of(encoding, encoding.tile_sums + 1, tiles);
    sampled += divide_up(encoding.spec.block_count(), histogram_stride(encoding.spec.block_count()));
    tiles += tiles_of(encoding.spec);
  }
  count.tasks = encode.tasks = static_cast<int>(list.size());
  encode.tiles = tiles;
  encode.next_tile = reinterpret_cast<std::uint32_t*>(list[0].tile_sums);
  encode.status = list[0].status;
  exec.run(count, sampled);
  exec.run(codebooks, list.size());
  exec.run(encode, min(tiles, resident_blocks(exec, encode_policy.blocks_per_multiprocessor)));
  for (std::int64_t i = 0; i < list.size(); ++i) {
    if (list[i].spec.block_checksums) {
      exec.run(checksum_blocks<T>{list[i]}, list[i].spec.block_count());
    }
  }
}

template <class T, class Architectures>
void decode_on_warps(basic_cuda<Architectures> const& exec, array_view<weight_decoding<T> const> list) {
  decode_weights_on_warps<T, decode_policy> program{};
  for (std::int64_t i = 0; i < list.size(); ++i) {
    program.task[i] = decode_task<T>::of(list[i], program.blocks);
    program.blocks += list[i].blocks;
  }
  program.tasks = static_cast<int>(list.size());
  program.shares = min(program.blocks, resident_blocks(exec, decode_policy.blocks_per_multiprocessor));
  program.status = list[0].status;
  exec.run(program, program.shares);
}

/// Calls run(part) for parts of the list of at most `most` elements.
template <class Element, class Run>
void in_parts(array_view<Element> list, std::int64_t most, Run&& run) {
  for (std::int64_t first = 0; first < list.size(); first += most) {
    run(array_view<Element>(list.data + first, min(most, list.size() - first)));
  }
}

}  // namespace detail

template <class Architectures, class T, class Mantissa>
  requires(Mantissa::template is_lossless<T>)
struct placement_needs<basic_cuda<Architectures>, T, Mantissa> {
  static std::int64_t tile_sums(weight_stream_spec const& spec) { return 1 + detail::tiles_of(spec); }
  static std::int64_t slots(weight_stream_spec const&) { return 0; }
};

template <class Mantissa, class T, class Architectures>
  requires(Mantissa::template is_lossless<T>)
void run_encode(basic_cuda<Architectures> const& exec, array_view<weight_encoding<T> const> list) {
  detail::in_parts(list, count_exponents_on_blocks<T>::most_tasks,
                   [&](array_view<weight_encoding<T> const> part) { detail::encode_on_warps(exec, part); });
}

template <class Mantissa, class T, class Architectures>
  requires(Mantissa::template is_lossless<T>)
void run_decode(basic_cuda<Architectures> const& exec, array_view<weight_decoding<T> const> list) {
  detail::in_parts(list, decode_weights_on_warps<T, detail::decode_policy>::most_tasks,
                   [&](array_view<weight_decoding<T> const> part) { detail::decode_on_warps(exec, part); });
  for (std::int64_t i = 0; i < list.size(); ++i) {
    if (list[i].spec.block_checksums && list[i].verify_checksums) {
      exec.run(verify_blocks<T>{list[i]}, list[i].blocks);
    }
  }
}

}  // namespace v0
}  // namespace tessera
