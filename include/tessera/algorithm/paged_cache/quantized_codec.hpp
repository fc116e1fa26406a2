// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `quantized_codec`: a PageCodec that codes keys by one Quantizer and values by another, which may be any. Vectors are
/// coded directly or, as in MiniCache, as directions and lengths.
///
///     using two = tessera::asymmetric_quantizer<2, 32>;
///     using eight = tessera::symmetric_quantizer<8, 64>;
///     using plain_pages = tessera::quantized_codec<two>;                                    // as in KIVI
///     using keys_in_two_bits = tessera::quantized_codec<two, eight>;
///     using shared_directions = tessera::quantized_codec<two, eight, tessera::page_vectors::directions>;
///
/// A group of keys is that many neighbouring tokens of a channel, because channels of keys differ in size; a group of
/// values is that many neighbouring channels of a token. whole_tensor means all 64 tokens of the page, or all channels.
/// Each group has the quantizer's params_type, and codes of as many bits as the quantizer says (`bits`), or of all bits
/// of code_type. Quantizers may have a state, which the codec holds.
///
/// Pages are written and read by portable programs, on every executor. Parts of a page, from its start, each from a
/// multiple of 32 bytes on; D channels, K and G groups of keys and values:
///
///     header             64 bytes          quantized_page_header
///     keys' parameters   D x K             channel after channel, group after group of tokens
///     values' parameters 64 x G            token after token, group after group of channels
///     keys' codes        D x 64 codes      channel after channel; eight tokens take as many bytes as a code has bits
///     values' codes      64 x D codes      token after token; eight channels take as many bytes as a code has bits
///     lengths            layers x {keys, values} x 64 x fp16      directions only
///
/// A key or value with an element that is not finite has codes of 0 and no part in the parameters of its group; its bit
/// is in the header, and it is read as NaNs. Retained tokens have codes of 0, too. Lengths are corrected for what
/// coding does to the length of a direction, and saturate at 65504.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/concepts/page_codec.hpp>
#include <tessera/concepts/quantizer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/measure_pages.hpp>
#include <tessera/program/paged_cache/page_codes.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/program/paged_cache/quantized_page_reader.hpp>
#include <tessera/program/paged_cache/write_quantized_pages.hpp>

namespace tessera {
inline namespace v0 {

/// What a page of a quantized_codec holds of vectors.
enum class page_vectors : std::uint8_t {
  plain,      ///< vectors are coded directly; layers are not paired
  directions  ///< directions, which pairs of layers may share, and lengths
};

namespace detail {

/// Groups of a Quantizer in a row of `count` values.
template <class Q>
TESSERA_FN constexpr int groups_in(int count) {
  return Q::group == whole_tensor ? 1 : count / Q::group;
}

/// Whether a quantizer requires more of programs than its concept says, as adaptors and granularities of tokens do.
template <class Q>
concept AsksForMore = requires {
  typename Q::quantizer_type;
}
|| requires {
  requires !std::is_integral_v<typename Q::granularity_type>;
};

}  // namespace detail

/// KeyQuantizer, ValueQuantizer: code groups of keys and of values. Vectors: whether vectors are coded directly or as
/// directions and lengths.
template <Quantizer KeyQuantizer, Quantizer ValueQuantizer = KeyQuantizer, page_vectors Vectors = page_vectors::plain>
struct quantized_codec {
  static_assert(!detail::AsksForMore<KeyQuantizer> && !detail::AsksForMore<ValueQuantizer>,
                "tessera: quantized_codec takes quantizers of neighbouring values, without means, samples or "
                "granularities of tokens");
  static_assert(KeyQuantizer::group == whole_tensor || cache_page_format::tokens % KeyQuantizer::group == 0,
                "tessera: quantized_codec needs groups of keys that divide a page's 64 tokens");

  /// How codes of keys and of values are packed.
  using key_codes_type = page_codes<KeyQuantizer>;
  /// The codes of values.
  using value_codes_type = page_codes<ValueQuantizer>;

  static constexpr bool has_lengths = Vectors == page_vectors::directions;  ///< whether directions are coded
  static constexpr int most_layers = has_lengths ? 2 : 1;                   ///< plain vectors of layers share nothing
  static constexpr int key_bits = key_codes_type::bits;                     ///< bits of a key's code
  static constexpr int value_bits = value_codes_type::bits;                 ///< bits of a value's code
  /// Whether pages have the format of direction_codec, for which devices have special programs.
  static constexpr bool has_page_format = false;
  /// Channels of a value that share parameters; 256, the most channels, for all of them.
  static constexpr int value_group = ValueQuantizer::group == whole_tensor ? 256 : ValueQuantizer::group;

  KeyQuantizer keys = {};      ///< codes keys
  ValueQuantizer values = {};  ///< codes values

  /// Why a format is not one of this codec, or none.
  [[nodiscard]] TESSERA_FN static constexpr page_format_fault fault(cache_page_format const& format) {
    if (format.channels < 32 || format.channels > 256 || format.channels % 32 != 0) {
      return {"heads have ", format.channels, " channels but must have a multiple of 32 up to ", 256};
    }
    if (format.key_bits != key_bits) {
      return {"codes of keys have ",
              format.key_bits,
              " bits but those of the codec's quantizer have ",
              key_bits,
              "",
              false};
    }
    if (format.value_bits != value_bits) {
      return {"codes of values have ",
              format.value_bits,
              " bits but those of the codec's quantizer have ",
              value_bits,
              "",
              false};
    }
    int const group = ValueQuantizer::group == whole_tensor ? format.channels : ValueQuantizer::group;
    if (format.channels % group != 0) {
      return {"heads have ", format.channels, " channels, which are no whole number of the quantizer's groups of ",
              group};
    }
    if (format.value_groups != format.channels / group) {
      return {"values have ", format.value_groups, " groups but the codec's quantizer makes ", format.channels / group};
    }
    if (format.layers < 1 || format.layers > most_layers) {
      return {"pages have ", format.layers, " layers but those of this codec have at most ", most_layers};
    }
    return {};
  }

  /// The byte at which the parameters of groups of keys begin.
  [[nodiscard]] TESSERA_FN static constexpr int key_params() { return sizeof(quantized_page_header); }
  /// The byte at which the parameters of groups of values begin.
  [[nodiscard]] TESSERA_FN static constexpr int value_params(cache_page_format const& f) {
    return behind(key_params(), f.channels * key_groups() * size_of<typename KeyQuantizer::params_type>);
  }
  /// The byte at which the codes of keys begin.
  [[nodiscard]] TESSERA_FN static constexpr int key_codes(cache_page_format const& f) {
    return behind(value_params(f), tokens * value_groups(f) * size_of<typename ValueQuantizer::params_type>);
  }
  /// The byte at which the codes of values begin.
  [[nodiscard]] TESSERA_FN static constexpr int value_codes(cache_page_format const& f) {
    return behind(key_codes(f), tokens / 8 * f.channels * key_bits);
  }
  /// The byte at which the lengths begin, or the page ends.
  [[nodiscard]] TESSERA_FN static constexpr int lengths(cache_page_format const& f) {
    return behind(value_codes(f), tokens / 8 * f.channels * value_bits);
  }
  /// The bytes of a page.
  [[nodiscard]] TESSERA_FN static constexpr int page_bytes(cache_page_format const& f) {
    return lengths(f) + (has_lengths ? f.layers * 2 * tokens * size_of<float16> : 0);
  }
  /// The bytes of a page, by use.
  [[nodiscard]] static constexpr page_byte_counts counts(cache_page_format const& f) {
    page_byte_counts found;
    found.codes = tokens / 8 * f.channels * (key_bits + value_bits);
    found.scales = f.channels * key_groups() * size_of<typename KeyQuantizer::params_type> +
                   tokens * value_groups(f) * size_of<typename ValueQuantizer::params_type>;
    found.lengths = page_bytes(f) - lengths(f);
    found.header = page_bytes(f) - found.codes - found.scales - found.lengths;
    return found;
  }
  /// Groups of the keys of a channel.
  [[nodiscard]] TESSERA_FN static constexpr int key_groups() { return detail::groups_in<KeyQuantizer>(tokens); }
  /// Groups of the value of a token.
  [[nodiscard]] TESSERA_FN static constexpr int value_groups(cache_page_format const& f) {
    return detail::groups_in<ValueQuantizer>(f.channels);
  }

  /// Reads a page for one of its layers.
  [[nodiscard]] TESSERA_FN constexpr quantized_page_reader<quantized_codec> reader(cache_page_format const& format,
                                                                                   std::byte const* page,
                                                                                   int layer) const {
    return {*this, format, page, layer};
  }
  /// The program that writes pages. It needs no memory for channels, so that it is the same for all numbers of them.
  template <int, class T>
  [[nodiscard]] constexpr write_quantized_pages<T, quantized_codec> writer(pages_to_write<T> const& pages) const {
    return {pages, *this};
  }
  /// The codec itself, with the state of its quantizers.
  [[nodiscard]] TESSERA_FN constexpr quantized_codec shared() const { return *this; }

 private:
  static constexpr int tokens = cache_page_format::tokens;
  template <class Element>
  static constexpr int size_of = static_cast<int>(sizeof(Element));
  /// The next multiple of the alignment of parts.
  [[nodiscard]] TESSERA_FN static constexpr int behind(int begin, int bytes) {
    return align_up(begin + bytes, cache_page_format::alignment);
  }
};

}  // namespace v0
}  // namespace tessera
