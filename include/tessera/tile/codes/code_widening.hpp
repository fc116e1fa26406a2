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

/// All codes of a byte, widened, by their bits: an 8-bit float becomes fp16 by way of fp32, with branches. They are
/// made once in a process.
template <class Code>
float16 const* widened_bytes() {
  struct table {
    float16 of[256];

    table() {
      for (int i = 0; i < 256; ++i) {
        auto const code = bit_cast<Code>(static_cast<std::uint8_t>(i));
        of[i] = store<float16>(static_cast<float>(gemm_operand<Code>::widen(code)));
      }
    }
  };
  static table const made;
  return made.of;
}

}  // namespace detail

template <class Code, class G>
struct code_widening {
  /// What products with widened codes are to be multiplied by.
  TESSERA_FN static constexpr float unit() { return 1.0F; }
  /// Widens all codes of a tile. From: rows x a multiple of 16 columns. To: tiles of as many columns, which have the
  /// rows one behind the other.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // host only, called from code for both sides
#endif
  template <class From, class To, int Tiles>
  TESSERA_FN static void widen(G const& group, From const& from, To (&to)[Tiles]) {
    if constexpr (sizeof(Code) == 1) {
      float16 const* const widened = detail::widened_bytes<Code>();
      each(group, from, to, [widened](Code code) { return widened[bit_cast<std::uint8_t>(code)]; });
    } else {
      each(group, from, to, [](Code code) { return store<Code>(static_cast<float>(gemm_operand<Code>::widen(code))); });
    }
  }

 private:
  template <class From, class To, int Tiles, class Function>
  TESSERA_FN static void each(G const& group, From const& from, To (&to)[Tiles], Function const& function) {
    static_assert(From::rows == Tiles * To::rows && From::columns == To::columns && From::columns % 16 == 0,
                  "tessera: widened tiles have the rows of the tile of codes, and whole 16s of columns");
    for (int lane : group) {
      for (int i = lane; i < From::rows * From::columns; i += G::size) {
        int const row = i / From::columns;
        int const column = i % From::columns;
        to[row / To::rows](row % To::rows, column) = function(from(row, value_slot(column)));
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/tile/codes/code_widening.cuh>
#endif
