// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `page_reader` reads keys and values of a page of program/paged_cache/page_format.hpp an element at a time, for
/// portable programs; it is the reader of a direction_codec.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/paged_cache/page_arithmetic.hpp>
#include <tessera/program/paged_cache/page_format.hpp>

namespace tessera {
inline namespace v0 {

/// The page of a head, as one layer reads it.
struct page_reader {
  cache_page_format format;
  std::byte const* page;  ///< its first byte
  int layer;              ///< which layer of the page: 0 or 1

  /// The header of the page.
  [[nodiscard]] TESSERA_FN cache_page_header const& header() const {
    return *reinterpret_cast<cache_page_header const*>(page + format.header());
  }
  /// Whether a token is retained, and so not in the page.
  [[nodiscard]] TESSERA_FN bool is_retained(int token) const { return header().is_retained(token); }
  /// The row of a retained token, among those of its slot and head.
  [[nodiscard]] TESSERA_FN std::int64_t row_of(int token) const { return header().row_of(token); }
  /// The code of a channel of a token's key.
  [[nodiscard]] TESSERA_FN std::uint32_t key_code(int token, int channel) const {
    return read_code(reinterpret_cast<std::uint32_t const*>(page + format.key_codes()), format.key_bits, channel / 16,
                     code_coordinates::of(token / 16, token % 16, channel % 16));
  }
  /// The code of a channel of a token's value.
  [[nodiscard]] TESSERA_FN std::uint32_t value_code(int token, int channel) const {
    return read_code(reinterpret_cast<std::uint32_t const*>(page + format.value_codes()), format.value_bits,
                     channel / 16, code_coordinates::of(token / 16, channel % 16, token % 16));
  }
  /// The parameters of a channel's keys.
  [[nodiscard]] TESSERA_FN key_channel channel(int of) const {
    return {half(format.key_scales(), channel_slot(of)), half(format.key_minima(), channel_slot(of))};
  }
  /// The norm of a token's key in this layer.
  [[nodiscard]] TESSERA_FN float16 norm(int token) const { return half(format.key_norms(layer), token_slot(token)); }
  /// The scale of a group of a token's value in this layer.
  [[nodiscard]] TESSERA_FN float16 value_scale(int token, int group) const {
    return half(format.value_scales(layer), group * cache_page_format::tokens + token_slot(token));
  }
  /// The ratio of a group of a token's value, for both layers.
  [[nodiscard]] TESSERA_FN float16 value_ratio(int token, int group) const {
    return half(format.value_ratios(), group * cache_page_format::tokens + token_slot(token));
  }
  /// A channel of a token's restored key.
  [[nodiscard]] TESSERA_FN float key(int token, int of) const {
    return restored_key(key_code(token, of), channel(of), norm(token));
  }
  /// A channel of a token's restored value.
  [[nodiscard]] TESSERA_FN float value(int token, int of) const {
    int const group = of / format.group_channels();
    return restored_value(value_code(token, of), value_scale(token, group), value_ratio(token, group),
                          format.value_bits);
  }

  // What attention reads: scores and sums of values, without forming a key or a value. `folded` is a query times the
  // keys' scales, and `bias` the sum of a query times the keys' minima.

  /// The factor of a channel's codes of keys.
  [[nodiscard]] TESSERA_FN float key_scale(int of) const { return load(channel(of).scale); }
  /// What is added to a channel's codes of keys times their scale.
  [[nodiscard]] TESSERA_FN float key_minimum(int of) const { return load(channel(of).minimum); }
  /// The product of a query and the key of a token that is not retained.
  [[nodiscard]] TESSERA_FN float score(int token, float const*, float const* folded, float bias) const {
    float sum = 0.0F;
    for (int of = 0; of < format.channels; ++of) {
      sum = multiply_add(folded[of], static_cast<float>(key_code(token, of)), sum);
    }
    return load(norm(token)) * (sum + bias);
  }
  /// A sum and `weight` times a channel of the value of a token that is not retained.
  [[nodiscard]] TESSERA_FN float add(float total, float weight, int token, int of) const {
    int const group = of / format.group_channels();
    float const power = 1.0F / static_cast<float>(1 << (format.value_bits - 1));
    float const by = weight * (load(value_scale(token, group)) * power);
    auto const code = static_cast<float>(value_code(token, of));
    return multiply_add(by, code + load(value_ratio(token, group)), total);
  }

 private:
  [[nodiscard]] TESSERA_FN float16 half(int offset, int index) const {
    return reinterpret_cast<float16 const*>(page + offset)[index];
  }
};

}  // namespace v0
}  // namespace tessera
