// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `logit_rows<Columns>`: the words of warpgroup_rows, with a reduce_rows() that also takes sums as logits: by any
/// Reducer of logits or of logits with their columns, times a scale, as row_fold.hpp says.
///
///     using rows = tessera::logit_rows<192>;            // float sums[96] of warpgroup_mma<..., 192>, awaited
///     using reducer = tessera::lse_reducer<float>;      // kept: reducer::state_type[16][1], at first identities
///     auto const lane = tessera::warpgroup_lane::in_warp(tessera::thread_index());
///     rows::row_values<float> largest;
///     rows::each_row(lane, [](int, float& most) { most = -tessera::infinity; }, largest);
///     rows::reduce_rows(lane, tessera::maximum_reducer<float>{}, sums, largest);
///     auto const found =
///         rows::reduce_rows(lane, reducer{}, sums, {first, entries, scale}, largest, kept[rows::own_row(lane)]);
///
/// A lane gets the state of its own row, lane / 4 + 8 (lane % 2), with the same bits in both lanes that have the row:
/// states of both of its rows would take twice the registers and instructions. mma.sync leaves sums in the same
/// registers, so that this serves programs before sm_90, too. It is here, and not with warpgroup_rows, because it knows
/// Reducers by name.
///
/// For reducers whose push() is called, two lanes exchange halves, so that each has only values of its own row, and the
/// state in registers. A loop takes 16 columns at a time, so that push() is compiled 8 times and not once for each
/// register. Where there is room for a kept state in each lane (entry_marks.hpp) it goes from tile to tile: one that
/// begins anew with a tile meets new largest values so often that in nearly every push() some lane takes that branch.
///
/// A warp has a scheduler almost to itself, since the other warpgroup multiplies. So a push() costs the cycles that its
/// instructions wait for each other, and branches of push() keep the compiler from doing several at a time. For a
/// user's entropy, 8192 tokens, V 256000, D 2304, one H200 (1.36 GHz under the profiler), a push() takes 22 issue slots
/// (about 47 with states that begin anew with each tile, and tests of bounds) and 112 cycles, of which about 25 are its
/// one branch, 22 the exponential unit and 15 new largest values (where states begin anew after 16 tiles, not 32);
/// choosing registers takes 20 cycles more and the exchange 8. The floor is the slots: 22 for each of a lane's 192
/// values, 4200 cycles of a tile. The 27600 cycles in which the other warpgroup multiplies would hide them, but the
/// epilogue takes 40000. Forward pass in ms, in turns with that of log-sum-exps alone (12.9 to 14.4 ms), and that time
/// over this one in brackets:
///
///                                        anew each tile, in      kept for       kept for 32 tiles,
///     Reducer by push()                  up to 4 copies          16 tiles       usual values known
///     entropy (two branches)             22.2 (0.59)             18.8 (0.74)    16.8 (0.84)
///     the same without branches          19.0 (0.72)             16.6 (0.85)    16.1 (0.87)
///     the four largest                   18.4 (0.76)             16.6 (0.86)    16.2 (0.87)
///
/// At V 128256, D 4096 the last column is 1.00, 0.98 and 1.00. Loops over 16 or 32 registers instead of 8 took 16.6 and
/// 19.1 ms for the entropy and 16.5 and 17.7 ms for the four largest; registers that rotate instead of being chosen,
/// 17.1 and 17.0 ms. With a multiplication and ex2.approx.ftz instead of expf's eight instructions, in a loop over 16
/// registers, the entropy took 15.5 ms (0.92).
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tessera/core/math.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/reduce/paired.hpp>
#include <tessera/reduce/row_fold.hpp>
#include <tessera/tile/cuda/chosen_registers.cuh>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_rows.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {
namespace detail {

/// 2 to a power, by one instruction.
struct fast_power {
  __device__ __forceinline__ float operator()(float power) const { return fast_exp2(power); }
};

/// One of two values, chosen word by word: chosen by address they would lie in memory.
template <class T>
__device__ __forceinline__ T chosen(bool is_second, T const& first, T const& second) {
  constexpr int words = (static_cast<int>(sizeof(T)) + 3) / 4;
  unsigned of_first[words]{};
  unsigned of_second[words]{};
  memcpy(of_first, &first, sizeof(T));
  memcpy(of_second, &second, sizeof(T));
#pragma unroll
  for (int i = 0; i < words; ++i) {
    of_first[i] = is_second ? of_second[i] : of_first[i];
  }
  T result;
  memcpy(&result, of_first, sizeof(T));
  return result;
}

/// Whether a lane's own row is the lower of the two that it has sums of.
__device__ __forceinline__ bool own_is_lower() {
  return thread_index() % 2 != 0;
}

/// Joins the lanes' parts of a row: parts[0] becomes the whole part of the lane's own row.
template <class Fold>
__device__ __forceinline__ void join_lanes(typename Fold::part (&parts)[2], row_coordinate const& coordinate) {
  using part = typename Fold::part;
  if constexpr (!std::is_empty_v<part>) {
    Fold::settle(parts[0], coordinate);
    Fold::settle(parts[1], coordinate);
    part const given = chosen(own_is_lower(), parts[1], parts[0]);
    parts[0] = chosen(own_is_lower(), parts[0], parts[1]);
    Fold::join(parts[0], move_words(given, across{1}));
    Fold::join(parts[0], move_words(parts[0], across{2}));  // the same bits in both lanes, because join() commutes
  }
}

/// Pushes the values of a tile into kept states, of which a row has one, or `States` = 2: one for each lane of its own.
template <LogitReducer R, int States>
struct pushed_rows {
  using state_type = typename R::state_type;

  template <int Registers>
  __device__ __forceinline__ static void push(float const (&sums)[Registers], row_coordinate const& coordinate,
                                              state_type& kept) {
    state_type state = States == 2 ? kept : R{}.identity();
    if (all_of_warp(are_usual(sums, coordinate.scale))) {
      push_all<true>(sums, coordinate, state);
    } else {
      push_all<false>(sums, coordinate, state);
    }
    if constexpr (States == 2) {
      kept = state;
    } else {
      join(state, kept);
    }
  }

  /// Merges the kept state into another one, and begins anew.
  __device__ __forceinline__ static void hand_over(state_type& kept, state_type& into) {
    R{}.merge(into, kept);
    kept = R{}.identity();
  }

 private:
  /// Whether a lane's values are numbers, and so small that none can become infinite.
  template <int Registers>
  __device__ __forceinline__ static bool are_usual(float const (&sums)[Registers], float scale) {
    constexpr float most = 1e38F;
    float sizes[4] = {0.0F, 0.0F, 0.0F, 0.0F};
#pragma unroll
    for (int i = 0; i < Registers; ++i) {
      sizes[i % 4] += ::fabsf(sums[i]);  // by the addition itself, where absolute() takes an instruction
    }
    return (sizes[0] + sizes[1] + (sizes[2] + sizes[3])) * scale < most;
  }
  /// Pushes the values whose columns exist. Of usual values the compiler knows that they are finite, so that push()
  /// needs no branches for others, and that their columns exist, because others hold minus infinity.
  template <bool AreUsual, int Registers>
  __device__ __forceinline__ static void push_all(float const (&sums)[Registers], row_coordinate const& coordinate,
                                                  state_type& state) {
    // Of each 8 columns of its own row a lane has 4, which begin at 4 ((lane / 2) % 2).
    std::int32_t column = coordinate.column - 2 * static_cast<std::int32_t>(thread_index() % 2);
#pragma unroll 1
    for (int eighth = 0; eighth < Registers / 8; ++eighth, column += 16) {
      float some[8];
      choose_registers(some, sums, eighth);
      float own[8];
      exchange(some, own);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        indexed_value<float> const value{own[i] * coordinate.scale, column + i / 4 * 8 + i % 4};
        if constexpr (AreUsual) {
          __builtin_assume(value.value > -infinity && value.value < infinity);
        }
        if (AreUsual || value.index < coordinate.end) {
          push_indexed(R{}, state, value);
        }
      }
    }
  }
  /// Merges the states of both lanes of a row into the one that is kept.
  __device__ __forceinline__ static void join(state_type& state, state_type& kept) {
    sync_warp();
    state_type const other = move_words(state, across{2});
    if (thread_index() % 4 < 2) {
      R{}.merge(state, other);
      R{}.merge(kept, state);
    }
    sync_warp();
  }
  /// Before the exchange both lanes of a pair have some values of both rows, after it each has those of its own row.
  __device__ __forceinline__ static void exchange(float const (&some)[8], float (&own)[8]) {
    bool const is_lower = own_is_lower();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i % 4 < 2) {
        float const mine = is_lower ? some[i + 2] : some[i];
        float const got = shuffle_xor(is_lower ? some[i] : some[i + 2], 1);
        own[i] = is_lower ? got : mine;
        own[i + 2] = is_lower ? mine : got;
      }
    }
  }
};
/// For a paired_reducer: pushes to those of its two Reducers that need push().
template <class First, class Second, int States>
struct pushed_rows<paired_reducer<First, Second>, States> {
  using state_type = typename paired_reducer<First, Second>::state_type;

  template <int Registers>
  __device__ __forceinline__ static void push(float const (&sums)[Registers], row_coordinate const& coordinate,
                                              state_type& kept) {
    if constexpr (row_fold<First>::is_pushed) {
      pushed_rows<First, States>::push(sums, coordinate, kept.first);
    }
    if constexpr (row_fold<Second>::is_pushed) {
      pushed_rows<Second, States>::push(sums, coordinate, kept.second);
    }
  }
  __device__ __forceinline__ static void hand_over(state_type& kept, state_type& into) {
    if constexpr (row_fold<First>::is_pushed) {
      pushed_rows<First, States>::hand_over(kept.first, into.first);
    }
    if constexpr (row_fold<Second>::is_pushed) {
      pushed_rows<Second, States>::hand_over(kept.second, into.second);
    }
  }
};

/// What a lane has of its two rows while it takes their sums.
template <class Fold>
struct taken_rows {
  template <class Value>
  using of_rows = typename warpgroup_rows<float, 16>::template row_values<Value>;
  row_coordinate own;  ///< of the lane's first column
  of_rows<float> largest;
  of_rows<typename Fold::part> parts{};
  of_rows<float> raw{};  ///< sums of exponentials

  /// Takes the sums of all columns, or of some `before` which there are as many. exponent_of(sum, largest): the
  /// exponent of a sum. HasBounds: whether there may be columns that do not exist.
  template <bool HasBounds, int Registers, class ExponentOf>
  __device__ __forceinline__ void take(warpgroup_lane const& lane, float (&sums)[Registers], std::int32_t before,
                                       ExponentOf const& exponent_of) {
    using rows = warpgroup_rows<float, 2 * Registers>;
    auto const visit = [&](int, int column, float sum, typename Fold::part& part, float& of_row, float most) {
      std::int32_t const further = before + (column - rows::first_column(lane));
      row_value value{sum, most, 0.0F, 0.0F, further, !HasBounds || own.column + further < own.end};
      if constexpr (Fold::uses_exponentials) {
        value.exponent = exponent_of(sum, most);
        value.exponential = fast_exp2(value.exponent);
        of_row += value.exponential;
      }
      Fold::take(part, value);
    };
    rows::each_with_row(lane, sums, visit, parts, raw, largest);
  }

  /// Takes the sums where some row of the warp is far (is_far_row). That is rare, so the code is short, not fast.
  template <int Registers, class ExponentOf>
  __device__ __forceinline__ void take_far(warpgroup_lane const& lane, float const (&sums)[Registers],
                                           ExponentOf const& exponent_of) {
#pragma unroll 1
    for (int eighth = 0; eighth < Registers / 8; ++eighth) {
      float some[8];
      choose_registers(some, sums, eighth);
      take<true>(lane, some, 16 * eighth, exponent_of);
    }
  }
};

}  // namespace detail

/// Columns: a multiple of 16, whose sums a lane has half as many of.
template <int Columns>
struct logit_rows : warpgroup_rows<float, Columns> {
  using base = warpgroup_rows<float, Columns>;  ///< the other words
  using base::reduce_rows;
  using typename base::sum_tile;
  /// A value for each row.
  template <class Value>
  using row_values = typename base::template row_values<Value>;

  /// The row of the tile that a lane gets the state of.
  __device__ __forceinline__ static int own_row(warpgroup_lane const& lane) {
    return lane.lane / 4 + 8 * (lane.lane % 2);
  }

  /// The state of the lane's own row in this tile; values of reducers that need push() go to `kept` at once. `tile`:
  /// the tile's first column, the end of columns, and what sums are multiplied by. `largest`: the largest sum of each
  /// row. `kept`: the states of the lane's own row, in shared memory: one, or one for each of the two lanes that have
  /// the row, lane / 2 % 2, which are to be merged when all tiles are done.
  template <LogitReducer R, int States>
  __device__ __forceinline__ static typename R::state_type reduce_rows(warpgroup_lane const& lane, R const&,
                                                                       sum_tile& sums, row_coordinate const& tile,
                                                                       row_values<float> const& largest,
                                                                       typename R::state_type (&kept)[States]) {
    static_assert(States == 1 || States == 2, "tessera: a row has one state, or one for each of its two lanes");
    using fold = row_fold<R>;
    constexpr float log2_e = 1.442695041F;
    row_coordinate const own{tile.column + base::first_column(lane), tile.end, tile.scale};
    float const(&most)[2] = largest.values[0];
    float const steepness = own.scale * log2_e;
    if constexpr (fold::is_pushed) {
      detail::pushed_rows<R, States>::push(sums, own, kept[lane.lane / 2 % States]);
    }
    detail::taken_rows<fold> taken{own, largest};
    // The condition is the same for all lanes of a warp.
    bool const has_bounds = fold::uses_bounds && tile.column + Columns > tile.end;
    bool const is_far =
        fold::uses_exponentials && any_of_warp(is_far_row(most[0], steepness) || is_far_row(most[1], steepness));
    auto const exponent_of = [=](float sum, float row_most) {
      return multiply_add(sum, steepness, -reference_of_row(row_most, steepness));
    };
    if (is_far) {
      taken.take_far(lane, sums, [=](float sum, float row_most) { return far_exponent(sum, row_most, steepness); });
    } else if (has_bounds) {
      taken.template take<true>(lane, sums, 0, exponent_of);
    } else {
      taken.template take<false>(lane, sums, 0, exponent_of);
    }
    bool const is_lower = detail::own_is_lower();
    float of_own = 0.0F;
    if constexpr (fold::uses_exponentials) {
      float const(&raw)[2] = taken.raw.values[0];
      float const given = is_lower ? raw[0] : raw[1];
      of_own = (is_lower ? raw[1] : raw[0]) + detail::move_words(given, detail::across{1});
      of_own += detail::move_words(of_own, detail::across{2});  // the same bits in both lanes: a sum of two commutes
    }
    row_facts const row = facts_of_row(is_lower ? most[1] : most[0], own.scale, of_own, is_far, detail::fast_power{});
    detail::join_lanes<fold>(taken.parts.values[0], own);
    return fold::finish(taken.parts.values[0][0], row);
  }
};

}  // namespace v0
}  // namespace tessera
