// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `quantized_page_reader` reads keys and values of a page of a quantized_codec
/// (algorithm/paged_cache/quantized_codec.hpp) an element at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/view/cache_inputs.hpp>

namespace tessera {
inline namespace v0 {

/// The header of a page of a quantized_codec, 64 bytes.
struct quantized_page_header {
  cache_page_header tokens;     ///< retained tokens, as in pages of program/paged_cache/page_format.hpp
  std::uint64_t not_finite[2];  ///< bit j of {keys, values}: whether that of token j has an element that is not finite
  std::uint64_t zero[2];        ///< always 0

  /// Whether the key or value of a token has codes, because it is finite and not retained.
  [[nodiscard]] TESSERA_FN constexpr bool has_codes(int part, int token) const {
    return ((tokens.retained | not_finite[part]) >> token & 1U) == 0;
  }
};
static_assert(sizeof(quantized_page_header) == 64);

/// The byte at which headers of pages of a quantized_codec begin.
struct header_in_front {
  /// The header of a page of this format.
  TESSERA_FN constexpr int operator()(cache_page_format const&) const { return 0; }
};

/// The page of a head, as one layer reads it. C: a quantized_codec. Sums are in float, channel after channel.
template <class C>
struct quantized_page_reader {
  /// How pages are coded.
  C codec;
  cache_page_format format;
  std::byte const* page;  ///< its first byte
  int layer;              ///< which layer of the page: 0 or 1

  /// The header of the page.
  [[nodiscard]] TESSERA_FN quantized_page_header const& header() const {
    return *reinterpret_cast<quantized_page_header const*>(page);
  }
  /// Whether a token is retained, and so not in the page.
  [[nodiscard]] TESSERA_FN bool is_retained(int token) const { return header().tokens.is_retained(token); }
  /// The row of a retained token, among those of its slot and head.
  [[nodiscard]] TESSERA_FN std::int64_t row_of(int token) const { return header().tokens.row_of(token); }

  /// A channel of a token's key as it is coded: without its length, if lengths are apart.
  [[nodiscard]] TESSERA_FN float coded_key(int token, int channel) const {
    using params_type = typename decltype(codec.keys)::params_type;
    int const of_group = tokens / codec.key_groups();
    auto const* const params = reinterpret_cast<params_type const*>(page + codec.key_params());
    return codec.keys.decode(C::key_codes_type::get(bytes(codec.key_codes(format)), channel * tokens + token),
                             params[channel * codec.key_groups() + token / of_group]);
  }
  /// A channel of a token's value as it is coded.
  [[nodiscard]] TESSERA_FN float coded_value(int token, int channel) const {
    using params_type = typename decltype(codec.values)::params_type;
    int const groups = codec.value_groups(format);
    int const of_group = format.channels / groups;
    auto const* const params = reinterpret_cast<params_type const*>(page + codec.value_params(format));
    return codec.values.decode(
        C::value_codes_type::get(bytes(codec.value_codes(format)), token * format.channels + channel),
        params[token * groups + channel / of_group]);
  }
  /// The factor of a token's coded key or value in this layer: its length, or 1 if vectors are coded directly. It is
  /// NaN for a vector that is not finite.
  [[nodiscard]] TESSERA_FN float length(int part, int token) const {
    if ((header().not_finite[part] >> token & 1U) != 0) {
      return bit_cast<float>(0x7fffffffU);
    }
    if constexpr (C::has_lengths) {
      auto const* const lengths = reinterpret_cast<float16 const*>(page + codec.lengths(format));
      return load(lengths[(2 * layer + part) * tokens + token]);
    }
    return 1.0F;
  }

  /// A channel of a token's key.
  [[nodiscard]] TESSERA_FN float key(int token, int channel) const {
    return length(key_part, token) * coded_key(token, channel);
  }
  /// A channel of a token's value.
  [[nodiscard]] TESSERA_FN float value(int token, int channel) const {
    return length(value_part, token) * coded_value(token, channel);
  }

  /// Keys have no scale in common for all tokens of a page.
  [[nodiscard]] TESSERA_FN float key_scale(int) const { return 1.0F; }
  /// Keys have no minimum in common for all tokens of a page.
  [[nodiscard]] TESSERA_FN float key_minimum(int) const { return 0.0F; }
  /// The product of a query and the key of a token that is not retained.
  [[nodiscard]] TESSERA_FN float score(int token, float const* query, float const*, float) const {
    float sum = 0.0F;
    for (int channel = 0; channel < format.channels; ++channel) {
      sum = multiply_add(query[channel], coded_key(token, channel), sum);
    }
    return length(key_part, token) * sum;
  }
  /// A sum and `weight` times a channel of the value of a token that is not retained.
  [[nodiscard]] TESSERA_FN float add(float total, float weight, int token, int channel) const {
    return multiply_add(weight * length(value_part, token), coded_value(token, channel), total);
  }

 private:
  static constexpr int tokens = cache_page_format::tokens;

  [[nodiscard]] TESSERA_FN unsigned char const* bytes(int offset) const {
    return reinterpret_cast<unsigned char const*>(page + offset);
  }
};

}  // namespace v0
}  // namespace tessera
