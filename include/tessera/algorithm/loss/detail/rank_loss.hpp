// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `rank_loss`: a rank's part of a loss whose classifier is spread over ranks, for labels or targets of several
/// entries: its own loss, what it tells the others, what they make of that together, and its own gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/loss/detail/check_ranks.hpp>
#include <tessera/algorithm/loss/hidden_progress.hpp>
#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/status_calls.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/program/loss/detail/chosen_logits.hpp>
#include <tessera/program/loss/detail/element_of.hpp>
#include <tessera/program/loss/detail/rank_rows.hpp>
#include <tessera/program/loss/detail/rank_targets.hpp>
#include <tessera/program/loss/detail/target_gradients.hpp>
#include <tessera/program/loss/finish_loss.hpp>
#include <tessera/program/loss/gradient_products.hpp>
#include <tessera/program/loss/stamp.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// The workspace of a rank_loss: what ranks share, then the rank's own loss. Target: what a rank tells of targets.
template <class State, class Target>
struct rank_loss_regions {
  workspace_plan plan;
  region<std::uint64_t> stamp;
  region<std::int64_t> order;
  region<std::int64_t> row_of;
  region<std::int32_t> labels;
  region<std::int64_t> count;
  region<std::int32_t> is_marked;
  region<float> poison;
  region<std::int32_t> own_labels;
  region<float> own_loss;
  region<float> log_probability;
  region<rank_row<State, Target>> row;
  region<rank_row<State, Target>> all_rows;
  region<State> states;
  region<Target> targets;
  region<float> row_lse;
  region<float> row_entropy;
  region<loss_sums> sums;
  region<float> scale;
  region<float> verdict;
  region<float> by_loss;
  region<float> by_log_sum_exp;
  region<float> by_target;
  region<std::int32_t> entries;
  region<float> logits;
  region<std::byte> own;

  /// `places`: those of rank_target_rows, or 0.
  rank_loss_regions(char const* where, std::int64_t ranks, std::int64_t tokens, std::int64_t places,
                    std::int64_t own_bytes, workspace_plan::record record)
      : plan(where, record),
        stamp(plan.add<std::uint64_t>("what the forward pass was", loss_stamp::size)),
        order(plan.add<std::int64_t>("tokens with a label", tokens)),
        row_of(plan.add<std::int64_t>("rows of tokens", tokens)),
        labels(plan.add<std::int32_t>("their labels", tokens)),
        count(plan.add<std::int64_t>("how many they are", 1)),
        is_marked(plan.add<std::int32_t>("whether there are marks", 1)),
        poison(plan.add<float>("bad labels", 1)),
        own_labels(plan.add<std::int32_t>("labels among the rank's own entries", tokens)),
        own_loss(plan.add<float>("losses of the rank's own entries", tokens)),
        log_probability(plan.add<float>("log-probabilities among them", tokens)),
        row(plan.add<rank_row<State, Target>>("rows of the rank", checked_add(where, tokens, rank_call::rows))),
        all_rows(plan.add<rank_row<State, Target>>("rows of all ranks", checked_multiply(where, ranks, row.count))),
        states(plan.add<State>("states of all ranks", checked_multiply(where, ranks, tokens))),
        targets(plan.add<Target>("logits of labels", tokens)),
        row_lse(plan.add<float>("log-sum-exps", tokens)),
        row_entropy(plan.add<float>("entropies", tokens)),
        sums(plan.add<loss_sums>("sums over tokens", divide_up(tokens, std::int64_t{256}))),
        scale(plan.add<float>("scale of gradients", 1)),
        verdict(plan.add<float>("whether the stamp is right", 1)),
        by_loss(plan.add<float>("upstream gradients of own losses", tokens)),
        by_log_sum_exp(plan.add<float>("upstream gradients of log-sum-exps", tokens)),
        by_target(plan.add<float>("factors of labels", places > 0 ? tokens : 0)),
        entries(
            plan.add<std::int32_t>("targets among the rank's own entries", checked_multiply(where, tokens, places))),
        logits(plan.add<float>("their logits", checked_multiply(where, tokens, places))),
        own(plan.add<std::byte>("the rank's own loss", own_bytes)) {}

  loss_token_list token_list(workspace const& space) const {
    return {space[order], space[row_of], space[labels], space[count]};
  }
};

/// What a rank's gradients want beside labels.
struct rank_wants {
  matrix_view<float const> weights = {};   ///< of targets, tokens x K; null: ones
  array_view<float const> by_target = {};  ///< of prepare_target_gradients; null: labels are the targets
};

/// Loss: a linear_loss whose Reducer has a log-sum-exp. Target: float where targets are labels, double where they are
/// entries with weights.
template <class Loss, class Target>
struct rank_loss;

template <class Tile, LogitReducer Statistics, class Filter, LogitMap Map, class Target>
struct rank_loss<linear_loss<Tile, Statistics, Filter, Map>, Target> {
  static_assert(std::is_same_v<Statistics, loss_reducer<Statistics>>,
                "tessera: ranks merge states that have a log-sum-exp: paired_reducer<lse_reducer<float>, R>");
  using own_loss = linear_loss<Tile, Statistics, Filter, Map>;
  using value_type = typename own_loss::value_type;
  template <class Label>
  using inputs = typename own_loss::template inputs<Label>;
  using classifier_type = typename own_loss::layout::classifier_type;
  using state_type = typename Statistics::state_type;
  using row_type = rank_row<state_type, Target>;
  using regions = rank_loss_regions<state_type, Target>;
  using arguments = linear_loss_arguments<value_type, Statistics>;
  static constexpr bool has_entries = std::is_same_v<Target, double>;  ///< whether targets are entries with weights
  static constexpr char const* where = "vocabulary_parallel.forward";
  static constexpr char const* back = "vocabulary_parallel.backward";

  /// Places of rank_target_rows for labels: some where they are smoothed.
  static std::int64_t places_of(linear_loss_options const& options) {
    return options.smoothing != 0.0F ? localize_label_targets::places : 0;
  }

  template <Executor Exec>
  static workspace_plan plan_forward(Exec const& exec, std::int64_t ranks, linear_loss_shape const& shape,
                                     linear_loss_options const& options, std::int64_t places) {
    check_shape(where, ranks, shape, options);
    linear_loss_options const own = own_options(options, options.smoothing);
    std::int64_t const bytes = shape.vocabulary == 0 ? 0 : own_loss::plan_forward(exec, shape, own).bytes();
    return regions(where, ranks, shape.tokens, places, bytes, workspace_plan::record::entries).plan;
  }
  template <class Gradient, Executor Exec>
  static workspace_plan plan_backward(Exec const& exec, std::int64_t ranks, linear_loss_shape const& shape,
                                      linear_loss_options const& options, std::int64_t places) {
    check_shape(back, ranks, shape, options);
    linear_loss_options const own = own_options(options, options.smoothing);
    std::int64_t const bytes =
        shape.vocabulary == 0 ? 0 : own_loss::template plan_backward<Gradient>(exec, shape, own).bytes();
    return regions(back, ranks, shape.tokens, places, bytes, workspace_plan::record::entries).plan;
  }

  /// The regions of a workspace, of which the rank's own loss has all that is left.
  static regions regions_in(char const* function, std::int64_t ranks, std::int64_t tokens, std::int64_t places,
                            workspace const& space) {
    std::int64_t const before = regions(function, ranks, tokens, places, 0, workspace_plan::record::sizes).plan.bytes();
    space.check_room(function, before, ranks, " ranks with ", tokens, " tokens");
    return regions(function, ranks, tokens, places, space.bytes() - before, workspace_plan::record::sizes);
  }

  /// Enqueues the listing of tokens with a label.
  template <class Exec, class Label>
  static void select(Exec const& exec, inputs<Label> const& in, vocabulary_part const& part,
                     linear_loss_options const& options, loss_token_outputs const& outputs, regions const& at,
                     workspace const& space) {
    std::int64_t const sequence = max(options.sequence == 0 ? in.hidden.extent(0) : options.sequence, std::int64_t{1});
    exec.run(select_loss_tokens<Label>{in.labels,
                                       {options.ignore_index, options.shift, sequence, part.vocabulary},
                                       at.token_list(space),
                                       outputs,
                                       space[at.poison],
                                       status_of(exec, {where, "token"})},
             1);
    localize_labels const localize{at.token_list(space), entries_of(in, part), space[at.own_labels]};
    exec.run(localize, localize.groups());
  }

  /// Enqueues the rank's own loss, after select(), and the exchange of what ranks tell. `told`: rank_label_logit, or
  /// rank_entry_logits.
  template <class Exec, class Ranks, class Label, class Told>
  static void exchange(Exec const& exec, Ranks& ranks, inputs<Label> const& in, vocabulary_part const& part,
                       linear_loss_options const& options, Told const& told, regions const& at,
                       workspace const& space) {
    rank_entries const entries = entries_of(in, part);
    if (entries.count > 0) {
      linear_loss_outputs own;
      own.loss = space[at.own_loss];
      own.log_probability = space[at.log_probability];
      own_loss::forward(exec, own_inputs(in, at, space), own_options(options, smoothing_of(options, entries, part).own),
                        own, own_space(at, space), keep_rank_states<state_type, Target>{space[at.row]});
    }
    static_assert(rank_call::rows * sizeof(row_type) >= sizeof(rank_call) && sizeof(row_type) % 4 == 0);
    std::int64_t const tokens = in.hidden.extent(0);
    constexpr auto words = static_cast<std::int64_t>(rank_call::rows * sizeof(row_type) / 4);
    row_type* const own = space[at.row].data;
    complete_rank_rows<Statistics, Told> const complete{at.token_list(space),
                                                        entries,
                                                        told,
                                                        {own, tokens},
                                                        call_of(in, part, options),
                                                        {reinterpret_cast<std::uint32_t*>(own + tokens), words}};
    exec.run(complete, complete.groups());
    ranks.all_gather(exec, array_view<row_type const>(space[at.row]), space[at.all_rows]);
    std::int64_t const pitch = at.row.count;
    row_type const* const all = space[at.all_rows].data;
    rank_calls const calls{{reinterpret_cast<std::uint32_t const*>(all + tokens),
                            {ranks.size(), words},
                            {pitch * static_cast<std::int64_t>(sizeof(row_type) / 4), 1}},
                           space[at.poison],
                           status_of(exec, {where, "rank"})};
    split_rank_rows<state_type, Target> const split{{all, {ranks.size(), tokens}, {pitch, 1}},
                                                    {space[at.states].data, {ranks.size(), tokens}},
                                                    space[at.targets],
                                                    calls};
    exec.run(split, split.groups());
  }

  /// Enqueues what is made of the exchanged rows: the values of tokens, and of all where they are labels.
  template <class Exec, class Label, class Finish>
  static void finish(Exec const& exec, std::int64_t ranks, inputs<Label> const& in, vocabulary_part const& part,
                     linear_loss_options const& options, linear_loss_outputs const& out,
                     loss_token_outputs const& of_tokens, Finish const& finish_row, regions const& at,
                     workspace const& space) {
    linear_loss_shape const shape{in.hidden.extent(0), rows_in(in.classifier), in.hidden.extent(1)};
    matrix_view<state_type const> const states(space[at.states].data, {ranks, shape.tokens});
    array_view<float const> logits = space[at.row_lse];  // of entries: read, and used for nothing
    if constexpr (!has_entries) {
      logits = space[at.targets];
    }
    finish_loss_tokens<Statistics, Statistics, Finish> const finish_tokens{
        at.token_list(space),
        {},
        states,
        logits,
        {in.weights, in.class_weights},
        {options.smoothing, options.z_factor, part.vocabulary},
        of_tokens,
        space[at.row_lse],
        space[at.row_entropy],
        finish_row,
        space[at.sums]};
    exec.run(finish_tokens, finish_tokens.groups());
    bool const is_reduced = options.reduction != loss_reduction::none;
    loss_total_outputs const totals{is_reduced ? out.loss : array_view<float>{}, out.accuracy, out.labelled_count};
    exec.run(finish_loss{space[at.sums], space[at.count], space[at.poison], options.reduction == loss_reduction::mean,
                         totals, space[at.scale]},
             1);
    rank_entries const entries = entries_of(in, part);
    if (entries.count > 0) {
      own_loss::replace_softmaxes(exec, shape, own_options(options, smoothing_of(options, entries, part).own),
                                  space[at.row_lse], space[at.row_entropy], own_space(at, space));
    }
    exec.run(
        stamp_loss<value_type, Label, classifier_type>{stamp_of(shape, part, options), samples_of(in), space[at.stamp]},
        1);
  }

  /// Enqueues the gradients of the rank's own entries, without any exchange: that of hidden states is the rank's part
  /// of a sum over ranks.
  template <class Exec, class Label, class Gradient>
  static void backward(Exec const& exec, inputs<Label> const& in, vocabulary_part const& part,
                       linear_loss_options const& options, loss_upstream const& upstream,
                       linear_loss_gradients<Gradient> const& out, rank_wants const& wants, std::int64_t places,
                       regions const& at, workspace const& space, hidden_progress const& progress) {
    linear_loss_shape const shape{in.hidden.extent(0), rows_in(in.classifier), in.hidden.extent(1)};
    loss_token_list const tokens = at.token_list(space);
    check_loss_stamp<value_type, Label, classifier_type> const check_stamp{
        stamp_of(shape, part, options),
        samples_of(in),
        {space[at.stamp], tokens, space[at.is_marked], {}},
        space[at.verdict],
        status_of(exec, {back})};
    exec.run(check_stamp, 1);
    if (shape.vocabulary == 0) {
      return clear_hidden(exec, out, at, space, progress);
    }
    prepare_rank_gradients const prepare{tokens,
                                         entries_of(in, part),
                                         {in.weights, in.class_weights},
                                         space[at.row_lse],
                                         upstream,
                                         options.z_factor,
                                         options.reduction != loss_reduction::none,
                                         space[at.scale],
                                         space[at.verdict],
                                         places > 0,
                                         places > 0 ? smoothing_of(options, entries_of(in, part), part).kept : 1.0F,
                                         space[at.by_loss],
                                         space[at.by_log_sum_exp],
                                         places > 0 ? space[at.by_target] : array_view<float>{},
                                         reinterpret_cast<std::uint64_t*>(space[at.own].data)};
    exec.run(prepare, prepare.groups());
    if constexpr (has_entries || has_reducer<sum_reducer<float>, Statistics>) {
      if (places > 0) {
        entry_targets<rank_target_rows, Map> const targets{
            targets_of(in, part, options, wants.weights, places, at, space),
            {in.map, logits_of(shape.tokens, places, at, space)},
            wants.by_target.data != nullptr ? wants.by_target : array_view<float const>(space[at.by_target])};
        return run_backward(exec, in, part, options, upstream, out, targets, at, space, progress);
      }
    }
    if constexpr (!has_entries) {
      run_backward(exec, in, part, options, upstream, out, label_targets{}, at, space, progress);
    }
  }

  /// The targets among the rank's own entries. `weights`: of all targets, or null for ones.
  template <class Label>
  static rank_target_rows targets_of(inputs<Label> const& in, vocabulary_part const& part,
                                     linear_loss_options const& options, matrix_view<float const> weights,
                                     std::int64_t places, regions const& at, workspace const& space) {
    rank_entries const own = entries_of(in, part);
    return {{space[at.entries].data, {in.hidden.extent(0), places}},
            weights,
            smoothing_of(options, own, part).kept,
            own.count};
  }
  static matrix_view<float> logits_of(std::int64_t tokens, std::int64_t places, regions const& at,
                                      workspace const& space) {
    return {space[at.logits].data, {tokens, places}};
  }
  /// Enqueues the logits of targets, after these are known.
  template <class Exec, class Label>
  static void write_logits(Exec const& exec, inputs<Label> const& in, linear_loss_options const& options,
                           std::int64_t places, regions const& at, workspace const& space) {
    std::int64_t const tokens = in.hidden.extent(0);
    run_groups(exec, write_chosen_log_probabilities<value_type, std::int32_t, identity_logits, classifier_type>{
                         {in.hidden},
                         in.classifier,
                         {space[at.entries].data, {tokens, places}},
                         {},
                         {},
                         {in.bias, options.softcap, 1.0F / options.temperature},
                         logits_of(tokens, places, at, space),
                         nullptr});
  }

  template <class Exec, class P>
  static void run_groups(Exec const& exec, P const& program) {
    if (program.groups() > 0) {
      exec.run(program, program.groups());
    }
  }
  template <class Label>
  static rank_entries entries_of(inputs<Label> const& in, vocabulary_part const& part) {
    return {part.first, rows_in(in.classifier)};
  }

  /// Tokens that are reduced together beside products: all, where the filter takes entries in an order of its own.
  static std::int64_t chunk_of(linear_loss_options const& options, std::int64_t tokens, std::int64_t row_bytes) {
    float const hidden = options.hidden_threshold < 0 ? Filter::threshold : options.hidden_threshold;
    float const classifier = options.classifier_threshold < 0 ? Filter::threshold : options.classifier_threshold;
    return min(hidden, classifier) > 0 ? max(tokens, std::int64_t{1}) : rank_reduction_chunk(tokens, row_bytes);
  }

 private:
  /// A rank may have no entries, which its own loss would refuse.
  static void check_shape(char const* function, std::int64_t ranks, linear_loss_shape const& shape,
                          linear_loss_options const& options) {
    check_ranks(function, ranks);
    arguments::check_extents(function, shape, 0);
    arguments::check_options(function, shape, options);
  }
  static rank_smoothing smoothing_of(linear_loss_options const& options, rank_entries const& own,
                                     vocabulary_part const& part) {
    return rank_smoothing::of(options.smoothing, own.count, part.vocabulary);
  }
  /// What is left to the rank's own loss: other options work on what the ranks have in common.
  static linear_loss_options own_options(linear_loss_options const& options, float smoothing) {
    linear_loss_options own;
    own.reduction = loss_reduction::none;
    own.ignore_index = localize_labels::none;
    own.softcap = options.softcap;
    own.temperature = options.temperature;
    own.smoothing = smoothing;
    own.hidden_threshold = options.hidden_threshold;
    own.classifier_threshold = options.classifier_threshold;
    own.workspace_budget = options.workspace_budget;
    return own;
  }
  template <class Label>
  static inputs<std::int32_t> own_inputs(inputs<Label> const& in, regions const& at, workspace const& space) {
    inputs<std::int32_t> own{in.hidden, in.classifier, space[at.own_labels], in.bias, {}};
    own.map = in.map;
    return own;
  }
  /// The memory of the rank's own loss, which checks that it is large enough.
  static workspace own_space(regions const& at, workspace const& space) {
    workspace_plan plan(where, workspace_plan::record::sizes);
    plan.add<std::byte>("the rank's own loss", at.own.count);
    return {plan, array_view<std::byte>(space[at.own].data, plan.bytes())};
  }

  template <class Exec, class Label, class Gradient, class Targets>
  static void run_backward(Exec const& exec, inputs<Label> const& in, vocabulary_part const& part,
                           linear_loss_options const& options, loss_upstream const& upstream,
                           linear_loss_gradients<Gradient> const& out, Targets const& targets, regions const& at,
                           workspace const& space, hidden_progress const& progress) {
    own_loss::backward(
        exec, own_inputs(in, at, space), own_options(options, smoothing_of(options, entries_of(in, part), part).own),
        {space[at.by_loss], space[at.by_log_sum_exp], upstream.entropy}, out, own_space(at, space), targets, progress);
  }
  /// Enqueues the gradient of hidden states of a rank without entries: zeros.
  template <class Exec, class Gradient>
  static void clear_hidden(Exec const& exec, linear_loss_gradients<Gradient> const& out, regions const& at,
                           workspace const& space, hidden_progress const& progress) {
    if (out.hidden.data != nullptr) {
      run_groups(exec, clear_unlabelled<Gradient>{{}, space[at.verdict].data, out.hidden, out.accumulate_hidden});
    }
    progress.tell(out.hidden.extent(0));
  }

  template <class Label>
  static loss_input_samples<value_type, Label, classifier_type> samples_of(inputs<Label> const& in) {
    return {in.hidden, in.classifier, in.labels, in.bias, in.weights, in.class_weights};
  }
  /// What all ranks have in common, and how many entries this one has. Thresholds and budgets may differ.
  template <class Label>
  static rank_call call_of(inputs<Label> const& in, vocabulary_part const& part, linear_loss_options const& options) {
    loss_stamp of_options;
    for (std::int64_t const number : {options.ignore_index, options.shift, options.sequence}) {
      of_options.add(loss_stamp::options, number);
    }
    of_options.add(loss_stamp::options, options.softcap, options.temperature);
    of_options.add(loss_stamp::options, options.z_factor, options.smoothing);
    return {{static_cast<std::uint64_t>(part.vocabulary), static_cast<std::uint64_t>(in.hidden.extent(1)),
             static_cast<std::uint64_t>(options.reduction), of_options.words[loss_stamp::options],
             static_cast<std::uint64_t>(rows_in(in.classifier)), static_cast<std::uint64_t>(part.first)}};
  }
  /// The stamp of what the rank's own loss does not stamp itself.
  static loss_stamp stamp_of(linear_loss_shape const& shape, vocabulary_part const& part,
                             linear_loss_options const& options) {
    loss_stamp stamp;
    stamp.set(loss_stamp::tokens, shape.tokens).set(loss_stamp::entries, part.vocabulary);
    stamp.set(loss_stamp::channels, shape.channels);
    stamp.set(loss_stamp::reduction, static_cast<std::int64_t>(options.reduction));
    for (std::int64_t const number : {options.ignore_index, options.shift, options.sequence, part.first}) {
      stamp.add(loss_stamp::options, number);
    }
    return stamp.add(loss_stamp::options, options.z_factor, options.smoothing);
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
