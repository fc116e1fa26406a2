// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Packs codes of a 4-bit method that lie in bytes, two to a byte, and widens them again. With it an engine can keep
/// the codes of keys in half a byte for each channel and still use the programs for sm_90a, which multiply bytes. A
/// method whose codes are two_to_a_byte needs no packing (quantize/two_to_a_byte.hpp).
///
///     pack_int4_codes(exec, heads.keys.codes, packed);        // packed: head_view<int4x2>, half as many channels
///     widen_int4_codes(exec, packed, heads.keys.codes);       // before attention, which multiplies bytes
///
/// Scales and means stay as they are. No call waits or allocates.
#pragma once

#include <cstdint>

#include <tessera/concepts/executor.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/program/attention/pack_codes.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

template <class Codes, class Packed>
void check_packed(char const* function, Codes const& codes, Packed const& packed) {
  for (int dimension = 0; dimension < 4; ++dimension) {
    std::int64_t const pairs = dimension == 3 ? 2 : 1;
    check<shape_error>(codes.extent(dimension) == pairs * packed.extent(dimension), function, ": dimension ", dimension,
                       " of the codes has ", codes.extent(dimension), " elements but that of the packed ones ",
                       packed.extent(dimension));
  }
  check_memory(function, "codes", codes);
  check_memory(function, "packed codes", packed);
  check<shape_error>(codes.is_contiguous() && packed.is_contiguous(), function,
                     ": the strides from token to token are ", codes.stride(2), " and ", packed.stride(2),
                     " but codes must be contiguous");
}

}  // namespace detail

/// Enqueues the packing of codes from -8 to 7. Throws shape_error.
template <Executor Exec>
void pack_int4_codes(Exec const& exec, head_view<std::int8_t const> codes, head_view<int4x2> packed) {
  detail::check_packed("pack_int4_codes", codes, packed);
  check_reach(exec, "pack_int4_codes", "codes", codes, "packed codes", packed);
  pack_codes const program{codes, packed};
  exec.run(program, program.groups());
}

/// Enqueues the widening of packed codes to bytes. Throws shape_error.
template <Executor Exec>
void widen_int4_codes(Exec const& exec, head_view<int4x2 const> packed, head_view<std::int8_t> codes) {
  detail::check_packed("widen_int4_codes", codes, packed);
  check_reach(exec, "widen_int4_codes", "packed codes", packed, "codes", codes);
  widen_codes const program{packed, codes};
  exec.run(program, program.groups());
}

}  // namespace v0
}  // namespace tessera
