// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `reduce_loss_rows`: the epilogue of gemm_pingpong that reduces rows of a classifier's logits, by any Reducer that is
/// or has a log-sum-exp, and picks the logits of labels. It is linear_loss's forward program for sm_90a, and takes its
/// tiles from a row_schedule.
///
/// Logits stay in fp32 registers. A warp keeps each row's state of its split of the vocabulary (`row_split`) in shared
/// memory, and merges it once with one of the row's `schedule.states()` states, which finish_loss_tokens merges in
/// order. Values that push() gets may have two states of a row (`loss_row_states`), which are merged more often. So the
/// order of additions depends on the extents, on the number of multiprocessors and on how many launches there are.
///
/// Within a tile the four lanes that hold a row find its largest logit together. Each then adds up its exponentials
/// relative to that, from its first to its last column; the lanes' sums are added as neighbours, then as pairs.
/// logit_rows.cuh has the cost of other Reducers.
///
/// Instructions for each sum of a lane: a maximum, a multiply-add to the exponent, an exponential, an addition; one
/// more for the entropy or a sum, two for the prediction. The exponential takes a scheduler 8 cycles: 1536 for a tile
/// of 128 x 192, while the other warpgroup multiplies for 192 cycles for each 16 channels. Warps skip the parts that
/// few tiles need: tests of bounds, labels and marks.
#pragma once

#include <cstdint>

#include <tessera/concepts/logit_map.hpp>
#include <tessera/core/math.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/program/loss/detail/add_to_columns.cuh>
#include <tessera/program/loss/detail/cap_sums.cuh>
#include <tessera/program/loss/entry_marks.hpp>
#include <tessera/program/loss/kept_softmaxes.hpp>
#include <tessera/program/loss/logit_rows.cuh>
#include <tessera/program/loss/logits.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/reduce/maximum.hpp>
#include <tessera/reduce/row_fold.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_rows.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/row_schedule.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Reduces rows of logits, and leaves marks and softmaxes where they are wanted. R: the Reducer. Softmaxes are kept
/// only of logits that no Map changes. RowWarps: how many warps have parts of a tile's row; several have states of
/// their own, which join() merges, and make neither marks nor softmaxes.
template <class T, LogitReducer R, LogitMap Map = identity_logits, int RowWarps = 1>
struct reduce_loss_rows {
  using state_type = typename R::state_type;
  /// What is kept of a row from tile to tile.
  using memory_type = loss_row_memory<R, RowWarps == 1 ? loss_row_states<R> : 1>;
  struct scratch_type {
    memory_type of_row[16];  ///< one for each row of a warp
  };

  row_schedule schedule;  ///< the schedule of tiles, whose workers keep rows
  loss_token_list tokens;
  matrix_view<state_type> states;  ///< schedule.states() x rows of the list of tokens
  array_view<float> targets;       ///< where the logit of each label goes
  logit_scaling<T> scaling;
  std::int32_t vocabulary;        ///< entries of the vocabulary
  [[no_unique_address]] Map map;  ///< the map that logits go through; not last, where nvcc 13.0 miscounts sizes
  loss_marks marks;
  kept_softmaxes<T> softmaxes;  ///< where softmaxes go; null: none are kept
  __device__ __forceinline__ void prepare() const {}
  __device__ __forceinline__ void finish() const {}

  /// Reduces a tile of sums. Register 4 j + 2 h + i holds row lane / 4 + 8 h, column 8 j + 2 (lane % 4) + i.
  template <int Registers>
  __device__ __forceinline__ void operator()(float (&sums)[Registers], box_coordinate coordinate, scratch_type& scratch,
                                             std::int32_t index) const {
    row_split const part = schedule.split_at(index);
    if (!part.is_there) {
      return;
    }
    if (part.before == 0) {
      open(coordinate.row, scratch);
    }
    scale_sums(sums, coordinate.column);
    if constexpr (!leaves_logits<Map>) {
      map_logits(sums, coordinate);
    }
    largest_of_groups<Registers> of_groups;
    of_rows<float> largest;
    find_largest(sums, of_groups);
    find_largest_of_rows(of_groups, largest);
    state_type const found = logit_rows<2 * Registers>::reduce_rows(
        own_lane(), R{}, sums, {coordinate.column, vocabulary, steepness()}, largest, scratch.of_row[own_row()].states);
    pick_targets(sums, coordinate, scratch);
    keep(part, found, scratch);
    if (is_marking()) {
      if constexpr (row_fold<R>::is_pushed) {  // push() needs the registers in between
        pin_registers(sums);
        find_largest(sums, of_groups);
      }
      mark(sums, of_groups, largest, coordinate, scratch);
    }
    if constexpr (RowWarps == 1) {
      if (part.is_last) {
        close(part, coordinate.row, scratch);
      } else if (row_states == 2 && part.before % pushed_tiles == pushed_tiles - 1) {
        hand_over(part, coordinate.row, scratch);
      }
    }
    if constexpr (RowWarps == 1 && sizeof(T) == 2 && leaves_logits<Map>) {
      if (softmaxes.are_wanted()) {
        keep_exponentials(sums, largest, coordinate, scratch);
      }
    }
  }

  /// Whether the warps' states of a row are to be joined after a work item.
  __device__ __forceinline__ bool ends(std::int32_t index) const requires(RowWarps > 1) {
    row_split const part = schedule.split_at(index);
    return part.is_there && part.is_last;
  }
  /// Merges what the warps of 16 rows have kept of them into the rows' states, from the first to the last column of a
  /// tile. of_first: the scratch of the rows' first warp; that of the next is `apart` further.
  __device__ __forceinline__ void join(std::int32_t first_row, scratch_type const* of_first, int apart,
                                       std::int32_t index) const requires(RowWarps > 1) {
    auto const lane = static_cast<std::int32_t>(thread_index() % 32);
    std::int64_t const row = lane < 16 ? row_of(first_row + lane) : -1;
    if (row < 0) {
      return;
    }
    state_type& state = states(schedule.split_at(index).split, row);
    state_type joined = state;
    for (int warp = 0; warp < RowWarps; ++warp) {
      row_fold<R>::merge(joined, of_first[warp * apart].of_row[lane].states[0], detail::fast_power{});
    }
    state = joined;
  }

 private:
  static constexpr float log2_e = 1.442695041F;
  static constexpr int group_columns = 32;  ///< columns of a group, whose marks are one word
  static constexpr int row_states = RowWarps == 1 ? loss_row_states<R> : 1;
  /// After so many tiles the states of lanes are merged into the rows' and begin anew, so that sums of rounded numbers
  /// do not grow one by one for a whole row: 3072 values at most. In the measurements of logit_rows.cuh the entropy's
  /// pass took 1.3 % more time with 16 tiles than with 32; with 8 instead of 16 it took 2.4 % more, with 64 and 1000
  /// tiles 0.9 and 1.5 % less.
  static constexpr std::int32_t pushed_tiles = 32;
  template <int Registers>
  static constexpr int groups = 2 * Registers / group_columns;
  template <int Registers>
  using rows = warpgroup_rows<float, 2 * Registers>;
  using rows_of_group = warpgroup_rows<float, group_columns>;
  /// A value of each row of a warp.
  template <class Value>
  using of_rows = typename rows_of_group::template row_values<Value>;
  /// The lane's largest sum of each row and each group of columns.
  template <int Registers>
  using largest_of_groups = of_rows<float>[groups<Registers>];

  /// The row that a lane keeps the state of, one of its two. Of four lanes, 0 and 2 have the same row.
  __device__ __forceinline__ static std::int32_t own_row() { return logit_rows<group_columns>::own_row(own_lane()); }
  __device__ __forceinline__ static warpgroup_lane own_lane() { return warpgroup_lane::in_warp(thread_index()); }
  __device__ __forceinline__ std::int64_t row_of(std::int32_t token) const {
    return token < tokens.row_of.size() ? tokens.row_of[token] : -1;
  }

  __device__ __forceinline__ bool is_marking() const { return RowWarps == 1 && marks.are_wanted(); }

  /// Initialises the rows' memory before the first tile of a split.
  __device__ __forceinline__ void open(std::int32_t first_row, scratch_type& scratch) const {
    auto const lane = static_cast<std::int32_t>(thread_index() % 32);
    if (lane < 16) {
      std::int64_t const row = row_of(first_row + lane);
      memory_type memory{{}, {infinity, -infinity}, -infinity, infinity, -1};
      for (state_type& state : memory.states) {
        state = R{}.identity();
      }
      if (row >= 0) {
        memory.label = tokens.labels[row];
        if (is_marking() && schedule.first_position > 0) {
          known_loss const known = marks.known[row];
          memory.known = known.sum;
          memory.bound.least = known.least;
        }
      }
      scratch.of_row[lane] = memory;
    }
    sync_warp();
  }
  /// Merges the rows' memory into their states after the last tile of a split.
  __device__ __forceinline__ void close(row_split const& part, std::int32_t first_row,
                                        scratch_type const& scratch) const {
    auto const lane = static_cast<std::int32_t>(thread_index() % 32);
    std::int64_t const row = lane < 16 ? row_of(first_row + lane) : -1;
    if (row < 0) {
      return;
    }
    memory_type const& memory = scratch.of_row[lane];
    state_type state = states(part.split, row);
    for (state_type const& kept : memory.states) {
      row_fold<R>::merge(state, kept, detail::fast_power{});
    }
    states(part.split, row) = state;
    if (marks.are_wanted()) {
      loss_bound& bound = marks.bounds(part.split, row);
      bound = {minimum(bound.least, memory.bound.least), maximum(bound.highest, memory.bound.highest)};
    }
  }

  /// Merges what lanes have pushed into the rows' states, and begins anew.
  __device__ __forceinline__ void hand_over(row_split const& part, std::int32_t first_row,
                                            scratch_type& scratch) const {
    auto const lane = static_cast<std::int32_t>(thread_index() % 32);
    std::int64_t const row = lane < 16 ? row_of(first_row + lane) : -1;
    if (row >= 0) {
      state_type state = states(part.split, row);
      for (state_type& kept : scratch.of_row[lane].states) {
        detail::pushed_rows<R, row_states>::hand_over(kept, state);
      }
      states(part.split, row) = state;
    }
    sync_warp();
  }

  /// The factor that is still missing from logits in registers: 1 where a map has made them.
  __device__ __forceinline__ float steepness() const {
    if constexpr (leaves_logits<Map>) {
      return scaling.inverse_temperature;
    } else {
      return 1.0F;
    }
  }

  /// Gives logits to the map, except for minus infinities. Rows beyond the last token get what the map makes of it.
  template <int Registers>
  __device__ __forceinline__ void map_logits(float (&sums)[Registers], box_coordinate coordinate) const {
    auto const last = static_cast<std::int32_t>(tokens.row_of.size()) - 1;
    of_rows<std::int32_t> token;
    auto const visit = [&](int row, std::int32_t& number) { number = min(coordinate.row + row, last); };
    rows<Registers>::each_row(own_lane(), visit, token);
    auto const change = [&](int, int column, float& sum, std::int32_t number) {
      float const scaled = sum * scaling.inverse_temperature;
      sum = scaled == -infinity ? scaled : map(scaled, number, coordinate.column + column);
    };
    rows<Registers>::each_with_row(own_lane(), sums, change, token);
  }

  /// Turns sums into logits, except for the division by the temperature. Columns beyond the vocabulary become minus
  /// infinity.
  template <int Registers>
  __device__ __forceinline__ void scale_sums(float (&sums)[Registers], std::int32_t first_column) const {
    std::int32_t const column = first_column + rows_of_group::first_column(own_lane());
    if (scaling.bias.data != nullptr) {
      add_to_columns(sums, [&](std::int32_t further) {
        std::int32_t const at = column + further;
        return at < vocabulary ? static_cast<float>(load(scaling.bias[at])) : 0.0F;
      });
    }
    cap_sums(sums, scaling.cap);
    if (first_column + 2 * Registers > vocabulary) {
      of_rows<int> const ends{{{vocabulary - first_column, vocabulary - first_column}}};
      rows<Registers>::hide_from(own_lane(), sums, -infinity, ends);
    }
  }

  /// Finds a lane's largest sum of each row and each group of 32 columns.
  template <int Registers>
  __device__ __forceinline__ static void find_largest(float (&sums)[Registers], largest_of_groups<Registers>& largest) {
#pragma unroll
    for (int group = 0; group < groups<Registers>; ++group) {
      auto& columns = rows<Registers>::template columns_of<group_columns>(sums, group * group_columns);
      rows_of_group::fold_lanes(own_lane(), maximum_reducer<float>{}, columns, largest[group]);
    }
  }

  /// Finds the largest logit of each row, among the four lanes that hold the row.
  template <int Groups>
  __device__ __forceinline__ static void find_largest_of_rows(of_rows<float> const (&of_group)[Groups],
                                                              of_rows<float>& largest) {
    largest = of_group[0];
#pragma unroll
    for (int group = 1; group < Groups; ++group) {
      rows_of_group::each_row(
          own_lane(), [](int, float& most, float other) { most = maximum(most, other); }, largest, of_group[group]);
    }
    rows_of_group::merge_lanes(own_lane(), maximum_reducer<float>{}, largest);
  }

  __device__ __forceinline__ static float log2_of(state_type const& state) {
    scaled_exponentials<float> const sum = exponentials_of(R{}, state);
    return sum.largest * log2_e + fast_log2(sum.scaled);
  }

  /// Writes the logits of labels that are in this tile.
  template <int Registers>
  __device__ __forceinline__ void pick_targets(float (&sums)[Registers], box_coordinate coordinate,
                                               scratch_type const& scratch) const {
    warpgroup_lane const lane = warpgroup_lane::in_warp(thread_index_here());  // kept, it would cost a register
    std::int32_t const first = rows_of_group::first_column(lane);
    std::int32_t const column = coordinate.column + first;
    of_rows<std::int32_t> beyond;  // labels, counted from the lane's first column
    auto const find = [&](int row, std::int32_t& at) { at = scratch.of_row[row].label - column; };
    rows<Registers>::each_row(lane, find, beyond);
    auto const is_here = [](std::int32_t at) { return at >= 0 && at < 2 * Registers && at % 8 < 2; };
    if (!any_of_warp(is_here(beyond.values[0][0]) || is_here(beyond.values[0][1]))) {
      return;
    }
    of_rows<float> target{};
    rows<Registers>::each_with_row(
        lane, sums,
        [=](int, int at, float sum, std::int32_t label, float& found) { found = label == at - first ? sum : found; },
        beyond, target);
    auto const write = [&](int row, std::int32_t at, float found) {
      if (is_here(at)) {
        targets[row_of(coordinate.row + row)] = found * steepness();
      }
    };
    rows<Registers>::each_row(lane, write, beyond, target);
  }

  /// Adds a tile to the state of its split, and updates the bound after the first tiles and then after every fourth.
  __device__ __forceinline__ void keep(row_split const& part, state_type const& found, scratch_type& scratch) const {
    constexpr std::int32_t often = 4;
    memory_type& kept = scratch.of_row[own_row()];
    state_type total = kept.states[0];
    row_fold<R>::add(total, found, detail::fast_power{});
    sync_warp();  // lanes 2 and 3 of each four have read what 0 and 1 overwrite
    if (thread_index() % 4 < 2) {
      row_fold<R>::keep(kept.states[0], total);
    }
    if (is_marking() && (part.before < often || part.before % often == 0)) {
      update_bound(part, found, total, kept);
    }
    sync_warp();
  }
  __device__ __forceinline__ void update_bound(row_split const& part, state_type const& found, state_type const& total,
                                               memory_type& kept) const {
    constexpr float caution = 0.8F;  // sampled tiles of equal sums can all be a little above the mean
    std::int32_t const seen = schedule.first_position + part.before + 1;
    float const least = minimum(kept.bound.least, log2_of(found));
    float const guess = seen >= row_schedule::samples
                            ? least + fast_log2(caution * static_cast<float>(max(schedule.columns - seen, 0)))
                            : -infinity;
    float const sum = log2_of(total);
    float const largest = maximum(maximum(sum, kept.known), guess);
    float const sums = fast_exp2(sum - largest) + fast_exp2(kept.known - largest) + fast_exp2(guess - largest);
    float const bound = largest == -infinity ? -infinity : largest + fast_log2(sums);
    float const lowered = bound - (loss_marks::slack + loss_marks::relative_slack * absolute(bound));
    loss_bound const updated{least, maximum(kept.bound.highest, bound)};
    sync_warp();
    if (thread_index() % 4 < 2) {
      kept.bound = updated;
      kept.floor = (lowered + fast_log2(marks.threshold)) * fast_reciprocal(steepness() * log2_e);
    }
  }

  /// Sets the marks of a tile. Few tiles hold anything that matters, and in those few groups of columns do.
  template <int Registers>
  __device__ __forceinline__ void mark(float (&sums)[Registers], largest_of_groups<Registers>& of_groups,
                                       of_rows<float>& largest, box_coordinate coordinate,
                                       scratch_type const& scratch) const {
    warpgroup_lane const lane = own_lane();
    of_rows<float> floors;
    of_rows<bool> have_labels;
    auto const read = [&](int row, float& floor, bool& has_label) {
      floor = scratch.of_row[row].floor;
      has_label = scratch.of_row[row].label >= 0;
    };
    rows<Registers>::each_row(lane, read, floors, have_labels);
    auto const reaches = [&](of_rows<float>& values) {
      bool is_any = false;
      rows<Registers>::each_row(
          lane, [&](int, float value, float floor, bool has_label) { is_any |= has_label && !(value < floor); }, values,
          floors, have_labels);
      return is_any;
    };
    if (!any_of_warp(reaches(largest))) {
      return;
    }
    std::uint32_t found = 0;
#pragma unroll
    for (int group = 0; group < groups<Registers>; ++group) {
      found |= reaches(of_groups[group]) ? std::uint32_t{1} << group : 0;
    }
    found = bits_of_warp(found);
    int const first = rows_of_group::first_column(lane);
#pragma unroll
    for (int group = 0; group < groups<Registers>; ++group) {
      if ((found >> group & 1) != 0) {
        std::uint32_t word = 0;
        auto const add = [&](int, int column, float sum, float floor, bool has_label) {
          word |= has_label && !(sum < floor) ? std::uint32_t{1} << (column - first) : 0;
        };
        auto& columns = rows<Registers>::template columns_of<group_columns>(sums, group * group_columns);
        rows_of_group::each_with_row(lane, columns, add, floors, have_labels);
        add_word(coordinate, group, bits_of_warp(word << first));
      }
    }
  }
  /// Keeps the tile's softmaxes. It makes the exponentials once more, which costs no time, since the other warpgroup
  /// multiplies.
  template <int Registers>
  __device__ __forceinline__ void keep_exponentials(float const (&sums)[Registers], of_rows<float> const& largest,
                                                    box_coordinate coordinate, scratch_type const& scratch) const {
    static_assert(2 * Registers == kept_softmaxes<T>::tile_entries);
    if (coordinate.column >= softmaxes.values.extent(1)) {
      return;
    }
    float const factor = scaling.inverse_temperature * log2_e;
    if (scaling.cap > 0.0F) {
      float const bend = fast_reciprocal(scaling.cap);
      keep_values(sums, largest, coordinate, scratch, [&](float sum, float reference) {
        float const bent = sum * bend;
        return fast_exp2(multiply_add(sum, factor, -reference)) * multiply_add(-bent, bent, 1.0F);
      });
    } else {
      keep_values(sums, largest, coordinate, scratch,
                  [&](float sum, float reference) { return fast_exp2(multiply_add(sum, factor, -reference)); });
    }
  }
  /// Keeps what `value` makes of each sum and its row's reference.
  template <int Registers, class Value>
  __device__ __forceinline__ void keep_values(float const (&sums)[Registers], of_rows<float> const& largest,
                                              box_coordinate coordinate, scratch_type const& scratch,
                                              Value const& value) const {
    auto const lane = static_cast<std::int32_t>(thread_index() % 32);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::int32_t const token = coordinate.row + lane / 4 + 8 * half;
      bool const is_there = token < softmaxes.values.extent(0);
      bool const has_label = scratch.of_row[lane / 4 + 8 * half].label >= 0;
      float const reference = is_there ? keep_reference(largest.values[0][half], coordinate.column, token) : 0.0F;
#pragma unroll
      for (int group = 0; group < groups<Registers>; ++group) {
        std::uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          int const at = group * group_columns / 2 + 4 * i + 2 * half;
          std::uint32_t const pair = pack_pair<T>(value(sums[at], reference), value(sums[at + 1], reference));
          words[i] = has_label ? pair : 0U;
        }
        transpose_of_four(words);
        std::int32_t const column = coordinate.column + group * group_columns + 8 * (lane % 4);
        if (is_there && column < softmaxes.values.extent(1)) {
          __stcs(reinterpret_cast<uint4*>(&softmaxes.values(token, column)),
                 uint4{words[0], words[1], words[2], words[3]});
        }
      }
    }
  }
  /// The reference of a token in a tile, which it writes: the one that the token's tiles share, or the tile's own.
  __device__ __forceinline__ float keep_reference(float largest, std::int32_t column, std::int32_t token) const {
    float const steepness = scaling.inverse_temperature * log2_e;
    bool const is_first = thread_index() % 4 == 0;
    float shared = 0.0F;
    bool is_shared = false;
    if constexpr (kept_softmaxes<T>::shares_references) {
      shared = softmaxes.shared_references[token];
      is_shared = multiply_add(largest, steepness, -shared) <= kept_softmaxes<T>::most_above;
    }
    if (is_first) {
      softmaxes.references(column / kept_softmaxes<T>::tile_entries, token) = is_shared ? shared : largest * steepness;
      if (!is_shared) {
        softmaxes.is_uneven[token] = 1;
      }
    }
    return is_shared ? shared : reference_of_row(largest, steepness);
  }
  __device__ __forceinline__ void add_word(box_coordinate coordinate, int group, std::uint32_t word) const {
    std::int32_t const column = coordinate.column + group * group_columns;
    std::int32_t const left = vocabulary - column;
    std::uint32_t const inside = left >= 32 ? word : left > 0 ? word & ((std::uint32_t{1} << left) - 1) : 0;
    if (thread_index() % 32 == 0 && inside != 0) {
      atomicOr(&marks.live(coordinate.row / loss_marks::block_tokens, column / group_columns), inside);
    }
  }
};

}  // namespace v0
}  // namespace tessera
