// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The launch of forward_by_warps where it multiplies weights by values as e4m3
/// (program/attention/forward_by_warps.cuh): on GPUs without wgmma whose tensor cores have e4m3, sm_89 and sm_120.
#pragma once

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The policy of forward_by_warps with e4m3 products. Compiled for architectures from `from` up to, but without,
/// `before`.
struct byte_products_policy {
  int warps;                      ///< warps of a thread block, with 16 rows each
  int blocks_per_multiprocessor;  ///< thread blocks that run at a time on a multiprocessor
  int from;                       ///< the first architecture, as 890 for sm_89
  int before;                     ///< the first architecture that is no longer included

  friend constexpr bool operator==(byte_products_policy const&, byte_products_policy const&) = default;
};

/// Nothing was measured on such a GPU. A multiprocessor of sm_89 and of sm_120 has 100 KiB of shared memory, of which a
/// thread block takes 1 KiB more than it asks for, and 65536 registers. So with 128 channels (91 KiB) there is one
/// thread block of 8 warps, and with 64 channels (49 KiB) there are two, whose lanes have 128 registers each. Scores of
/// mean queries take 1 KiB more, which with codes of keys in bytes is too much for two: there is one.
///
/// A warp has 16 rows, and a tile of 128 channels 694 instructions of it, 132 of them products. At 1024 multiply-adds
/// of 8 bits a cycle and multiprocessor, as NVIDIA gives for Ada, scores and results of these rows take tensor cores
/// 512 cycles together (768 where sums in fp32 halve the rate of e4m3), while the 32 KiB that they load from shared
/// memory take 256 cycles, and a quarter of the warp's instructions 174: 32 rows a warp would halve the loads, which
/// are not the bound, and with 128 channels need 108 KiB.
///
/// What ptxas of CUDA 13.0 makes of whole kernels for results in bf16 without biases; spills are counted once each,
/// however often they run. On sm_120 INT4 codes are made bytes first.
///
///                                        registers         bytes of stack    bytes stored and loaded by spills
///                                        sm_89   sm_120    sm_89   sm_120    sm_89         sm_120
///     128 channels, codes in bytes       254     255       0       8         0, 0          8, 8
///     the same, smoothed queries         254     254       0       0         0, 0          0, 0
///     INT4 codes in pairs, same          255               0                 0, 0
///     64 channels, codes in bytes        128     128       144     160       452, 384      432, 468
///     the same, smoothed queries         242     244       0       0         0, 0          0, 0
///     INT4 codes in pairs, same          128               136               336, 372
///
/// With references and largest scores in shared memory, which then is too much for two thread blocks, 64 channels had
/// 128 bytes of stack on sm_89.
template <int Channels, bool HasCorrectionsOfBytes = false>
struct byte_products_tuning {
  using policy_type = byte_products_policy;
  TESSERA_FN constexpr policy_type operator()(int architecture) const {
    constexpr int blocks = Channels == 64 && !HasCorrectionsOfBytes ? 2 : 1;
    return architecture >= 1200 ? policy_type{8, blocks, 1200, 10000} : policy_type{8, blocks, 890, 900};
  }
};

}  // namespace v0
}  // namespace tessera
