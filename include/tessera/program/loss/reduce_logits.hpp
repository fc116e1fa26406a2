// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `loss_tiles`: reduces rows of logits that are never stored. It is the portable forward program of
/// algorithm/loss/linear_loss.hpp.
///
/// A group takes every `splits`-th tile of the vocabulary for the tokens of one row of tiles. A lane reduces its part
/// of a row from the first to the last column, tile after tile; in the end the states of a row's lanes are merged in
/// order. Each token has `splits` states, which finish_loss_tokens merges in order. So the order of additions depends
/// on the extents alone.
///
/// Cost: 2 * tokens * vocabulary * channels operations and tokens * vocabulary exponentials.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/program/loss/logits.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/reduce/paired.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Reduces rows of logits and picks the labels' logits. Tile: see program/loss/logits.hpp. R: a Reducer of floats or of
/// indexed_value<float>.
template <class Tile, LogitReducer R, LogitMap Map = identity_logits>
struct loss_tiles {
  using layout = loss_tile<Tile>;
  using state_type = typename R::state_type;
  static constexpr int lanes = layout::lanes;
  static constexpr int blocks_per_multiprocessor = layout::blocks_per_multiprocessor;
  struct scratch_type {
    typename layout::scratch_type tile;            ///< for logits
    state_type of_lane[lanes - layout::rows + 1];  ///< states of lanes beyond the first of each row
  };

  loss_logits<Tile, Map> logits;  ///< the matrices whose products become logits
  loss_token_list tokens;
  R reducer;
  matrix_view<state_type> states;  ///< splits x rows of the list of tokens
  array_view<float> targets;       ///< the logit of each row's label
  std::int64_t splits;             ///< groups that share a row of tiles

  TESSERA_FN constexpr std::int64_t groups() const { return logits.row_tiles() * splits; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    std::int64_t const first_row = which / splits * layout::rows;
    std::int64_t const split = which % splits;
    std::int64_t const count = tokens.count[0];
    if (first_row >= count) {
      return;
    }
    per_lane<state_type, G> state;
    for (int lane : group) {
      state[lane] = reducer.identity();
    }
    std::int64_t const before = max(logits.first_column_tile() - split, std::int64_t{0});
    std::int64_t const first = split + divide_up(before, splits) * splits;
    for (std::int64_t tile = first; tile < logits.end_column_tile(); tile += splits) {
      logits.compute(group, first_row, tile * layout::columns, scratch.tile);
      for (int lane : group) {
        if (first_row + lane % layout::rows < count) {
          reduce_part(lane, first_row, tile * layout::columns, scratch.tile, state[lane]);
        }
      }
    }
    for (int lane : group) {
      if (lane >= layout::rows) {
        scratch.of_lane[lane - layout::rows] = state[lane];
      }
    }
    group.sync();
    for (int lane : group) {
      if (lane < layout::rows && first_row + lane < count) {
        for (int other = lane + layout::rows; other < lanes; other += layout::rows) {
          reducer.merge(state[lane], scratch.of_lane[other - layout::rows]);
        }
        if (logits.first_column_tile() > 0) {  // what the bands before have left comes first
          state_type earlier = states(split, first_row + lane);
          reducer.merge(earlier, state[lane]);
          state[lane] = earlier;
        }
        states(split, first_row + lane) = state[lane];
      }
    }
  }

 private:
  TESSERA_FN void reduce_part(int lane, std::int64_t first_row, std::int64_t first_column,
                              typename layout::scratch_type& scratch, state_type& state) const {
    int const row = lane % layout::rows;
    int const first = lane / layout::rows * layout::part_columns;
    auto const left =
        static_cast<int>(min(logits.classifier.rows() - first_column - first, std::int64_t{layout::part_columns}));
    std::int64_t const label = tokens.labels[first_row + row] - first_column - first;
    state_type own = state;  // in registers while values are pushed
    for (int i = 0; i < left; ++i) {
      push_indexed(
          reducer, own,
          indexed_value<float>{logits.mapped(scratch.logit(row, first + i), first_row + row, first_column + first + i),
                               static_cast<std::int32_t>(first_column + first + i)});
    }
    state = own;
    if (label >= 0 && label < left) {
      float const scaled = scratch.logit(row, first + static_cast<int>(label));
      targets[first_row + row] = logits.mapped(scaled, first_row + row, tokens.labels[first_row + row]);
    }
  }
};

}  // namespace v0
}  // namespace tessera
