// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The workspaces of algorithm/loss/linear_loss.hpp: `loss_regions` for a forward pass, `loss_gradient_regions` for
/// both passes. The latter begins with the regions of the forward pass, followed by what that pass can leave for the
/// backward pass (`loss_mark_regions`).
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>

#include <tessera/algorithm/loss/detail/largest_within.hpp>
#include <tessera/algorithm/loss/detail/remembered_regions.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/loss/detail/part_items.hpp>
#include <tessera/program/loss/entry_marks.hpp>
#include <tessera/program/loss/entry_order.hpp>
#include <tessera/program/loss/finish_loss.hpp>
#include <tessera/program/loss/gradient_products.hpp>
#include <tessera/program/loss/kept_softmaxes.hpp>
#include <tessera/program/loss/logit_gradient.hpp>
#include <tessera/program/loss/logits.hpp>
#include <tessera/program/loss/stamp.hpp>
#include <tessera/program/loss/token_factors.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/tile/tile_order.hpp>
#include <tessera/tuning/loss/linear_loss.hpp>
#include <tessera/tuning/loss/part_costs.hpp>
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
        words(use != loss_entry_use::all ? divide_up(shape.vocabulary, std::int64_t{32}) : 0),
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

/// How a backward pass cuts the vocabulary into parts: the entries whose softmaxes are kept, if any, are one part;
/// further parts have the entries whose logits are made again. Programs that do not use kept softmaxes make all logits
/// again, in the softmaxes' place where those of all entries are kept, with lower halves of sums in the place of scaled
/// hidden states.
template <class Tile, LogitReducer Statistics, class Filter, class Gradient>
struct loss_gradient_regions : loss_mark_regions<Tile, Statistics> {
  using base = loss_mark_regions<Tile, Statistics>;
  /// The tile of logits, as the loss was given it.
  using tile = Tile;
  /// The filter of the backward pass.
  using filter = Filter;
  /// The type that gradients are stored as.
  using gradient_type = Gradient;
  using layout = loss_tile<Tile>;
  using program = loss_gradient_tiles<Tile, Filter>;
  static constexpr std::int64_t tile_columns = layout::columns;
  static constexpr int least_tile_columns = 128;  ///< of the tiles in which an executor may make gradients by logits
  /// Whether gradients by logits have fewer exponents than their factors; then scale_loss_gradients brings them into
  /// range.
  static constexpr bool has_narrow_gradient =
      scalar_traits<typename layout::value_type>::exponent_bits < scalar_traits<float>::exponent_bits;
  static constexpr bool has_remains = !std::is_same_v<Gradient, float>;  ///< float results hold whole sums
  std::int64_t entries;                                                  ///< entries of a part: whole tiles
  std::int64_t parts;  ///< the number of parts whose logits are made again
  std::int64_t row_blocks;
  std::int64_t row_tiles;
  region<loss_row_gradient> rows;
  region<float> largest_factors;
  region<float> late_scale;
  region<typename layout::value_type> scaled_hidden;  ///< hidden states that kept softmaxes are multiplied with
  region<std::uint16_t> remains;                      ///< lower halves of sums of hidden gradients
  region<typename layout::value_type> gradient;
  region<std::uint8_t> kept_for_hidden;
  region<std::uint8_t> kept_for_classifier;
  region<float> column_sums;
  region<loss_token_factors> factors;
  region<std::uint8_t> unclean;
  region<std::int32_t> list_counts;
  region<std::int32_t> lists;
  region<tile_coordinate> tiles;
  region<std::int32_t> tile_count;
  region<std::int32_t> counters;  ///< loss_part_counters
  // Regions of a filtered pass that takes the vocabulary in another order.
  region<std::int32_t> entry_of;
  region<std::int32_t> slot_of;
  region<std::uint8_t> class_of;
  region<std::int32_t> class_counts;
  region<std::int64_t> alive;
  region<std::int32_t> dead_blocks;
  region<std::int32_t> in_order;
  region<std::uint8_t> alive_blocks;
  region<typename layout::value_type> gathered;

  /// `use`: whether something may be left out, and the executor takes entries in another order then.
  loss_gradient_regions(char const* where, linear_loss_shape const& shape, linear_loss_options const& options,
                        loss_entry_use use, kept_entries of_kept,
                        workspace_plan::record record = workspace_plan::record::entries)
      : loss_gradient_regions(where, {shape, of_kept, options.workspace_budget, use}, record,
                              entries_within(where, shape, use, of_kept, options.workspace_budget)) {}

  /// The entries whose softmaxes fit into the budget: all, or whole tiles beside the usual workspace. `in_signs`: see
  /// kept_entries.
  static kept_entries kept_within(char const* where, linear_loss_shape const& shape, std::int64_t budget,
                                  bool in_signs = false) {
    thread_local remembered_search last;
    return {last.get({shape, {0, in_signs}, budget, loss_entry_use::all},
                     [&] { return search_kept(where, shape, budget, in_signs); }),
            in_signs};
  }

  bool keeps_all(linear_loss_shape const& shape) const { return this->kept == shape.vocabulary; }
  /// Which blocks are kept, for hidden states and for the classifier: both lists lie next to each other.
  region<std::uint8_t> kept_blocks() const {
    return {kept_for_hidden.offset, kept_for_classifier.offset - kept_for_hidden.offset + kept_for_classifier.count};
  }

  /// The part of the entries whose softmaxes are kept.
  loss_gradient_part<typename layout::value_type> kept_part(workspace const& space,
                                                            linear_loss_shape const& shape) const {
    return part_of(space, 0, this->kept_in(space, shape).values);
  }
  /// The part that begins with entry `first`.
  loss_gradient_part<typename layout::value_type> part(workspace const& space, linear_loss_shape const& shape,
                                                       std::int64_t first) const {
    typename layout::value_type* const data = space[keeps_all(shape) ? this->softmaxes : gradient].data;
    return part_of(space, first, {data, {shape.tokens, min(entries, shape.vocabulary - first)}, {entries, 1}});
  }

  /// What the forward pass of this workspace has left, if there was one.
  loss_leavings leavings(workspace const& space) const {
    return {space[this->stamp], this->token_list(space), space[this->is_marked], space[this->softmax_state]};
  }
  /// The sums of so many columns of a part, at most `entries`.
  matrix_view<float> column_sums_of(workspace const& space, std::int64_t columns) const {
    return {space[column_sums].data, {row_tiles, columns}, {entries, 1}};
  }
  matrix_view<typename layout::value_type> scaled_hidden_of(workspace const& space,
                                                            linear_loss_shape const& shape) const {
    return {space[scaled_hidden].data, {shape.tokens, shape.channels}, {base::row_stride(shape), 1}};
  }
  matrix_view<std::uint16_t> remains_of(workspace const& space, linear_loss_shape const& shape) const {
    return {space[remains].data, {shape.tokens, shape.channels}, {base::row_stride(shape), 1}};
  }

  /// The same memory for parts of fewer tokens and more entries; nothing where some region is too small for that.
  std::optional<loss_gradient_regions> narrowed(char const* where, linear_loss_shape const& some,
                                                std::int64_t entry_count) const {
    loss_gradient_regions const planned(where, {some, 0, 0, loss_entry_use::all}, workspace_plan::record::sizes,
                                        entry_count);
    loss_gradient_regions made = *this;
    made.token_blocks = planned.token_blocks;
    made.entries = planned.entries;
    made.parts = planned.parts;
    made.row_blocks = planned.row_blocks;
    made.row_tiles = planned.row_tiles;
    bool fits = !layout::has_source || entry_count <= this->band_entries;
    auto const take = [&](auto member) {
      fits = fits && (planned.*member).count <= (made.*member).count;
      (made.*member).count = (planned.*member).count;
    };
    take(&loss_gradient_regions::gradient);
    take(&loss_gradient_regions::kept_for_hidden);
    take(&loss_gradient_regions::kept_for_classifier);
    take(&loss_gradient_regions::column_sums);
    take(&loss_gradient_regions::factors);
    take(&loss_gradient_regions::unclean);
    take(&loss_gradient_regions::list_counts);
    take(&loss_gradient_regions::lists);
    take(&loss_gradient_regions::tiles);
    take(&loss_gradient_regions::tile_count);
    take(&loss_gradient_regions::counters);
    return fits ? std::optional(made) : std::nullopt;
  }

  static std::int64_t slot_blocks(linear_loss_shape const& shape) {
    return divide_up(shape.vocabulary, std::int64_t{128});
  }
  static std::int64_t hidden_panels(linear_loss_shape const& shape) {
    return divide_up(shape.tokens, std::int64_t{256});
  }
  std::int64_t tiles_across() const { return divide_up(entries, std::int64_t{least_tile_columns}); }
  std::int64_t entry_blocks() const { return divide_up(widest(), std::int64_t{128}); }
  std::int64_t entry_panels() const { return divide_up(widest(), std::int64_t{256}); }

 private:
  static constexpr auto ordered = loss_entry_use::ordered;
  std::int64_t widest() const { return max(entries, this->kept_stride); }

  loss_gradient_part<typename layout::value_type> part_of(workspace const& space, std::int64_t first,
                                                          matrix_view<typename layout::value_type> values) const {
    std::int64_t const across = values.stride(0) / program::block_columns;
    return {first,
            values,
            {space[kept_for_hidden].data, {row_blocks, across}},
            {space[kept_for_classifier].data, {row_blocks, across}},
            column_sums_of(space, min(values.extent(1), entries))};
  }

  loss_gradient_regions(char const* where, loss_part_search const& of, workspace_plan::record record,
                        std::int64_t entry_count)
      : loss_gradient_regions(where, of.shape, record, of.use, of.kept, entry_count, of.budget) {}

  loss_gradient_regions(char const* where, linear_loss_shape const& shape, workspace_plan::record record,
                        loss_entry_use use, kept_entries of_kept, std::int64_t entry_count, std::int64_t budget)
      : base(where, shape, use, of_kept, record, budget),
        entries(entry_count),
        parts(divide_up(shape.vocabulary - this->kept, entry_count)),
        row_blocks(divide_up(shape.tokens, std::int64_t{layout::rows}) * (layout::rows / program::block_rows)),
        row_tiles(divide_up(shape.tokens, std::int64_t{layout::rows})),
        rows(this->plan.template add<loss_row_gradient>("factors of gradients", shape.tokens)),
        largest_factors(this->plan.template add<float>(
            "largest factors of gradients",
            has_narrow_gradient ? divide_up(shape.tokens, std::int64_t{prepare_loss_gradients::lanes}) : 0)),
        late_scale(this->plan.template add<float>("late factor of gradients", 1)),
        scaled_hidden(this->plan.template add<typename layout::value_type>(
            "scaled hidden states",
            this->kept > 0 ? checked_multiply(where, shape.tokens, base::row_stride(shape)) : 0)),
        remains(keeps_all(shape) && this->kept > 0
                    ? region<std::uint16_t>{scaled_hidden.offset, has_remains ? scaled_hidden.count : 0}
                    : this->plan.template add<std::uint16_t>(
                          "lower halves of hidden gradients",
                          has_remains && parts + (this->kept > 0 ? 1 : 0) > 1
                              ? checked_multiply(where, shape.tokens, base::row_stride(shape))
                              : 0)),
        gradient(this->plan.template add<typename layout::value_type>(
            "gradient of a part of the logits", keeps_all(shape) ? 0 : checked_multiply(where, shape.tokens, entries))),
        kept_for_hidden(this->plan.template add<std::uint8_t>(
            "blocks kept for hidden states", checked_multiply(where, row_blocks, widest() / program::block_columns))),
        kept_for_classifier(this->plan.template add<std::uint8_t>(
            "blocks kept for the classifier", checked_multiply(where, row_blocks, widest() / program::block_columns))),
        column_sums(this->plan.template add<float>("column sums", checked_multiply(where, row_tiles, entries))),
        factors(this->plan.template add<loss_token_factors>("factors of tokens", shape.tokens)),
        unclean(this->plan.template add<std::uint8_t>("blocks of tokens to be cleaned", this->token_blocks)),
        list_counts(this->plan.template add<std::int32_t>("lengths of lists", hidden_panels(shape) + entry_panels())),
        lists(this->plan.template add<std::int32_t>(
            "lists of blocks", checked_add(where, checked_multiply(where, hidden_panels(shape), entry_blocks()),
                                           checked_multiply(where, entry_panels(), this->token_blocks)))),
        tiles(this->plan.template add<tile_coordinate>(
            "lists of tiles", checked_multiply(where, parts, hidden_panels(shape), tiles_across()))),
        tile_count(this->plan.template add<std::int32_t>("lengths of the lists of tiles", parts)),
        counters(this->plan.template add<std::int32_t>(
            "counters of tiles", has_remains ? 0 : loss_part_counters::size(hidden_panels(shape)))),
        entry_of(this->plan.template add<std::int32_t>("order of entries", use == ordered ? shape.vocabulary : 0)),
        slot_of(this->plan.template add<std::int32_t>("slots of entries", use == ordered ? shape.vocabulary : 0)),
        class_of(this->plan.template add<std::uint8_t>("classes of entries", use == ordered ? shape.vocabulary : 0)),
        class_counts(this->plan.template add<std::int32_t>(
            "sizes of classes",
            use == ordered ? loss_entry_order::classes * loss_entry_order::groups(shape.vocabulary) : 0)),
        alive(this->plan.template add<std::int64_t>("entries with gradients", use == ordered ? 1 : 0)),
        dead_blocks(this->plan.template add<std::int32_t>("how many blocks have none", use == ordered ? 1 : 0)),
        in_order(this->plan.template add<std::int32_t>("whether entries keep their order", use == ordered ? 1 : 0)),
        alive_blocks(this->plan.template add<std::uint8_t>(
            "blocks with gradients",
            use == ordered ? checked_multiply(where, this->token_blocks, slot_blocks(shape)) : 0)),
        gathered(this->plan.template add<typename layout::value_type>(
            "rows of a part of the classifier",
            use == ordered && !layout::has_source ? checked_multiply(where, entries, base::row_stride(shape)) : 0)) {}

  /// The number of entries of a part that fits into the budget. Without a budget: into 160 MiB beside a band of a
  /// source's rows, or as many as make 32 MiB of gradient. A part of a source's rows is in a band.
  static std::int64_t entries_within(char const* where, linear_loss_shape const& shape, loss_entry_use use,
                                     kept_entries of_kept, std::int64_t budget) {
    thread_local remembered_search last;
    return last.get({shape, of_kept, budget, use}, [&] { return search_entries(where, shape, use, of_kept, budget); });
  }

  static std::int64_t search_entries(char const* where, linear_loss_shape const& shape, loss_entry_use use,
                                     kept_entries of_kept, std::int64_t budget) {
    constexpr std::int64_t usual_budget = std::int64_t{160} << 20;
    constexpr std::int64_t least_gradient = std::int64_t{32} << 20;
    std::int64_t const all_tiles = divide_up(shape.vocabulary, tile_columns);
    std::int64_t const band =
        layout::has_source ? loss_band_entries(shape.vocabulary, base::row_bytes(shape), budget) : 0;
    std::int64_t const tiles = layout::has_source ? min(all_tiles, band / tile_columns) : all_tiles;
    auto const bytes = [&](std::int64_t count) {
      return loss_gradient_regions(where, {shape, of_kept, budget, use}, workspace_plan::record::sizes,
                                   count * tile_columns)
          .plan.bytes();
    };
    if (of_kept.count > 0 && of_kept.count == shape.vocabulary) {
      return entries_within(where, shape, loss_entry_use::all, 0,
                            0);  // of programs that make logits again all the same
    }
    std::int64_t const most = budget == 0 ? usual_budget + band * base::row_bytes(shape) : budget;
    std::int64_t const least = min(bytes(1), bytes(tiles));
    check<value_error>(budget == 0 || least <= budget, where, ": the workspace needs at least ", least,
                       " bytes but the budget is ", budget);
    if (bytes(tiles) <= most) {
      return tiles * tile_columns;
    }
    std::int64_t fitting =
        largest_within({1, tiles}, most, bytes);  // with several parts, bytes grow with their entries
    if (budget == 0) {
      std::int64_t const tile_bytes = max(shape.tokens, std::int64_t{1}) * tile_columns *
                                      static_cast<std::int64_t>(sizeof(typename layout::value_type));
      fitting = min(max(fitting, least_gradient / tile_bytes), tiles);
    }
    return loss_part_costs::of_two_launches().cheapest_entries({shape.tokens, shape.channels, fitting * tile_columns},
                                                               tile_columns);
  }

  static std::int64_t search_kept(char const* where, linear_loss_shape const& shape, std::int64_t budget,
                                  bool in_signs) {
    constexpr std::int64_t step = 768;  // whole tiles of 128, 192 and 256
    auto const bytes = [&](std::int64_t count, std::int64_t entry_count) {
      return loss_gradient_regions(where, {shape, {count, in_signs}, budget, loss_entry_use::all},
                                   workspace_plan::record::sizes, entry_count)
          .plan.bytes();
    };
    std::int64_t const usual = entries_within(where, shape, loss_entry_use::all, 0, 0);
    if (bytes(shape.vocabulary, usual) <= budget) {
      return shape.vocabulary;
    }
    std::int64_t const most = (shape.vocabulary - 1) / step;
    if (most == 0 || bytes(step, usual) > budget) {
      return 0;
    }
    return step * largest_within({1, most + 1}, budget, [&](std::int64_t count) { return bytes(count * step, usual); });
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
