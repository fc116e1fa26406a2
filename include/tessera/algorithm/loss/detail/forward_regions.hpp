// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The regions of a loss's forward pass, `loss_regions`, and behind them what that pass can leave for the backward
/// pass, `loss_mark_regions`. linear_loss_regions.hpp goes on with the regions of the backward pass.
#pragma once

#include <cstdint>

#include <tessera/algorithm/loss/detail/remembered_regions.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/loss/entry_marks.hpp>
#include <tessera/program/loss/finish_loss.hpp>
#include <tessera/program/loss/kept_softmaxes.hpp>
#include <tessera/program/loss/logits.hpp>
#include <tessera/program/loss/stamp.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/tuning/loss/linear_loss.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The `count` rows of a matrix that begin with row `first`.
template <class T>
matrix_view<T> rows_of(matrix_view<T> matrix, std::int64_t first, std::int64_t count) {
  return {&matrix(first, 0), {count, matrix.extent(1)}, {matrix.stride(0), matrix.stride(1)}};
}

/// The regions that a forward pass needs and a backward pass reads again. The stamp is first, so that a backward pass
/// finds it whatever the extents were.
template <class Tile, LogitReducer Statistics>
struct loss_regions {
  using layout = loss_tile<Tile>;
  workspace_plan plan;
  std::int64_t splits;
  region<std::uint64_t> stamp;
  region<std::int64_t> order;
  region<std::int64_t> row_of;
  region<std::int32_t> labels;
  region<std::int64_t> count;
  region<float> poison;
  region<float> targets;
  region<float> row_lse;
  region<float> row_entropy;
  region<float> scale;
  region<loss_sums> sums;
  region<typename Statistics::state_type> states;
  std::int64_t band_entries;  ///< entries whose rows a band has; 0: the classifier is a matrix in memory
  region<typename layout::value_type> band;

  /// `record`: workspace_plan::record::entries for a plan that users see, else record::sizes. `least_splits`: room for
  /// states of each row. `budget`: that of the options, by which bands of a source's rows are chosen.
  loss_regions(char const* where, linear_loss_shape const& shape,
               workspace_plan::record record = workspace_plan::record::entries, std::int64_t least_splits = 0,
               std::int64_t budget = 0)
      : plan(where, record),
        splits(max(splits_of(shape), least_splits)),
        stamp(plan.add<std::uint64_t>("what the forward pass was", loss_stamp::size)),
        order(plan.add<std::int64_t>("tokens with a label", shape.tokens)),
        row_of(plan.add<std::int64_t>("rows of tokens", shape.tokens)),
        labels(plan.add<std::int32_t>("their labels", shape.tokens)),
        count(plan.add<std::int64_t>("how many they are", 1)),
        poison(plan.add<float>("bad labels", 1)),
        targets(plan.add<float>("logits of labels", shape.tokens)),
        row_lse(plan.add<float>("log-sum-exps", shape.tokens)),
        row_entropy(plan.add<float>("entropies", shape.tokens)),
        scale(plan.add<float>("scale of gradients", 1)),
        sums(plan.add<loss_sums>("sums over tokens", divide_up(shape.tokens, std::int64_t{256}))),
        states(
            plan.add<typename Statistics::state_type>("states of rows", checked_multiply(where, splits, shape.tokens))),
        band_entries(layout::has_source ? loss_band_entries(shape.vocabulary, row_bytes(shape), budget) : 0),
        band(plan.add<typename layout::value_type>("rows of a band of the classifier",
                                                   checked_multiply(where, band_entries, row_stride(shape)))) {}

  /// Elements from a row of a band to the next, so that rows begin at multiples of 16 bytes.
  static std::int64_t row_stride(linear_loss_shape const& shape) {
    return divide_up(shape.channels, std::int64_t{8}) * 8;
  }
  static std::int64_t row_bytes(linear_loss_shape const& shape) {
    return row_stride(shape) * static_cast<std::int64_t>(sizeof(typename layout::value_type));
  }
  /// The first rows of the band, at most band_entries.
  matrix_view<typename layout::value_type> band_rows(workspace const& space, linear_loss_shape const& shape,
                                                     std::int64_t row_count) const {
    return {space[band].data, {row_count, shape.channels}, {row_stride(shape), 1}};
  }

  /// The number of splits of the vocabulary, each with a state for each token: enough groups to fill any machine, and
  /// at least 6, for programs in which several workers share rows of larger tiles. It does not depend on the machine,
  /// so that results do not, either.
  static std::int64_t splits_of(linear_loss_shape const& shape) {
    constexpr std::int64_t enough_groups = 512;
    constexpr std::int64_t fewest_splits = 6;
    std::int64_t const rows = max(divide_up(shape.tokens, std::int64_t{layout::rows}), std::int64_t{1});
    std::int64_t const columns = divide_up(shape.vocabulary, std::int64_t{layout::columns});
    return clamp(divide_up(enough_groups, rows), fewest_splits, max(columns, fewest_splits));
  }

  loss_token_list token_list(workspace const& space) const {
    return {space[order], space[row_of], space[labels], space[count]};
  }
  matrix_view<typename Statistics::state_type> state_matrix(workspace const& space, std::int64_t tokens) const {
    return {space[states].data, {splits, tokens}};
  }
};

/// The regions that a forward pass can fill for the backward pass, after those that it needs itself.
template <class Tile, LogitReducer Statistics>
struct loss_mark_regions : loss_regions<Tile, Statistics> {
  using base = loss_regions<Tile, Statistics>;
  using value_type = typename base::layout::value_type;
  std::int64_t token_blocks;
  std::int64_t words;  ///< words of a row of marks, each for 32 entries of the vocabulary
  region<std::uint32_t> live;
  region<std::int32_t> is_marked;  ///< 1 if forward() left marks, else 0
  region<loss_bound> bounds;
  region<known_loss> known;
  std::int64_t kept;         ///< entries whose softmaxes are kept
  std::int64_t kept_stride;  ///< elements from the softmaxes of one token to those of the next
  region<value_type> softmaxes;
  std::int64_t reference_tiles;  ///< tiles of entries with references of their own; 0 where these are in signs
  region<float> references;      ///< what kept softmaxes are relative to (kept_softmaxes)
  region<float> shared_references;
  region<std::int32_t> is_uneven;
  region<std::int32_t> softmax_state;

  /// `use`: whether a backward pass may leave something out, and so uses marks and the bounds that make them.
  explicit loss_mark_regions(char const* where, linear_loss_shape const& shape,
                             loss_entry_use use = loss_entry_use::marked, kept_entries of_kept = {},
                             workspace_plan::record record = workspace_plan::record::entries, std::int64_t budget = 0)
      : base(where, shape, record, of_kept.count > 0 ? most_states_with_softmaxes : 0, budget),
        token_blocks(divide_up(shape.tokens, std::int64_t{loss_marks::block_tokens})),
        words(has_marks(use) ? divide_up(shape.vocabulary, std::int64_t{32}) : 0),
        live(this->plan.template add<std::uint32_t>("marks of entries", checked_multiply(where, token_blocks, words))),
        is_marked(this->plan.template add<std::int32_t>("whether there are marks", 1)),
        bounds(this->plan.template add<loss_bound>(
            "bounds of log-sum-exps", words > 0 ? checked_multiply(where, this->splits, shape.tokens) : 0)),
        known(this->plan.template add<known_loss>("known parts of log-sum-exps", words > 0 ? shape.tokens : 0)),
        kept(of_kept.count),
        kept_stride(divide_up(kept, std::int64_t{base::layout::columns}) * base::layout::columns),
        softmaxes(this->plan.template add<value_type>("softmaxes", checked_multiply(where, shape.tokens, kept_stride))),
        reference_tiles(of_kept.in_signs ? 0 : divide_up(kept, std::int64_t{kept_softmaxes<value_type>::tile_entries})),
        references(this->plan.template add<float>("references of softmaxes",
                                                  checked_multiply(where, reference_tiles, shape.tokens))),
        shared_references(this->plan.template add<float>("references that tiles share", kept > 0 ? shape.tokens : 0)),
        is_uneven(this->plan.template add<std::int32_t>("whether they do not", kept > 0 ? shape.tokens : 0)),
        softmax_state(this->plan.template add<std::int32_t>("whether there are softmaxes", kept > 0 ? 1 : 0)) {}

  /// Bytes that the forward pass needs by itself.
  std::int64_t forward_bytes() const { return live.offset; }
  /// The marks and the note whether there are any, which lie next to each other: they are cleared together.
  region<std::uint32_t> marks_with_note() const {
    constexpr auto size = static_cast<std::int64_t>(sizeof(std::uint32_t));
    return {live.offset, (is_marked.offset - live.offset) / size + is_marked.count};
  }
  /// Whether a workspace is one of both passes: it has room for marks, too, or for the note that there are none.
  bool is_for_both(workspace const& space) const { return space.bytes() >= softmaxes.offset; }
  /// Whether a workspace has room for the softmaxes that are kept, too.
  bool has_softmaxes(workspace const& space) const { return kept > 0 && space.bytes() >= this->plan.bytes(); }

  loss_marks marks(workspace const& space, linear_loss_shape const& shape, float threshold) const {
    return {{space[live].data, {token_blocks, words}},
            {space[bounds].data, {this->splits, shape.tokens}},
            space[known],
            space[is_marked],
            threshold};
  }
  kept_softmaxes<value_type> kept_in(workspace const& space, linear_loss_shape const& shape) const {
    if (kept == 0) {
      return {};
    }
    return {{space[softmaxes].data, {shape.tokens, kept}, {kept_stride, 1}},
            {space[references].data, {reference_tiles, shape.tokens}},
            space[shared_references],
            space[is_uneven],
            space[softmax_state]};
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
