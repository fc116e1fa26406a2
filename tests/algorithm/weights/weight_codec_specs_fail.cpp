// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: tessera: compressed_weights has streams of bfloat16, float16, float, float8_e4m3 and float8_e5m2
#include <tessera/neuzip.hpp>

namespace {

/// A type of the user's own, with bf16's parts in another order.
struct own_type {
  std::uint16_t bits;
};

}  // namespace

template <>
struct tessera::scalar_traits<own_type> : tessera::scalar_traits<tessera::bfloat16> {
  TESSERA_FN static constexpr bits_type to_bits(own_type value) { return value.bits; }
  TESSERA_FN static constexpr own_type from_bits(bits_type pattern) { return {pattern}; }
};

#if defined(TESSERA_FAIL)
using value_type = own_type;
#else
using value_type = tessera::bfloat16;
#endif

std::int64_t bytes_of(std::int64_t count) {
  using codec = tessera::neuzip_of<value_type>;
  return codec::largest_bytes(codec::spec(count));
}
