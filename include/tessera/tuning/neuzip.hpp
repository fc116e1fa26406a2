// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How NeuZip's CUDA programs are laid out, by architecture.
#pragma once

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// Thread blocks of `threads` threads, `blocks_per_multiprocessor` of them at a time on a multiprocessor.
struct neuzip_policy {
  int threads = 512;
  int blocks_per_multiprocessor = 2;

  TESSERA_FN friend constexpr bool operator==(neuzip_policy a, neuzip_policy b) {
    return a.threads == b.threads && a.blocks_per_multiprocessor == b.blocks_per_multiprocessor;
  }
};

/// Decoding: shared memory holds a table of 16 KiB a block and 5 KiB of words a warp.
struct neuzip_decode_tuning {
  using policy_type = neuzip_policy;
  TESSERA_FN constexpr policy_type operator()(int /*architecture*/) const { return {512, 2}; }
};

/// Encoding: shared memory holds 6.2 KiB of words and escapes a warp.
struct neuzip_encode_tuning {
  using policy_type = neuzip_policy;
  TESSERA_FN constexpr policy_type operator()(int /*architecture*/) const { return {512, 2}; }
};

}  // namespace v0
}  // namespace tessera
