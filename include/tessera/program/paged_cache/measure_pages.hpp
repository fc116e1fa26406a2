// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `measure_pages` finds lengths, angles and weights of the pairs of keys and of values of pages to be sealed, and
/// `fit_thresholds` finds the least angles with which pairs are retained. Then paged_cache/retain_tokens.hpp decides
/// where retained tokens go, and paged_cache/write_pages.hpp writes the pages.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
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

/// The measures of a pair of keys or values.
struct merged_row {
  mix_weights weights;  ///< the weights of the pair; 0 for vectors that are not finite
  /// The factors of the merged vector for both layers; NaN for vectors that are not finite.
  two_lengths<float> lengths;
  float angle;  ///< the angle of the pair; NaN: it cannot be merged well
  /// The square of the merged vector's length in this head; 0 for vectors that are not finite.
  float square;
};

/// The retained tokens of a page.
struct page_mark {
  std::uint64_t retained;   ///< bit j: whether token j is retained
  std::uint32_t first_row;  ///< the first of their rows among those of the sequence's slot and head
  std::uint32_t rows;       ///< the number of rows
};

/// The pages that a call seals, for the program of a PageCodec that writes them.
template <class T>
struct pages_to_write {
  cache_source<T> source;          ///< the tokens
  view<merged_row const, 5> rows;  ///< from measure_pages: sequences x pages x heads x (keys, values) x tokens
  view<page_mark const, 3> marks;  ///< retained tokens: sequences x pages x heads
};

/// Products of two vectors in float, where those of bf16 are exact. If squares are too large for floats, the products
/// of pair_products_reducer take their place.
struct float_products {
  float first;   ///< the square of the first vector
  float second;  ///< the square of the second vector
  float cross;   ///< the product of both

  /// Adds the products of a channel, `a` of the first vector and `b` of the second.
  TESSERA_FN void push(float a, float b) {
    first = multiply_add(a, a, first);
    second = multiply_add(b, b, second);
    cross = multiply_add(a, b, cross);
  }
  /// Adds the products of other channels.
  TESSERA_FN void merge(float_products const& other) {
    first += other.first;
    second += other.second;
    cross += other.cross;
  }
  /// Whether squares fit in floats; false for NaNs, too.
  [[nodiscard]] TESSERA_FN constexpr bool is_enough() const { return first + second < infinity; }
  /// The products in double.
  [[nodiscard]] TESSERA_FN constexpr pair_products sums() const { return {first, second, cross}; }
};

/// Longer vectors are not merged if there is room to retain them: fp16 cannot hold their norms.
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

/// The weights and lengths of a pair. In a page of one layer the vector is merged with zeros, which leaves its
/// direction and its length.
template <Merger M>
TESSERA_FN merged_row merge_row(M const& merger, pair_products const& measured) {
  bool const is_finite = measured.first + measured.second < static_cast<double>(infinity);
  float const nan = bit_cast<float>(0x7fffffffU);
  if (!is_finite) {
    return {{0.0F, 0.0F}, {nan, nan}, nan, 0.0F};
  }
  float const longest = max(length_of(measured.first), length_of(measured.second));
  mix_weights const weights = merger.mix(measured);
  auto const factors = merger.keep(measured);
  return {weights,
          {factors.of_side(side::first), factors.of_side(side::second)},
          longest > longest_merged ? nan : angle_between(measured),
          merged_square(measured, weights)};
}

}  // namespace detail

/// Measures pairs. A group takes the page of a head or, with `whole_tokens`, the page of all heads, whose vectors are
/// then taken together.
template <Merger M, class T>
struct measure_pages {
  static constexpr int lanes = 2 * cache_page_format::tokens;
  struct scratch_type {};

  M merger;  ///< merges pairs of vectors
  cache_source<T> source;
  view<merged_row, 5> rows;  ///< sequence x page sealed in this call x head x {key, value} x 64
  bool whole_tokens;         ///< whether a vector is that of all heads of a token together

  /// The groups of a page: one for each head, or 1 for all heads.
  TESSERA_FN constexpr std::int64_t head_groups() const { return whole_tokens ? 1 : rows.extent(2); }
  TESSERA_FN constexpr std::int64_t groups() const { return rows.extent(0) * rows.extent(1) * head_groups(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
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
      pair_products all = pair_products_reducer{}.identity();
      for (std::int64_t one = 0; one < rows.extent(2); ++one) {
        pair_products_reducer{}.merge(all, measure(sequence, part, one, at));
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

/// The angle in a row; programs for one architecture have angles alone.
TESSERA_FN constexpr float angle_of(merged_row const& row) {
  return row.angle;
}
/// The angle itself, for programs that have angles alone.
TESSERA_FN constexpr float angle_of(float angle) {
  return angle;
}

/// Finds thresholds that are not known yet, for sequences that seal pages in this call, from all of these pages. A
/// group takes a head.
template <class T, class Row = merged_row>
struct fit_thresholds {
  static constexpr int lanes = 128;
  struct scratch_type {};

  retain_most_different rule;  ///< the rule by which pairs are retained
  cache_source<T> source;
  view<Row const, 5> rows;  ///< rows or angles: sequence x page sealed in this call x head x {key, value} x 64

  TESSERA_FN constexpr std::int64_t groups() const { return rows.extent(0) * rows.extent(2); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const head = which % rows.extent(2);
    std::int64_t const sequence = which / rows.extent(2);
    std::int64_t const pages = source.end_page(sequence) - source.first_page(sequence);
    std::int64_t const at = source.memory.head_of(source.sequences.slot(sequence), head);
    for (int part = 0; part < 2 && pages > 0; ++part) {
      float* const kept = source.memory.thresholds + 2 * at + part;
      bool const is_known = !is_nan(*kept);
      group.sync();  // all lanes have read the threshold
      if (is_known) {
        continue;
      }
      float const found = threshold(group, angles{rows, sequence, head, part, pages * cache_page_format::tokens});
      for (int lane : group) {
        if (is_first(lane)) {
          *kept = found;
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

  /// The threshold of keys or values; NaN, which means unknown, where angles do not tell tokens apart, since later
  /// pages may. NaNs do not count, nor do angles of 0, which are those of padding: its vectors are zeros or the same in
  /// both layers.
  template <Group G>
  TESSERA_FN float threshold(G const& group, angles const& all) const {
    if (!rule.needs_angles()) {
      return rule.threshold();
    }
    per_lane<float, G> least;
    per_lane<float, G> largest;
    per_lane<std::int64_t, G> counted;
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

  /// The least number that at most `most` angles reach. Angles are not negative, so that their bits are in their order.
  template <Group G>
  TESSERA_FN float threshold_of_most(G const& group, angles const& all, std::int64_t most) const {
    std::uint32_t low = 0;
    std::uint32_t high = bit_cast<std::uint32_t>(infinity);
    while (low < high) {
      std::uint32_t const middle = low + (high - low) / 2;
      per_lane<std::int64_t, G> reach;
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
