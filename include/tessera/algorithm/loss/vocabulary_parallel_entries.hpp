// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `vocabulary_parallel` of what is given entries of the vocabulary: a soft_target_loss, whose targets are entries with
/// weights, and chosen_log_probabilities. Each rank has its own rows of the classifier, and all entries, which are of
/// the whole vocabulary and the same on each rank, as are hidden states, weights and log-sum-exps.
///
///     #include <tessera/algorithm/loss/vocabulary_parallel_entries.hpp>
///     #include <tessera/comm/loopback.hpp>
///     #include <tessera/cut_cross_entropy.hpp>
///
///     using loss = tessera::vocabulary_parallel<tessera::soft_target_loss<tessera::exact_cross_entropy>>;
///     tessera::loopback ranks;                                         // or tessera::nccl of a ncclComm_t
///     auto const plan = loss::plan_backward(exec, ranks.size(), {tokens, own_entries, channels, entries.extent(1)});
///     tessera::buffer<std::byte> memory(exec, plan.bytes());
///     tessera::workspace const space(plan, memory);
///     loss::inputs<std::int32_t> const inputs{hidden, own_rows, entries, entry_weights};
///     loss::forward(exec, ranks, inputs, {first_entry, vocabulary}, {}, {.loss = value, .log_sum_exp = lse}, space);
///     loss::backward(exec, ranks, inputs, {first_entry, vocabulary}, {}, {}, {hidden_gradient, own_gradient}, space);
///
///     using chosen = tessera::vocabulary_parallel<tessera::chosen_log_probabilities<bfloat16>>;
///     auto const plan_of_chosen = chosen::plan_forward(ranks.size(), tokens, entries.extent(1));
///     chosen::inputs<std::int32_t> const of_chosen{hidden, own_rows, entries, lse};
///     chosen::forward(exec, ranks, of_chosen, {first_entry, vocabulary}, {}, log_probabilities,
///                     tessera::workspace(plan_of_chosen, memory));
///
/// All else is that of vocabulary_parallel, of soft_target_loss and of chosen_log_probabilities: options with smoothing
/// and z-loss, outputs, upstream gradients, Reducers, the filter, maps, sources as classifiers and programs. The filter
/// keeps a block more for a token whose heaviest entry another rank has. The likeliest entries of all ranks come from
/// vocabulary_parallel itself, by write_top_entries as its finish.
///
/// Soft targets add 8 bytes for each token to what ranks tell each other, the sum of their own entries' logits times
/// weights, in double and in the order of the ranks. Chosen log-probabilities are exchanged by an all_reduce of fp32,
/// in which all ranks but one have a zero, so that it is exact in any order. Memory beside that of the losses: 8 bytes
/// for each token and entry.
///
/// Errors: as vocabulary_parallel; an entry that is not below the vocabulary is reported on every rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/algorithm/loss/chosen_log_probabilities.hpp>
#include <tessera/algorithm/loss/detail/check_ranks.hpp>
#include <tessera/algorithm/loss/detail/rank_loss.hpp>
#include <tessera/algorithm/loss/detail/reduce_hidden.hpp>
#include <tessera/algorithm/loss/hidden_progress.hpp>
#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/algorithm/loss/soft_target_loss.hpp>
#include <tessera/algorithm/loss/vocabulary_parallel.hpp>
#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/exec/status_calls.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/loss/detail/chosen_logits.hpp>
#include <tessera/program/loss/detail/element_of.hpp>
#include <tessera/program/loss/detail/rank_targets.hpp>
#include <tessera/program/loss/detail/target_gradients.hpp>
#include <tessera/program/loss/detail/target_losses.hpp>
#include <tessera/program/loss/detail/target_rows.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// The loss of soft targets of a classifier that is spread over ranks.
template <class Tile, LogitReducer Statistics, class Filter, LogitMap Map>
struct vocabulary_parallel<soft_target_loss<linear_loss<Tile, Statistics, Filter, Map>>> {
  /// The loss with the whole classifier.
  using whole_loss = soft_target_loss<linear_loss<Tile, Statistics, Filter, Map>>;
  using value_type = typename whole_loss::value_type;
  /// The extents of a problem.
  using shape_type = soft_target_shape;
  /// The inputs of a call, with entries of type Entry.
  template <class Entry>
  using inputs = typename whole_loss::template inputs<Entry>;

  /// The workspace of forward() alone. `shape` has the rank's own part of the vocabulary, which may be nothing.
  template <Executor Exec>
  static workspace_plan plan_forward(Exec const& exec, std::int64_t ranks, soft_target_shape const& shape,
                                     linear_loss_options const& options = {}) {
    whole_loss::check_call(where, shape, options, 0);
    auto const own = part_loss::plan_forward(exec, ranks, whole_loss::own_shape(shape),
                                             whole_loss::label_options(options), shape.entries + 1);
    return regions(where, without_entries(shape), own.bytes(), workspace_plan::record::entries).plan;
  }
  /// The workspace that forward() and then backward() share.
  template <class Gradient = value_type, Executor Exec>
  static workspace_plan plan_backward(Exec const& exec, std::int64_t ranks, soft_target_shape const& shape,
                                      linear_loss_options const& options = {}) {
    whole_loss::check_call(back, shape, options, 0);
    auto const own = part_loss::template plan_backward<Gradient>(exec, ranks, whole_loss::own_shape(shape),
                                                                 whole_loss::label_options(options), shape.entries + 1);
    return regions(back, without_entries(shape), own.bytes(), workspace_plan::record::entries).plan;
  }

  /// Enqueues the loss; all ranks call it.
  template <Executor Exec, Communicator<Exec> Ranks, class Entry = std::int32_t>
  static void forward(Exec const& exec, Ranks& ranks, inputs<Entry> const& in, vocabulary_part const& part,
                      linear_loss_options const& options, linear_loss_outputs const& out, workspace const& space) {
    soft_target_shape const shape = check_call(exec, where, in, part, options, space);
    arguments::check_outputs(whole_loss::own_shape(shape), options, out);
    arguments::check_output_places(exec, out);
    call_memory const at(where, ranks.size(), shape, space);
    bool const is_reduced = options.reduction != loss_reduction::none;
    detail::target_rows<Entry> const targets = whole_loss::targets_of(in, options, part.vocabulary);
    auto const labels = space[at.of_targets.labels];
    auto const masses = space[at.of_targets.masses];
    auto const losses = space[at.of_targets.losses];
    part_loss::run_groups(
        exec, detail::select_targets<Entry>{targets, in.weights, labels, masses, status_of(exec, {where, "entry"})});
    tell(exec, ranks, in, part, options, out, targets, at, space);
    detail::keep_rank_target_losses<reducer, Entry> const keep{
        {targets, {options.smoothing, options.z_factor, part.vocabulary}, losses, out.log_probability},
        at.own_space[at.own.targets]};
    linear_loss_outputs own_out = out;
    own_out.loss = {};
    part_loss::finish(exec, ranks.size(), own_inputs(in, at, space), part, whole_loss::label_options(options), own_out,
                      {{}, out.log_sum_exp, {}, out.entropy, out.prediction}, keep, at.own, at.own_space);
    part_loss::run_groups(exec, detail::sum_target_losses{labels,
                                                          masses,
                                                          losses,
                                                          in.weights,
                                                          {is_reduced ? array_view<float>{} : out.loss, out.log_sum_exp,
                                                           out.log_probability, out.entropy, out.prediction},
                                                          space[at.of_targets.sums]});
    exec.run(detail::finish_target_losses{space[at.of_targets.sums], options.reduction == loss_reduction::mean,
                                          is_reduced ? out.loss : array_view<float>{}, space[at.of_targets.scale]},
             1);
    whole_loss::stamp(exec, in, options, at.of_targets, space, false, part.vocabulary);
  }

  /// The marks that a side queue needs.
  static constexpr int side_marks = 1;

  /// Enqueues the gradients; all ranks call it, after forward() with the same inputs, options and workspace.
  template <Executor Exec, Communicator<Exec> Ranks, class Entry = std::int32_t, class Gradient = value_type>
  static void backward(Exec const& exec, Ranks& ranks, inputs<Entry> const& in, vocabulary_part const& part,
                       linear_loss_options const& options, loss_upstream const& upstream,
                       linear_loss_gradients<Gradient> const& out, workspace const& space) {
    detail::reduce_after(back, exec, ranks, out, in.hidden.extent(1),
                         [&](linear_loss_gradients<Gradient> const& own, hidden_progress const& progress) {
                           own_backward(exec, ranks, in, part, options, upstream, own, space, progress);
                         });
  }

  /// The same, with the reduction on a side queue of the executor: see vocabulary_parallel.hpp.
  template <Executor Exec, Communicator<Exec> Ranks, class Entry = std::int32_t, class Gradient = value_type>
  static void backward(Exec const& exec, side_queue<Exec> const& side, Ranks& ranks, inputs<Entry> const& in,
                       vocabulary_part const& part, linear_loss_options const& options, loss_upstream const& upstream,
                       linear_loss_gradients<Gradient> const& out, workspace const& space,
                       std::int64_t chunk_tokens = 0) {
    detail::reduce_beside(
        back, exec, side, ranks, out, in.hidden.extent(1), chunk_tokens,
        [&](std::int64_t row_bytes) { return part_loss::chunk_of(options, out.hidden.extent(0), row_bytes); },
        [&](linear_loss_gradients<Gradient> const& own, hidden_progress const& progress) {
          own_backward(exec, ranks, in, part, options, upstream, own, space, progress);
        });
  }

  /// Enqueues the gradients of the rank's own entries, without any exchange: that of hidden states is the rank's part
  /// of a sum over ranks. `progress`: see linear_loss.
  template <Executor Exec, class Ranks, class Entry = std::int32_t, class Gradient = value_type>
  static void own_backward(Exec const& exec, Ranks const& ranks, inputs<Entry> const& in, vocabulary_part const& part,
                           linear_loss_options const& options, loss_upstream const& upstream,
                           linear_loss_gradients<Gradient> const& out, workspace const& space,
                           hidden_progress const& progress) {
    soft_target_shape const shape = check_call(exec, back, in, part, options, space);
    arguments::check_gradients(whole_loss::own_shape(shape), options, upstream, out);
    arguments::check_gradient_places(exec, upstream, out);
    call_memory const at(back, ranks.size(), shape, space);
    auto const by_loss = space[at.of_targets.by_loss];
    auto const by_target = space[at.of_targets.by_target];
    part_loss::run_groups(
        exec, detail::prepare_target_gradients{in.weights, upstream.loss, options.reduction != loss_reduction::none,
                                               space[at.of_targets.scale], by_loss, by_target});
    whole_loss::stamp(exec, in, options, at.of_targets, space, true, part.vocabulary);
    part_loss::backward(exec, own_inputs(in, at, space), part, whole_loss::label_options(options),
                        {by_loss, upstream.log_sum_exp, upstream.entropy}, out, {in.entry_weights, by_target},
                        shape.entries + 1, at.own, at.own_space, progress);
  }

 private:
  static constexpr char const* where = "vocabulary_parallel.forward";
  static constexpr char const* back = "vocabulary_parallel.backward";
  using reducer = loss_reducer<Statistics>;
  using part_loss = detail::rank_loss<linear_loss<Tile, reducer, Filter, Map>, double>;
  using arguments = detail::linear_loss_arguments<value_type, reducer>;
  using regions = typename whole_loss::regions;

  /// Logits of entries are among what the part's loss has.
  static soft_target_shape without_entries(soft_target_shape shape) {
    shape.entries = 0;
    return shape;
  }

  /// The memory of a call: what is known of targets, then the rank's part of the loss.
  struct call_memory {
    regions of_targets;
    workspace own_space;
    typename part_loss::regions own;

    call_memory(char const* function, std::int64_t ranks, soft_target_shape const& shape, workspace const& space)
        : of_targets(whole_loss::regions_in(function, without_entries(shape), space)),
          own_space(whole_loss::own_space(of_targets, space)),
          own(part_loss::regions_in(function, ranks, shape.tokens, shape.entries + 1, own_space)) {}
  };

  template <class Entry>
  static typename part_loss::template inputs<std::int32_t> own_inputs(inputs<Entry> const& in, call_memory const& at,
                                                                      workspace const& space) {
    return whole_loss::own_inputs(in, at.of_targets, space);
  }

  /// Enqueues what the rank tells the others of tokens with an entry, and the exchange.
  template <class Exec, class Ranks, class Entry>
  static void tell(Exec const& exec, Ranks& ranks, inputs<Entry> const& in, vocabulary_part const& part,
                   linear_loss_options const& options, linear_loss_outputs const& out,
                   detail::target_rows<Entry> const& targets, call_memory const& at, workspace const& space) {
    auto const of_labels = own_inputs(in, at, space);
    linear_loss_options const own_options = whole_loss::label_options(options);
    std::int64_t const places = targets.count() + 1;
    detail::rank_entries const own = part_loss::entries_of(of_labels, part);
    part_loss::select(exec, of_labels, part, own_options,
                      {{}, out.log_sum_exp, out.log_probability, out.entropy, out.prediction}, at.own, at.own_space);
    auto const rows = part_loss::targets_of(of_labels, part, options, in.entry_weights, places, at.own, at.own_space);
    auto const logits = part_loss::logits_of(in.hidden.extent(0), places, at.own, at.own_space);
    if (own.count > 0) {
      part_loss::run_groups(
          exec, detail::localize_targets<Entry>{targets,
                                                own,
                                                at.own_space[at.own.own_labels],
                                                {at.own_space[at.own.entries].data, {in.hidden.extent(0), places}}});
      part_loss::write_logits(exec, of_labels, options, places, at.own, at.own_space);
    }
    part_loss::exchange(exec, ranks, of_labels, part, own_options,
                        detail::rank_entry_logits<Map>{rows, {in.map, logits}}, at.own, at.own_space);
  }

  /// Throws for arguments that do not fit together, or lie where programs do not read them; returns the extents.
  template <class Exec, class Entry>
  static soft_target_shape check_call(Exec const& exec, char const* function, inputs<Entry> const& in,
                                      vocabulary_part const& part, linear_loss_options const& options,
                                      workspace const& space) {
    detail::check_part(function, detail::rows_in(in.classifier), part);
    return whole_loss::check_inputs(exec, function, in, options, space, 0);
  }
};

/// Log-probabilities of chosen entries of a classifier that is spread over ranks.
template <Scalar T, LogitMap Map, class Classifier>
struct vocabulary_parallel<chosen_log_probabilities<T, Map, Classifier>> {
  /// The call with the whole classifier.
  using whole_call = chosen_log_probabilities<T, Map, Classifier>;
  using value_type = T;
  /// The inputs of a call, with entries of type Entry. A bias and a map have the rank's own entries.
  template <class Entry>
  using inputs = typename whole_call::template inputs<Entry>;

  /// The workspace of forward(), for so many tokens with `entries` entries each.
  static workspace_plan plan_forward(std::int64_t ranks, std::int64_t tokens, std::int64_t entries) {
    detail::check_ranks(where, ranks);
    check<shape_error>(tokens >= 0 && entries >= 0, where, ": there are ", tokens, " tokens with ", entries,
                       " chosen entries each but neither must be negative");
    return regions(tokens, entries, workspace_plan::record::entries).plan;
  }

  /// Enqueues the log-probabilities, tokens x K, in nats, of which all ranks get the same bits; all ranks call it.
  template <Executor Exec, Communicator<Exec> Ranks, class Entry = std::int32_t>
  static void forward(Exec const& exec, Ranks& ranks, inputs<Entry> const& in, vocabulary_part const& part,
                      linear_loss_options const& options, matrix_view<float> log_probabilities,
                      workspace const& space) {
    std::int64_t const own = detail::rows_in(in.classifier);
    detail::check_part(where, own, part);
    whole_call::check_call(exec, where, in, options, log_probabilities, 0);
    check_reach(exec, where, "bytes of the workspace", space);
    std::int64_t const tokens = in.entries.extent(0);
    std::int64_t const count = in.entries.extent(1);
    regions const at(tokens, count, workspace_plan::record::sizes);
    space.check_room(where, at.plan.bytes(), tokens, " tokens with ", count, " chosen entries each");
    if (tokens == 0 || count == 0) {
      return;
    }
    matrix_view<std::int32_t> const local(space[at.entries].data, {tokens, count});
    matrix_view<float> const logits(space[at.logits].data, {tokens, count});
    detail::localize_chosen<Entry> const localize{in.entries, {part.first, own}, local};
    exec.run(localize, localize.groups());
    detail::write_chosen_log_probabilities<T, std::int32_t, Map, Classifier> const write{
        {in.hidden}, in.classifier, local, {}, in.map, {in.bias, options.softcap, 1.0F / options.temperature},
        logits,      nullptr};
    exec.run(write, write.groups());
    array_view<float> const all = space[at.logits];
    ranks.all_reduce(exec, array_view<float const>(all), rank_reduction::sum, all);
    detail::finish_chosen<Entry> const finish{in.entries,        logits,
                                              in.log_sum_exp,    part.vocabulary,
                                              log_probabilities, status_of(exec, {where, "chosen entry"})};
    exec.run(finish, finish.groups());
  }

 private:
  static constexpr char const* where = "vocabulary_parallel.forward";

  struct regions {
    workspace_plan plan;
    region<std::int32_t> entries;
    region<float> logits;

    regions(std::int64_t tokens, std::int64_t count, workspace_plan::record record)
        : plan(where, record),
          entries(plan.add<std::int32_t>("entries of the rank", checked_multiply(where, tokens, count))),
          logits(plan.add<float>("logits of entries", checked_multiply(where, tokens, count))) {}
  };
};

}  // namespace v0
}  // namespace tessera
