// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Attention of a few queries over keys as they are, and over compressed ones: how programs are laid out.
#pragma once

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// Of program/attention/decode_dense.cuh.
struct dense_decode_policy {
  int tokens;  ///< of a piece: keys and values that a warp takes at a time; a multiple of 16
  int warps;   ///< of a block, that multiply
  int stages;  ///< pieces in shared memory of a block, a multiple of the warps

  friend constexpr bool operator==(dense_decode_policy const&, dense_decode_policy const&) = default;
};

/// How keys are shared among blocks: costs in nanoseconds.
struct decode_sharing_policy {
  int step;     ///< a piece or page of each warp of a block
  int work;     ///< the end of a work
  int merging;  ///< of shares, by another launch
};

/// The same costs on every architecture.
struct decode_sharing_tuning {
  using policy_type = decode_sharing_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {2300, 1000, 2500}; }
};

/// 16 KiB a piece.
template <int Channels>
struct dense_decode_tuning {
  using policy_type = dense_decode_policy;
  TESSERA_FN constexpr policy_type operator()(int) const {
    return Channels > 128 ? policy_type{16, 5, 10} : Channels > 64 ? policy_type{32, 4, 12} : policy_type{64, 4, 12};
  }
};

/// Of program/paged_cache/attend_pages.cuh.
struct page_decode_policy {
  int warps;   ///< of a block, that multiply
  int stages;  ///< pages in shared memory of a block, a multiple of the warps
  int blocks;  ///< of a multiprocessor

  friend constexpr bool operator==(page_decode_policy const&, page_decode_policy const&) = default;
};

/// A warp has a page at work, and as many are under way; of the longest pages all are at work in turn.
///
/// H200, us: 64 sequences of 4096 tokens of 32 key heads, 4 bits, 16 of them with 8, one of 32768 with 8. This: 321,
/// 31.1, 23.3; 2 blocks of 4 warps: 321, 30.9, 23.3; halves of pages, one each for 14 or 12 warps: 348, 33 and
/// 25, for half a page takes two thirds of its instructions. Of the last figure 3.3 are the launch, 3.2 pass before the
/// first page is there, the last ones are done after 11 to 15.5, and 3.6 are the joining of shares.
template <int Channels, int Bits = 4>
struct page_decode_tuning {
  using policy_type = page_decode_policy;
  TESSERA_FN constexpr policy_type operator()(int) const {
    constexpr int bits = Channels * Bits;  // of a token's key
    return Channels <= 128 && bits <= 512 ? policy_type{8, 16, 1} : policy_type{4, bits > 1024 ? 4 : 8, 1};
  }
};

}  // namespace v0
}  // namespace tessera
