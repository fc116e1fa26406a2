// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How NeuZip's CUDA programs are laid out, by architecture.
#pragma once

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// Decoding: thread blocks of `threads` threads, `blocks_per_multiprocessor` of them at a time, with room for `words` words a warp.
struct neuzip_decode_policy {
  int threads;
  int blocks_per_multiprocessor;
  int words;

  TESSERA_FN friend constexpr bool operator==(neuzip_decode_policy a, neuzip_decode_policy b) {
    return a.threads == b.threads && a.blocks_per_multiprocessor == b.blocks_per_multiprocessor && a.words == b.words;
  }
};

struct neuzip_decode_tuning {
  using policy_type = neuzip_decode_policy;
  TESSERA_FN constexpr policy_type operator()(int /*architecture*/) const { return {512, 2, 2560}; }
};

/// Encoding: likewise; a warp has room for the largest block.
struct neuzip_encode_policy {
  int threads;
  int blocks_per_multiprocessor;

  TESSERA_FN friend constexpr bool operator==(neuzip_encode_policy a, neuzip_encode_policy b) {
    return a.threads == b.threads && a.blocks_per_multiprocessor == b.blocks_per_multiprocessor;
  }
};

struct neuzip_encode_tuning {
  using policy_type = neuzip_encode_policy;
  TESSERA_FN constexpr policy_type operator()(int /*architecture*/) const { return {512, 2}; }
};

}  // namespace v0
}  // namespace tessera
