// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: an EntropyCoder names unsigned symbols and their number
#include <cstdint>

#include <tessera/neuzip.hpp>

namespace {

#if defined(TESSERA_FAIL)
/// Not a coder: it only knows how many bits an exponent takes.
struct eight_bits {
  static constexpr int symbol_bits = 8;
};
using coder = eight_bits;
#else
using coder = tessera::tans_coder;
#endif

}  // namespace

std::int64_t bytes_of(std::int64_t count) {
  using codec =
      tessera::compressed_weights<tessera::exponent_split<tessera::bfloat16>, coder, tessera::keep_mantissa<7>>;
  return codec::largest_bytes(codec::spec(count));
}
