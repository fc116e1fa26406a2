// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `parked_weights`: a lane's weights of 16 rows, kept in half as many registers until they are multiplied by values.
/// Operands are fp16 numbers that are e4m3 codes moved by 7 bits, so that 7 bits of 16 hold a number.
#pragma once

#include <cstdint>

#include <tessera/core/with_constant.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Steps: operands of four words each.
template <int Steps>
struct parked_weights {
  std::uint32_t words[Steps][2];  ///< the first code of two in bits 7 to 13 of each half, the second in bits 0 to 6

  /// Parks the operands of 16 rows.
  template <class Operands>
  __device__ __forceinline__ static parked_weights of(Operands const& operands) {
    static_assert(Operands::steps == Steps, "tessera: parked weights have as many steps as their operands");
    parked_weights parked;
    each_constant<Steps>([&](auto step) {
      auto const& from = operands.of_step[step.value].words[0][0];
      parked.words[step.value][0] = from[0] + (from[1] >> 7);
      parked.words[step.value][1] = from[2] + (from[3] >> 7);
    });
    return parked;
  }
  /// The operand of a step again.
  template <class Operand>
  __device__ __forceinline__ Operand operand(int step) const {
    constexpr std::uint32_t of_first = 0x3f803f80U;
    Operand found;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      found.words[0][0][2 * i] = words[step][i] & of_first;
      found.words[0][0][2 * i + 1] = (words[step][i] << 7) & of_first;
    }
    return found;
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
