// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attention_of_few_queries`: attention of a few queries over many quantized keys, bound by memory bandwidth (sm_80
/// and later).
///
/// The kernel is persistent. A work item is 16 rows of a key head and a split of its keys
/// (attention/detail/quantized_decode_schedule.hpp). The rows are the queries of all query heads that share the key
/// head, so that they share one read of its keys and values. Tiles of 128 keys, their scales and values come to the
/// stages of a pipeline in shared memory, from work item to work item without a pause: on sm_90 by one thread that
/// loads them by TMA (detail/few_queries_boxes.cuh), elsewhere by cp.async, by the warps that read them
/// (detail/few_queries_copies.cuh). Eight warps go through the tiles together. For each tile a warp
///
///  * multiplies all rows by 16 keys (mma.sync of int8), and leaves the largest score of each row to the other warps;
///  * makes the weights of these scores: e4m3 codes, as fp16, relative to the tile's largest score, as
///    program/attention/quantized_forward.hpp says, in shared memory for the other warps;
///  * multiplies the weights of all 128 keys by an eighth of the channels of their values, whose codes become fp16 on
///    the way (mma.sync has no e4m3 up to sm_90): only sums in fp32 are rounded, products are exact.
///
/// Between two syncs a warp makes the weights of a run of tiles, the products with values of the run before, and the
/// scores of the next run. A run is one tile or two. join_decoded merges the splits of the keys.
///
/// Where there are 8 rows or fewer, the other 8 are multiplied but have no weights. Where a head has fewer channels
/// than the program, the missing channels of queries and keys are zeros. Those of values are whatever lies in shared
/// memory, and their outputs are not stored.
///
/// For each key and key head 2 * channels bytes are read, and an eighth of a byte of scales: at 4.6 TB/s and 132
/// multiprocessors, a tile of 128 channels every 1600 cycles. A warp's work on a tile is about 8 products of scores, 16
/// with values, 32 conversions and 8 exponentials for each lane, in about 350 instructions, which eight warps issue in
/// 700 cycles of four schedulers. In sm_80's code it is 480 instructions, 128 of them in place of the 32 conversions,
/// and 60 for copies and their addresses: 960 cycles.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/bits.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/program/attention/detail/few_queries_boxes.cuh>
#include <tessera/program/attention/detail/few_queries_copies.cuh>
#include <tessera/program/attention/detail/few_queries_products.cuh>
#include <tessera/program/attention/detail/quantized_decode_schedule.hpp>
#include <tessera/program/attention/detail/quantized_decode_shape.cuh>
#include <tessera/program/attention/lane_weights.cuh>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/reduce/maximum.hpp>
#include <tessera/reduce/sum.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/row_tile.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tuning/attention/attention.hpp>

namespace tessera {
inline namespace v0 {

/// How attention_of_few_queries gets keys and values to shared memory, by its policy.
template <int Channels, few_queries_policy Policy>
using few_queries_feed = std::conditional_t<Policy.has_boxes, detail::few_queries_boxes<Channels, Policy.stages>,
                                            detail::few_queries_copies<Channels, Policy.stages, Policy.tiles>>;

/// Attends over quantized keys. Method: an attention_method whose scales are per_thread and whose values are e4m3. T:
/// the type of results.
template <int Channels, class Method, class T, few_queries_policy Policy>
struct attention_of_few_queries {
  using shape = few_queries_shape<Channels>;
  /// How keys and values get to shared memory.
  using feed = few_queries_feed<Channels, Policy>;
  using softmax_type = typename Method::softmax;
  using row_type = attention_row<typename softmax_type::state_type>;
  /// The warps that multiply, and one that loads where there is TMA.
  using block_warps = typename feed::block_warps;
  static constexpr int lanes = feed::lanes;
  static constexpr int blocks_per_multiprocessor = Policy.blocks;
  static constexpr int from_architecture = feed::from_architecture;
  static constexpr int before_architecture = feed::before_architecture;
  static constexpr int tiles = Policy.tiles;  ///< tiles that warps take between two syncs
  static constexpr bool is_persistent = true;
  static constexpr bool waits_for_stream = feed::waits_for_stream;

  /// What each warp has summed up for a row of a work item.
  struct row_sums {
    float sum[shape::warps];      ///< sums of weights before rounding
    float rounded[shape::warps];  ///< sums of rounded weights
  };
  struct scratch_type {
    /// Tiles of keys' codes.
    alignas(1024) unsigned char key[Policy.stages][tiles * shape::tile_bytes];
    /// Tiles of values' codes.
    alignas(1024) unsigned char value[Policy.stages][tiles * shape::tile_bytes];
    alignas(16) typename feed::scales_type key_scale[Policy.stages];  ///< scales of tiles of keys
    alignas(16)
        std::uint32_t weights[2 * tiles][shape::rows * shape::weight_words];  ///< pairs of fp16, for two tiles in turn
    /// Largest scores of rows, by warp, for two alternating tiles.
    alignas(16) float largest[2 * tiles][shape::rows][shape::warps];
    alignas(16) row_sums sums[2][shape::rows];              ///< sums of rows, for two work items in turn
    [[no_unique_address]] typename feed::rings_type rings;  ///< barriers of the stages, where there is TMA
  };

  typename feed::source_type source;  ///< codes of keys and values
  std::int8_t const* query_codes;     ///< memory of quantized_queries::codes
  float const* query_scales;          ///< memory of quantized_queries::scales
  float const* key_scales;            ///< memory of quantized_keys::scales
  few_query_schedule schedule;        ///< the schedule of work items
  attention_writer<Method, T> results;
  /// Where splits of the keys leave their results, if there are several.
  attention_partials<typename softmax_type::state_type> partials;

  /// Runs the thread block's work items. A launch has as many blocks as run at a time, or fewer.
  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t,
                                             scratch_type& scratch) const {
    feed::run(*this, group, scratch, [&](int warp, int lane) { attend(scratch, warp, lane); });
  }

 private:
  using products = detail::few_queries_products<Channels>;

  // The consumers, eight warps. The words for rows of sums (concepts/tile_mma.hpp) work on all 16 rows. Where rows 8 to
  // 15 do not exist, their weights, most of the work, are left out.

  using scores_type = row_tile<std::int8_t, tessera::shape<shape::rows, shape::warp_keys, 32>, cuda_warp>;
  using score_tile = typename scores_type::sum_tile;
  template <class Value>
  using row_values = typename scores_type::template row_values<Value>;
  using factors_type = row_values<float>[tiles];

  /// The state of a warp, in registers.
  struct warp_state {
    int warp;
    int lane;
    typename feed::reader from;
    typename products::queries_type queries;
    bool has_second_half;  ///< whether rows 8 to 15 exist; if not, they have no weights
    row_values<float> query_scale;
    row_values<std::int32_t> first_key;    ///< the first key that each row sees
    row_values<std::int32_t> seen_keys;    ///< how many keys each row sees from there on; all where there is no row
    score_tile scores[tiles];              ///< sums of products of codes, some of them hidden
    row_values<float> score_scale[tiles];  ///< what turns scores into logits, in base 2
    factors_type factor;                   ///< what outputs are multiplied by before the next products are added
    row_values<row_type> rows;
    float outputs[shape::column_steps][4];
  };

  __device__ __forceinline__ void attend(scratch_type& scratch, int warp, int lane) const {
    warp_state state;
    state.warp = warp;
    state.lane = lane;
    state.from.start(*this, scratch, warp, lane);
    auto const count = schedule.count();
    int turn = 0;
    for (std::uint32_t work = block_index(); work < count; work += blocks_in_grid()) {
      few_query_work_item const at = schedule.at(work);
      begin_work(state, at);
      if (work == block_index()) {
        state.from.begin();
      }
      auto const first_key = static_cast<std::int32_t>(at.first_tile * shape::keys);
      if (at.tiles > 0) {
        state.from.find_keys(*this);
        make_scores(scratch, state, first_key, 0, at.tiles);
      }
      std::int32_t const runs = divide_up(at.tiles, tiles);
      for (std::int32_t i = 0; i < runs; ++i) {
        block_warps::sync();
        state.from.find_keys(*this);
        state.from.find_values(*this);
        factors_type before;
        copy_factors(state, before);
        make_weights(scratch, state, i % 2, at.first_tile + i == 0, at.tiles - i * tiles);
        if (i > 0) {
          add_values(scratch, state, before, (i - 1) % 2, tiles);
        }
        state.from.pass_values(i == 0);
        if (i + 1 < runs) {
          make_scores(scratch, state, first_key + (i + 1) * (tiles * shape::keys), (i + 1) % 2,
                      at.tiles - (i + 1) * tiles);
        }
        state.from.pass_keys(i + 1 == runs);
      }
      if (at.tiles > 0) {
        block_warps::sync();
        state.from.find_values(*this);
        add_values(scratch, state, state.factor, (runs - 1) % 2, at.tiles - (runs - 1) * tiles);
      }
      if constexpr (feed::finds_work_again) {
        finish(scratch, state, schedule.at(recompute(work)), turn);
      } else {
        finish(scratch, state, at, turn);
      }
      turn ^= 1;
    }
  }

  /// Calls use(tile) for the tiles of a run, which are `left` or all.
  template <class Use>
  __device__ __forceinline__ static void each_tile(std::int32_t left, Use const& use) {
    if (tiles == 1 || left >= tiles) {
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        use(tile);
      }
    } else {
#pragma unroll
      for (int tile = 0; tile + 1 < tiles; ++tile) {
        if (tile < left) {
          use(tile);
        }
      }
    }
  }
  __device__ __forceinline__ static void copy_factors(warp_state const& state, factors_type& to) {
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
      to[tile] = state.factor[tile];
    }
  }

  __device__ __forceinline__ void begin_work(warp_state& state, few_query_work_item const& at) const {
    attention_shape const& s = results.shape;
    std::int64_t const padded = padded_tokens(s.queries);
    state.has_second_half = schedule.row_of(at, 8).is_inside;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      few_query_row const row = schedule.row_of(at, state.lane / 4 + 8 * half);
      std::int64_t const head = at.sequence * s.query_heads + row.head;
      auto const* const codes =
          reinterpret_cast<std::uint32_t const*>(query_codes + (head * padded + row.query) * s.channels);
#pragma unroll
      for (int step = 0; step < shape::depth_steps; ++step) {
        int const word = 8 * step + state.lane % 4;
        state.queries[step][half] = row.is_inside && 4 * word < s.channels ? codes[word] : 0U;
        state.queries[step][half + 2] = row.is_inside && 4 * word + 16 < s.channels ? codes[word + 4] : 0U;
      }
      std::int64_t const scale = head * Method::query_groups::count(padded) + Method::query_groups::group_of(row.query);
      state.query_scale.values[0][half] = row.is_inside ? query_scales[scale] : 0.0F;
      key_interval const seen = row.is_inside ? at.mask.of(row.query) : key_interval{0, 0x7fffffff};
      state.first_key.values[0][half] = static_cast<std::int32_t>(seen.first);
      state.seen_keys.values[0][half] = static_cast<std::int32_t>(seen.end - seen.first);
    }
#pragma unroll
    for (auto& factor : state.factor) {
      scores_type::each_row(
          cuda_warp{}, [](int, float& of_row) { of_row = 1.0F; }, factor);
    }
    scores_type::each_row(
        cuda_warp{}, [](int, row_type& row) { row = row_type::nothing(softmax_type{}); }, state.rows);
#pragma unroll
    for (auto& column : state.outputs) {
#pragma unroll
      for (float& output : column) {
        output = 0.0F;
      }
    }
  }

  /// Makes the scores of the warp's keys of a run of tiles, and leaves each row's largest of a tile to all warps.
  __device__ __forceinline__ void make_scores(scratch_type& scratch, warp_state& state, std::int32_t first_key,
                                              int turn, std::int32_t left) const {
    score_tile sums[tiles]{};
    float key_scale[tiles];
    state.from.await_keys(scratch);
    each_tile(left, [&](int tile) {
      products::multiply_keys(detail::plain_shared_address(state.from.keys(scratch) + tile * shape::tile_bytes), state,
                              sums[tile].values[0]);
      float const read = state.lane < lane_scales ? state.from.key_scales(scratch, tile, state.warp)[state.lane] : 0.0F;
      key_scale[tile] = shuffle(read, state.lane % lane_scales);
    });
    state.from.release_keys(*this, scratch, state.warp, state.lane);
    std::int32_t const own_key = first_key + shape::warp_keys * state.warp;
    each_tile(left, [&](int tile) {
      leave_scores(scratch.largest[turn * tiles + tile], state, sums[tile], key_scale[tile],
                   own_key + tile * shape::keys, tile);
    });
  }
  /// Keeps the scores of a tile, those of the warp's keys from `own_key` on.
  __device__ __forceinline__ static void leave_scores(float (&to)[shape::rows][shape::warps], warp_state& state,
                                                      score_tile const& sums, float key_scale, std::int32_t own_key,
                                                      int tile) {
    cuda_warp const group;
    score_tile& scores = state.scores[tile];
    scores = sums;
    hide(scores, state, own_key);
    row_values<std::int32_t> most;
    row_values<float> largest;
    scores_type::fold_lanes(group, maximum_reducer<std::int32_t>{}, scores, most);
    scores_type::each_row(
        group,
        [key_scale](int, float of_query, float& scale, std::int32_t sum, float& score) {
          scale = of_query * key_scale;  // a lane's keys have a scale of their own
          score = sum == score_sums::hidden ? -infinity : fmaxf(scale * static_cast<float>(sum), -infinity);
        },
        state.query_scale, state.score_scale[tile], most, largest);
    scores_type::merge_lanes(group, maximum_reducer<float>{}, largest);
    scores_type::each_row_once(
        group, [&](int row, float score) { to[row][state.warp] = score; }, largest);
  }

  /// Hides keys that a row does not see. In most tiles all rows see all.
  __device__ __forceinline__ static void hide(score_tile& scores, warp_state const& state, std::int32_t own_key) {
    cuda_warp const group;
    bool sees_all = true;
    scores_type::each_row(
        group,
        [&](int, std::int32_t first, std::int32_t seen) {
          auto const behind = static_cast<std::uint32_t>(own_key - first);
          auto const count = static_cast<std::uint32_t>(seen);
          sees_all = sees_all && behind < count && behind + (shape::warp_keys - 1) < count;
        },
        state.first_key, state.seen_keys);
    if (sees_all) {
      return;
    }
    scores_type::each_with_row(
        group, scores,
        [own_key](int, int key, std::int32_t& sum, std::int32_t first, std::int32_t seen) {
          sum = static_cast<std::uint32_t>(own_key - first + key) < static_cast<std::uint32_t>(seen)
                    ? sum
                    : score_sums::hidden;
        },
        state.first_key, state.seen_keys);
  }

  /// Makes the weights of all rows and the warp's keys of a run of tiles.
  __device__ __forceinline__ static void make_weights(scratch_type& scratch, warp_state& state, int turn, bool is_first,
                                                      std::int32_t left) {
    each_tile(left, [&](int tile) {
      int const place = turn * tiles + tile;
      scores_type::each_row(
          cuda_warp{},
          [&](int row, row_type& own, float& factor) {
            factor = softmax_type{}.turn(own.state, largest_of(scratch.largest[place][row]));
          },
          state.rows, state.factor[tile]);
      scores_type::each_row_of_sums(
          cuda_warp{}, state.scores[tile],
          [&](int row, std::int32_t const(&sums)[4], row_type& own, float scale, float factor) {
            if (state.has_second_half || row < 8) {
              weigh(sums, own, scale, factor, is_first && tile == 0,
                    scratch.weights[place] + row * shape::weight_words + shape::warp_keys / 2 * state.warp +
                        state.lane % 4);
            }
          },
          state.rows, state.score_scale[tile], state.factor[tile]);
    });
  }
  /// Makes the weights of a row's keys of a tile: codes of four keys at a time.
  __device__ __forceinline__ static void weigh(std::int32_t const (&sums)[4], row_type& own, float scale, float factor,
                                               bool is_first, std::uint32_t* to) {
    four_weights const weights = lane_weights<softmax_type>::weigh(own.state.reference, scale, sums, is_first);
    own.state.sum += weights.sum;
    uint2 const codes = unpack_four_e4m3(weights.codes);
    float2 const first = unpack_pair<float16>(codes.x);
    float2 const second = unpack_pair<float16>(codes.y);
    own.rounded = own.rounded * factor + ((first.x + first.y) + (second.x + second.y));
    to[0] = codes.x;
    to[4] = codes.y;
  }
  __device__ __forceinline__ static float largest_of(float const (&parts)[shape::warps]) {
    static_assert(shape::warps == 8);
    float4 const a = *reinterpret_cast<float4 const*>(parts);
    float4 const b = *reinterpret_cast<float4 const*>(parts + 4);
    return fmaxf(fmaxf(fmaxf(a.x, a.y), fmaxf(a.z, a.w)), fmaxf(fmaxf(b.x, b.y), fmaxf(b.z, b.w)));
  }

  /// Multiplies all weights of a run of tiles by the warp's channels of values.
  __device__ __forceinline__ void add_values(scratch_type& scratch, warp_state& state, factors_type const& factor,
                                             int turn, std::int32_t left) const {
    std::uint32_t const weights =
        detail::plain_shared_address(scratch.weights[turn * tiles]) +
        static_cast<std::uint32_t>(state.lane % 16 * shape::weight_words * 4 + state.lane / 16 * 16);
    std::uint32_t const values =
        detail::plain_shared_address(state.from.values(scratch)) +
        static_cast<std::uint32_t>((shape::warp_channels * state.warp + state.lane % 8) * shape::keys);
    state.from.await_values(scratch);
    each_tile(left, [&](int tile) {
      float sums[2][shape::column_steps][4] = {};
      products::multiply_values(weights + static_cast<std::uint32_t>(tile * sizeof(scratch.weights[0])),
                                values + static_cast<std::uint32_t>(tile * shape::tile_bytes), state.lane, sums);
      if (tile + 1 == tiles || tile + 1 == left) {
        state.from.release_values(*this, scratch, state.warp, state.lane);
      }
#pragma unroll
      for (int column = 0; column < shape::column_steps; ++column) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float const sum = sums[0][column][i] + sums[1][column][i];
          state.outputs[column][i] = __fmaf_rn(state.outputs[column][i], factor[tile].values[0][i / 2], sum);
        }
      }
    });
  }
  /// Adds up the warps' sums of rows, and writes results or, where keys are split, partial results.
  __device__ __forceinline__ void finish(scratch_type& scratch, warp_state& state, few_query_work_item const& at,
                                         int turn) const {
    bool const is_split = partials.rows.data != nullptr;
    cuda_warp const group;
    row_values<float> sums;
    row_values<float> rounded;
    scores_type::each_row(
        group,
        [](int, row_type const& row, float& sum, float& of_rounded) {
          sum = row.state.sum;
          of_rounded = row.rounded;
        },
        state.rows, sums, rounded);
    scores_type::merge_lanes(group, sum_reducer<float>{}, sums);
    scores_type::merge_lanes(group, sum_reducer<float>{}, rounded);
    scores_type::each_row_once(
        group,
        [&](int row, float sum, float of_rounded) {
          scratch.sums[turn][row].sum[state.warp] = sum;
          scratch.sums[turn][row].rounded[state.warp] = of_rounded;
        },
        sums, rounded);
    block_warps::sync();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int const number = state.lane / 4 + 8 * half;
      few_query_row const query = schedule.row_of(at, number);
      row_type row = state.rows.values[0][half];
      row.state.sum = sum_of_warps(scratch.sums[turn][number].sum);
      row.rounded = sum_of_warps(scratch.sums[turn][number].rounded);
      if (query.is_inside && is_split) {
        leave_row(state, at, query, half, row);
      } else if (query.is_inside) {
        write_row(state, at, query, half, row);
      }
    }
  }
  __device__ __forceinline__ static float sum_of_warps(float const (&parts)[shape::warps]) {
    float sum = 0.0F;
#pragma unroll
    for (int warp = 0; warp < shape::warps; ++warp) {
      sum += parts[warp];
    }
    return sum;
  }

  /// The first of the lane's channels. The others are the next one, and the two at every eighth channel after them.
  [[nodiscard]] __device__ __forceinline__ static int first_channel(warp_state const& state) {
    return shape::warp_channels * state.warp + 2 * (state.lane % 4);
  }
  __device__ __forceinline__ void leave_row(warp_state const& state, few_query_work_item const& at,
                                            few_query_row const& query, int half, row_type const& row) const {
    if (state.warp == 0 && state.lane % 4 == 0) {
      partials.rows(at.split, at.sequence, query.head, query.query) = row;
    }
    constexpr float unit = widened_pairs<float8_e4m3>::unit();
    int const first = first_channel(state);
    float* const to = &partials.totals(at.split, at.sequence, query.head, query.query, first);
    std::int64_t const step = partials.totals.strides[4];
#pragma unroll
    for (int column = 0; column < shape::column_steps; ++column) {
      if (first + 8 * column < results.shape.channels) {
        to[8 * column * step] = state.outputs[column][2 * half] * unit;
        to[(8 * column + 1) * step] = state.outputs[column][2 * half + 1] * unit;
      }
    }
  }
  __device__ __forceinline__ void write_row(warp_state const& state, few_query_work_item const& at,
                                            few_query_row const& query, int half, row_type const& row) const {
    constexpr float unit = widened_pairs<float8_e4m3>::unit();
    value_terms terms[shape::column_steps][2];
    int const first = first_channel(state);
#pragma unroll
    for (int i = 0; i < 2 * shape::column_steps; ++i) {
      std::int64_t const channel = min(first + i / 2 * 8 + i % 2, static_cast<int>(results.shape.channels) - 1);
      terms[i / 2][i % 2] = results.terms_of(at.sequence, query.head, channel);
    }
    finished_row const finished = results.finish(at.sequence, query.head, query.query, row);
    if (state.warp == 0 && state.lane % 4 == 0) {
      results.write_log_sum_exp(at.sequence, query.head, query.query, finished);
    }
#pragma unroll
    for (int i = 0; i < 2 * shape::column_steps; ++i) {
      int const channel = first + i / 2 * 8 + i % 2;
      if (channel < results.shape.channels) {
        results.write(at.sequence, query.head, query.query, channel, finished, terms[i / 2][i % 2],
                      state.outputs[i / 2][2 * half + i % 2] * unit);
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
