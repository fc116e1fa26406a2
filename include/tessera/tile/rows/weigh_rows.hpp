// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `weigh_rows<M>`: the step of an online softmax for a tile of scores, whichever words the tile's rows have: those of
/// plain arrays, of mma.sync's or of wgmma's registers. Dense attention has it in its portable program
/// (attention/detail/dense_tiles.hpp) and in that for sm_90a (attention/detail/dense_forward.cuh).
/// `weigh_rows_with_headroom<M>` is the same where rows keep a reference until a score is too far above it, as those of
/// decoding do (attention/decode_fragments.cuh): a tile then costs one vote of the group in place of exchanges of each
/// row and products with all that was added up.
///
/// Softmax: what a row knows, and how scores become weights.
///
///     struct row_softmax {
///       struct state_type { float largest, sum; };
///       using largest_type = maximum_reducer<float>;          // a Reducer of a tile's scores
///       using sum_type = sum_reducer<float>;                  // a Reducer of a tile's weights
///       static constexpr bool sums_whole_rows = true;         // whether its states are those of whole rows, or of a
///                                                             // lane's own weights, for rows to be merged in the end
///       float turn(state_type& state, float largest) const;   // begins a tile whose largest score is given: the
///                                                             // factor of what was added up before
///       float weight(state_type const& state, float score) const;
///       void add(state_type& state, float factor, sum_type::state_type const& sum) const;
///     };
///
/// Softmax with headroom: states are those of a lane's own weights, with the same reference in all lanes of a row.
///
///     struct row_softmax {
///       struct state_type { float reference, sum; };
///       using largest_type = maximum_reducer<float>;
///       using sum_type = sum_reducer<float>;
///       // Whether the lane's largest score, or anything else, is too large for the reference.
///       bool is_beyond(state_type const& state, float largest) const;
///       void agree();  // before references are raised, by all lanes
///       // Makes a reference of the row's largest score: the factor of what was added up before.
///       float raise(state_type& state, float largest) const;
///       float weight(state_type const& state, float score) const;
///       void add(state_type& state, sum_type::state_type const& sum) const;
///     };
///
/// `weigh_lanes<M>` is weigh_rows where lanes have references of their own, as those of scores that no product follows.
/// A NaN is left out of the largest score, and the weight that becomes of it is Softmax's affair.
#pragma once

#include <tessera/concepts/tile_mma.hpp>
#include <tessera/config.hpp>
#include <tessera/tile/per_lane.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// The step of a tile. MergesLargest: references are those of whole rows. MergesSums: so are sums.
template <class M, bool MergesLargest, bool MergesSums, class Softmax>
TESSERA_FN void weigh_tile(typename M::group_type const& group, Softmax const& softmax, typename M::sum_tile& scores,
                           typename M::template row_values<typename Softmax::state_type>& states,
                           typename M::template row_values<float>& factors) {
  using state_type = typename Softmax::state_type;
  using largest_type = typename Softmax::largest_type;
  using sum_type = typename Softmax::sum_type;
  typename M::template row_values<float> largest;
  M::fold_lanes(group, largest_type{}, scores, largest);
  if constexpr (MergesLargest) {
    M::merge_lanes(group, largest_type{}, largest);
  }
  M::each_row(
      group, [&](int, float most, state_type& state, float& factor) { factor = softmax.turn(state, most); }, largest,
      states, factors);
  M::each_with_row(
      group, scores, [&](int, int, float& score, state_type const& state) { score = softmax.weight(state, score); },
      states);
  typename M::template row_values<typename sum_type::state_type> sums;
  M::fold_lanes(group, sum_type{}, scores, sums);
  if constexpr (MergesSums) {
    M::merge_lanes(group, sum_type{}, sums);
  }
  M::each_row(
      group,
      [&](int, typename sum_type::state_type const& sum, state_type& state, float factor) {
        softmax.add(state, factor, sum);
      },
      sums, states, factors);
}

}  // namespace detail

/// All lanes reach this call. Turns scores into weights, adds them to the states of their rows, and gives the factors
/// of what was added up by earlier weights.
template <RowWords M, class Softmax>
TESSERA_FN void weigh_rows(typename M::group_type const& group, Softmax const& softmax, typename M::sum_tile& scores,
                           typename M::template row_values<typename Softmax::state_type>& states,
                           typename M::template row_values<float>& factors) {
  detail::weigh_tile<M, true, Softmax::sums_whole_rows>(group, softmax, scores, states, factors);
}

/// The same without exchanges: states are those of a lane's own scores, relative to the largest of these, for lanes to
/// be merged in the end (merge_part_lanes in tile/rows/settle_parts.hpp).
template <RowWords M, class Softmax>
TESSERA_FN void weigh_lanes(typename M::group_type const& group, Softmax const& softmax, typename M::sum_tile& scores,
                            typename M::template row_values<typename Softmax::state_type>& states,
                            typename M::template row_values<float>& factors) {
  detail::weigh_tile<M, false, false>(group, softmax, scores, states, factors);
}

/// All lanes reach this call, of a group that votes by any(). Turns scores into weights, and adds them to the states of
/// their rows. Where references are raised, rescale(factors) is called before, by all lanes, with the factors of what
/// was added up by earlier weights.
template <RowWords M, class Softmax, class Rescale>
TESSERA_FN void weigh_rows_with_headroom(typename M::group_type const& group, Softmax& softmax,
                                         typename M::sum_tile& scores,
                                         typename M::template row_values<typename Softmax::state_type>& states,
                                         Rescale const& rescale) {
  using state_type = typename Softmax::state_type;
  using largest_type = typename Softmax::largest_type;
  using sum_type = typename Softmax::sum_type;
  typename M::template row_values<float> largest;
  M::fold_lanes(group, largest_type{}, scores, largest);
  bool is_beyond = false;
  M::each_row(
      group, [&](int, float most, state_type const& state) { is_beyond = is_beyond || softmax.is_beyond(state, most); },
      largest, states);
  per_lane<bool, typename M::group_type> votes{};
  for (int const lane : group) {
    votes[lane] = is_beyond;
  }
  if (any(group, votes)) {
    softmax.agree();
    M::merge_lanes(group, largest_type{}, largest);
    typename M::template row_values<float> factors;
    M::each_row(
        group, [&](int, float most, state_type& state, float& factor) { factor = softmax.raise(state, most); }, largest,
        states, factors);
    rescale(factors);
  }
  M::each_with_row(
      group, scores, [&](int, int, float& score, state_type const& state) { score = softmax.weight(state, score); },
      states);
  typename M::template row_values<typename sum_type::state_type> sums;
  M::fold_lanes(group, sum_type{}, scores, sums);
  M::each_row(
      group, [&](int, typename sum_type::state_type const& sum, state_type& state) { softmax.add(state, sum); }, sums,
      states);
}

}  // namespace v0
}  // namespace tessera
