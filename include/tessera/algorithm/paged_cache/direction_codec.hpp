// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `direction_codec`: a PageCodec of directions times lengths, with codes of 2, 3, 4 or 8 bits from the smallest value
/// of a group to the largest. Its format is program/paged_cache/page_format.hpp, and its arithmetic
/// program/paged_cache/page_arithmetic.hpp, which the kernels for one architecture share with the portable programs.
///
///     using four = tessera::direction_codec<4, 64>;              // 64 channels of a value share a scale
///     using two_and_four = tessera::direction_codec<2, 64, 4>;   // keys of 2 bits, values of 4
///
/// It takes numbers and no Quantizer, because kernels use its codes as parts of tensor core operands, without decoding
/// them one by one: other codes need other kernels. quantized_codec (algorithm/paged_cache/quantized_codec.hpp) takes
/// any Quantizer.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/concepts/page_codec.hpp>
#include <tessera/config.hpp>
#include <tessera/program/paged_cache/measure_pages.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/program/paged_cache/page_reader.hpp>
#include <tessera/program/paged_cache/write_pages.hpp>

namespace tessera {
inline namespace v0 {

/// Bits: bits of a key's code. ValueGroup: channels of a value that share a scale, at least 16. ValueBits: bits of a
/// value's code. The format of a page holds all three numbers, so that a part of a cache may have other ones
/// (cache_layers): the portable programs take any. Kernels for one architecture are compiled for the numbers of the
/// cache's codec alone, at about a second for each; direction_codecs names further ones.
template <int Bits = 4, int ValueGroup = 64, int ValueBits = Bits>
struct direction_codec {
  static constexpr int most_layers = 2;           ///< pairs of layers share directions
  static constexpr int key_bits = Bits;           ///< bits of a key's code
  static constexpr int value_bits = ValueBits;    ///< bits of a value's code
  static constexpr int value_group = ValueGroup;  ///< channels of a value that share a scale
  /// Whether pages have the format of direction_codec, for which devices have special programs.
  static constexpr bool has_page_format = true;

  /// Why no program can make such a page, or none.
  [[nodiscard]] TESSERA_FN static constexpr page_format_fault fault(cache_page_format const& format) {
    if (format.channels < 32 || format.channels > 256 || format.channels % 32 != 0) {
      return {"heads have ", format.channels, " channels but must have a multiple of 32 up to ", 256};
    }
    for (int bits : {format.key_bits, format.value_bits}) {
      if (bits != 2 && bits != 3 && bits != 4 && bits != 8) {
        return {"codes have ", bits, " bits but must have 2, 3, 4 or ", 8, "", false};
      }
    }
    if (format.value_groups < 1 || format.value_groups > 16 || format.channels % (16 * format.value_groups) != 0) {
      return {"values have ", format.value_groups, " groups of ", format.channels,
              " channels but groups must have a multiple of 16"};
    }
    if (format.layers != 1 && format.layers != 2) {
      return {"pages have ", format.layers, " layers but must have 1 or ", 2};
    }
    return {};
  }

  /// The bytes of a page.
  [[nodiscard]] TESSERA_FN static constexpr int page_bytes(cache_page_format const& format) { return format.bytes(); }
  /// The bytes of a page, by use.
  [[nodiscard]] static constexpr page_byte_counts counts(cache_page_format const& format) {
    std::int64_t const of_tokens = 2 * cache_page_format::tokens;
    return {format.key_code_bytes() + format.value_code_bytes(),
            4 * format.channels + of_tokens * format.value_groups * (1 + format.layers), of_tokens * format.layers,
            static_cast<std::int64_t>(sizeof(cache_page_header))};
  }
  /// Reads a page for one of its layers.
  [[nodiscard]] TESSERA_FN static constexpr page_reader reader(cache_page_format const& format, std::byte const* page,
                                                               int layer) {
    return {format, page, layer};
  }
  /// The program that writes pages; Channels: the most channels of a head.
  template <int Channels, class T>
  [[nodiscard]] static constexpr encode_pages<T, Channels> writer(pages_to_write<T> const& pages) {
    return {pages.source, pages.rows, pages.marks};
  }
  /// All direction_codecs share the portable programs of one, since page formats hold their numbers.
  [[nodiscard]] TESSERA_FN static constexpr direction_codec<> shared() { return {}; }
  /// Calls `use`, which returns a bool, with each direction_codec for whose numbers kernels are made, until one call
  /// returns true. Returns whether one did.
  template <class Use>
  static constexpr bool any_codec(Use const& use) {
    return use(direction_codec{});
  }
};

static_assert(PageCodec<direction_codec<>> && PageCodec<direction_codec<2, 128, 3>>);

}  // namespace v0
}  // namespace tessera
