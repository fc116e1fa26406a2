// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `dense_by_warps`: attention over queries, keys and values in bfloat16 or float16 by mma.sync and cp.async, for GPUs
/// without wgmma (sm_80 and later).
///
/// A thread block takes neighbouring queries of a head and walks over their keys, or those of a split, from first to
/// last. A warp has rows of its own, 16 or 32, through all tiles of keys: it multiplies queries by keys, makes weights
/// of the scores in the registers where they are, and multiplies these by values (tile/cuda/row_tile.cuh). With one
/// stage values are copied while scores are made, and keys of the next tile while values are multiplied: two syncs a
/// tile. Thread blocks of a multiprocessor drift apart, so that one multiplies while another makes weights.
///
/// Loops over one stage are a late_refiller of tile/pipelined.hpp, whose two stages are a tile of keys and one of
/// values: by hand ptxas made the same instructions for sm_80, but for lists of tiles, which had 24 to 32 more of 4300
/// to 4800. That over two stages, of dense biases of 128 channels, stays by hand: by `pipelined` 257 TFLOP/s for 263.
///
/// Rows have a reference that is raised only if a score is more than 2^8 above it (weigh_rows_with_headroom): most
/// tiles neither exchange largest scores nor scale what was added up.
///
/// Cycles of a multiprocessor for a tile of a thread block: products of 16 x 8 x 16, of which a multiprocessor of an
/// H200 makes one in 1.5 cycles by mma.sync (620 TFLOP/s; an A100 in 2); bytes of shared memory, 128 a cycle, which
/// ldmatrix reads and cp.async writes; exponentials, 16 a cycle; instructions of a warp on each of four schedulers:
///
///     channels   rows x keys   products   shared memory   exponentials   instructions
///      64         128 x 128      1540         1410            1020           1000
///     128         128 x 64       1540         1540             510            800
///     256         128 x 48       2300         3460             380            900
///
/// So 32 rows a warp, with which keys and values are read for two products each, are needed to be bound by products.
/// Of 256 channels the sums of 16 rows take 128 registers, and shared memory bounds them, although queries stay in
/// registers there.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/detail/dense_results.cuh>
#include <tessera/program/attention/detail/dense_softmax.cuh>
#include <tessera/program/attention/detail/dense_terms.cuh>
#include <tessera/program/attention/detail/dense_tiles.hpp>
#include <tessera/program/attention/detail/key_cursor.hpp>
#include <tessera/program/attention/detail/lane_chunks.cuh>
#include <tessera/program/attention/detail/plain_key_range.cuh>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/tile/copies_in_flight.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/row_tile.cuh>
#include <tessera/tile/cuda/sm_80/refilled_stages.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/multiply_sums.hpp>
#include <tessera/tile/pipelined.hpp>
#include <tessera/tile/rows/weigh_rows.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/tuning/attention/dense.hpp>
#include <tessera/view/attention_block_list.hpp>
#include <tessera/view/attention_shape.hpp>

namespace tessera {
inline namespace v0 {

/// The types of a call of dense_by_warps. T: of operands, bfloat16 or float16. Result: of results, bfloat16, float16 or
/// float. Bias: no_bias or `bias(sequence, head, query, key)`.
template <class T, class Result, class Bias = no_bias>
struct dense_types {
  using value_type = T;
  using result_type = Result;  ///< of results
  using bias_type = Bias;      ///< of what is added to scores
};

/// Attends over operands whose rows are whole chunks of 16 bytes. Channels: the most channels that a head may have, a
/// multiple of 64. Types: dense_types.
template <int Channels, class Types, dense_warps_policy Policy>
struct dense_by_warps : detail::added_bias<typename Types::bias_type>, detail::listed_keys<Policy.walks_lists> {
  using T = typename Types::value_type;        ///< of operands
  using Result = typename Types::result_type;  ///< of results
  using Bias = typename Types::bias_type;      ///< of what is added to scores
  static constexpr int lanes = 32 * Policy.warps;
  static constexpr int warp_rows = 16 * Policy.tiles;      ///< queries of a warp
  static constexpr int rows = warp_rows * Policy.warps;    ///< queries of a thread block
  static constexpr int tile_keys = Policy.keys;            ///< keys of a tile
  static constexpr int list_keys = 128;                    ///< keys of a tile of a list
  static constexpr bool walks_lists = Policy.walks_lists;  ///< whether tiles of keys are listed
  static constexpr int blocks_per_multiprocessor = Policy.blocks;
  static constexpr int from_architecture = 800;
  static constexpr int before_architecture = 10000;
  static constexpr float log2_e = 1.4426950408889634F;
  static_assert(Channels % 64 == 0 && sizeof(T) == 2 && (sizeof(Result) == 2 || std::is_same_v<Result, float>));
  static_assert(!Policy.walks_lists || (rows == attention_block_list::queries && Policy.stages == 1),
                "tessera: a thread block has the queries of one list");
  /// The group that runs it.
  using block = cuda_block<lanes>;
  /// Where a group is: its block of queries.
  using coordinates = detail::query_block<rows>;
  using state_type = online_softmax<float>::state_type;

 private:
  static constexpr int width = 64;                ///< channels of a product with values
  static constexpr int parts = Channels / width;  ///< products of a step of values
  static constexpr int steps = Channels / 16;     ///< steps of a product of queries and keys
  static constexpr int values_stage = 1;          ///< of a ring whose stages are keys and values
  using scores = row_tile<T, tessera::shape<warp_rows, tile_keys, 16>, cuda_warp>;  ///< queries by keys
  using results = row_tile<T, tessera::shape<warp_rows, width, 16>, cuda_warp>;     ///< weights by values
  using terms_type = detail::dense_terms<Bias, scores>;                             ///< what is added to scores
  using softmax_type = typename terms_type::softmax_type;
  using softmax_state = typename softmax_type::state_type;
  using key_range = detail::plain_key_range;
  using copies = copies_in_flight<block>;
  using query_tile = staged_tile<T, rows, Channels>;
  using key_tile = staged_tile<T, tile_keys, Channels>;
  template <class Value>
  using row_values = typename scores::template row_values<Value>;

  /// The warp's queries, where they stay in registers.
  struct kept_queries {
    typename scores::a_tile of_step[steps];
  };
  /// The same where they do not.
  struct staged_queries {};

 public:
  struct scratch_type {
    /// Queries, where they stay there, then results. Queries that lanes keep make room for keys and values.
    union {
      query_tile queries;
      struct {
        std::conditional_t<Policy.keeps_queries, staged_queries, query_tile> before;
        key_tile keys[Policy.stages];
        key_tile values[Policy.stages];
      };
    };
  };

  attention_shape shape;
  dense_heads<T> queries;  ///< with their lengths and starts
  dense_heads<T> keys;     ///< with their lengths and starts
  dense_heads<T> values;   ///< with the lengths and starts of keys
  float slope;             ///< what products are multiplied by, of factor_of()
  std::int64_t left;       ///< attention_mask::left
  std::int64_t right;      ///< attention_mask::right
  attention_writer<decode_method, Result> writer;
  bool has_whole_words;                     ///< whether rows of results begin at multiples of 16 bytes
  attention_partials<state_type> partials;  ///< where splits of the keys leave their results, if there are several

  /// The member `slope` where scores are multiplied by `scale`.
  static constexpr float factor_of(float scale) { return terms_type::factor_of(scale); }
  /// How many groups there are: blocks of queries, times the splits of the keys.
  TESSERA_FN constexpr std::int64_t groups() const {
    return shape.batch * shape.query_heads * coordinates::count(shape) * partials.splits();
  }

  /// Attends for a block of queries of a head.
  __device__ __forceinline__ void operator()(block const& group, std::int64_t which, scratch_type& scratch) const {
    auto const splits = static_cast<int>(partials.splits());
    auto const split = static_cast<int>(which % splits);
    coordinates at = coordinates::of(shape, which / splits);
    at.mask = {queries.length(at.sequence), keys.length(at.sequence), left, right};
    auto const range =
        key_range::of(at, rows, tile_keys, Policy.walks_lists ? 0 : split, Policy.walks_lists ? 1 : splits);
    warp_state state;
    state.first_row = uniform(group.lane / 32) * warp_rows;
    begin(state);
    state.terms = terms_type::of(at.sequence, at.head, this->added());
    if constexpr (Policy.walks_lists) {
      attend_list(group, at, range, split, state, scratch);
    } else if (range.first < range.end) {
      begin_queries(group, at, scratch);
      auto from_keys = source_of<tile_keys>(group, keys, at.sequence, at.key_head, range.first);
      auto from_values = source_of<tile_keys>(group, values, at.sequence, at.key_head, range.first);
      attend_tiles(group, at, range, from_keys, from_values, state, scratch);
    }
    if constexpr (Policy.keeps_queries) {
      group.sync();  // all warps have read the last values, where results go
    }
    finish(at, split, state, scratch);
  }

 private:
  /// What a warp has in registers from tile to tile.
  struct warp_state {
    int first_row;  ///< the warp's first row in the block
    row_values<softmax_state> rows;
    terms_type terms;  ///< what is known of what is added to scores
    typename results::sum_tile totals[parts];
    std::conditional_t<Policy.keeps_queries, kept_queries, staged_queries> queries;
  };
  template <int Rows>
  using chunks_of = detail::lane_chunks<T, Rows, Channels, lanes>;

  /// The lane's chunks of the tile that begins with a token.
  template <int Rows>
  __device__ __forceinline__ chunks_of<Rows> source_of(block const& group, dense_heads<T> const& heads,
                                                       std::int64_t sequence, std::int64_t head,
                                                       std::int64_t token) const {
    return chunks_of<Rows>::of(heads.tokens(sequence, head).matrix, token, group.lane);
  }

  __device__ __forceinline__ void begin(warp_state& state) const {
    cuda_warp const warp;
    scores::each_row(
        warp, [](int, softmax_state& row) { row = softmax_type::identity(); }, state.rows);
    each_constant<parts>([&](auto part) { results::clear(warp, state.totals[part.value]); });
  }
  __device__ __forceinline__ void begin_queries(block const& group, coordinates const& at,
                                                scratch_type& scratch) const {
    source_of<rows>(group, queries, at.sequence, at.head, at.first_query)
        .begin(scratch.queries, queries.heads.stride(2), false, group.lane);
  }

  /// Awaits the queries and loads the warp's own, where they stay in registers.
  __device__ __forceinline__ static void keep_queries(block const& group, warp_state& state, scratch_type& scratch) {
    if constexpr (Policy.keeps_queries) {
      copies::commit();
      copies::template await<0>();
      group.sync();
      each_constant<steps>([&](auto step) {
        detail::load_a_of<scores>(cuda_warp{}, state.queries.of_step[step.value], own_queries(state, scratch),
                                  16 * step.value);
      });
      group.sync();  // all warps have read their queries
    }
  }

  /// Attends over the tiles of a split of the list. Values are copied while scores are made, and the next keys while
  /// values are multiplied.
  __device__ __forceinline__ void attend_list(block const& group, coordinates const& at, key_range const& range,
                                              int split, warp_state& state, scratch_type& scratch) const {
    detail::key_cursor<list_keys, tile_keys> next(at, this->list, partials.splits(), split);
    if (!next.exists()) {
      return;
    }
    begin_queries(group, at, scratch);
    keep_queries(group, state, scratch);
    auto const from_keys = source_of<tile_keys>(group, keys, at.sequence, at.key_head, 0);
    auto const from_values = source_of<tile_keys>(group, values, at.sequence, at.key_head, 0);
    auto const key_count = static_cast<int>(keys.tokens(at.sequence, at.key_head).rows());
    int const end_whole = shape.channels == Channels ? key_count - tile_keys + 1 : -1;
    auto const begin_tile = [&](auto const& from, dense_heads<T> const& heads, int first, key_tile& to) {
      std::int64_t const stride = heads.heads.stride(2);
      from.further(first, stride).template begin<terms_type::spreads_keys>(to, stride, first < end_whole, group.lane);
    };
    auto following = uniform(static_cast<int>(next.key()));
    int first = following;
    bool goes_on = true;
    auto const fill = [&, this](int stage) {
      if (stage == values_stage) {
        begin_tile(from_values, values, first, scratch.values[0]);
      } else if (goes_on) {
        begin_tile(from_keys, keys, following, scratch.keys[0]);
      }
    };
    late_refiller<2, block, decltype(fill)> ring(group, fill);
    ring.fill_all();
#pragma unroll 1
    while (goes_on) {
      first = following;
      next.move_on(at, this->list);
      goes_on = next.exists();
      following = uniform(static_cast<int>(next.key()));
      int step = ring.begin_step(0).index;  // keys
      typename scores::sum_tile tile;
      make_scores(state, scratch, scratch.keys[0], tile);
      ring.end_step(step, 1);
      step = ring.begin_step(1).index;  // values
      weigh(at, range, first, state, tile);
      add_values(scratch.values[0], tile, state);
      ring.end_step(step, 1);
    }
  }

  /// Attends over tiles of keys. With one stage values are copied while scores are made, and keys of the next tile
  /// while values are multiplied; with two both are copied a tile ahead.
  __device__ __forceinline__ void attend_tiles(block const& group, coordinates const& at, key_range const& range,
                                               chunks_of<tile_keys>& from_keys, chunks_of<tile_keys>& from_values,
                                               warp_state& state, scratch_type& scratch) const {
    std::int64_t const key_stride = keys.heads.stride(2);
    std::int64_t const value_stride = values.heads.stride(2);
    auto const key_count = static_cast<int>(keys.tokens(at.sequence, at.key_head).rows());
    int const end_whole = shape.channels == Channels ? key_count - tile_keys + 1 : -1;
    auto const begin_keys = [&](int first, int stage) {
      from_keys.template begin<terms_type::spreads_keys>(scratch.keys[stage], key_stride, first < end_whole,
                                                         group.lane);
      from_keys.move_on(key_stride);
    };
    auto const begin_values = [&](int first, int stage) {
      from_values.template begin<terms_type::spreads_keys>(scratch.values[stage], value_stride, first < end_whole,
                                                           group.lane);
      from_values.move_on(value_stride);
    };
    keep_queries(group, state, scratch);
    if constexpr (Policy.stages > 1) {
      begin_keys(range.first, 0);
      begin_values(range.first, 0);
      copies::commit();
      int stage = 0;
#pragma unroll 1
      for (int first = range.first; first < range.end; first += tile_keys) {
        copies::template await<0>();
        group.sync();  // the tile is there, and all warps have read the one before
        if (first + tile_keys < range.end) {
          begin_keys(first + tile_keys, stage ^ 1);
          begin_values(first + tile_keys, stage ^ 1);
        }
        copies::commit();
        typename scores::sum_tile tile;
        make_scores(state, scratch, scratch.keys[stage], tile);
        weigh(at, range, first, state, tile);
        add_values(scratch.values[stage], tile, state);
        stage ^= 1;
      }
    } else {
      int first = range.first - tile_keys;
      auto const fill = [&](int stage) {
        if (stage == values_stage) {
          begin_values(first, 0);
        } else if (first + tile_keys < range.end) {
          begin_keys(first + tile_keys, 0);
        }
      };
      late_refiller<2, block, decltype(fill)> ring(group, fill);
      ring.fill_all();
#pragma unroll 1
      for (first += tile_keys; first < range.end; first += tile_keys) {
        int step = ring.begin_step(0).index;  // keys
        typename scores::sum_tile tile;
        bool const is_seen = !Policy.skips || sees(at, first, state);
        if (is_seen) {
          make_scores(state, scratch, scratch.keys[0], tile);
        }
        ring.end_step(step, 1);
        step = ring.begin_step(1).index;  // values
        if (is_seen) {
          weigh(at, range, first, state, tile);
          add_values(scratch.values[0], tile, state);
        }
        ring.end_step(step, 1);
      }
    }
  }

  /// The warp's queries in scratch.
  struct warp_queries {
    static constexpr int stride = query_tile::stride;
    T* values;
    __device__ tile_chunk<T>& chunk(int, int);
  };
  __device__ __forceinline__ static warp_queries own_queries(warp_state const& state, scratch_type& scratch) {
    return {&scratch.queries(state.first_row, 0)};
  }

  __device__ __forceinline__ static void make_scores(warp_state& state, scratch_type& scratch, key_tile const& from,
                                                     typename scores::sum_tile& tile) {
    cuda_warp const warp;
    scores::clear(warp, tile);
    each_constant<steps>([&](auto step) {
      typename scores::b_tile of_keys;
      detail::load_b_transposed_of<scores>(warp, of_keys, from, 16 * step.value);
      if constexpr (Policy.keeps_queries) {
        scores::multiply(warp, state.queries.of_step[step.value], of_keys, tile);
      } else {
        typename scores::a_tile of_queries;
        detail::load_a_of<scores>(warp, of_queries, own_queries(state, scratch), 16 * step.value);
        scores::multiply(warp, of_queries, of_keys, tile);
      }
    });
  }

  /// Whether a row of the warp sees a key of a tile, or may.
  __device__ __forceinline__ static bool sees(coordinates const& at, int first, warp_state const& state) {
    auto const queries = static_cast<int>(at.mask.queries);
    int const first_query = static_cast<int>(at.first_query) + state.first_row;
    int const last_query = min(first_query + warp_rows, queries) - 1;
    auto const right = static_cast<int>(at.mask.right < 0 ? (1 << 30) : min(at.mask.right, std::int64_t{1 << 30}));
    return first_query < queries && first <= last_query + static_cast<int>(at.mask.keys) - queries + right;
  }

  /// Makes weights of scores.
  __device__ __forceinline__ void weigh(coordinates const& at, key_range const& range, int first, warp_state& state,
                                        typename scores::sum_tile& tile) const {
    cuda_warp const warp;
    if constexpr (!terms_type::are_none) {
      typename terms_type::place const where{at.sequence,
                                             at.head,
                                             static_cast<int>(at.first_query) + state.first_row,
                                             first,
                                             static_cast<int>(at.mask.queries),
                                             static_cast<int>(at.mask.keys),
                                             first >= range.first_plain && first < range.end_plain};
      state.terms.add(warp.lane, this->added(), where, slope, tile, state.rows);
    }
    if (first < range.first_plain || first >= range.end_plain) {
      hide(at, first, state, tile);
    }
    softmax_type softmax{terms_type::slope_of(slope)};
    weigh_rows_with_headroom<scores>(warp, softmax, tile, state.rows, [&](row_values<float>& factors) {
      each_constant<parts>([&](auto part) {
        results::each_with_row(
            warp, state.totals[part.value], [](int, int, float& total, float factor) { total *= factor; }, factors);
      });
    });
  }
  /// Makes minus infinity of the scores of keys that rows do not see.
  __device__ __forceinline__ static void hide(coordinates const& at, int first, warp_state const& state,
                                              typename scores::sum_tile& tile) {
    cuda_warp const warp;
    struct seen_columns {
      int first;
      int end;
    };
    // A window that is wider than all numbers of tokens hides nothing.
    constexpr std::int64_t most = 1 << 30;
    auto const queries = static_cast<int>(at.mask.queries);
    auto const keys = static_cast<int>(at.mask.keys);
    auto const left = static_cast<int>(at.mask.left < 0 ? most : min(at.mask.left, most));
    auto const right = static_cast<int>(at.mask.right < 0 ? most : min(at.mask.right, most));
    int const first_query = static_cast<int>(at.first_query) + state.first_row;
    row_values<seen_columns> columns;
    scores::each_row(
        warp,
        [&](int row, seen_columns& to) {
          int const query = first_query + row;
          int const own = query + keys - queries - first;  // the row's own key, as a column
          to = {own - left, query < queries ? min(keys - first, own + right + 1) : 0};
        },
        columns);
    scores::each_with_row(
        warp, tile,
        [](int, int column, float& score, seen_columns const& seen) {
          int const key = terms_type::spreads_keys ? detail::spread_row(column) : column;
          score = key >= seen.first && key < seen.end ? score : -infinity;
        },
        columns);
  }

  /// Adds the values of a tile by their weights.
  __device__ __forceinline__ static void add_values(key_tile const& from, typename scores::sum_tile const& weights,
                                                    warp_state& state) {
    cuda_warp const warp;
    using operands_type = operands_of_sums<scores, results>;
    operands_type operands;
    operands.make(warp, weights);
    each_constant<operands_type::steps>([&](auto step) {
      each_constant<parts>([&](auto part) {
        typename results::b_tile of_values;
        results::load_staged_b(warp, of_values, from.values + 16 * step.value * key_tile::stride + part.value * width,
                               key_tile::stride);
        results::multiply(warp, operands.of_step[step.value], of_values, state.totals[part.value]);
      });
    });
  }

  /// Writes results and log-sum-exps of the warp's rows, or what a split has of them.
  __device__ __forceinline__ void finish(coordinates const& at, int split, warp_state& state,
                                         scratch_type& scratch) const {
    cuda_warp const warp;
    std::int64_t const first_query = at.first_query + state.first_row;
    bool const is_split = partials.rows.data != nullptr;
    row_values<float> inverse;
    scores::each_row(
        warp,
        [&](int row, softmax_state& of_row, float& to) {
          float sum = of_row.sum;
          sum += shuffle_xor(sum, 1);
          sum += shuffle_xor(sum, 2);
          float const reference = sum == 0.0F ? -infinity : of_row.reference;
          attention_row<state_type> const all{{reference, reference, sum}, sum};
          std::int64_t const query = first_query + row;
          bool const exists = query < shape.queries;
          bool const writes = exists && warp.lane % scores::holders == 0;
          finished_row const finished =
              exists && !is_split ? writer.finish(at.sequence, at.head, query, all) : no_attention_row();
          to = finished.inverse;
          if (writes && is_split) {
            partials.rows(split, at.sequence, at.head, query) = all;
          } else if (writes) {
            writer.write_log_sum_exp(at.sequence, at.head, query, finished);
          }
        },
        state.rows, inverse);
    detail::dense_results<results, parts, Result, query_tile::stride> const to{shape,   writer,      at.sequence,
                                                                               at.head, first_query, has_whole_words};
    if (is_split) {
      to.write_split(state.totals, partials, split);
    } else if constexpr (std::is_same_v<Result, float>) {
      to.write_floats(state.totals, inverse);
    } else {
      to.write_rounded(state.totals, inverse, own_queries(state, scratch).values);
    }
  }
};

}  // namespace v0
}  // namespace tessera
