// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `warp_terms`: what forward_by_warps adds to scores: the scores of mean queries where queries are smoothed, and a
/// bias.
///
/// begin() copies the terms of the next tile, are_plain() says of a tile whether sums can begin at them, begin_sums()
/// makes what the products of the tile are added to, and end_sums() adds afterwards what sums could not begin at.
///
/// Sums of products of codes begin at terms: at the bits of floats, each of which is base() and the term less the
/// lowest one of the tile, in units of the score's scale. So a term costs a multiply-add, and rounds a score by half a
/// unit, of which the rounding of codes has several. Sums may begin at floats from base() to `widest` above: then they
/// keep their exponent, whatever is added, since sums of products are of magnitude below 2^21. Where terms are further
/// apart, where they are not all finite, and where scales are large, they are added to scores in fp32. So are biases of
/// a function, which a lane calls for each of its scores.
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
#include <tessera/program/attention/lane_weights.cuh>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/reduce/piecewise_linear_softmax.hpp>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/maximum_or_nan.cuh>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Corrections of 128 keys, in the order of value_slot(), and their range.
struct alignas(16) staged_corrections {
  float values[attention_padding];  ///< scores of a mean query, in base 2
  correction_range range;           ///< their range
};

/// Method: an attention_method. Bias: no_bias or the caller's own. Sets: sets of rows of a thread block, of which each
/// has one mean query.
template <class Method, class Bias, int Sets>
struct warp_terms {
  /// The element that codes of queries and keys lie in.
  using code = typename Method::score_code;
  /// Whether queries are smoothed.
  static constexpr bool has_corrections = is_smoothed_by<block_mean, typename Method::score_quantizer>;
  static constexpr bool has_line = LinearBias<Bias>;  ///< whether a row's biases lie on a line
  /// Whether biases are those of a function, which is called for each score.
  static constexpr bool has_function = !has_line && !std::is_same_v<Bias, no_bias>;
  static constexpr bool are_none = !has_corrections && !has_line && !has_function;  ///< whether nothing is added
  static constexpr bool begin_sums_at_terms = !are_none && !has_function;  ///< whether those of plain scores do
  static constexpr int tile_keys = static_cast<int>(attention_padding);    ///< keys of a tile
  /// From this scale on, terms are added in fp32. A unit of pairs of 4 bits is worth so much that their scales are 256
  /// times those of the same codes in bytes; below 1/16 the place of a weight among codes is rounded to 1/4 of one.
  static constexpr float most_scale = are_none              ? piecewise_linear_softmax::most_scale
                                      : codes_in<code> == 2 ? 1.0F / 16.0F
                                                            : 1.0F / 256.0F;

  struct with_corrections {
    staged_corrections corrections[2][Sets];  ///< by stages and sets of rows
    __device__ __forceinline__ staged_corrections const& of(int stage, int set) const {
      return corrections[stage][set];
    }
  };
  struct without_corrections {
    __device__ __forceinline__ static without_corrections of(int, int) { return {}; }
  };
  /// What a thread block keeps of two tiles.
  using scratch_type = std::conditional_t<has_corrections, with_corrections, without_corrections>;

  std::int32_t mean;   ///< the number of the first set's mean query, counted over all heads
  std::int32_t means;  ///< sets that have a mean query; others have no queries
  float slope;         ///< of the line of terms, in base 2
  float reach;         ///< how far terms reach in the tile that begin() was last called for

  /// The terms of a block of queries. Block: a query_block.
  template <class Block>
  __device__ __forceinline__ static warp_terms of(Block const& at, quantized_queries<code> const& queries,
                                                  Bias const& bias) {
    warp_terms terms{};
    if constexpr (has_corrections) {
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
  __device__ __forceinline__ void begin(unsigned lane, Block const& at, quantized_queries<code> const& queries,
                                        int first, scratch_type& scratch, int stage) {
    reach = 0.0F;
    if constexpr (has_line) {
      constexpr float most_rows = 256.0F;
      float const far = fabsf(slope) * (fabsf(distance(at, 0, first)) + most_rows);
      reach = far < correction_range::most ? fmaxf(of_tile * fabsf(slope), of_offset * far) : infinity;
    }
    if constexpr (has_corrections) {
      begin_corrections(lane, queries, first, scratch, stage);
    }
  }
  /// Whether scores of the tile that begin() was last called for, whose scales are from `least` to `most`, are plain:
  /// of small scales, with sums that may begin at terms. False for NaN.
  [[nodiscard]] __device__ __forceinline__ bool are_plain(float most, float least) const {
    if constexpr (has_function) {
      return true;
    }
    return most < most_scale && (are_none || reach < widest * least);
  }

  /// Where a lane's scores of a tile are, for biases.
  template <int Tiles>
  struct place {
    row_floats<Tiles> distances;  ///< of the tile's first key from the queries, where there is a line
    std::int32_t rows[Tiles][2];  ///< the queries of the lane's rows, where there is a function
    int first;                    ///< the tile's first key
  };
  /// The place in the tile that begins at `first`. row_of(t, half): the lane's rows.
  template <int Tiles, class Block, class RowOf>
  __device__ __forceinline__ static place<Tiles> place_of(Block const& at, int first, RowOf const& row_of) {
    place<Tiles> found{};
    found.first = first;
    if constexpr (has_line || has_function) {
      each_row<Tiles>([&](int t, int half) {
        found.distances.of[t][half] = distance(at, row_of(t, half), first);
        found.rows[t][half] = static_cast<std::int32_t>(at.first_query) + row_of(t, half);
      });
    }
    return found;
  }
  /// Lets sums of plain scores begin at terms, and others at score_sums::magic_bits. Tile: has the scales of the lane's
  /// rows, and gets their offsets. Sums: those of a row_tile.
  template <bool IsPlain, class Staged, class Tile, class Sums, int Tiles>
  __device__ __forceinline__ void begin_sums(unsigned lane, Staged const& staged, place<Tiles> const& where, Tile& tile,
                                             Sums& sums) const {
    if constexpr (!IsPlain || !begin_sums_at_terms) {
      each_sum<Tiles>(
          [&](int t, int half, int columns, int i) { sums.values[t][columns][2 * half + i] = score_sums::magic_bits; });
    } else {
      float const lowest = lowest_of(staged);
      row_floats<Tiles> units;
      row_floats<Tiles> from;
      each_row<Tiles>([&](int t, int half) {
        float& unit = units.of[t][half];
        unit = fast_reciprocal(tile.scales.of[t][half]);
        from.of[t][half] = __fmaf_rn(-lowest, unit, base(half));
        tile.offset.of[t][half] = has_line ? __fmaf_rn(slope, where.distances.of[t][half], lowest) : lowest;
        if constexpr (!has_corrections) {  // a line begins at multiples of its slope in units of a row
          unit *= slope;
          from.of[t][half] = __fmaf_rn(static_cast<float>(lane % 4U * 2U), unit, from.of[t][half]);
        }
      });
      each_term<has_corrections>(lane, staged, [&](int columns, int i, float term) {
        each_row<Tiles>([&](int t, int half) {
          sums.values[t][columns][2 * half + i] = __float_as_int(__fmaf_rn(term, units.of[t][half], from.of[t][half]));
        });
      });
    }
  }
  /// Makes scores in base 2, whose scale is 1, of sums that have not begun at terms. A function is called for existing
  /// queries and keys only: the biases of others are those of the last one.
  template <bool IsPlain, class Block, class Staged, class Tile, class Sums, int Tiles>
  __device__ __forceinline__ void end_sums(unsigned lane, Block const& at, Bias const& bias, Staged const& staged,
                                           place<Tiles> const& where, Tile& tile, Sums& sums) const {
    if constexpr (has_function || (!IsPlain && !are_none)) {
      each_term<true>(lane, staged, [&](int columns, int i, float term) {
        auto const key = where.first + 8 * columns + static_cast<int>(lane % 4U * 2U) + i;
        each_row<Tiles>([&](int t, int half) {
          auto& sum = sums.values[t][columns][2 * half + i];
          float const product = __int_as_float(sum) - piecewise_linear_softmax::integer_magic;
          float added = has_line ? __fmaf_rn(slope, where.distances.of[t][half], term) : term;
          if constexpr (has_function) {
            std::int64_t const query = where.rows[t][half];
            added = __fmaf_rn(bias(at.sequence, at.head, IsPlain ? query : min(query, at.mask.queries - 1),
                                   IsPlain ? key : min(std::int64_t{key}, at.mask.keys - 1)),
                              log2_e, added);
          }
          sum = __float_as_int(__fmaf_rn(tile.scales.of[t][half], product, added));
        });
      });
      each_row<Tiles>([&](int t, int half) {
        tile.scales.of[t][half] = 1.0F;
        tile.offset.of[t][half] = 0.0F;
      });
    }
  }
  /// The larger of two plain sums as floats; NaN if one is, where a function may give it.
  __device__ __forceinline__ static float larger(float a, float b) {
    return has_function ? maximum_or_nan(a, b) : fmaxf(a, b);
  }
  /// The largest score of a row, of a plain sum as a float.
  template <class Tile>
  __device__ __forceinline__ static float score_of(Tile const& tile, float sum, int t, int half) {
    if constexpr (has_function) {
      return sum < infinity ? sum : bit_cast<float>(0x7fffffffU);  // infinity makes a row NaN
    }
    float const product = tile.scales.of[t][half] * (sum - base(half));
    return are_none ? product : product + tile.offset.of[t][half];
  }
  /// NaN if the largest plain score of a row is, else 0.
  __device__ __forceinline__ static float nan_of(float most) { return has_function && is_nan(most) ? most : 0.0F; }
  /// Where codes of the weights of a row's plain scores begin.
  template <bool IsPlain, class Tile>
  __device__ __forceinline__ static float zero_of(Tile const& tile, float reference, int t, int half) {
    using softmax = piecewise_linear_softmax;
    float const slope = softmax::codes_in_power_of_two * tile.scales.of[t][half];
    if constexpr (!begin_sums_at_terms || !IsPlain) {
      return softmax::zero_of(slope, reference);
    } else {
      float const above = softmax::codes_in_power_of_two * (reference - tile.offset.of[t][half]);
      return __fmaf_rn(slope, -base(half), softmax::top_code - above);
    }
  }
  /// The place of the weight of a plain sum among 128 codes, not below 0 nor above 1.
  template <class Tile>
  __device__ __forceinline__ static float place_of_weight(Tile const& tile, float sum, int t, int half) {
    if constexpr (has_function) {  // scores and references may be so large that they are to be subtracted first
      constexpr float top = piecewise_linear_softmax::top_code * 0x1p-7F;
      return __saturatef(__fmaf_rn(sum - tile.reference.of[t][half], 0x1p-4F, top));
    }
    return __saturatef(__fmaf_rn(tile.scales.of[t][half] * 0x1p-4F, sum, tile.zero.of[t][half]));
  }
  /// What sums of scores that are not plain are more than the scores, before they are scaled.
  static constexpr float more_than_others = are_none ? piecewise_linear_softmax::integer_magic : 0.0F;

 private:
  static constexpr float log2_e = 1.4426950408889634F;
  /// Sums begin at floats from base() to this much above, and 16384 further for the rounding of an offset.
  static constexpr float widest = 4160000.0F;
  static constexpr float of_tile = static_cast<float>(tile_keys - 1);  ///< keys from a tile's first to its last
  /// Offsets of so many times the reach of terms, in units of a scale, are rounded to 16384 of them or less.
  static constexpr float of_offset = 0x1p-16F;

  /// The float that stands for a row's offset among those at whose bits sums begin. The second row's is 1 larger, so
  /// that the compiler makes sums of both rows by multiply-adds and does not copy the first row's.
  __device__ __forceinline__ static constexpr float base(int half) {
    return are_none       ? piecewise_linear_softmax::integer_magic
           : has_function ? 0.0F
                          : 10485760.0F + static_cast<float>(half);
  }
  /// Calls function(t, half) for a lane's rows.
  template <int Tiles, class Function>
  __device__ __forceinline__ static void each_row(Function const& function) {
#pragma unroll
    for (int i = 0; i < 2 * Tiles; ++i) {
      function(i / 2, i % 2);
    }
  }
  /// Calls function(t, half, columns, i) for a lane's sums.
  template <int Tiles, class Function>
  __device__ __forceinline__ static void each_sum(Function const& function) {
#pragma unroll
    for (int columns = 0; columns < tile_keys / 8; ++columns) {
      each_row<Tiles>([&](int t, int half) {
        function(t, half, columns, 0);
        function(t, half, columns, 1);
      });
    }
  }
  /// How far the tile's first key is from a row's query.
  template <class Block>
  __device__ __forceinline__ static float distance(Block const& at, int row, int first) {
    return static_cast<float>(first - static_cast<int>(at.first_query) - row);
  }
  /// The lowest term of a tile, less what a line is at the tile's first key.
  template <class Staged>
  [[nodiscard]] __device__ __forceinline__ float lowest_of(Staged const& staged) const {
    float lowest = has_line ? fminf(of_tile * slope, 0.0F) : 0.0F;
    if constexpr (has_corrections) {
      lowest += staged.range.least;
    }
    return lowest;
  }
  __device__ __forceinline__ void begin_corrections(unsigned lane, quantized_queries<code> const& queries, int first,
                                                    scratch_type& scratch, int stage) {
    constexpr unsigned chunks = tile_keys / 4;
    auto const& corrections = queries.corrections;
    auto const tiles = static_cast<std::int32_t>(corrections.extent(3)) / tile_keys;
    std::int32_t const tile = first / tile_keys;
    std::int64_t const at_tile = std::int64_t{mean} * tiles + tile;
    auto const of_set = [&](int set) { return at_tile + (set < means ? set * tiles : 0); };
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
  template <bool HasSlope, class Staged, class Function>
  __device__ __forceinline__ void each_term(unsigned lane, Staged const& staged, Function const& function) const {
    float const of_lane = HasSlope && has_line ? slope * static_cast<float>(lane % 4U * 2U) : 0.0F;
#pragma unroll
    for (int sixteen = 0; sixteen < tile_keys / 16; ++sixteen) {
      float terms[4] = {};
      if constexpr (has_corrections) {
        auto const four = *reinterpret_cast<float4 const*>(&staged.values[16 * sixteen + lane % 4U * 4U]);
        terms[0] = four.x;
        terms[1] = four.y;
        terms[2] = four.z;
        terms[3] = four.w;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        auto const key = static_cast<float>(16 * sixteen + i / 2 * 8 + i % 2);
        if constexpr (has_line) {
          float const on_line = HasSlope ? __fmaf_rn(slope, key, of_lane) : key;
          terms[i] = has_corrections ? terms[i] + on_line : on_line;
        }
        function(2 * sixteen + i / 2, i % 2, terms[i]);
      }
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
