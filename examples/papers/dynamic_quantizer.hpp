// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Dynamic codes of 8 bits (Dettmers et al., arXiv 2110.02861, sections 1.3 and 2.2): a user's own Quantizer, whose
/// codes spread over seven decades below a group's largest magnitude.
///
/// A decade is cut into cells of one size, twice as many as the decade below, and a code stands for the middle of its
/// cell. With a sign, decades have 1, 2, ... 64 cells. Without one its bit doubles them, for second moments. A value's
/// code is that of the cell in which it lies, and the largest magnitude is the middle of the last cell. (bitsandbytes
/// takes the nearest code, and has one for the largest magnitude itself.)
#pragma once

#include <cstdint>

#include <tessera/concepts/quantizer.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/quantize/code_scale.hpp>

namespace tessera_examples {

using namespace tessera;

/// The largest magnitude, by an instruction that devices have for two of them.
struct magnitude_reducer {
  using state_type = float;
  using input_type = float;
  TESSERA_FN constexpr float identity() const { return 0.0F; }
  TESSERA_FN constexpr void push(float& state, float value) const { state = maximum(state, absolute(value)); }
  TESSERA_FN constexpr void merge(float& into, float other) const { into = maximum(into, other); }
};

/// `Grouping` neighbouring values share a scale. NaN becomes the largest, and what is below zero 0 without a sign.
template <int Grouping, bool HasSign>
struct dynamic_quantizer {
  using code_type = std::uint8_t;
  using params_type = code_scale;
  static constexpr int group = Grouping;
  static constexpr int lowest_cells = HasSign ? 1 : 2;                  ///< cells of the lowest decade
  static constexpr float highest = 1 - 0.45F / (64.0F * lowest_cells);  ///< the largest code, where 1 ends its decade

  TESSERA_FN constexpr magnitude_reducer range() const { return {}; }
  TESSERA_FN constexpr params_type fit(float largest) const {
    float const scale = max(min(largest, 3.3e38F) * (1 / highest), 0x1p-96F);
    return {scale, 1.0F / scale};
  }
  /// Cells are numbered from the count of their decade's cells on: a line for each decade has the number at which a
  /// value lies. The lines meet where decades do, and are less steep above, so that the least is right.
  TESSERA_FN code_type encode(float value, params_type params) const {
    float const part = value * params.reciprocal;
    float const magnitude = minimum(HasSign ? absolute(part) : maximum(part, 0.0F), highest);
    bool const is_low = magnitude < 1e-4F;  // in one of three decades, which are moved up by three: 8 times the cells
    float const moved = is_low ? magnitude * 1e3F : magnitude;
    float number = 0x1p23F;
    each_decade<3>([&](float cells, float end) {
      number = minimum(number, multiply_add(moved, cells / (0.9F * end), cells * (8 / 9.0F)));
    });
    number = is_low ? number / 8 : number;
    // Rounded down, since the sum's last bit is 1. Below the lowest decade it is the number before the first.
    std::uint32_t const bits = bit_cast<std::uint32_t>(number + (0x1p23F - 0.5F)) - (HasSign ? 0u : 1u);
    return static_cast<code_type>(HasSign ? (bits & 0x7fu) | (bit_cast<std::uint32_t>(value) >> 24 & 0x80u) : bits);
  }
  TESSERA_FN float decode(code_type code, params_type params) const {
    float const number = static_cast<float>(HasSign ? code & 0x7f : code + 1);
    float magnitude = 0;
    each_decade<0>([&](float cells, float end) {
      float const width = 0.9F * end / cells;
      magnitude = maximum(magnitude, multiply_add(number, width, (0.5F - cells * (8 / 9.0F)) * width));
    });
    magnitude = number < lowest_cells ? 0.0F : magnitude * params.scale;
    return HasSign && code >= 0x80 ? -magnitude : magnitude;
  }
  /// Half a cell of the highest decade, or what lies below all.
  TESSERA_FN constexpr float max_error(params_type params) const {
    return params.scale * (1 - highest) * (1 + 0x1p-10F);
  }

 private:
  /// Calls use(cells, end) with each decade's cells and its end, of values up to 1, from decade number `First` on.
  template <int First, class Use>
  TESSERA_FN static void each_decade(Use const& use) {
    constexpr float ends[] = {1e-6F, 1e-5F, 1e-4F, 1e-3F, 1e-2F, 1e-1F, 1.0F};
    for (int i = First; i < 7; ++i) {
      use(static_cast<float>(lowest_cells << i), ends[i]);
    }
  }
};

static_assert(Quantizer<dynamic_quantizer<2048, true>>);

}  // namespace tessera_examples
