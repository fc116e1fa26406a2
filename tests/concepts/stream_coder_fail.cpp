// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a StreamCoder has the number that streams know it by
#include <cstdint>

#include <tessera/neuzip.hpp>

namespace {

#if defined(TESSERA_FAIL)
using coder = tessera::rans_coder<11>;  // an EntropyCoder of which no stream knows
#else
using coder = tessera::rans_coder<12>;
#endif

}  // namespace

std::int64_t bytes_of(std::int64_t count) {
  using codec =
      tessera::compressed_weights<tessera::exponent_split<tessera::bfloat16>, coder, tessera::keep_mantissa<7>>;
  return codec::largest_bytes(codec::spec(count));
}
