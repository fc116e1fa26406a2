// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `encode_pages` writes the bytes of pages that are sealed in this call, and the rows of their retained tokens; it is
/// the last of three passes, after those of measure_pages.hpp. `keep_tail` keeps later tokens uncompressed.
///
/// Format and arithmetic: program/paged_cache/page_format.hpp and program/paged_cache/page_arithmetic.hpp.
#pragma once

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
#include <tessera/reduce/minimum_maximum.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/cache_inputs.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// Writes pages. A group takes the page of a head. Channels: the most channels of a head.
template <class T, int Channels>
struct encode_pages {
  static constexpr int lanes = 128;
  static constexpr int tokens = cache_page_format::tokens;
  static constexpr int most_groups = 16;  ///< the most groups of channels of a value

  struct scratch_type {
    float merged[tokens * Channels];           ///< directions of the page's keys, or of its values
    key_channel channels[Channels];            ///< the parameters of the keys' channels
    value_group groups[tokens * most_groups];  ///< the parameters of the values' groups
  };

  cache_source<T> source;
  view<merged_row const, 5> rows;  ///< from measure_pages: sequences x pages x heads x (keys, values) x tokens
  view<page_mark const, 3> marks;  ///< retained tokens: sequences x pages x heads

  TESSERA_FN constexpr std::int64_t groups() const { return marks.size(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    std::int64_t const head = which % marks.extent(2);
    std::int64_t const i = which / marks.extent(2) % marks.extent(1);
    std::int64_t const sequence = which / marks.extent(2) / marks.extent(1);
    std::int64_t const page = source.first_page(sequence) + i;
    if (page >= source.end_page(sequence)) {
      return;
    }
    std::int64_t const block = source.sequences.blocks(sequence, page);
    if (!source.memory.has_block(block)) {
      source.memory.fault_of_block(block).report(group, source.status, sequence);
      return;
    }
    coordinates const at{sequence, i, head, page * tokens, marks(sequence, i, head), source.memory.page(block, head)};
    sealed_page const written{sequence, head, at.first_token, at.mark, at.page};
    write_page_header(group, source, written, header_in_format{});
    merge(group, at, key_part, scratch);
    encode_keys(group, at, scratch);
    group.sync();
    merge(group, at, value_part, scratch);
    encode_values(group, at, scratch);
    retain_tokens<lanes>(group, source, written);
    group.sync();
  }

 private:
  struct coordinates {
    std::int64_t sequence;
    std::int64_t i;
    std::int64_t head;
    std::int64_t first_token;
    page_mark mark;
    std::byte* page;

    TESSERA_FN constexpr bool is_retained(int token) const { return (mark.retained >> token & 1U) != 0; }
    TESSERA_FN float16* halves(int offset) const { return reinterpret_cast<float16*>(page + offset); }
    TESSERA_FN std::uint32_t* words(int offset) const { return reinterpret_cast<std::uint32_t*>(page + offset); }
  };

  TESSERA_FN constexpr cache_page_format const& format() const { return source.memory.format; }

  /// Computes the merged vectors of all tokens, zeros for retained ones. Ends with a sync.
  template <Group G>
  TESSERA_FN void merge(G const& group, coordinates const& at, int part, scratch_type& scratch) const {
    int const channels = format().channels;
    for (int lane : group) {
      for (int i = lane; i < tokens * channels; i += lanes) {
        int const token = i / channels;
        mix_weights const by = rows(at.sequence, at.i, at.head, part, token).weights;
        float merged = 0.0F;
        if (!at.is_retained(token) && (by.first != 0.0F || by.second != 0.0F)) {
          std::int64_t const from = at.first_token + token;
          float const first = load(source.stored(at.sequence, 0, part, at.head, from, i % channels));
          float const second =
              format().layers == 2 ? load(source.stored(at.sequence, 1, part, at.head, from, i % channels)) : 0.0F;
          merged = multiply_add(by.second, second, by.first * first);
        }
        scratch.merged[i] = merged;
      }
    }
    group.sync();
  }

  template <Group G>
  TESSERA_FN void encode_keys(G const& group, coordinates const& at, scratch_type& scratch) const {
    int const channels = format().channels;
    for (int lane : group) {
      for (int channel = lane; channel < channels; channel += lanes) {
        interval<float> range = minimum_maximum_reducer<float>{}.identity();
        for (int token = 0; token < tokens; ++token) {
          if (!at.is_retained(token)) {
            float const merged = scratch.merged[token * channels + channel];
            minimum_maximum_reducer<float>{}.push(range, load(saturated_half(merged)));
          }
        }
        key_channel const fitted = key_channel::fit(range, format().key_bits);
        scratch.channels[channel] = fitted;
        at.halves(format().key_scales())[channel_slot(channel)] = fitted.scale;
        at.halves(format().key_minima())[channel_slot(channel)] = fitted.minimum;
      }
    }
    group.sync();
    for (int lane : group) {
      for (int i = lane; i < 32 * format().strips(); i += lanes) {
        write_key_words(at, i / 32, i % 32, scratch);
      }
      if (lane < tokens) {
        float const factor = at.is_retained(lane) ? 0.0F : key_factor(at, lane, scratch);
        for (int layer = 0; layer < format().layers; ++layer) {
          float const length = length_of(at, key_part, layer, lane);
          at.halves(format().key_norms(layer))[token_slot(lane)] =
              at.is_retained(lane) ? float16{0} : saturated_half(length * factor);
        }
      }
    }
  }

  TESSERA_FN void write_key_words(coordinates const& at, int strip, int lane, scratch_type const& scratch) const {
    int const bits = format().key_bits;
    lane_codes codes;
    for (int field = 0; field < lane_codes::fields; ++field) {
      for (int half = 0; half < 2; ++half) {
        code_coordinates const from{lane, field, half};
        int const token = 16 * from.tile() + from.row();
        int const channel = 16 * strip + from.column();
        float const value = scratch.merged[token * format().channels + channel];
        codes.put(bits, field, half, at.is_retained(token) ? 0U : scratch.channels[channel].encode(value, bits));
      }
    }
    for (int word = 0; word < bits; ++word) {
      at.words(format().key_codes())[lane_codes::slot(bits, strip, lane, word)] = codes.words[word];
    }
  }

  struct add {
    TESSERA_FN void operator()(float& into, float other) const { into += other; }
  };
  /// The sum of the squares of an eight of channels.
  struct key_square {
    float const* merged;
    key_channel const* channels;
    int bits;
    TESSERA_FN float operator()(int eight) const { return of_four(eight, 0) + of_four(eight, 1); }
    TESSERA_FN float of_four(int eight, int four) const {
      int const first = first_of_four(eight, four);
      float sum = 0.0F;
      for (int channel = first; channel < first + 4; ++channel) {
        key_channel const& of = channels[channel];
        float const decoded = of.decode_from_origin(of.encode(merged[channel], bits), of.base(bits), bits);
        sum = multiply_add(decoded, decoded, sum);
      }
      return sum;
    }
  };
  struct value_square {
    float const* merged;
    value_group const* groups;
    int group_channels;
    int bits;
    TESSERA_FN float operator()(int group) const {
      value_group const& of = groups[group];
      int sum = 0;
      int sum_of_squares = 0;
      for (int channel = group * group_channels; channel < (group + 1) * group_channels; ++channel) {
        auto const code = static_cast<int>(of.encode(merged[channel], bits));
        sum += code;
        sum_of_squares += code * code;
      }
      return of.decoded_square(group_channels, sum, sum_of_squares);
    }
  };

  TESSERA_FN float key_factor(coordinates const& at, int token, scratch_type const& scratch) const {
    key_square const take{scratch.merged + token * format().channels, scratch.channels, format().key_bits};
    return length_factor(square_of(at, key_part, token), pair_sum(format().channels / 8, 0.0F, take, add{}));
  }
  TESSERA_FN float value_factor(coordinates const& at, int token, scratch_type const& scratch) const {
    value_square const take{scratch.merged + token * format().channels, scratch.groups + token * most_groups,
                            format().group_channels(), format().value_bits};
    return length_factor(square_of(at, value_part, token), pair_sum(format().value_groups, 0.0F, take, add{}));
  }
  TESSERA_FN float square_of(coordinates const& at, int part, int token) const {
    return rows(at.sequence, at.i, at.head, part, token).square;
  }
  TESSERA_FN float length_of(coordinates const& at, int part, int layer, int token) const {
    two_lengths<float> const lengths = rows(at.sequence, at.i, at.head, part, token).lengths;
    return layer == 0 ? lengths.first : lengths.second;
  }

  template <Group G>
  TESSERA_FN void encode_values(G const& group, coordinates const& at, scratch_type& scratch) const {
    int const groups_each = format().value_groups;
    for (int lane : group) {
      for (int i = lane; i < tokens * groups_each; i += lanes) {
        fit_value_group(at, i / groups_each, i % groups_each, scratch);
      }
    }
    group.sync();
    for (int lane : group) {
      for (int i = lane; i < 32 * format().strips(); i += lanes) {
        write_value_words(at, i / 32, i % 32, scratch);
      }
      if (lane < tokens) {
        float const factor = at.is_retained(lane) ? 0.0F : value_factor(at, lane, scratch);
        for (int layer = 0; layer < format().layers; ++layer) {
          float const length = length_of(at, value_part, layer, lane) * factor;
          for (int g = 0; g < groups_each; ++g) {
            at.halves(format().value_scales(layer))[g * tokens + token_slot(lane)] =
                at.is_retained(lane) ? float16{0}
                                     : scratch.groups[lane * most_groups + g].scale(length, format().value_bits);
          }
        }
      }
    }
  }

  TESSERA_FN void fit_value_group(coordinates const& at, int token, int g, scratch_type& scratch) const {
    int const first = token * format().channels + g * format().group_channels();
    interval<float> range = minimum_maximum_reducer<float>{}.identity();
    for (int channel = 0; channel < format().group_channels(); ++channel) {
      minimum_maximum_reducer<float>{}.push(range, scratch.merged[first + channel]);
    }
    value_group const fitted = value_group::fit(range, format().value_bits);
    scratch.groups[token * most_groups + g] = fitted;
    at.halves(format().value_ratios())[g * tokens + token_slot(token)] = fitted.ratio;
  }

  TESSERA_FN void write_value_words(coordinates const& at, int strip, int lane, scratch_type const& scratch) const {
    int const bits = format().value_bits;
    lane_codes codes;
    for (int field = 0; field < lane_codes::fields; ++field) {
      for (int half = 0; half < 2; ++half) {
        code_coordinates const from{lane, field, half};
        int const token = 16 * from.tile() + from.column();
        int const channel = 16 * strip + from.row();
        float const value = scratch.merged[token * format().channels + channel];
        value_group const& of = scratch.groups[token * most_groups + channel / format().group_channels()];
        codes.put(bits, field, half, at.is_retained(token) ? 0U : of.encode(value, bits));
      }
    }
    for (int word = 0; word < bits; ++word) {
      at.words(format().value_codes())[lane_codes::slot(bits, strip, lane, word)] = codes.words[word];
    }
  }
};

/// Puts new tokens of the layers that have inputs into the tail. A group takes the keys or the values of a head of a
/// layer of a sequence. Where pages are sealed from the inputs, it runs after encode_pages, which reads tokens that it
/// overwrites, and leaves out the tokens of these pages.
template <class T>
struct keep_tail {
  static constexpr int lanes = 128;
  static constexpr int pieces_at_a_time = 4;  ///< pieces that a lane has in flight at a time
  struct scratch_type {};

  cache_source<T> source;
  bool are_sealed;  ///< whether complete pages were written by the call

  TESSERA_FN constexpr std::int64_t groups() const {
    return source.sequences.size() * source.memory.format.layers * source.memory.heads * 2;
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    cache_memory<T> const& memory = source.memory;
    int const part = static_cast<int>(which % 2);
    std::int64_t const head = which / 2 % memory.heads;
    int const layer = static_cast<int>(which / 2 / memory.heads % memory.format.layers);
    std::int64_t const sequence = which / 2 / memory.heads / memory.format.layers;
    sequence_fault const fault = source.fault(sequence);
    if (!fault.is_none()) {
      fault.report(group, source.status, sequence);
      return;
    }
    std::int64_t const slot = source.sequences.slot(sequence);
    std::int64_t const end = source.inputs.keys[layer].data == nullptr ? 0 : source.after(sequence);
    std::int64_t const sealed = are_sealed ? source.end_page(sequence) * cache_page_format::tokens : 0;
    std::int64_t const first = max(source.before(sequence), sealed);
    if (first < end) {
      copy(group, rows{&source.inputs.part(layer, part)(sequence, head, first - source.before(sequence), 0),
                       memory.tail_row(slot, layer, part, head, 0), source.inputs.part(layer, part).stride(2),
                       source.inputs.part(layer, part).stride(3), memory.tail_block_stride(),
                       static_cast<std::uint32_t>(first / tokens % memory.tail_blocks()),
                       static_cast<std::uint32_t>(first % tokens), static_cast<std::uint32_t>(end - first)});
    }
  }

 private:
  static constexpr std::uint32_t tokens = cache_page_format::tokens;

  /// Rows of new tokens, and where they go in the tail.
  struct rows {
    T const* from;                ///< the first row
    T* to;                        ///< block 0 of the tail
    std::int64_t token_stride;    ///< elements of `from` from token to token
    std::int64_t channel_stride;  ///< elements of `from` from channel to channel
    std::int64_t block_stride;    ///< elements of `to` from block to block
    std::uint32_t first_block;    ///< the tail block of the first row
    std::uint32_t first_slot;     ///< the first row's number in that block
    std::uint32_t count;          ///< the number of rows

    TESSERA_FN stored_row<T> source_of(std::uint32_t row) const { return {from + row * token_stride, channel_stride}; }
    TESSERA_FN T* target_of(std::uint32_t row, std::uint32_t blocks, std::uint32_t channels) const {
      std::uint32_t const slot = first_slot + row;
      return to + (first_block + slot / tokens) % blocks * block_stride + slot % tokens * channels;
    }
  };

  template <Group G>
  TESSERA_FN void copy(G const& group, rows const& all) const {
    auto const channels = static_cast<std::uint32_t>(source.memory.format.channels);
    auto const blocks = static_cast<std::uint32_t>(source.memory.tail_blocks());
    std::uint32_t const of_row = channels / row_chunk<T>::channels;
    for (int lane : group) {
      for (auto begin = static_cast<std::uint32_t>(lane); begin < all.count * of_row;
           begin += lanes * pieces_at_a_time) {
        row_chunk<T> kept[pieces_at_a_time];
        for (std::uint32_t i = 0; i < pieces_at_a_time; ++i) {
          std::uint32_t const piece = min(begin + i * lanes, all.count * of_row - 1);
          kept[i] = row_chunk<T>::of(all.source_of(piece / of_row), piece % of_row);
        }
        for (std::uint32_t i = 0; i < pieces_at_a_time && begin + i * lanes < all.count * of_row; ++i) {
          std::uint32_t const piece = begin + i * lanes;
          kept[i].store_to(all.target_of(piece / of_row, blocks, channels), piece % of_row);
        }
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
