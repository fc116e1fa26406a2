// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `warp_terms`: what forward_by_warps adds to scores: the scores of mean queries where queries are smoothed, and a
/// LinearBias.
///
///     terms.begin(lane, queries.corrections, queries.correction_ranges, first, scratch, stage);   // of the next tile
///     if (terms.are_near(least_scale * key_scale)) {
///       terms.begin_sums<scores>(lane, scratch, stage, set, scales, sums);      // then products are added to them
///     }
///
/// Sums of products of codes begin at terms: at the bits of floats, each of which is base() and the term less the
/// lowest one of the tile, in units of the score's scale. So a term costs a multiply-add, and rounds a score by half a
/// unit, of which the rounding of codes has several. Sums may begin at floats from base() to `widest` above: then they
/// keep their exponent, whatever is added, since sums of products are of magnitude below 2^21. Where terms are further
/// apart, where they are not all finite, and where scales are large, they are added to scores in fp32.
///
/// Cost: 528 bytes of shared memory for each stage and set of rows with corrections, of which four lanes with the same
/// 16 keys read 16 bytes at a time. A line of terms is neither loaded nor kept.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/map/linear_bias.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/detail/row_floats.cuh>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/reduce/piecewise_linear_softmax.hpp>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/exponential.cuh>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Corrections of 128 keys, in the order of value_slot(), and their range.
struct alignas(16) staged_corrections {
  float values[attention_padding];  ///< scores of a mean query, in base 2
  correction_range range;           ///< their range
};

/// Code: that of queries and keys. HasCorrections: whether queries are smoothed. Bias: no_bias or a LinearBias. Sets:
/// sets of rows of a thread block, of which each has one mean query.
template <class Code, bool HasCorrections, class Bias, int Sets>
struct warp_terms {
  static_assert(std::is_same_v<Bias, no_bias> || LinearBias<Bias>, "tessera: forward_by_warps has a LinearBias or none");
  static constexpr bool has_line = !std::is_same_v<Bias, no_bias>;     ///< whether there is a bias
  static constexpr bool are_none = !HasCorrections && !has_line;       ///< whether nothing is added
  static constexpr int tile_keys = static_cast<int>(attention_padding);  ///< keys of a tile
  /// From this scale on, terms are added in fp32. A unit of pairs of 4 bits is worth so much that their scales are 256
  /// times those of the same codes in bytes; below 1/16 the place of a weight among codes is rounded to 1/4 of one.
  static constexpr float most_scale = are_none            ? piecewise_linear_softmax::most_scale
                                      : codes_in<Code> == 2 ? 1.0F / 16.0F
                                                            : 1.0F / 256.0F;

  struct with_corrections {
    staged_corrections corrections[2][Sets];  ///< by stages and sets of rows
  };
  struct without_corrections {};
  /// What a thread block keeps of two tiles.
  using scratch_type = std::conditional_t<HasCorrections, with_corrections, without_corrections>;

  std::int32_t mean;   ///< the number of the first set's mean query, counted over all heads
  std::int32_t means;  ///< sets that have a mean query of their own
  float slope;         ///< of the line of terms, in base 2
  float reach;         ///< what are_near() compares, of the tile that begin() was last called for

  /// The terms of a block of queries. Block: a query_block.
  template <class Block>
  __device__ __forceinline__ static warp_terms of(Block const& at, quantized_queries<Code> const& queries,
                                                  Bias const& bias) {
    warp_terms terms{};
    if constexpr (HasCorrections) {
      auto const of_head = static_cast<std::int32_t>(queries.corrections.extent(2));
      auto const block = static_cast<std::int32_t>(at.first_query / block_mean::tokens);
      terms.mean = static_cast<std::int32_t>(at.sequence * queries.corrections.extent(1) + at.head) * of_head + block;
      terms.means = of_head - block;
    }
    if constexpr (has_line) {
      terms.slope = bias.slope(at.sequence, at.head) * log2_e;
    }
    return terms;
  }

  /// Starts to copy the corrections of the tile that begins at `first` to a stage, and finds how far its terms reach.
  template <class Block>
  __device__ __forceinline__ void begin(unsigned lane, Block const& at, quantized_queries<Code> const& queries,
                                        int first, scratch_type& scratch, int stage) {
    reach = 0.0F;
    if constexpr (has_line) {
      constexpr float most_rows = 256.0F;
      float const far = fabsf(slope) * (fabsf(distance(at, 0, first)) + most_rows);
      reach = far < correction_range::most ? fmaxf(of_tile * fabsf(slope), of_offset * far) : infinity;
    }
    if constexpr (HasCorrections) {
      begin_corrections(lane, queries, first, scratch, stage);
    }
  }
  /// Whether sums of the tile that begin() was last called for may begin at its terms, for scores of this scale or
  /// larger ones. False for NaN.
  [[nodiscard]] __device__ __forceinline__ bool are_near(float scale) const { return reach < widest * scale; }

  /// The float that stands for offset() among those at whose bits sums begin. The second row's is 1 larger, so that the
  /// compiler makes sums of both rows by multiply-adds and does not copy the first row's.
  __device__ __forceinline__ static constexpr float base(int half) {
    return are_none ? piecewise_linear_softmax::integer_magic : 10485760.0F + static_cast<float>(half);
  }
  /// The lowest term of a row in a tile, in base 2; of a line that of the tile's end.
  template <class Block>
  [[nodiscard]] __device__ __forceinline__ float offset(Block const& at, int row, int first,
                                                        scratch_type const& scratch, int stage, int set) const {
    float found = 0.0F;
    if constexpr (HasCorrections) {
      found = scratch.corrections[stage][set].range.least;
    }
    if constexpr (has_line) {
      found += __fmaf_rn(slope, distance(at, row, first), lowest_of_line());
    }
    return found;
  }
  /// Lets sums begin at terms. Sums: those of a row_tile. Scales: of the lane's rows.
  template <class Sums, int Tiles>
  __device__ __forceinline__ void begin_sums(unsigned lane, scratch_type const& scratch, int stage, int set,
                                             row_floats<Tiles> const& scales, Sums& sums) const {
    float lowest = lowest_of_line();
    if constexpr (HasCorrections) {
      lowest += scratch.corrections[stage][set].range.least;
    }
    row_floats<Tiles> units;
    row_floats<Tiles> from;
#pragma unroll
    for (int i = 0; i < 2 * Tiles; ++i) {
      units.of[i / 2][i % 2] = fast_reciprocal(scales.of[i / 2][i % 2]);
      from.of[i / 2][i % 2] = __fmaf_rn(-lowest, units.of[i / 2][i % 2], base(i % 2));
    }
    if constexpr (!HasCorrections) {  // a line begins at multiples of its slope in units of a row
#pragma unroll
      for (int i = 0; i < 2 * Tiles; ++i) {
        units.of[i / 2][i % 2] *= slope;
        float& first = from.of[i / 2][i % 2];
        first = __fmaf_rn(static_cast<float>(lane % 4U * 2U), units.of[i / 2][i % 2], first);
      }
    }
    each_term<HasCorrections>(lane, scratch, stage, set, [&](int columns, int i, float term) {
#pragma unroll
      for (int j = 0; j < 2 * Tiles; ++j) {
        sums.values[j / 2][columns][j % 2 * 2 + i] =
            __float_as_int(__fmaf_rn(term, units.of[j / 2][j % 2], from.of[j / 2][j % 2]));
      }
    });
  }
  /// Makes scores in base 2 of sums that are integer_magic more than sums of products, as the bits of floats.
  template <class Sums, int Tiles, class RowOf, class Block>
  __device__ __forceinline__ void add(unsigned lane, scratch_type const& scratch, int stage, int set,
                                      row_floats<Tiles> const& scales, Block const& at, int first, RowOf const& row_of,
                                      Sums& sums) const {
    row_floats<Tiles> of_rows{};
    if constexpr (has_line) {
#pragma unroll
      for (int i = 0; i < 2 * Tiles; ++i) {
        of_rows.of[i / 2][i % 2] = slope * distance(at, row_of(i / 2, i % 2), first);
      }
    }
    each_term<true>(lane, scratch, stage, set, [&](int columns, int i, float term) {
#pragma unroll
      for (int j = 0; j < 2 * Tiles; ++j) {
        auto& sum = sums.values[j / 2][columns][j % 2 * 2 + i];
        float const product = __int_as_float(sum) - piecewise_linear_softmax::integer_magic;
        float const added = has_line ? term + of_rows.of[j / 2][j % 2] : term;
        sum = __float_as_int(__fmaf_rn(scales.of[j / 2][j % 2], product, added));
      }
    });
  }

 private:
  static constexpr float log2_e = 1.4426950408889634F;
  /// Sums begin at floats from base() to this much above, and 16384 further for the rounding of an offset.
  static constexpr float widest = 4160000.0F;
  static constexpr float of_tile = static_cast<float>(tile_keys - 1);  ///< keys from a tile's first to its last
  /// Offsets of so many times the reach of terms, in units of a scale, are rounded to 16384 of them or less.
  static constexpr float of_offset = 0x1p-16F;

  /// How far the tile's first key is from a row's query.
  template <class Block>
  __device__ __forceinline__ static float distance(Block const& at, int row, int first) {
    return static_cast<float>(first - static_cast<int>(at.first_query) - row);
  }
  /// The lowest term of a line less that of the tile's first key.
  [[nodiscard]] __device__ __forceinline__ float lowest_of_line() const {
    return has_line ? fminf(of_tile * slope, 0.0F) : 0.0F;
  }
  __device__ __forceinline__ void begin_corrections(unsigned lane, quantized_queries<Code> const& queries, int first,
                                                    scratch_type& scratch, int stage) {
    constexpr unsigned chunks = tile_keys / 4;
    auto const& corrections = queries.corrections;
    auto const tiles = static_cast<std::int32_t>(corrections.extent(3)) / tile_keys;
    std::int32_t const tile = first / tile_keys;
    std::int64_t const at_tile = std::int64_t{mean} * tiles + tile;
    auto const of_set = [&](int set) { return at_tile + (set < means ? set * tiles : 0); };  // the last ones may be none
    auto const set = static_cast<int>(lane / chunks);
    if (set < Sets) {
      async_copy_16(&scratch.corrections[stage][set].values[lane % chunks * 4],
                    corrections.data + of_set(set) * tile_keys + lane % chunks * 4);
    } else if (lane - chunks * Sets < static_cast<unsigned>(Sets)) {
      auto const other = static_cast<int>(lane - chunks * Sets);
      async_copy_16(&scratch.corrections[stage][other].range, queries.correction_ranges.data + of_set(other));
    }
    float most = 0.0F;
#pragma unroll
    for (int i = 0; i < Sets; ++i) {
      correction_range const& range = queries.correction_ranges.data[of_set(i)];
      float const far = fmaxf(range.spread, of_offset * fabsf(range.least));
      most = range.spread >= 0.0F ? fmaxf(most, far) : infinity;
    }
    reach += most;
  }
  /// Calls function(columns, i, term) for the lane's terms of a row: of keys 8 columns + 2 (lane % 4) + i, less what a
  /// line is at the tile's first key. HasSlope: else a line's terms are the keys 8 columns + i.
  template <bool HasSlope, class Function>
  __device__ __forceinline__ void each_term(unsigned lane, scratch_type const& scratch, int stage, int set,
                                            Function const& function) const {
    float const of_lane = HasSlope && has_line ? slope * static_cast<float>(lane % 4U * 2U) : 0.0F;
#pragma unroll
    for (int sixteen = 0; sixteen < tile_keys / 16; ++sixteen) {
      float terms[4] = {};
      if constexpr (HasCorrections) {
        float const* const values = scratch.corrections[stage][set].values + 16 * sixteen;
        auto const four = *reinterpret_cast<float4 const*>(values + lane % 4U * 4U);
        terms[0] = four.x;
        terms[1] = four.y;
        terms[2] = four.z;
        terms[3] = four.w;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        auto const key = static_cast<float>(16 * sixteen + i / 2 * 8 + i % 2);
        float const on_line = !has_line ? 0.0F : HasSlope ? __fmaf_rn(slope, key, of_lane) : key;
        function(2 * sixteen + i / 2, i % 2, HasCorrections && has_line ? terms[i] + on_line : HasCorrections ? terms[i] : on_line);
      }
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
