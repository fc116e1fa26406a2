// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `find_offsets`: a part of the CUDA encoder (program/weights/encode.cuh), which makes codes of exponents, two at a
/// time.
#pragma once

#include <cstdint>

#include <tessera/entropy/exponent_window.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/sm_90/half_words.cuh>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Makes 256 + code of exponents, and says whether one of them has no code, or one that is not made here: that of an
/// exponent from elsewhere, but for 0, the exponent of zeros.
///
/// On sm_90 1 is subtracted from all exponents where 0 is the one from elsewhere. So it becomes the largest number,
/// which is cut off to what has its code. Exponents behind the window are cut off, too, and are found by the largest
/// one. Before sm_90 such instructions take several; so zeros are made the first exponent of the window, and have
/// their code's distance from it added last. HasHalfWords: whether there are the instructions of sm_90.
template <bool HasHalfWords, int Pairs>
__device__ __forceinline__ bool find_offsets(exponent_window window, std::uint32_t const (&exponents)[Pairs],
                                             std::uint32_t (&offset)[Pairs]) {
  constexpr std::uint32_t both = 0x00010001U;
  std::uint32_t odd_offset = 0;
  if constexpr (HasHalfWords) {
    bool const has_zero = window.extra == 0 && !window.is_contiguous();
    std::uint32_t const less = has_zero ? 0xffffffffU : 0;
    std::uint32_t const most = has_zero ? (window.base + window.extra_code - 1) * both : 0xffffffffU;
    std::uint32_t const bias = (256u - window.base + (has_zero ? 1u : 0u)) * both;
    std::uint32_t const end = window.base + window.neighbours + (window.is_contiguous() ? 1u : 0u);
    std::uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < Pairs; ++i) {
      offset[i] = add_up_to_halves(exponents[i], less, most) + bias;
      odd_offset |= offset[i] ^ 0x01000100u;
    }
#pragma unroll
    for (int i = 0; i < Pairs; i += 2) {
      largest = largest_halves(largest, exponents[i], i + 1 < Pairs ? exponents[i + 1] : 0);
    }
    return (odd_offset & 0x01f001f0u) != 0 || ((largest + (0x8000u - end) * both) & 0x80008000u) != 0;
  } else {
    // With `beyond` more, the first exponent that is no neighbour gives 272.
    std::uint32_t const bias = (256u - window.base) * both;
    std::uint32_t const beyond = (window.is_contiguous() ? 1u : 2u) * both;
    bool const has_zero = window.extra == 0 && !window.is_contiguous();
    if (has_zero) {
#pragma unroll
      for (int i = 0; i < Pairs; ++i) {
        std::uint32_t const zeros = (~(exponents[i] + 0x00ff00ffu) >> 8) & both;
        std::uint32_t const near = multiply_add(zeros, window.base, exponents[i] + bias);  // of zeros the first's
        odd_offset |= (near ^ 0x01000100u) | ((near + beyond) ^ 0x01000100u);
        offset[i] = multiply_add(zeros, window.extra_code, near);
      }
    } else {
#pragma unroll
      for (int i = 0; i < Pairs; ++i) {
        offset[i] = exponents[i] + bias;
        odd_offset |= (offset[i] ^ 0x01000100u) | ((offset[i] + beyond) ^ 0x01000100u);
      }
    }
    return (odd_offset & 0x01f001f0u) != 0;
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
