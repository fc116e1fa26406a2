// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `measure_pages`: lengths, angles and weights of the pairs of keys and of values of pages that are to be sealed.
/// `fit_thresholds`: which of them are retained. paged_cache/retain_tokens.hpp says where these go;
/// paged_cache/write_pages.hpp is the last pass.
#pragma once

#include <cstdint>

#include <tessera/concepts/merger.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/merge/retain_most_different.hpp>
#include <tessera/merge/two_lengths.hpp>
#include <tessera/program/paged_cache/cache_memory.hpp>
#include <tessera/program/paged_cache/page_arithmetic.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/reduce/minimum_maximum.hpp>
#include <tessera/reduce/pair_products.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// What is known of a pair of keys or values.
struct merged_row {
  mix_weights weights;         ///< of what is not finite 0
  two_lengths<float> lengths;  ///< by which the merged vector is multiplied; of what is not finite NaN
  float angle;                 ///< NaN: the pair cannot be merged well
  float square;                ///< of the merged vector's length in this head; of what is not finite 0
};

/// The retained tokens of a page.
struct page_mark {
  std::uint64_t retained;   ///< bit j: token j
  std::uint32_t first_row;  ///< among the retained tokens of the sequence's slot and head
  std::uint32_t rows;       ///< how many
};

/// Products of two vectors in float: those of bf16 are exact there. Where squares are beyond floats, those of
/// pair_products_reducer take their place.
struct float_products {
  float first;   ///< the first vector's with itself
  float second;  ///< the second one's
  float cross;   ///< of both

  /// Adds those of a channel, `a` of the first vector and `b` of the second.
  TESSERA_FN void push(float a, float b) {
    first = multiply_add(a, a, first);
    second = multiply_add(b, b, second);
    cross = multiply_add(a, b, cross);
  }
  /// Adds those of other channels.
  TESSERA_FN void merge(float_products const& other) {
    first += other.first;
    second += other.second;
    cross += other.cross;
  }
  /// Whether squares are within floats; false for NaNs, too.
  [[nodiscard]] TESSERA_FN constexpr bool is_enough() const { return first + second < infinity; }
  /// In double.
  [[nodiscard]] TESSERA_FN constexpr pair_products sums() const { return {first, second, cross}; }
};

/// Vectors longer than this are not merged if that can be helped: fp16 has no room for their norms.
inline constexpr float longest_merged = 32768.0F;

namespace detail {

/// |e|^2 of e = first * a + second * b, from the products of a and b; saturates at the largest float.
TESSERA_FN inline float merged_square(pair_products const& measured, mix_weights weights) {
  constexpr double largest = 3.4028234663852886e38;
  double const first = weights.first;
  double const second = weights.second;
  double const of_first = ::fma(first, measured.first, second * measured.cross);    // a . e
  double const of_second = ::fma(first, measured.cross, second * measured.second);  // b . e
  double const square = ::fma(first, of_first, second * of_second);
  return static_cast<float>(clamp(square, 0.0, largest));
}

/// The one vector of a page of one layer is merged with zeros, which leaves its direction and its length.
template <class Merger>
TESSERA_FN merged_row merge_row(Merger const& merger, pair_products const& measured) {
  bool const is_finite = measured.first + measured.second < static_cast<double>(infinity);
  float const nan = bit_cast<float>(0x7fffffffU);
  if (!is_finite) {
    return {{0.0F, 0.0F}, {nan, nan}, nan, 0.0F};
  }
  float const longest = max(length_of(measured.first), length_of(measured.second));
  mix_weights const weights = merger.mix(measured);
  return {weights, merger.keep(measured), longest > longest_merged ? nan : angle_between(measured),
          merged_square(measured, weights)};
}

}  // namespace detail

/// Merger: measures pair_products and keeps two_lengths<float>. A group takes the page of a head or, with
/// `whole_tokens`, of all heads, of which vectors then consist.
template <class Merger, class T>
struct measure_pages {
  static constexpr int lanes = 2 * cache_page_format::tokens;
  struct scratch_type {};

  Merger merger;  ///< of pairs of vectors
  cache_source<T> source;
  view<merged_row, 5> rows;  ///< sequence x page of those sealed now x head x {key, value} x 64
  bool whole_tokens;         ///< vectors are those of all heads of a token together

  /// Groups of a page: heads, or 1 for all of them.
  TESSERA_FN constexpr std::int64_t head_groups() const { return whole_tokens ? 1 : rows.extent(2); }
  TESSERA_FN constexpr std::int64_t groups() const { return rows.extent(0) * rows.extent(1) * head_groups(); }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const head = which % head_groups();
    std::int64_t const i = which / head_groups() % rows.extent(1);
    std::int64_t const sequence = which / head_groups() / rows.extent(1);
    std::int64_t const page = source.first_page(sequence) + i;
    if (page >= source.end_page(sequence)) {
      source.fault(sequence).report(group, source.status, sequence);
      return;
    }
    for (int lane : group) {
      int const part = lane / cache_page_format::tokens;
      int const token = lane % cache_page_format::tokens;
      std::int64_t const at = page * cache_page_format::tokens + token;
      if (!whole_tokens) {
        rows(sequence, i, head, part, token) = detail::merge_row(merger, measure(sequence, part, head, at));
        continue;
      }
      pair_products all = merger.measure().identity();
      for (std::int64_t one = 0; one < rows.extent(2); ++one) {
        merger.measure().merge(all, measure(sequence, part, one, at));
      }
      merged_row row = detail::merge_row(merger, all);
      for (std::int64_t one = 0; one < rows.extent(2); ++one) {
        if (!is_nan(row.lengths.first)) {
          row.square = detail::merged_square(measure(sequence, part, one, at), row.weights);
        }
        rows(sequence, i, one, part, token) = row;
      }
    }
  }

 private:
  /// Products of eight channels, in float.
  struct octet {
    measure_pages const& program;
    std::int64_t sequence;
    int part;
    std::int64_t head;
    std::int64_t token;

    TESSERA_FN float_products operator()(int which) const {
      float_products products{};
      for (int channel = 8 * which; channel < 8 * which + 8; ++channel) {
        products.push(value(0, channel), value(1, channel));
      }
      return products;
    }
    TESSERA_FN float value(int layer, int channel) const {
      auto const& from = program.source;
      bool const exists = layer < from.memory.format.layers;
      return exists ? load(from.stored(sequence, layer, part, head, token, channel)) : 0.0F;
    }
  };
  struct add {
    TESSERA_FN void operator()(float_products& into, float_products const& other) const { into.merge(other); }
  };

  TESSERA_FN pair_products measure(std::int64_t sequence, int part, std::int64_t head, std::int64_t token) const {
    int const channels = source.memory.format.channels;
    octet const take{*this, sequence, part, head, token};
    float_products const products = pair_sum(channels / 8, float_products{}, take, add{});
    if (products.is_enough()) {
      return products.sums();
    }
    pair_products exact = pair_products_reducer{}.identity();
    for (int channel = 0; channel < channels; ++channel) {
      pair_products_reducer{}.push(exact, {take.value(0, channel), take.value(1, channel)});
    }
    return exact;
  }
};

/// Of what is kept of a pair; programs for one architecture keep angles alone.
TESSERA_FN constexpr float angle_of(merged_row const& row) {
  return row.angle;
}
/// The angle itself.
TESSERA_FN constexpr float angle_of(float angle) {
  return angle;
}

/// Thresholds that are not known yet, of sequences that seal pages now, from all of these pages. A group takes a head.
template <class T, class Row = merged_row>
struct fit_thresholds {
  static constexpr int lanes = 128;
  struct scratch_type {};

  retain_most_different rule;  ///< which pairs are retained
  cache_source<T> source;
  view<Row const, 5> rows;  ///< for angle_of(): sequence x page of those sealed now x head x {key, value} x 64

  TESSERA_FN constexpr std::int64_t groups() const { return rows.extent(0) * rows.extent(2); }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const head = which % rows.extent(2);
    std::int64_t const sequence = which / rows.extent(2);
    std::int64_t const pages = source.end_page(sequence) - source.first_page(sequence);
    std::int64_t const at = source.memory.head_of(source.sequences.slot(sequence), head);
    for (int part = 0; part < 2 && pages > 0; ++part) {
      float* const place = source.memory.thresholds + 2 * at + part;
      bool const is_known = !is_nan(*place);
      group.sync();  // all lanes have seen it
      if (is_known) {
        continue;
      }
      float const found = threshold(group, angles{rows, sequence, head, part, pages * cache_page_format::tokens});
      for (int lane : group) {
        if (is_first(lane)) {
          *place = found;
        }
      }
    }
  }

 private:
  struct angles {
    view<Row const, 5> const& rows;
    std::int64_t sequence;
    std::int64_t head;
    int part;
    std::int64_t count;

    TESSERA_FN float operator[](std::int64_t i) const {
      constexpr std::int64_t tokens = cache_page_format::tokens;
      return angle_of(rows(sequence, i / tokens, head, part, i % tokens));
    }
  };

  /// NaN, which is unknown, where angles do not tell tokens apart: later pages may. NaNs do not count, nor do angles of
  /// 0: those of padding, whose vectors are zeros or the same in both layers.
  template <class Group>
  TESSERA_FN float threshold(Group const& group, angles const& all) const {
    if (!rule.needs_angles()) {
      return rule.threshold();
    }
    per_lane<float, Group> least;
    per_lane<float, Group> largest;
    per_lane<std::int64_t, Group> counted;
    for (int lane : group) {
      interval<float> range = minimum_maximum_reducer<float>{}.identity();
      counted[lane] = 0;
      for (std::int64_t i = lane; i < all.count; i += lanes) {
        float const angle = all[i];
        if (angle > 0.0F) {
          minimum_maximum_reducer<float>{}.push(range, angle);
          counted[lane] += 1;
        }
      }
      least[lane] = range.minimum;
      largest[lane] = range.maximum;
    }
    interval<float> const range{minimum(group, least), maximum(group, largest)};
    std::int64_t const count = sum(group, counted);
    if (!tells_apart(range)) {
      return bit_cast<float>(0x7fffffffU);
    }
    return rule.rule == retention_rule::fraction ? threshold_of_most(group, all, rule.most(count))
                                                 : rule.threshold(range);
  }

  /// The least number that no more than `most` angles reach. Angles are not negative: their bits are in their order.
  template <class Group>
  TESSERA_FN float threshold_of_most(Group const& group, angles const& all, std::int64_t most) const {
    std::uint32_t low = 0;
    std::uint32_t high = bit_cast<std::uint32_t>(infinity);
    while (low < high) {
      std::uint32_t const middle = low + (high - low) / 2;
      per_lane<std::int64_t, Group> reach;
      for (int lane : group) {
        reach[lane] = 0;
        for (std::int64_t i = lane; i < all.count; i += lanes) {
          reach[lane] += all[i] >= bit_cast<float>(middle) ? 1 : 0;
        }
      }
      if (sum(group, reach) <= most) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return bit_cast<float>(high);
  }
};

}  // namespace v0
}  // namespace tessera
