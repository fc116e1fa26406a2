// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The launch policies of NeuZip's CUDA kernels, by architecture.
#pragma once

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The policy of decoding: thread blocks of `threads` threads, `blocks_per_multiprocessor` of them at a time, with room
/// for `words` 16-bit words of states and codes a warp. Compiled for architectures from `from` up to, but without,
/// `before`.
struct neuzip_decode_policy {
  int threads;                    ///< threads of a thread block, a multiple of 32
  int blocks_per_multiprocessor;  ///< thread blocks that run at a time on a multiprocessor
  int words;                      ///< 16-bit words of states and codes for each warp
  int from;                       ///< the first architecture, as 900 for sm_90
  int before;                     ///< the first architecture that is no longer included

  TESSERA_FN friend constexpr bool operator==(neuzip_decode_policy a, neuzip_decode_policy b) {
    return a.threads == b.threads && a.blocks_per_multiprocessor == b.blocks_per_multiprocessor && a.words == b.words &&
           a.from == b.from && a.before == b.before;
  }
};

/// H200, 512 MiB of bf16, GB/s of output by {threads, blocks, words}. With rows loaded two at a time {1024, 1, 1816}
/// 2076, {1024, 1, 2336} 2073; an earlier version {1024, 1, 2560} 2012, {1024, 1, 1664} 2025, {512, 2, 1664} 2022,
/// {640, 2, 1664} 1985, {768, 2, 1664} 1970, {768, 1, 1664} 1910. So 32 warps a multiprocessor suffice to keep DRAM
/// busy. Other things mattered more: rows loaded four at a time (2105; fp32 1884 instead of 1805), all thread blocks
/// moving along the tensor together (3 percent), no registers spilled for every block (up to 15 percent), and for 4096
/// x 4096 the order at the start, with all loads issued before the first wait (1518 instead of 1247).
struct neuzip_decode_tuning {
  using policy_type = neuzip_decode_policy;
  TESSERA_FN constexpr policy_type operator()(int architecture) const {
    // 2336 words hold nearly every block that the coder makes and leave 92 KiB of L1 on sm_90. Multiprocessors before
    // sm_90 have 100 or 164 KiB of shared memory, those of sm_120 have 100: what sm_80 has, compiled and not measured.
    return architecture >= 1200  ? policy_type{384, 1, 2336, 1200, 10000}
           : architecture >= 900 ? policy_type{1024, 1, 2336, 900, 1200}
                                 : policy_type{384, 1, 2336, 0, 900};
  }
};

/// The policy of encoding: thread blocks of `threads` threads, `blocks_per_multiprocessor` of them at a time; a warp
/// has room for the largest block. Compiled for architectures from `from` up to, but without, `before`.
struct neuzip_encode_policy {
  int threads;                    ///< threads of a thread block, a multiple of 32
  int blocks_per_multiprocessor;  ///< thread blocks that run at a time on a multiprocessor
  int from;                       ///< the first architecture, as 900 for sm_90
  int before;                     ///< the first architecture that is no longer included

  TESSERA_FN friend constexpr bool operator==(neuzip_encode_policy a, neuzip_encode_policy b) {
    return a.threads == b.threads && a.blocks_per_multiprocessor == b.blocks_per_multiprocessor && a.from == b.from &&
           a.before == b.before;
  }
};

/// H200, 512 MiB of bf16, GB/s of input with histogram and codebook: {1024, 1} 1554 (1583 before the code of zeros was
/// made like others). When codebooks took longer: {1024, 1} 1491 (1500 with launches overlapping), {512, 2} 1403, {768,
/// 1} 1404, {640, 2} 1202.
///
/// The code for sm_80 on the same H200: {384, 2} 1355, and 1219 with an exact zero among a hundred weights. Before the
/// code of zeros was made like others: {384, 1} 1181, {384, 2} 1387, {480, 2} 1387; with zeros {384, 2} 786, {480, 2}
/// 792. A thread block of 384 threads takes 79 KiB: sm_80 has two of them on a multiprocessor, sm_86, sm_89 and sm_120
/// one. sm_120 has sm_80's numbers, compiled and not measured; sm_100 has sm_90's, also only compiled.
struct neuzip_encode_tuning {
  using policy_type = neuzip_encode_policy;
  TESSERA_FN constexpr policy_type operator()(int architecture) const {
    return architecture >= 1200  ? policy_type{384, 2, 1200, 10000}
           : architecture >= 900 ? policy_type{1024, 1, 900, 1200}
                                 : policy_type{384, 2, 0, 900};
  }
};

}  // namespace v0
}  // namespace tessera
