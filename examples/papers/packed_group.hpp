// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `packed_group`: 32 codes of 2 or 4 bits that share a scale and a minimum in fp16. Code t of a word is field t / 8 of
/// its nibble t % 8, so that a mask leaves each byte of a word with one code.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/quantize/asymmetric.hpp>
#include <tessera/tile/codes/join_bytes.hpp>
#include <tessera/tile/source/byte_as_float.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/tile/store_values.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera_examples {

using namespace tessera;

template <int Bits>
struct alignas(4 * Bits) packed_group {
  using quantizer = asymmetric_half_quantizer<Bits, 32>;
  using params_type = typename quantizer::params_type;
  static constexpr int in_word = 32 / Bits;
  std::uint32_t words[Bits];

  /// Writes the codes of 32 values, from the one at `first` on.
  TESSERA_FN static void encode(array_view<bfloat16 const> values, std::int64_t first, params_type& params,
                                array_view<std::uint32_t> to) {
    quantizer const by_group;
    auto range = by_group.range().identity();
    for (int t = 0; t < 32; ++t) {
      by_group.range().push(range, load(values[first + t]));
    }
    auto const found = params = by_group.fit(range);
    for (int word = 0; word < Bits; ++word) {
      std::uint32_t packed = 0;
      for (int t = 0; t < in_word; ++t) {
        float const value = load(values[first + word * in_word + t]);
        packed |= std::uint32_t{by_group.encode(value, found)} << (t % 8 * 4 + t / 8 * Bits);
      }
      to[word] = packed;
    }
  }
  /// Writes the values, eight to a chunk. With 2 bits the four values that there are become bytes to choose from.
  template <class G, class Chunk>
  TESSERA_FN void decode(G const& group, params_type params, Chunk const& chunk) const {
    float values[8];
    if constexpr (Bits == 2) {
      for (int code = 0; code < 8; ++code) {
        values[code] = quantizer{}.decode_whole(static_cast<float>(code % 4), params);
      }
      tile_chunk<bfloat16> rounded;
      store_values<bfloat16>(group, values, true, rounded);
      auto const table = bit_cast<four_words>(rounded);
      std::uint32_t const low = permute_bytes(group, table.words[0], table.words[1], 0x6420U);
      std::uint32_t const high = permute_bytes(group, table.words[0], table.words[1], 0x7531U);
      for (int which = 0; which < 4; ++which) {
        std::uint32_t const fields = words[which / 2] >> (which % 2 * 2) & 0x33333333U;
        four_words pairs;
        for (int half = 0; half < 2; ++half) {
          std::uint32_t const lows = permute_bytes(group, low, 0, fields >> (16 * half));
          std::uint32_t const highs = permute_bytes(group, high, 0, fields >> (16 * half));
          pairs.words[2 * half] = permute_bytes(group, lows, highs, 0x5140U);
          pairs.words[2 * half + 1] = permute_bytes(group, lows, highs, 0x7362U);
        }
        chunk(which) = bit_cast<tile_chunk<bfloat16>>(pairs);
      }
    } else {
      for (int which = 0; which < 4; ++which) {
        for (int t = 0; t < 8; ++t) {
          std::uint32_t const fields = words[which] >> (t % 2 * 4) & 0x0f0f0f0fU;
          values[t] = quantizer{}.decode_whole(byte_as_float(group, fields, t / 2) - 0x1p23F, params);
        }
        store_values<bfloat16>(group, values, true, chunk(which));
      }
    }
  }

 private:
  struct alignas(16) four_words {
    std::uint32_t words[4];
  };
};

}  // namespace tessera_examples
