// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `write_quantized_pages` writes the pages of a quantized_codec (algorithm/paged_cache/quantized_codec.hpp) that are
/// sealed in a call, and the rows of their retained tokens, after the passes of measure_pages.hpp.
///
/// A group takes the page of a head. It reads each key and value twice: for the range of its group, and for its code.
/// Lanes take whole groups of values, and then eight neighbouring codes, so that no two lanes write to a byte.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/finish_pages.hpp>
#include <tessera/program/paged_cache/measure_pages.hpp>
#include <tessera/program/paged_cache/page_arithmetic.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/program/paged_cache/quantized_page_reader.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/cache_inputs.hpp>

namespace tessera {
inline namespace v0 {

/// C: a quantized_codec.
template <class T, class C>
struct write_quantized_pages {
  static constexpr int lanes = 128;
  static constexpr int tokens = cache_page_format::tokens;
  struct scratch_type {};

  /// The pages to write.
  pages_to_write<T> pages;
  /// How pages are coded.
  C codec;

  TESSERA_FN constexpr std::int64_t groups() const { return pages.marks.size(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    cache_source<T> const& source = pages.source;
    std::int64_t const head = which % pages.marks.extent(2);
    std::int64_t const i = which / pages.marks.extent(2) % pages.marks.extent(1);
    std::int64_t const sequence = which / pages.marks.extent(2) / pages.marks.extent(1);
    std::int64_t const page = source.first_page(sequence) + i;
    if (page >= source.end_page(sequence)) {
      return;
    }
    std::int64_t const block = source.sequences.blocks(sequence, page);
    if (!source.memory.has_block(block)) {
      source.memory.fault_of_block(block).report(group, source.status, sequence);
      return;
    }
    coordinates const at{
        {sequence, head, page * tokens, pages.marks(sequence, i, head), source.memory.page_of(codec, block, head)}, i};
    write_header(group, at);
    group.sync();
    fit_groups(group, at);
    group.sync();
    encode(group, at);
    if constexpr (C::has_lengths) {
      group.sync();
      write_lengths(group, at);
    }
    retain_tokens<lanes>(group, source, at.sealed);
    group.sync();
  }

 private:
  struct coordinates {
    sealed_page sealed;
    std::int64_t i;  ///< number of the page among those sealed in this call

    TESSERA_FN quantized_page_header& header() const { return *reinterpret_cast<quantized_page_header*>(sealed.page); }
    TESSERA_FN unsigned char* bytes(int offset) const { return reinterpret_cast<unsigned char*>(sealed.page + offset); }
  };

  TESSERA_FN constexpr cache_page_format const& format() const { return pages.source.memory.format; }
  TESSERA_FN merged_row const& row_of(coordinates const& at, int part, int token) const {
    return pages.rows(at.sealed.sequence, at.i, at.sealed.head, part, token);
  }

  template <Group G>
  TESSERA_FN void write_header(G const& group, coordinates const& at) const {
    write_page_header(group, pages.source, at.sealed, header_in_front{});
    for (int lane : group) {
      if (lane < 2) {
        std::uint64_t found = 0;
        for (int token = 0; token < tokens; ++token) {
          found |= std::uint64_t{is_nan(row_of(at, lane, token).lengths.first) ? 1U : 0U} << token;
        }
        at.header().not_finite[lane] = found;
        at.header().zero[lane] = 0;
      }
    }
  }

  /// A channel of what is coded: of the vector, or of the direction of a vector or of a pair.
  TESSERA_FN float coded(coordinates const& at, int part, int token, int channel) const {
    std::int64_t const sequence = at.sealed.sequence;
    std::int64_t const from = at.sealed.first_token + token;
    float const first = load(pages.source.stored(sequence, 0, part, at.sealed.head, from, channel));
    if constexpr (C::has_lengths) {
      mix_weights const by = row_of(at, part, token).weights;
      float const second =
          format().layers == 2 ? load(pages.source.stored(sequence, 1, part, at.sealed.head, from, channel)) : 0.0F;
      return multiply_add(by.second, second, by.first * first);
    }
    return first;
  }

  /// Fits the parameters of a group of `count` values that begins at a token and a channel, from one to the next by
  /// either.
  template <class Q>
  TESSERA_FN typename Q::params_type fitted(Q const& quantizer, coordinates const& at, int part, int token,
                                            int channel) const {
    bool const are_keys = part == key_part;
    int const count = are_keys ? tokens / codec.key_groups() : format().channels / codec.value_groups(format());
    auto const reducer = quantizer.range();
    auto range = reducer.identity();
    for (int k = 0; k < count; ++k) {
      int const of = token + (are_keys ? k : 0);
      if (at.header().has_codes(part, of)) {
        reducer.push(range, coded(at, part, of, channel + (are_keys ? 0 : k)));
      }
    }
    return quantizer.fit(range);
  }

  template <Group G>
  TESSERA_FN void fit_groups(G const& group, coordinates const& at) const {
    using key_params = typename decltype(codec.keys)::params_type;
    using value_params = typename decltype(codec.values)::params_type;
    auto* const of_keys = reinterpret_cast<key_params*>(at.sealed.page + codec.key_params());
    auto* const of_values = reinterpret_cast<value_params*>(at.sealed.page + codec.value_params(format()));
    int const in_channel = codec.key_groups();
    int const in_token = codec.value_groups(format());
    for (int lane : group) {
      for (int i = lane; i < format().channels * in_channel; i += lanes) {
        of_keys[i] = fitted(codec.keys, at, key_part, i % in_channel * (tokens / in_channel), i / in_channel);
      }
      for (int i = lane; i < tokens * in_token; i += lanes) {
        of_values[i] =
            fitted(codec.values, at, value_part, i / in_token, i % in_token * (format().channels / in_token));
      }
    }
  }

  template <Group G>
  TESSERA_FN void encode(G const& group, coordinates const& at) const {
    int const octets = tokens / 8 * format().channels;
    for (int lane : group) {
      for (int octet = lane; octet < octets; octet += lanes) {
        encode_keys(at, octet);
        encode_values(at, octet);
      }
    }
  }
  /// Codes eight neighbouring tokens of a channel.
  TESSERA_FN void encode_keys(coordinates const& at, int octet) const {
    using codes = typename C::key_codes_type;
    using params_type = typename decltype(codec.keys)::params_type;
    auto const* const params = reinterpret_cast<params_type const*>(at.sealed.page + codec.key_params());
    int const channel = octet * 8 / tokens;
    std::uint32_t fields[8] = {};
    for (int k = 0; k < 8; ++k) {
      int const token = octet * 8 % tokens + k;
      if (at.header().has_codes(key_part, token)) {
        params_type const& by = params[channel * codec.key_groups() + token / (tokens / codec.key_groups())];
        fields[k] = codes::to_field(codec.keys.encode(coded(at, key_part, token, channel), by));
      }
    }
    codes::put(at.bytes(codec.key_codes(format())), octet, fields);
  }
  /// Codes eight neighbouring channels of a token.
  TESSERA_FN void encode_values(coordinates const& at, int octet) const {
    using codes = typename C::value_codes_type;
    using params_type = typename decltype(codec.values)::params_type;
    auto const* const params = reinterpret_cast<params_type const*>(at.sealed.page + codec.value_params(format()));
    int const token = octet * 8 / format().channels;
    int const in_token = codec.value_groups(format());
    std::uint32_t fields[8] = {};
    for (int k = 0; k < 8 && at.header().has_codes(value_part, token); ++k) {
      int const channel = octet * 8 % format().channels + k;
      params_type const& by = params[token * in_token + channel / (format().channels / in_token)];
      fields[k] = codes::to_field(codec.values.encode(coded(at, value_part, token, channel), by));
    }
    codes::put(at.bytes(codec.value_codes(format())), octet, fields);
  }

  /// Writes lengths of both layers, so that restored vectors have theirs.
  template <Group G>
  TESSERA_FN void write_lengths(G const& group, coordinates const& at) const {
    static_assert(lanes == 2 * tokens);
    auto* const lengths = reinterpret_cast<float16*>(at.sealed.page + codec.lengths(format()));
    quantized_page_reader<C> const page{codec, format(), at.sealed.page, 0};
    for (int lane : group) {
      int const part = lane / tokens;
      int const token = lane % tokens;
      bool const is_coded = at.header().has_codes(part, token);
      float square = 0.0F;
      for (int channel = 0; channel < format().channels && is_coded; ++channel) {
        float const decoded = part == key_part ? page.coded_key(token, channel) : page.coded_value(token, channel);
        square = multiply_add(decoded, decoded, square);
      }
      merged_row const& row = row_of(at, part, token);
      float const factor = length_factor(row.square, square);
      lengths[part * tokens + token] = is_coded ? saturated_half(row.lengths.first * factor) : float16{0};
      if (format().layers == 2) {
        lengths[(2 + part) * tokens + token] = is_coded ? saturated_half(row.lengths.second * factor) : float16{0};
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
