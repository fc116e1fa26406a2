// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `score_terms`: what attention adds to scores in warpgroup_attention: a bias of the caller's, and the scores of mean
/// queries where queries are smoothed.
///
/// Cost for each score: what the bias takes. Of a LinearBias alone, and of corrections alone, tensor cores make what
/// sums begin at (attention/detail/line_products.cuh, correction_products.cuh). Corrections are the same for all rows
/// of a warpgroup: beside a bias a lane reads 16 bytes of shared memory for eight scores. Whether sums might begin at
/// other terms is seen at each row's largest sum, which the softmax needs anyway.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/bits.hpp>
#include <tessera/map/linear_bias.hpp>
#include <tessera/map/listed_tiles.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/detail/forward_band.hpp>
#include <tessera/program/attention/detail/forward_float_softmax.cuh>
#include <tessera/program/attention/detail/forward_softmax.cuh>
#include <tessera/program/attention/detail/line_products.cuh>
#include <tessera/program/attention/detail/staged_terms.cuh>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/thread_index.cuh>

namespace tessera {
inline namespace v0 {

/// Where the lane's scores of a tile lie: score number i is that of row i / 2 % 2 and of key
/// first_key + i / 4 * 8 + i % 2.
struct score_place {
  std::int32_t sequence;   ///< sequence of the batch
  std::int32_t head;       ///< query head of the sequence
  std::int32_t query;      ///< the lane's first row; the second is 8 further on
  std::int32_t queries;    ///< queries of the sequence, at least 1
  std::int32_t first_key;  ///< the key of score 0
  std::int32_t keys;       ///< keys of the sequence, at least 1

  /// The place of the calling lane of a warp. Work: attention_pipeline's warp_work_item.
  template <class Work>
  __device__ __forceinline__ static score_place of(Work const volatile& work, int warp, std::int32_t tile) {
    auto const lane = static_cast<std::int32_t>(thread_index_here() % 32);
    std::int32_t const row = work.row + warp % 4 * 16 + lane / 4;
    return {work.sequence, work.head_of_sequence, row, work.queries, tile * attention_tile_keys + 2 * (lane % 4),
            work.keys};
  }
};

/// Terms that lie on a line, of a lane's rows in a tile, in base 2.
struct line_in_tile {
  float slope;                     ///< from key to key
  score_row_values<float> offset;  ///< of the tile's middle key
};

/// Bias: no_bias or the caller's own. HasCorrections: whether queries are smoothed.
template <class Bias, bool HasCorrections>
struct score_terms {
  static constexpr bool has_corrections = HasCorrections;               ///< whether queries are smoothed
  static constexpr bool has_tiles = has_bias_tiles<Bias>;               ///< whether biases are loaded in tiles
  static constexpr bool has_bias = !std::is_same_v<Bias, no_bias>;      ///< whether there is a bias
  static constexpr bool is_line = LinearBias<Bias> && !HasCorrections;  ///< whether a row's terms lie on a line
  static constexpr bool is_none = !has_bias && !HasCorrections;         ///< whether nothing is added to scores
  static constexpr bool has_range = HasCorrections && !has_bias;        ///< whether the range of terms is known
  /// Whether tensor cores can make what sums begin at.
  static constexpr bool has_products = has_range || is_line;
  /// The float that stands for `offset` among those whose bits a row's sums begin at. The second row's is 1 larger
  /// where lanes make these bits, so that the compiler does not copy the first row's where both have the same terms: a
  /// copy takes twice the cycles of a multiply-add. Tensor cores make the bits of corrections and lines
  /// (attention/detail/correction_products.cuh, line_products.cuh), in the middle.
  TESSERA_FN static constexpr float base(int row) {
    return has_products ? piecewise_linear_softmax::integer_magic : score_sums::begin_center + static_cast<float>(row);
  }

  Bias bias;  ///< added to scores, natural

  /// The slope of a line of terms in base 2, which attention_pipeline's warp_work_item has for the head; 0 if terms
  /// have none.
  [[nodiscard]] __device__ __forceinline__ float slope_of(std::int32_t sequence, std::int32_t head) const {
    if constexpr (LinearBias<Bias>) {
      return bias.slope(sequence, head) * log2_e;
    }
    return 0.0F;
  }

  /// The line of a lane's rows in a tile, if terms lie on a line.
  template <class Work>
  [[nodiscard]] __device__ __forceinline__ static line_in_tile line_of(Work const volatile& work, int warp,
                                                                       std::int32_t tile) {
    auto const lane = static_cast<std::int32_t>(thread_index_here() % 32);
    std::int32_t const distance =
        tile * attention_tile_keys + line_products::middle - (work.row + warp % 4 * 16 + lane / 4);
    float const slope = work.slope;
    float const first = slope * static_cast<float>(distance);
    return {slope, {{{first, __fmaf_rn(-8.0F, slope, first)}}}};
  }

  /// Makes the terms of a lane's scores. With `EndsInside` some of the tile's keys may not exist. The bias is called
  /// for existing queries and keys only: the terms of others are those of the last one. `staged`: the stage's terms.
  template <bool EndsInside, class Work, class Staged>
  __device__ __forceinline__ void of_lane(Work const volatile& work, int warp, std::int32_t tile, Staged const& staged,
                                          row_terms& to) const {
    to.base = {};
    to.to_base_2 = HasCorrections ? 1.0F : log2_e;
    if constexpr (HasCorrections) {
#pragma unroll
      for (int i = 0; i < scores; i += 8) {
        float4 const four = four_corrections(staged, warp, i / 8);
        to.of_score[i] = to.of_score[i + 2] = four.x;
        to.of_score[i + 1] = to.of_score[i + 3] = four.y;
        to.of_score[i + 4] = to.of_score[i + 6] = four.z;
        to.of_score[i + 5] = to.of_score[i + 7] = four.w;
      }
    }
    if constexpr (has_tiles) {
      add_tile(warp, staged.biases[warp / 4], to);
    } else if constexpr (LinearBias<Bias>) {
      add_line(work, warp, tile, to);
    } else if constexpr (has_bias) {
      score_place const at = score_place::of(work, warp, tile);
      std::int32_t const query[2] = {min(at.query, at.queries - 1), min(at.query + 8, at.queries - 1)};
#pragma unroll
      for (int i = 0; i < scores; ++i) {
        std::int32_t key = at.first_key + i / 4 * 8 + i % 2;
        if constexpr (EndsInside) {
          key = min(key, at.keys - 1);
        }
        float const added = bias(at.sequence, at.head, query[i / 2 % 2], key);
        to.of_score[i] = HasCorrections ? __fmaf_rn(added, log2_e, to.of_score[i]) : added;
      }
    }
  }

  /// Lets a lane's sums of products begin at its terms in a tile without a mask; `offset` is what take_begun() takes
  /// with them. Rows: attention_weights.
  template <class Rows, class Work, class Staged>
  __device__ __forceinline__ void begin(Work const volatile& work, int warp, std::int32_t tile, Staged const& staged,
                                        float scale, typename Rows::bits_type& sums,
                                        score_row_values<float>& offset) const {
    row_terms added;
    std::int32_t own_tile[1] = {tile};
    pin_registers(own_tile);
    of_lane<false>(work, warp, own_tile[0], staged, added);
    Rows::template begin<score_terms>(sums, scale, added);
    offset = added.first();
  }

 private:
  static constexpr int scores = 64;  ///< of a lane

  /// The lane's corrections of keys 2 t, 2 t + 1, 2 t + 8 and 2 t + 9, t being lane % 4, of 16 keys of a tile.
  template <class Staged>
  [[nodiscard]] __device__ __forceinline__ static float4 four_corrections(Staged const& staged, int warp, int sixteen) {
    float const* const values = staged.corrections[warp / 4].values;
    return *reinterpret_cast<float4 const*>(values + thread_index_here() % 4 * 4 + 16 * sixteen);
  }
  static constexpr float log2_e = 1.4426950408889634F;

  /// Adds a tile of a dense_bias.
  __device__ __forceinline__ static void add_tile(int warp, bias_tile const& tile, row_terms& to) {
    std::uint32_t const first = tile.where_of(warp % 4, static_cast<int>(thread_index_here() % 32));
#pragma unroll
    for (int i = 0; i < scores; i += 8) {
      std::uint32_t pairs[4];
      bias_tile::load_pairs(first, i / 4, pairs);
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        float2 const added = unpack_pair<typename Bias::value_type>(pairs[j / 2]);
        float& even = to.of_score[i + j];
        float& odd = to.of_score[i + j + 1];
        even = HasCorrections ? __fmaf_rn(added.x, log2_e, even) : added.x;
        odd = HasCorrections ? __fmaf_rn(added.y, log2_e, odd) : added.y;
      }
    }
  }
  /// Adds a linear bias: both rows have the same line, each with a base of its own.
  template <class Work>
  __device__ __forceinline__ static void add_line(Work const volatile& work, int warp, std::int32_t tile,
                                                  row_terms& to) {
    float const slope = work.slope;
    float const of_key = HasCorrections ? slope : 1.0F;
    to.to_base_2 = HasCorrections ? 1.0F : slope;
    auto const lane = static_cast<std::int32_t>(thread_index_here() % 32);
    std::int32_t const distance = tile * attention_tile_keys + 2 * (lane % 4) - (work.row + warp % 4 * 16 + lane / 4);
    to.base.values[0][0] = of_key * static_cast<float>(distance);
    to.base.values[0][1] = __fmaf_rn(-8.0F, of_key, to.base.values[0][0]);
#pragma unroll
    for (int i = 0; i < scores; ++i) {
      auto const key = static_cast<float>(i / 4 * 8 + i % 2);
      to.of_score[i] = HasCorrections ? __fmaf_rn(key, of_key, to.of_score[i]) : key;
    }
  }
};

/// How scores become weights: a Softmax with lane_weights, and what is added to scores before. Bias: no_bias, the
/// caller's own, or either within lists of tiles. Code: that of queries and keys, std::int8_t or float8_e4m3.
template <class Softmax, class Bias, bool HasCorrections, class Code>
struct attention_weighing {
  /// The code of queries and keys.
  using score_code = Code;
  /// Makes weights of sums of products of codes.
  using rows_type = std::conditional_t<std::is_same_v<Code, std::int8_t>, attention_weights<Softmax>,
                                       float_attention_weights<Softmax>>;
  /// What is added to scores before.
  using terms_type = score_terms<bias_without_list<Bias>, HasCorrections>;
  static constexpr bool is_listed = tessera::is_listed<Bias>;  ///< whether there are lists of tiles
};

}  // namespace v0
}  // namespace tessera
