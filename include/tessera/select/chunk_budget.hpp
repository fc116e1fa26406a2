// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `chunk_budget`: the number of chunks that a selector of a fixed number of chunks takes.
///
///     struct my_selector {
///       std::int64_t chunks = 256;
///       TESSERA_FN constexpr std::int64_t budget(std::int64_t candidates) const {
///         return chunk_budget(chunks, candidates);
///       }
///       ...
///     };
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {

/// `wanted` chunks, limited to the number of candidates and to at least 0. So it is never more than `candidates` and
/// never shrinks when they grow, as selectors promise.
TESSERA_FN constexpr std::int64_t chunk_budget(std::int64_t wanted, std::int64_t candidates) {
  return min(max(wanted, std::int64_t{0}), candidates);
}

}  // namespace v0
}  // namespace tessera
