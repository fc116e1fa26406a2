// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `decode_scratch`: what lanes that decode share, with keys in one of two ways: channel by channel or token by token.
#pragma once

#include <tessera/core/bfloat16.hpp>
#include <tessera/tile/staged_tile.hpp>

namespace tessera_examples {

using namespace tessera;

/// Keys in scratch as K^T, channel by channel.
struct keys_by_channels : staged_tile<bfloat16, 128, 128> {};
/// Keys in scratch token by token.
struct keys_by_tokens : staged_tile<bfloat16, 128, 128> {};

/// Of 16 rows the heads' are used. Keys: keys_by_channels or keys_by_tokens.
template <class Keys>
struct decode_scratch {
  staged_tile<bfloat16, 16, 128> queries;
  union {
    Keys keys;
    staged_tile<bfloat16, 128, 128> values;
  };
  staged_tile<bfloat16, 16, 128> weights;
  float scores[16 * 128];
};

}  // namespace tessera_examples
