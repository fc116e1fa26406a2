// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The workspaces of algorithm/loss/linear_loss.hpp: `loss_regions` for a forward pass, `loss_gradient_regions` for
/// both passes. The latter begins with the regions of the forward pass, followed by what that pass can leave for the
/// backward pass (`loss_mark_regions`).
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>

#include <tessera/algorithm/loss/detail/forward_regions.hpp>
#include <tessera/algorithm/loss/detail/largest_within.hpp>
#include <tessera/algorithm/loss/detail/lent_memory.hpp>
#include <tessera/algorithm/loss/detail/remembered_regions.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/loss/detail/part_items.hpp>
#include <tessera/program/loss/entry_order.hpp>
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
  bool is_apart;              ///< whether a workspace has no room for lower halves of all tokens (gradients_apart.hpp)
  std::int64_t most_entries;  ///< for how many entries lists have room, beyond those of a part
  std::int64_t first_entry = 0;  ///< gradients are made from this entry on
  std::int64_t end_entry;        ///< one past the last entry that they are made of
  std::int64_t parts;            ///< the number of parts whose logits are made again
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
  lent_gradient_memory<typename layout::value_type> lent = {};  ///< what is used in place of regions

  /// `use`: whether something may be left out, and the executor takes entries in another order then.
  loss_gradient_regions(char const* where, linear_loss_shape const& shape, linear_loss_options const& options,
                        loss_entry_use use, kept_entries of_kept,
                        workspace_plan::record record = workspace_plan::record::entries)
      : loss_gradient_regions(where, {shape, of_kept, options.workspace_budget, use}, record,
                              parts_within(where, shape, use, of_kept, options.workspace_budget)) {}

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
    typename layout::value_type* const own = space[keeps_all(shape) ? this->softmaxes : gradient].data;
    typename layout::value_type* const data = lent.gradient != nullptr ? lent.gradient : own;
    return part_of(space, first, {data, {shape.tokens, min(entries, end_entry - first)}, {entries, 1}});
  }

  /// What the forward pass of this workspace has left, if there was one.
  loss_leavings leavings(workspace const& space) const {
    return {space[this->stamp], this->token_list(space), space[this->is_marked], space[this->softmax_state]};
  }
  /// The sums of so many columns of a part, at most `entries`.
  matrix_view<float> column_sums_of(workspace const& space, std::int64_t columns) const {
    float* const data = lent.column_sums != nullptr ? lent.column_sums : space[column_sums].data;
    return {data, {row_tiles, columns}, {entries, 1}};
  }
  matrix_view<typename layout::value_type> scaled_hidden_of(workspace const& space,
                                                            linear_loss_shape const& shape) const {
    return {space[scaled_hidden].data, {shape.tokens, shape.channels}, {base::row_stride(shape), 1}};
  }
  matrix_view<std::uint16_t> remains_of(workspace const& space, linear_loss_shape const& shape) const {
    std::uint16_t* const data = lent.remains != nullptr ? lent.remains : space[remains].data;
    return {data, {shape.tokens, shape.channels}, {base::row_stride(shape), 1}};
  }

  /// The same memory for parts of fewer tokens and more entries; nothing where some region is too small for that. Of
  /// a workspace that is apart, lower halves are behind the gradient of a part, unless other memory is lent.
  std::optional<loss_gradient_regions> narrowed(
      char const* where, linear_loss_shape const& some, std::int64_t entry_count,
      lent_gradient_memory<typename layout::value_type> const& other = {}) const {
    loss_gradient_regions const planned(where, {some, 0, 0, loss_entry_use::all}, workspace_plan::record::sizes,
                                        {entry_count, false});
    loss_gradient_regions made = *this;
    made.token_blocks = planned.token_blocks;
    made.entries = planned.entries;
    made.parts = planned.parts;
    made.most_entries = 0;
    made.is_apart = false;
    made.lent = other;
    made.row_blocks = planned.row_blocks;
    made.row_tiles = planned.row_tiles;
    bool fits = !layout::has_source || entry_count <= this->band_entries;
    auto const take = [&](auto member) {
      fits = fits && (planned.*member).count <= (made.*member).count;
      (made.*member).count = (planned.*member).count;
    };
    if (other.gradient == nullptr) {
      constexpr auto size = static_cast<std::int64_t>(sizeof(typename layout::value_type));
      static_assert(tile_columns % 8 == 0, "tessera: lower halves begin at a multiple of 16 bytes, behind whole tiles");
      std::int64_t const end = gradient.offset + gradient.count * size;
      take(&loss_gradient_regions::gradient);
      take(&loss_gradient_regions::column_sums);
      if (is_apart) {
        made.remains = {gradient.offset + made.gradient.count * size, planned.remains.count};
        fits = fits && made.remains.offset + made.remains.count * std::int64_t{sizeof(std::uint16_t)} <= end;
      }
    }
    take(&loss_gradient_regions::kept_for_hidden);
    take(&loss_gradient_regions::kept_for_classifier);
    take(&loss_gradient_regions::factors);
    take(&loss_gradient_regions::unclean);
    take(&loss_gradient_regions::list_counts);
    take(&loss_gradient_regions::lists);
    take(&loss_gradient_regions::tiles);
    take(&loss_gradient_regions::tile_count);
    take(&loss_gradient_regions::counters);
    return fits ? std::optional(made) : std::nullopt;
  }

  /// The entries from `first` to `end` alone, of which the last part may have fewer where the vocabulary ends.
  [[nodiscard]] loss_gradient_regions between(std::int64_t first, std::int64_t end) const {
    loss_gradient_regions made = *this;
    made.first_entry = first;
    made.end_entry = end;
    made.parts = divide_up(end - first, entries);
    made.tile_count.count = made.parts;
    return made;
  }
  /// How a workspace that is apart is used for the gradient of hidden states alone: some tokens after the others.
  [[nodiscard]] loss_chunk hidden_chunk(linear_loss_shape const& shape) const {
    return choose_hidden_chunk({shape.tokens, shape.channels, widest()}, gradient.count, base::row_stride(shape),
                               tile_columns);
  }
  /// How many entries a part has where the classifier's gradient is lent; 0: it is too small for that.
  static std::int64_t lent_entries(linear_loss_shape const& shape) {
    return lent_gradient_entries<typename layout::value_type>(shape, base::row_stride(shape), layout::rows,
                                                              tile_columns);
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
  std::int64_t widest() const { return max(max(entries, this->kept_stride), most_entries); }
  /// For how many entries there are lists where memory is lent: the classifier's gradient, or that of hidden states.
  static std::int64_t most_lent(linear_loss_shape const& shape) {
    std::int64_t const of_hidden = min(shape.channels, shape.vocabulary) / tile_columns * tile_columns;
    return max(lent_entries(shape), of_hidden);
  }
  /// Tiles of 128 entries of all parts, for one panel, of whatever parts are made.
  std::int64_t tiles_of_parts(linear_loss_shape const& shape) const {
    std::int64_t const beyond = tile_columns % 128 != 0 ? divide_up(shape.vocabulary, tile_columns) : 0;
    std::int64_t const all = divide_up(shape.vocabulary, std::int64_t{128}) + beyond + entry_blocks() + 1;
    return is_apart ? max(all, parts * tiles_across()) : parts * tiles_across();
  }
  /// Elements of the gradient of a part: apart, so many tokens have room for lower halves at least.
  static std::int64_t gradient_elements(char const* where, linear_loss_shape const& shape,
                                        loss_part_choice const& choice) {
    constexpr std::int64_t fewest_tokens = 128;
    std::int64_t const least = checked_multiply(where, min(shape.tokens, fewest_tokens),
                                                checked_add(where, tile_columns, base::row_stride(shape)));
    std::int64_t const all = checked_multiply(where, shape.tokens, choice.entries);
    return choice.is_apart ? max(all, least) : all;
  }

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
                        loss_part_choice const& choice)
      : loss_gradient_regions(where, of.shape, record, of.use, of.kept, choice, of.budget) {}

  loss_gradient_regions(char const* where, linear_loss_shape const& shape, workspace_plan::record record,
                        loss_entry_use use, kept_entries of_kept, loss_part_choice const& choice, std::int64_t budget)
      : base(where, shape, use, of_kept, record, budget),
        entries(choice.entries),
        is_apart(choice.is_apart),
        most_entries(choice.is_apart ? most_lent(shape) : 0),
        end_entry(shape.vocabulary),
        parts(divide_up(shape.vocabulary - this->kept, entries)),
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
                          has_remains && !is_apart && parts + (this->kept > 0 ? 1 : 0) > 1
                              ? checked_multiply(where, shape.tokens, base::row_stride(shape))
                              : 0)),
        gradient(this->plan.template add<typename layout::value_type>(
            "gradient of a part of the logits", keeps_all(shape) ? 0 : gradient_elements(where, shape, choice))),
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
            "lists of tiles", checked_multiply(where, hidden_panels(shape), tiles_of_parts(shape)))),
        tile_count(this->plan.template add<std::int32_t>("lengths of the lists of tiles",
                                                         is_apart ? divide_up(shape.vocabulary, tile_columns) : parts)),
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
  static loss_part_choice parts_within(char const* where, linear_loss_shape const& shape, loss_entry_use use,
                                       kept_entries of_kept, std::int64_t budget) {
    thread_local remembered_search last;
    return loss_part_choice::of_number(last.get({shape, of_kept, budget, use}, [&] {
      std::int64_t const apart = search_apart(where, {shape, of_kept, budget, use});
      return apart > 0 ? loss_part_choice{apart, true}.number()
                       : loss_part_choice{search_entries(where, shape, use, of_kept, budget), false}.number();
    }));
  }

  /// How many entries a part has where it takes more than half of the memory to keep lower halves of all tokens'
  /// gradients, or more than there is, so that parts without these are more than twice as large; else 0. Those need
  /// neither marks nor a map, nor softmaxes that are kept, nor bands of a source's rows.
  static std::int64_t search_apart(char const* where, loss_part_search const& of) {
    if (!has_remains || layout::has_source || of.use != loss_entry_use::all || of.kept.count > 0 || of.budget == 0) {
      return 0;
    }
    std::int64_t const tiles = divide_up(of.shape.vocabulary, tile_columns);
    auto const fitting = [&](bool apart) {
      auto const bytes = [&](std::int64_t count) {
        return loss_gradient_regions(where, of, workspace_plan::record::sizes, {count * tile_columns, apart})
            .plan.bytes();
      };
      std::int64_t const found =
          min(bytes(1), bytes(tiles)) <= of.budget ? largest_within({1, tiles}, of.budget, bytes) : 0;
      return bytes(tiles) <= of.budget ? tiles : found;
    };
    std::int64_t const together = fitting(false);
    std::int64_t const apart = together < tiles ? fitting(true) : 0;
    return 2 * together < apart ? apart * tile_columns : 0;
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
                                   {count * tile_columns, false})
          .plan.bytes();
    };
    if (of_kept.count > 0 && of_kept.count == shape.vocabulary) {
      return parts_within(where, shape, loss_entry_use::all, 0, 0)
          .entries;  // of programs that make logits again all the same
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
                                   workspace_plan::record::sizes, {entry_count, false})
          .plan.bytes();
    };
    std::int64_t const usual = parts_within(where, shape, loss_entry_use::all, 0, 0).entries;
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
