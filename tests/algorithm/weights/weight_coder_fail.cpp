// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: the stream_id of a user's coder is from 128 to 255
#include <cstdint>

#include <tessera/neuzip.hpp>

#include "algorithm/weights/own_coders.hpp"

namespace {

struct own_coder : tessera_test::six_bit_coder {
#if defined(TESSERA_FAIL)
  static constexpr std::uint8_t stream_id = 2;  // that of fixed_coder
#else
  static constexpr std::uint8_t stream_id = 202;
#endif
};

}  // namespace

std::int64_t bytes_of(std::int64_t count) {
  using codec =
      tessera::compressed_weights<tessera::exponent_split<tessera::bfloat16>, own_coder, tessera::keep_mantissa<7>>;
  return codec::largest_bytes(codec::spec(count));
}
