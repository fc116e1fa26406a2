// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// KIVI (arXiv 2402.02750): decoding attention over a cache of 2 or 4 bits. Codes run from the smallest value of a
/// group to the largest. A group is 32 neighbouring tokens of a channel of keys, so that an outlying channel spoils no
/// other, or 32 neighbouring channels of a token's value. The newest tokens are in bf16.
///
/// K^T and V of a key head are one kind of TileSource, `packed_codes`, and the newest tokens are `dense`: the same
/// `decode_heads` takes both. Bytes: channels (Bits / 4 + 1 / 4) a token and key head, with 2 bits 3/16 of bf16. FLOPs:
/// 4 channels a token and query head. A group of lanes takes a key head with its queries, so that many sequences fill a
/// GPU.
#pragma once

#include <tessera/tile/source/dense.hpp>

#include "decode_heads.hpp"
#include "packed_codes.hpp"

namespace tessera_examples {

template <int Bits>
struct kivi_decode {
  static constexpr int lanes = 128, tokens = 128, channels = 128, heads = 4, blocks_per_multiprocessor = 3;
  using scratch_type = decode_scratch<keys_by_channels>;
  matrix_view<bfloat16 const> queries;                 ///< 4 heads for each key head x channels
  packed_heads<Bits> keys, values;                     ///< key head x channel x token, key head x token x channel
  view<bfloat16 const, 3> newest_keys, newest_values;  ///< key head x token x channel
  matrix_view<bfloat16> results;                       ///< as queries

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t head, scratch_type& scratch) const {
    decode_heads<G> attention(group, queries, head, scratch);
    attention.attend(group, keys[head], values[head], scratch);
    attention.attend(group, dense<bfloat16>{newest_keys[head].transposed()}, dense<bfloat16>{newest_values[head]},
                     scratch);
    attention.finish(group, head, results);
  }
};

}  // namespace tessera_examples
