// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `loss_gradient_call`: the half of linear_loss's backward pass that goes through the vocabulary, by portable
/// programs, or faster ones that run() (exec/run.hpp) finds.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/loss/detail/gradients_apart.hpp>
#include <tessera/algorithm/loss/detail/write_bias.hpp>
#include <tessera/algorithm/loss/hidden_progress.hpp>
#include <tessera/algorithm/loss/linear_loss_regions.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/status.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/program/gemm/gemm_tiles.hpp>
#include <tessera/program/loss/detail/convert_entries.hpp>
#include <tessera/program/loss/entry_marks.hpp>
#include <tessera/program/loss/gradient_products.hpp>
#include <tessera/program/loss/logit_gradient.hpp>
#include <tessera/program/loss/logits.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/source/filtered.hpp>
#include <tessera/tile/source/gathered_columns.hpp>
#include <tessera/tuning/loss/linear_loss.hpp>
#include <tessera/tuning/loss/part_costs.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// A call of run() for the gradients, once prepare_loss_gradients has written the factors of rows.
/// Regions: the detail::loss_gradient_regions of a loss and a type of gradients. Targets: label_targets, or
/// detail::entry_targets.
template <class Regions, LogitMap Map = identity_logits, class Targets = label_targets>
struct loss_gradient_call {
  /// The regions of the workspace.
  using regions_type = Regions;
  /// The type that gradients are stored as.
  using gradient_type = typename Regions::gradient_type;
  /// The tile of logits.
  using layout = typename Regions::layout;
  using value_type = typename layout::value_type;
  /// The map that logits go through.
  using map_type = Map;
  /// The program that makes gradients by logits.
  using blocks =
      loss_gradient_tiles<typename Regions::tile, typename Regions::filter, Map, typename Targets::wanted_type>;
  /// What tokens want.
  using targets_type = Targets;
  static constexpr char const* function = "linear_loss.backward";
  /// A multiple of the rows of all tiles of products, in which steps of hidden_progress are counted.
  static constexpr std::int64_t rows_of_steps = 256;

  linear_loss_shape shape;                          ///< extents of the problem
  loss_logits<typename Regions::tile, Map> logits;  ///< how logits are made again
  matrix_view<value_type const> hidden;             ///< tokens x channels
  loss_token_list tokens;                           ///< the tokens with a label
  float smoothing;                                  ///< label smoothing
  bool has_entropies;                               ///< whether tokens have gradients by their entropies
  gradient_thresholds thresholds;                   ///< thresholds of the filter
  linear_loss_gradients<gradient_type> const& out;  ///< where gradients go
  Regions const& regions;                           ///< regions of the workspace
  workspace const& space;                           ///< made by plan_backward()
  status_word* status;                              ///< reports missing kept softmaxes; may be null
  Targets targets = {};                             ///< what tokens want
  hidden_progress progress = {};                    ///< who is told how far the gradient of hidden states is

  /// Whether small parts of gradients may be left out.
  [[nodiscard]] bool leaves_out() const { return thresholds.hidden > 0 || thresholds.classifier > 0; }
  /// The matrix in memory that rows of the classifier are read from: the classifier, or a band of a source's rows.
  [[nodiscard]] matrix_view<value_type const> classifier_in_memory() const {
    if constexpr (layout::has_source) {
      return regions.band_rows(space, shape, regions.band_entries);
    } else {
      return logits.classifier.matrix;
    }
  }
};

namespace detail {

/// Enqueues the making of a part's rows of the classifier, where it is a source. Rows: which entries they are.
template <Executor Exec, class Call, class Rows>
void convert_part(Exec const& exec, Call const& call, Rows const& rows, std::int64_t count) {
  if constexpr (Call::layout::has_source) {
    convert_entries<typename Call::layout::classifier_source, Rows> const convert{
        call.logits.classifier, rows, call.regions.band_rows(call.space, call.shape, count)};
    exec.run(convert, convert.groups());
  }
}

/// Whether a part is the last one.
template <class Call>
bool is_last(Call const& call, loss_gradient_part<typename Call::value_type> const& part) {
  return part.first + part.gradient.extent(1) == call.shape.vocabulary;
}

/// A part's rows of the classifier, after convert_part() with entries in their own order.
template <class Call>
matrix_view<typename Call::value_type const> classifier_of(Call const& call,
                                                           loss_gradient_part<typename Call::value_type> const& part) {
  if constexpr (Call::layout::has_source) {
    return call.regions.band_rows(call.space, call.shape, part.gradient.extent(1));
  } else {
    return rows_of(call.logits.classifier.matrix, part.first, part.gradient.extent(1));
  }
}

/// How a part's logits are made again, after convert_part() with entries in their own order.
template <class Call>
auto logits_of_part(Call const& call, loss_gradient_part<typename Call::value_type> const& part) {
  if constexpr (Call::layout::has_source) {
    return banded_logits(call.logits, classifier_of(call, part), part.first);
  } else {
    return call.logits;
  }
}

/// The lower halves of sums of `count` rows, from `first` on.
template <class Call>
matrix_view<std::uint16_t> remains_from(Call const& call, std::int64_t first, std::int64_t count) {
  auto const all = call.regions.remains_of(call.space, call.shape);
  return Call::regions_type::has_remains ? rows_of(all, first, count) : all;
}

/// Enqueues the product of `count` rows of a part's gradient, from `first` on, with the classifier. Parts are added up
/// one by one, in fp32 and in order.
template <Executor Exec, class Call, class Gradient>
void add_to_hidden(Exec const& exec, Call const& call, loss_gradient_part<typename Call::value_type> const& part,
                   matrix_view<Gradient> target, std::int64_t first, std::int64_t count) {
  using value_type = typename Call::value_type;
  using program = gemm_tiles<typename Call::layout::operand_name, filtered<value_type>, dense<value_type>,
                             accumulate_tokens<Gradient>>;
  constexpr std::int64_t block_rows = Call::blocks::block_rows;
  matrix_view<std::uint8_t> const& kept = part.kept_for_hidden;
  program const product{
      {rows_of(part.gradient, first, count), rows_of(kept, first / block_rows, divide_up(count, block_rows)),
       Call::blocks::block_rows, Call::blocks::block_columns},
      {classifier_of(call, part).transposed()},
      {target, remains_from(call, first, count), array_view<std::int64_t>(&call.tokens.order[first], count),
       call.space[call.regions.late_scale].data, part.first == 0, is_last(call, part), call.out.accumulate_hidden}};
  exec.run(product, product.tiles());
}

/// The same for all rows. In the last part in steps, where somebody is told of them: a row is that of its token or of a
/// later one, so that all tokens before the end of a step are whole.
template <Executor Exec, class Call, class Gradient>
void add_to_hidden(Exec const& exec, Call const& call, loss_gradient_part<typename Call::value_type> const& part,
                   matrix_view<Gradient> target) {
  if (target.data == nullptr || target.is_empty()) {
    return;
  }
  std::int64_t const tokens = call.shape.tokens;
  bool const has_steps = call.progress.is_wanted() && call.progress.step > 0 && is_last(call, part);
  std::int64_t const step =
      has_steps ? divide_up(call.progress.step, Call::rows_of_steps) * Call::rows_of_steps : tokens;
  for (std::int64_t first = 0; first < tokens; first += step) {
    std::int64_t const count = min(step, tokens - first);
    add_to_hidden(exec, call, part, target, first, count);
    if (has_steps) {
      call.progress.tell(first + count);
    }
  }
}

template <Executor Exec, class Call, class Gradient>
void write_classifier(Exec const& exec, Call const& call, loss_gradient_part<typename Call::value_type> const& part,
                      matrix_view<Gradient> target) {
  using value_type = typename Call::value_type;
  using program = gemm_tiles<typename Call::layout::operand_name, filtered<value_type>, gathered_columns<value_type>,
                             write_entries<Gradient>>;
  if (target.data == nullptr || target.is_empty()) {
    return;
  }
  program const product{{part.gradient.transposed(), part.kept_for_classifier.transposed(), Call::blocks::block_columns,
                         Call::blocks::block_rows},
                        {call.hidden, call.tokens.order},
                        {rows_of(target, part.first, part.gradient.extent(1)), call.space[call.regions.late_scale].data,
                         call.out.accumulate_classifier}};
  exec.run(product, product.tiles());
}

/// Enqueues the gradients by rows of the list of tokens, those of the call, before which it has `rows_before`.
template <Executor Exec, class Regions, LogitMap Map, class Targets>
void run_rows(Exec const& exec, loss_gradient_call<Regions, Map, Targets> const& call, std::int64_t rows_before) {
  for (std::int64_t first = call.regions.first_entry; first < call.regions.end_entry; first += call.regions.entries) {
    auto const part = call.regions.part(call.space, call.shape, first);
    convert_part(exec, call, rows_in_order{first}, part.gradient.extent(1));
    auto const logits = logits_of_part(call, part);
    loss_gradient_tiles<tile_with_band<typename Regions::tile>, typename Regions::filter, Map,
                        typename Targets::wanted_type> const tiles{
        logits,
        call.tokens,
        call.space[call.regions.rows],
        call.smoothing,
        call.thresholds,
        part,
        call.targets.wanted(call.space[call.regions.late_scale].data),
        rows_before};
    exec.run(tiles, tiles.groups());
    add_to_hidden(exec, call, part, call.out.hidden);
    write_classifier(exec, call, part, call.out.classifier);
    write_bias(exec, call, part, call.out.bias);
  }
}

/// Enqueues the gradient of hidden states by some rows of the list of tokens, from `first` on.
template <Executor Exec, class Call>
void run_some_rows(Exec const& exec, Call const& call, std::int64_t first, loss_chunk const& chunk) {
  linear_loss_shape const some{chunk.tokens, call.shape.vocabulary, call.shape.channels};
  auto regions = call.regions.narrowed(Call::function, some, chunk.entries);
  check<value_error>(regions.has_value(), Call::function, ": ", chunk.tokens, " tokens and ", chunk.entries,
                     " entries have no room in the workspace");
  regions->rows = {regions->rows.offset + first * static_cast<std::int64_t>(sizeof(loss_row_gradient)), chunk.tokens};
  loss_token_list tokens = call.tokens;
  tokens.order = {&tokens.order[first], chunk.tokens};
  tokens.labels = {&tokens.labels[first], chunk.tokens};
  auto logits = call.logits;
  logits.hidden.order = tokens.order;
  run_rows(exec,
           Call{some, logits, call.hidden, tokens, call.smoothing, call.has_entropies, call.thresholds, call.out,
                *regions, call.space, call.status, call.targets, call.progress.from(first)},
           first);
}

}  // namespace detail

/// Whether an executor takes the vocabulary of a filtered pass in another order, for which it needs memory. An executor
/// that does so has an overload. Blocks: the loss_gradient_tiles of the loss.
template <Executor Exec, class Blocks>
constexpr bool orders_entries(Exec const&, std::type_identity<Blocks>) {
  return false;
}

/// Whether an executor's forward pass can keep softmaxes for its backward pass (program/loss/kept_softmaxes.hpp). An
/// executor that can has an overload.
template <Executor Exec, class Blocks>
constexpr bool keeps_softmaxes(Exec const&, std::type_identity<Blocks>) {
  return false;
}

/// Whether the device's forward pass writes references of kept softmaxes into signs (detail/signed_references.hpp), so
/// that its backward pass alone can use them. An executor whose programs do so has an overload.
template <Executor Exec>
constexpr bool has_references_in_signs(Exec const&) {
  return false;
}

/// Whether there is a program for sm_80 and later for the forward pass of a Tile and a Reducer: operands must not be
/// float, and shared memory must have room for a ring of stages beside the states of rows.
template <class Tile, LogitReducer Statistics>
inline constexpr bool has_ring_loss = !std::is_same_v<typename loss_tile<Tile>::operand_name, float> &&
                                      loss_ring_policy(sizeof(loss_row_memory<Statistics, 1>)).stages > 0;

namespace detail {

/// Enqueues the gradients of a call. Call: a loss_gradient_call.
template <Executor Exec, class Call>
void run_gradients(Exec const& exec, Call const& call) {
  if constexpr (Call::regions_type::has_remains && !Call::layout::has_source) {
    if (call.regions.is_apart) {
      return gradients_apart<Exec, Call>{exec, call}.make_all();
    }
  }
  run(exec, call);
}

/// A number for so many entries whose softmaxes are kept, and for where their references lie.
template <Executor Exec>
std::int64_t kept_form(Exec const& exec, std::int64_t entries) {
  return has_references_in_signs(exec) ? -entries : entries;
}

}  // namespace detail

/// Enqueues the gradients of a loss by the portable programs; run() (exec/run.hpp) may have faster ones.
template <Executor Exec, class Regions, LogitMap Map, class Targets>
void run_portably(Exec const& exec, loss_gradient_call<Regions, Map, Targets> const& call) {
  if (call.out.hidden.data != nullptr) {
    clear_unlabelled<typename Regions::gradient_type> const clear{
        call.tokens.row_of, call.space[call.regions.late_scale].data, call.out.hidden, call.out.accumulate_hidden};
    exec.run(clear, clear.groups());
  }
  if (!call.regions.is_apart) {
    return detail::run_rows(exec, call, 0);
  }
  loss_chunk const chunk = call.regions.hidden_chunk(call.shape);
  for (std::int64_t first = 0; first < call.shape.tokens; first += chunk.tokens) {
    detail::run_some_rows(exec, call, first, {min(chunk.tokens, call.shape.tokens - first), chunk.entries});
  }
}

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/algorithm/loss/linear_loss_gradients.cuh>
#endif
