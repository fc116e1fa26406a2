// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `code_widening<Code, Group>`: makes a tile of operands of a tile of codes in scratch, whose columns lie in the order
/// of value_slot(), as those of attention's values do. Then each code is widened once for all warps that multiply it.
///
///     using widened = code_widening<float8_e4m3, Group>;
///     widened::widen(group, scratch.codes, scratch.values);     // channels x slots -> channels x tokens, all lanes
///     group.sync();
///     ...                                                       // products with scratch.values
///     total *= widened::unit();                                 // a power of two
///
/// Codes of a byte become fp16, codes of 16 bits keep their type. Codes are no NaNs.
///
/// This header has plain loops, for groups whose lanes are executed by one thread. tile/codes/code_widening.cuh has the
/// same for groups of CUDA threads. nvcc includes it from here; under NVRTC it must be included by name.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/tile/codes/value_slot.hpp>
#include <tessera/tile/gemm_operand.hpp>

namespace tessera {
inline namespace v0 {

/// The type that codes are multiplied as: fp16, in which codes of 8 bits are exact.
template <class Code>
using widened_code = std::conditional_t<sizeof(Code) == 1, float16, Code>;

namespace detail {

/// All codes of a byte, widened: a load takes a tenth of the time of an 8-bit float becoming fp16.
template <class Code>
struct widened_bytes {
  float16 of[256];  ///< by the bits of a code

  constexpr widened_bytes() : of{} {
    for (int i = 0; i < 256; ++i) {
      auto const code = bit_cast<Code>(static_cast<std::uint8_t>(i));
      of[i] = store<float16>(static_cast<float>(gemm_operand<Code>::widen(code)));
    }
  }
};
template <class Code>
inline constexpr widened_bytes<Code> widened_byte{};

}  // namespace detail

template <class Code, class G>
struct code_widening {
  /// What products with widened codes are to be multiplied by.
  TESSERA_FN static constexpr float unit() { return 1.0F; }
  /// Widens all codes of a tile. From: rows x a multiple of 16 columns. To: tiles of as many columns, which have the
  /// rows one behind the other.
  template <class From, class To, int Tiles>
  TESSERA_FN static void widen(G const& group, From const& from, To (&to)[Tiles]) {
    static_assert(From::rows == Tiles * To::rows && From::columns == To::columns && From::columns % 16 == 0,
                  "tessera: widened tiles have the rows of the tile of codes, and whole 16s of columns");
    for (int lane : group) {
      for (int i = lane; i < From::rows * From::columns; i += G::size) {
        int const row = i / From::columns;
        int const column = i % From::columns;
        to[row / To::rows](row % To::rows, column) = widened(from(row, value_slot(column)));
      }
    }
  }

 private:
  TESSERA_FN static widened_code<Code> widened(Code code) {
    if constexpr (sizeof(Code) == 1) {
      return detail::widened_byte<Code>.of[bit_cast<std::uint8_t>(code)];
    } else {
      return store<Code>(static_cast<float>(gemm_operand<Code>::widen(code)));
    }
  }
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/tile/codes/code_widening.cuh>
#endif
