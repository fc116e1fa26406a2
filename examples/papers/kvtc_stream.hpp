// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `kvtc_stream`: blocks of tokens as KVTC (kvtc.hpp) codes them, and what they are coded by.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/entropy/rans_coder.hpp>
#include <tessera/quantize/nearest_code.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera_examples {

using namespace tessera;

/// The uniform codes of a component: 2^bits steps around a middle. Without bits all are the middle.
struct kvtc_component {
  float middle, step;
  int bits;

  TESSERA_FN std::uint8_t encode(float value) const {
    int const half = 1 << bits >> 1;
    return static_cast<std::uint8_t>(nearest_code((value - middle) / step - 0.5F, -half, half - 1) + half);
  }
  TESSERA_FN float decode(int code) const {
    return bits == 0 ? middle : multiply_add(static_cast<float>(code - (1 << bits >> 1)) + 0.5F, step, middle);
  }
};

/// A block's words are those of its lanes, one after the other; blocks begin
/// at multiples of `most_words`, so that each may be copied elsewhere as long as it is.
template <int Channels>
struct kvtc_stream {
  using coder = rans_coder<12>;
  static constexpr int lanes = Channels, tokens = 256;
  static constexpr int most_of_lane = tokens * 12 / 16 + 2;  ///< a symbol has a slot of 4096 or more
  static constexpr std::int64_t most_words = std::int64_t{lanes} * most_of_lane;
  array_view<kvtc_component const> components;
  array_view<coder::encode_table const> encode_tables;  ///< for 2, 4 and 8 bits
  array_view<coder::decode_table const> decode_tables;  ///< as encode_tables
  matrix_view<bfloat16> coefficients;                   ///< tokens x components
  matrix_view<std::uint32_t> states;                    ///< block x component: where decoders begin
  matrix_view<std::int32_t> ends;                       ///< as states: the end of a lane's words in its block
  array_view<std::uint16_t> words;

  TESSERA_FN std::int64_t end_of(std::int64_t block) const { return min((block + 1) * tokens, coefficients.extent(0)); }
};

}  // namespace tessera_examples
