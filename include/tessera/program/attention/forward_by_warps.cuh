// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `forward_by_warps`: attention over integer codes of queries and keys, with weights and values in e4m3 and the
/// softmax piecewise_linear_softmax, for GPUs without wgmma (sm_80 and later). It computes what `attention_tiles`
/// (attention/quantized_forward.hpp) computes, with the same codes of weights.
///
/// A thread block takes neighbouring queries of a head and walks over their keys, 128 at a time, which it multiplies by
/// the queries at once: so the reference of a tile is that of 128 keys. Four things make it fast:
///
///   * A lane's keys share one scale (quantize/granularity.hpp), and so do a row's scores in a lane. Sums begin at the
///     bits of 1.5 2^23, so that they are floats without an instruction; a weight's code is then a multiply-add that is
///     clamped to [0, 1], 128 codes, and an addition of 2^16, which rounds it to the last bits. From there it becomes
///     part of an operand. In all a score takes four instructions.
///   * The sum of a row's weights is a product with ones, and so is rounded as the results are.
///   * Warps wait for each other by mbarriers alone (tile/cuda/sm_80/refilled_ring.cuh), and drift apart: while one
///     multiplies, another makes weights. Keys and values have two stages. Values come widened, or a thread widens the
///     codes that it has copied itself, one tile ahead and in the middle of a tile's products with values, where it
///     waits for no warp that is half a tile behind, and no such warp for it.
///   * With two sets a warp has 32 rows of 128 channels, for which values are loaded from shared memory once. Scores of
///     32 rows would fill all registers, so those of the second set are made when the first's weights are parked in 16.
///
/// One set of 128 channels beside values that come widened has its queries in registers (detail/warp_queries.cuh), and
/// where shared memory is short its keys and values in rows without gaps.
/// What weights and values are multiplied as is a parameter: fp16 on sm_80 and later (detail/half_products.cuh), or
/// e4m3 with two-level sums on sm_89 and sm_120 (detail/byte_products.cuh).
/// Scores of mean queries and biases are added as detail/warp_terms.cuh says; most are what sums of products begin at.
///
/// A tile that some row does not see whole, a sequence's first tile, and tiles whose scales are large or NaN take a
/// longer way through the softmax, by the formulas of piecewise_linear_softmax.
///
/// Cost for each head: 4 * queries * keys * channels operations, less what a mask leaves out in whole tiles, and
/// channels * (2 * keys + rows) bytes for each block of `rows` queries.
///
/// Tuning and measurements: tuning/attention/forward_by_warps.hpp, tuning/attention/byte_products.hpp.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/detail/key_cursor.hpp>
#include <tessera/program/attention/detail/plain_key_range.cuh>
#include <tessera/program/attention/detail/quantized_task.hpp>
#include <tessera/program/attention/detail/row_floats.cuh>
#include <tessera/program/attention/detail/row_terms.cuh>
#include <tessera/program/attention/detail/score_weights.hpp>
#include <tessera/program/attention/detail/split_writer.hpp>
#include <tessera/program/attention/detail/warp_places.cuh>
#include <tessera/program/attention/detail/warp_queries.cuh>
#include <tessera/program/attention/detail/warp_terms.cuh>
#include <tessera/program/attention/lane_weights.cuh>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/reduce/piecewise_linear_softmax.hpp>
#include <tessera/tile/copies_in_flight.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/row_operands.cuh>
#include <tessera/tile/cuda/row_tile.cuh>
#include <tessera/tile/cuda/sm_80/refilled_ring.cuh>
#include <tessera/tile/cuda/sm_90/stage_ring.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/staged_tile.hpp>

namespace tessera {
inline namespace v0 {

/// Products: how weights are multiplied by values, half_products or byte_products, for an attention_method with
/// piecewise_linear_softmax and integer codes of queries and keys, of which a lane has one scale of keys. T: the type
/// of results. Bias: no_bias or `bias(sequence, head, query, key)`. Codes lie as quantize_heads leaves them, in rows of
/// whole 16 bytes.
template <class Products, class T, class Bias = no_bias>
struct forward_by_warps : detail::task_of_products<Products, T> {
  using method = typename Products::method;  ///< how codes are made
  using softmax_type = piecewise_linear_softmax;
  static_assert(std::is_same_v<typename method::softmax, softmax_type>,
                "tessera: forward_by_warps has the softmax piecewise_linear_softmax");
  /// The element that codes of queries and keys lie in.
  using score_code = typename method::score_code;
  using code_type = float8_e4m3;
  using state_type = typename softmax_type::state_type;
  static constexpr int channels = Products::channels;  ///< the most channels that a head may have
  static constexpr int lanes = 32 * Products::warps;
  static constexpr int tiles = Products::tiles;  ///< 16 rows of a warp
  static constexpr int sets = Products::sets;    ///< sets of rows, whose scores are made one after the other
  static constexpr int set_rows = 16 * tiles * Products::warps;  ///< queries of a set
  static constexpr int rows = sets * set_rows;                   ///< queries of a thread block
  static constexpr int blocks_per_multiprocessor = Products::blocks_per_multiprocessor;
  static constexpr int from_architecture = Products::from_architecture;
  static constexpr int before_architecture = Products::before_architecture;
  /// How keys and values get to shared memory.
  using sources = typename Products::sources;
  static constexpr int tile_keys = sources::tile_keys;  ///< keys with one reference
  /// The group that runs it.
  using block = cuda_block<lanes>;
  /// Where a group is: its block of queries.
  using coordinates = detail::query_block<rows>;

 private:
  using scores = row_tile<score_code, tessera::shape<set_rows, tile_keys, 32>, block>;  ///< queries by keys
  using score_bits = typename scores::sum_tile;
  using operands_type = typename Products::operands_type;
  using parked_type = typename Products::parked_type;
  using totals_type = typename Products::totals_type;
  using row_floats = detail::row_floats<tiles>;
  using row_terms = detail::row_terms<Products>;
  using places = detail::warp_places<tiles, set_rows>;  ///< where a lane's rows and scores are
  using key_range = detail::plain_key_range;
  using terms_type = detail::warp_terms<method, Bias, sets>;  ///< what is added to scores
  static_assert(!terms_type::has_corrections || set_rows == block_mean::tokens,
                "tessera: all rows of a set have the mean query of one block");
  using copies = copies_in_flight<block>;
  /// Codes of a set's queries.
  using query_tile = std::conditional_t<Products::keeps_queries, typename sources::key_tile,
                                        staged_tile<score_code, set_rows, sources::depth>>;
  using queries_type = std::conditional_t<Products::keeps_queries, detail::kept_queries<scores, query_tile>,
                                          detail::staged_queries<query_tile, sets>>;
  static_assert(!Products::keeps_queries || (sets == 1 && set_rows == tile_keys && !sources::widens),
                "tessera: queries in registers are those of one set, as many as keys of a tile, beside stored values");
  static constexpr int stages = sources::stages;     ///< of keys and values
  static constexpr int lane_scores = tile_keys / 4;  ///< scores of a row that a lane has
  static constexpr bool keeps_references = Products::keeps_references;
  static constexpr bool keeps_largest = Products::keeps_largest;

  /// Queries, keys and values, and terms of scores.
  struct tile_scratch : sources::scratch_type, terms_type::scratch_type {};

 public:
  struct scratch_type {
    /// Codes while there are any, then results.
    union {
      struct {
        typename queries_type::scratch_type staged;  ///< codes of queries
        tile_scratch operands;                       ///< keys and values
      };
      struct {
        float totals[rows * (channels + 1)];  ///< sums, rows one number further apart than long
        finished_row finished[rows];          ///< what results of each row are made with
      };
    };
    row_terms terms[rows];          ///< of each row
    stage_ring<stages> key_ring;    ///< of tiles of keys
    stage_ring<stages> value_ring;  ///< of tiles of values

    /// The sum of a channel.
    __device__ __forceinline__ float& total(int row, int channel) { return totals[row * (channels + 1) + channel]; }
  };

  /// What attention_tiles is given, too.
  using task_type = detail::task_of_products<Products, T>;
  using task_type::shape, task_type::queries, task_type::keys, task_type::values, task_type::writer,
      task_type::partials;
  Bias bias = {};  ///< added to scores, natural

  /// How many groups there are: blocks of queries, times the splits of the keys.
  TESSERA_FN constexpr std::int64_t groups() const {
    return shape.batch * shape.query_heads * coordinates::count(shape) * partials.splits();
  }

  /// Attends for a block of queries of a head, over the keys of a split.
  __device__ __forceinline__ void operator()(block const& group, std::int64_t which, scratch_type& scratch) const {
    auto const at = this->template place_of<coordinates>(which / partials.splits());
    auto const lane = recompute(static_cast<std::uint32_t>(group.lane));  // kept, not read again
    if (group.lane == 0) {
      scratch.key_ring.init(lanes, lanes);
      scratch.value_ring.init(lanes, lanes);
    }
    lane_rows state;
    begin_rows(group, lane, at, state, scratch);
    totals_type totals;
    Products::clear(group, totals);
    auto const range = key_range::of(at, rows, tile_keys, static_cast<int>(which % partials.splits()),
                                     static_cast<int>(partials.splits()));
    auto const from = sources::of(lane, keys, values, at.sequence, at.key_head);
    state.terms = terms_type::of(at, queries, bias);
    key_walk const walk{group, lane, at, range, from};
    begin_copies(walk, state, scratch);
    float key_scale = range.first < range.end ? from.scale(range.first) : 0.0F;
    pipeline_state<stages> reads;
    for (read_step<stages> const tile : pipelined(refilling_reader(reads), range.tiles(tile_keys))) {
      int const first = range.first + tile.index * tile_keys;
      if (first >= range.first_plain && first < range.end_plain &&
          all_of_warp(state.terms.are_plain(state.most_scale * key_scale, state.least_scale * key_scale))) {
        key_scale = add_tile<true>(walk, tile, key_scale, state, totals, scratch);
      } else {
        key_scale = add_tile<false>(walk, tile, key_scale, state, totals, scratch);
      }
    }
    copies::template await<0>();
    finish_rows(group, at, which % partials.splits(), state, totals, scratch);
  }

 private:
  /// A lane's way over the keys that the group's queries see.
  struct key_walk {
    block const& group;
    unsigned lane;  ///< the lane's number
    coordinates const& at;
    key_range const& range;
    sources const& from;
  };
  /// What a lane knows of its rows from tile to tile.
  struct lane_rows {
    row_floats largest;    ///< of earlier tiles' scores, where keeps_largest
    row_floats reference;  ///< of rows' weights, where keeps_references
    float most_scale;      ///< the largest scale of the queries; infinity if one is NaN
    float least_scale;     ///< the least scale of the queries that exist, where scores have terms
    terms_type terms;      ///< what is added to scores
    queries_type queries;  ///< codes of queries, where lanes keep them
  };
  __device__ __forceinline__ void begin_rows(block const& group, unsigned lane, coordinates const& at, lane_rows& state,
                                             scratch_type& scratch) const {
    for (unsigned row = lane; row < static_cast<unsigned>(rows); row += static_cast<unsigned>(lanes)) {
      std::int64_t const query = at.first_query + row;
      float const scale =
          query < shape.queries ? queries.scales(at.sequence, at.head, method::query_groups::group_of(query)) : 0.0F;
      scratch.terms[row] = row_terms::of(scale);
    }
    group.sync();
    state.most_scale = 0.0F;
    state.least_scale = infinity;
    places::each_row([&](int tile, int half) {
      state.largest.of[tile][half] = -infinity;
      state.reference.of[tile][half] = -infinity;
    });
    each_constant<sets>([&](auto set) {
      places::each_row([&](int tile, int half) {
        int const row = places::row_of(lane, tile, half, set.value);
        float const scale = scratch.terms[row].query_scale;
        state.most_scale = scale < infinity ? maximum(state.most_scale, scale) : infinity;
        if (!terms_type::are_none && at.first_query + row < at.mask.queries) {
          state.least_scale = minimum(state.least_scale, scale);
        }
      });
    });
  }

  /// Starts to copy queries, the first keys and values. Where values are widened, widens these and copies the next.
  __device__ __forceinline__ void begin_copies(key_walk const& walk, lane_rows& state, scratch_type& scratch) const {
    if (walk.range.first >= walk.range.end) {
      return;
    }
    fill_step<stages> const first{};
    dense_chunks<score_code> const codes{queries.codes[walk.at.sequence][walk.at.head]};
    if constexpr (Products::keeps_queries) {
      codes.begin_load(walk.group, queries_type::place(scratch.operands), walk.at.first_query, 0);
      copies::commit();
    } else {
      each_constant<sets>([&](auto set) {
        codes.begin_load(walk.group, scratch.staged.q[set.value], walk.at.first_query + set.value * set_rows, 0);
      });
    }
    begin_keys(walk, walk.range.first, first, state.terms, scratch);  // who awaits them awaits queries
    if constexpr (sources::widens) {
      walk.from.begin_values(walk.lane, walk.range.first, scratch.operands, first.stage);
      copies::commit();
      copies::commit();  // values that are widened are those of the last batch but one
    }
    walk.from.fill_values(walk.lane, walk.range.first, walk.range.end, first, scratch.value_ring, scratch.operands);
    if constexpr (Products::keeps_queries) {
      copies::template await<1>();
      state.queries.keep(walk.group, scratch.operands);
    }
  }
  /// Starts to copy the keys of the tile that begins at `first`, and their terms.
  __device__ __forceinline__ void begin_keys(key_walk const& walk, int first, fill_step<stages> const& step,
                                             terms_type& terms, scratch_type& scratch) const {
    shared_barrier& full = step.when_empty(scratch.key_ring);
    walk.from.begin_keys(walk.lane, first, scratch.operands.k[step.stage]);
    terms.begin(walk.lane, walk.at, queries, first, scratch.operands, step.stage);
    full.arrive_after_copies();
  }

  /// What is known of a lane's rows in a tile.
  struct tile_rows {
    row_floats scales;     ///< of the lane's scores
    row_floats most;       ///< the largest score
    row_floats reference;  ///< the reference of weights
    row_floats zero;       ///< NaN in a row with a score that is NaN or infinite, else 0; then where codes begin
    row_floats offset;     ///< what the float that sums begin at stands for, where they begin at terms
  };
  /// Adds a tile of keys. Gives the scale of the next tile's keys. IsPlain: all rows see it, and its scales are small.
  template <bool IsPlain>
  __device__ __forceinline__ float add_tile(key_walk const& walk, read_step<stages> const& step, float key_scale,
                                            lane_rows& state, totals_type& totals, scratch_type& scratch) const {
    unsigned const lane = walk.lane;
    coordinates const& at = walk.at;
    key_range const& range = walk.range;
    int const first = range.first + step.index * tile_keys;
    int const next = first + tile_keys;
    fill_step<stages> const later = fills_later<1>(step);
    float next_scale = 0.0F;
    auto const begin_next_keys = [&] {
      if (next < range.end) {
        begin_keys(walk, next, later, state.terms, scratch);
        next_scale = walk.from.scale(next);
      }
      copies::commit();
    };
    shared_barrier& keys_read = step.when_full(scratch.key_ring);
    operands_type operands;
    parked_type parked;  // the weights of the first of two sets
    each_constant<sets>([&](auto set) {
      tile_rows tile;
      places::each_row([&](int t, int half) {
        tile.scales.of[t][half] = scratch.terms[places::row_of(lane, t, half, set.value)].query_scale * key_scale;
      });
      score_bits sums;
      auto const& staged = scratch.operands.of(step.stage, set.value);
      auto const where = terms_type::template place_of<tiles>(
          at, first, [&](int t, int half) { return places::row_of(lane, t, half, set.value); });
      state.terms.template begin_sums<IsPlain>(lane, staged, where, tile, sums);
      if constexpr (Products::keeps_queries) {
        state.queries.multiply(walk.group, scratch.operands.k[step.stage], sums);
      } else {
        multiply_staged<scores>(walk.group, scratch.staged.q[set.value], scratch.operands.k[step.stage], sums);
      }
      state.terms.template end_sums<IsPlain>(lane, at, bias, staged, where, tile, sums);
      find_largest<IsPlain>(lane, at, first, tile, sums, set.value);
      if constexpr (set.value + 1 == sets) {  // the largest score is made of all keys
        release_for_lane{}(keys_read, bit_cast<std::uint32_t>(tile.most.of[0][0]));
      }
      if constexpr (!Products::begins_keys_late && set.value == 0) {
        begin_next_keys();
      }
      turn<IsPlain>(lane, tile, state, totals, scratch, set.value);
      make_weights<IsPlain>(lane, at, first, tile, sums, operands, set.value);
      if constexpr (set.value + 1 < sets) {
        parked = parked_type::of(operands);
      }
    });
    if constexpr (Products::begins_keys_late) {
      begin_next_keys();
    }
    shared_barrier& values_read = step.when_full(scratch.value_ring);
    Products::add(
        walk.group, operands, parked, scratch.operands.values[step.stage], totals,
        [&] { walk.from.fill_values(lane, next, range.end, later, scratch.value_ring, scratch.operands); },
        [&](std::uint32_t last) { release_for_lane{}(values_read, last); });
    return next_scale;
  }
  /// Finds the largest scores of a lane's rows. Rows take turns, so that none waits for its own last comparison.
  template <bool IsPlain>
  __device__ __forceinline__ static void find_largest(unsigned own_lane, coordinates const& at, int first,
                                                      tile_rows& tile, score_bits const& sums, int set) {
    if constexpr (IsPlain) {
      row_floats others;
      places::each_row([&](int t, int half) {
        tile.most.of[t][half] = places::score(sums, t, half, 0);
        others.of[t][half] = places::score(sums, t, half, 1);
      });
#pragma unroll
      for (int i = 2; i < lane_scores; i += 2) {
        places::each_row([&](int t, int half) {
          tile.most.of[t][half] = terms_type::larger(tile.most.of[t][half], places::score(sums, t, half, i));
          others.of[t][half] = terms_type::larger(others.of[t][half], places::score(sums, t, half, i + 1));
        });
      }
      places::each_row([&](int t, int half) {
        float const most = terms_type::larger(tile.most.of[t][half], others.of[t][half]);
        tile.most.of[t][half] = terms_type::score_of(tile, most, t, half);
        tile.zero.of[t][half] = terms_type::nan_of(tile.most.of[t][half]);
      });
    } else {
      unsigned const lane = recompute(own_lane);  // what follows is not computed before the loop
      places::each_row([&](int t, int half) {
        auto const seen =
            detail::seen_columns::of(at.mask, at.first_query + places::row_of(lane, t, half, set), first, tile_keys);
        tile.most.of[t][half] = -infinity;
        tile.zero.of[t][half] = 0.0F;
#pragma unroll
        for (int i = 0; i < lane_scores; ++i) {
          float const found =
              tile.scales.of[t][half] * (places::score(sums, t, half, i) - terms_type::more_than_others);
          bool const is_seen = seen.contain(places::column_of(lane, i)) && (terms_type::are_none || found != -infinity);
          tile.most.of[t][half] = is_seen ? fmaxf(tile.most.of[t][half], found) : tile.most.of[t][half];
          tile.zero.of[t][half] = is_seen ? tile.zero.of[t][half] + (found - found) : tile.zero.of[t][half];
        }
      });
    }
  }
  /// Merges what the lanes of rows found, and multiplies the totals by the factors of their rows.
  template <bool IsPlain>
  __device__ __forceinline__ static void turn(unsigned lane, tile_rows& tile, lane_rows& state, totals_type& totals,
                                              scratch_type& scratch, int set) {
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
      row_floats other;
      places::each_row([&](int t, int half) { other.of[t][half] = shuffle_xor(tile.most.of[t][half], distance); });
      places::each_row(
          [&](int t, int half) { tile.most.of[t][half] = fmaxf(tile.most.of[t][half], other.of[t][half]); });
    }
    if constexpr (!IsPlain || terms_type::has_function) {
      places::each_row([&](int t, int half) { tile.zero.of[t][half] = sum_of_row(tile.zero.of[t][half]); });
    }
    row_floats factors;
    places::each_row([&](int t, int half) {
      auto& terms = scratch.terms[places::row_of(lane, t, half, set)];
      state_type softmax = softmax_of(state, terms, t, half);
      factors.of[t][half] = softmax_type{}.turn(softmax, tile.most.of[t][half]) + tile.zero.of[t][half];
      tile.reference.of[t][half] = softmax.reference;
      state.largest.of[t][half] = softmax.largest;
      state.reference.of[t][half] = softmax.reference;
      if constexpr (!keeps_references || !keeps_largest) {
        sync_warp();  // all lanes of the row have read it
        if (lane % 4U == 0U) {
          terms.largest = softmax.largest;
          if constexpr (row_terms::has_reference) {
            terms.reference = softmax.reference;
          }
        }
      }
      tile.zero.of[t][half] = terms_type::template zero_of<IsPlain>(tile, softmax.reference, t, half) * 0x1p-7F;
    });
    Products::turn(factors, totals, set);
  }
  /// What is known of the scores of a row in earlier tiles, without the sum of weights.
  template <class Terms>
  __device__ __forceinline__ static state_type softmax_of(lane_rows const& state, Terms const& terms, int tile,
                                                          int half) {
    if constexpr (keeps_references && keeps_largest) {
      return {state.largest.of[tile][half], state.reference.of[tile][half], 0.0F};
    } else if constexpr (keeps_references) {
      return {terms.largest, state.reference.of[tile][half], 0.0F};
    } else {
      return {terms.largest, terms.reference, 0.0F};
    }
  }
  template <bool IsPlain>
  __device__ __forceinline__ static void make_weights(unsigned own_lane, coordinates const& at, int first,
                                                      tile_rows const& tile, score_bits& sums, operands_type& operands,
                                                      int set) {
    unsigned const lane = IsPlain ? own_lane : recompute(own_lane);
    places::each_row([&](int t, int half) {
      auto const seen =
          detail::seen_columns::of(at.mask, at.first_query + places::row_of(lane, t, half, set), first, tile_keys);
#pragma unroll
      for (int i = 0; i < lane_scores; ++i) {
        float const found = places::score(sums, t, half, i);
        float place;  // of the code among 128
        if constexpr (IsPlain) {
          place = terms_type::place_of_weight(tile, found, t, half);
        } else {
          float const line = softmax_type::position(tile.scales.of[t][half], found - terms_type::more_than_others,
                                                    tile.reference.of[t][half]);
          float const code = first < tile_keys ? softmax_type::low_line(line) : line;
          place = seen.contain(places::column_of(lane, i)) ? __saturatef(code * 0x1p-7F) : 0.0F;
        }
        places::set_score(sums, t, half, i, place + 65536.0F);
      }
    });
    Products::pack(sums, operands);
  }

  /// Writes results and log-sum-exps, or the partial results of a split.
  __device__ __forceinline__ void finish_rows(block const& group, coordinates const& at, std::int64_t split,
                                              lane_rows const& state, totals_type& totals,
                                              scratch_type& scratch) const {
    detail::split_writer<method, T> const to{writer, partials, split, at.sequence, at.head};
    group.sync();  // all lanes have read what is there
    if (group.lane % 4 == 0) {
      each_constant<sets>([&](auto set) {
        places::each_row([&](int tile, int half) {
          int const row = places::row_of(static_cast<unsigned>(group.lane), tile, half, set.value);
          float const rounded = Products::rounded(totals, set.value, tile, half);
          state_type softmax = softmax_of(state, scratch.terms[row], tile, half);
          softmax.sum = rounded * softmax_type::weight_of_number;
          scratch.finished[row] = to.finish(at.first_query + row, {softmax, rounded});
        });
      });
    }
    each_constant<sets>([&](auto set) {
      Products::each(group, totals, set.value, [&](int row, int channel, float total) {
        scratch.total(set.value * set_rows + row, channel) = total;
      });
    });
    group.sync();
    for (int i = group.lane; i < rows * channels; i += lanes) {
      int const row = i / channels;
      to.write(at.first_query + row, i % channels, scratch.finished[row], scratch.total(row, i % channels));
    }
  }
};

}  // namespace v0
}  // namespace tessera
