// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `vocabulary_parallel`: the loss of a linear classifier whose rows are spread over ranks, as where a model outgrows a
/// GPU. Each rank has all hidden states and its own rows of the classifier, and gets the same loss, its own rows of the
/// classifier's gradient, and the whole gradient of the hidden states.
///
///     #include <tessera/algorithm/loss/vocabulary_parallel.hpp>
///     #include <tessera/comm/loopback.hpp>
///     #include <tessera/cut_cross_entropy.hpp>
///
///     using loss = tessera::vocabulary_parallel<tessera::exact_cross_entropy>;
///     tessera::loopback ranks;                                   // or tessera::nccl of a ncclComm_t
///     auto const plan = loss::plan_backward(exec, ranks.size(), {tokens, own_entries, channels});
///     tessera::buffer<std::byte> memory(exec, plan.bytes());
///     tessera::workspace const space(plan, memory);
///     loss::inputs<std::int64_t> const inputs{hidden, own_rows, labels};        // labels of the whole vocabulary
///     loss::forward(exec, ranks, inputs, {first_entry, vocabulary}, {}, {value}, space);
///     tessera::side_queue const side(exec, loss::side_marks, true);    // for the reduction; without, it is in the end
///     linear_loss_gradients<bfloat16> const gradients{hidden_gradient, own_gradient};
///     loss::backward(exec, side, ranks, inputs, {first_entry, vocabulary}, {}, {}, gradients, space);
///     exec.wait();
///
/// The programs are those of the loss that it is given: each rank runs that loss over its own entries, with the same
/// programs on the same architectures. The forward pass ends with one all_gather of a state of the Reducer and the
/// label's logit for each token, merged in the order of the ranks, so that all ranks get the same bits. The backward
/// pass adds up the ranks' gradients of hidden states by all_reduce, in their own type. `backward()` of 16-bit
/// gradients thus rounds each rank's part and adds the rounded ones; ask for float gradients where that is too coarse.
///
/// With a side queue the reduction goes on beside products, chunk by chunk of tokens. The last part's products are cut
/// for that where it pays: those of hidden states come first, others of the classifier beside the reduction, to which
/// they leave 24 multiprocessors, or as many as the executor's options say (hidden_progress.hpp). Chunks are the same
/// on all ranks: a quarter of the tokens, at least 4 MiB of gradient, or as many as `chunk_tokens` says. With a filter
/// all tokens are one, since the last part with a gradient is known to the device alone where it takes entries in order
/// of their use. Parts of the vocabulary may come in another order than without a side queue. Where hidden states are
/// spread over the ranks, too: sequence_parallel.hpp.
///
/// Options are those of linear_loss, but labels are not smoothed. Weights of tokens and of classes, outputs and
/// upstream gradients are of all tokens and of the whole vocabulary, and the same on each rank, as are the hidden
/// states. A bias, a LogitMap and a RowFinish's states have a rank's own entries, counted from its first one, but for
/// those of arg_max_reducer and largest_entries_reducer, which are entries of the vocabulary. A filter leaves out what
/// it would for one rank, or less. The hidden states' gradient is contiguous. Where it accumulates, the ranks' old
/// gradients are the same.
///
/// Memory: that of the loss over the rank's entries, and for each token (1 + 2 * ranks) states and a few words.
/// Traffic: ranks * tokens * (sizeof(state) + 4) bytes, and the hidden states' gradient. Errors: as linear_loss, with
/// names of vocabulary_parallel where ranks are concerned; one rank that throws leaves the others to its Communicator.
/// Calls neither wait for a stream nor allocate, as far as the Communicator does not. Results are the same bits each
/// time if the Communicator's reductions are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>

#include <tessera/algorithm/loss/hidden_progress.hpp>
#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/exec/status_calls.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/loss/detail/element_of.hpp>
#include <tessera/program/loss/detail/rank_rows.hpp>
#include <tessera/program/loss/finish_loss.hpp>
#include <tessera/program/loss/stamp.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/reduce/row_finish.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Which entries of the vocabulary a rank's rows of the classifier are.
struct vocabulary_part {
  std::int64_t first;       ///< the entry that is the rank's first row
  std::int64_t vocabulary;  ///< entries of all ranks
};

namespace detail {

/// The workspace of a vocabulary_parallel: what ranks share, then the rank's own loss.
template <class State>
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
  region<rank_row<State>> row;
  region<rank_row<State>> all_rows;
  region<State> states;
  region<float> targets;
  region<float> row_lse;
  region<float> row_entropy;
  region<loss_sums> sums;
  region<float> scale;
  region<float> verdict;
  region<float> by_loss;
  region<float> by_log_sum_exp;
  region<std::byte> own;

  rank_loss_regions(char const* where, std::int64_t ranks, std::int64_t tokens, std::int64_t own_bytes,
                    workspace_plan::record record)
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
        row(plan.add<rank_row<State>>("rows of the rank", tokens)),
        all_rows(plan.add<rank_row<State>>("rows of all ranks", checked_multiply(where, ranks, tokens))),
        states(plan.add<State>("states of all ranks", checked_multiply(where, ranks, tokens))),
        targets(plan.add<float>("logits of labels", tokens)),
        row_lse(plan.add<float>("log-sum-exps", tokens)),
        row_entropy(plan.add<float>("entropies", tokens)),
        sums(plan.add<loss_sums>("sums over tokens", divide_up(tokens, std::int64_t{256}))),
        scale(plan.add<float>("scale of gradients", 1)),
        verdict(plan.add<float>("whether the stamp is right", 1)),
        by_loss(plan.add<float>("upstream gradients of own losses", tokens)),
        by_log_sum_exp(plan.add<float>("upstream gradients of log-sum-exps", tokens)),
        own(plan.add<std::byte>("the rank's own loss", own_bytes)) {}

  loss_token_list token_list(workspace const& space) const {
    return {space[order], space[row_of], space[labels], space[count]};
  }
};

}  // namespace detail

/// Loss: a linear_loss whose Reducer has a log-sum-exp.
template <class Loss>
struct vocabulary_parallel;

/// The loss of a linear_loss whose classifier is spread over ranks.
template <class Tile, LogitReducer Statistics, class Filter, LogitMap Map>
struct vocabulary_parallel<linear_loss<Tile, Statistics, Filter, Map>> {
  static_assert(std::is_same_v<Statistics, loss_reducer<Statistics>>,
                "tessera: ranks merge states that have a log-sum-exp: paired_reducer<lse_reducer<float>, R>");
  /// The loss that each rank runs over its own entries.
  using own_loss = linear_loss<Tile, Statistics, Filter, Map>;
  using value_type = typename own_loss::value_type;
  /// The inputs of a call, with labels of type Label.
  template <class Label>
  using inputs = typename own_loss::template inputs<Label>;

  /// The workspace of forward() alone. `shape` has the rank's own entries.
  template <Executor Exec>
  static workspace_plan plan_forward(Exec const& exec, std::int64_t ranks, linear_loss_shape const& shape,
                                     linear_loss_options const& options = {}) {
    check_ranks(where, ranks);
    return regions(where, ranks, shape.tokens, own_loss::plan_forward(exec, shape, own_options(options)).bytes(),
                   workspace_plan::record::entries)
        .plan;
  }
  /// The workspace that forward() and then backward() share.
  template <class Gradient = value_type, Executor Exec>
  static workspace_plan plan_backward(Exec const& exec, std::int64_t ranks, linear_loss_shape const& shape,
                                      linear_loss_options const& options = {}) {
    check_ranks(back, ranks);
    return regions(back, ranks, shape.tokens,
                   own_loss::template plan_backward<Gradient>(exec, shape, own_options(options)).bytes(),
                   workspace_plan::record::entries)
        .plan;
  }

  /// Enqueues the loss; all ranks call it. `finish` is called as linear_loss::forward() does, with merged states.
  template <Executor Exec, Communicator<Exec> Ranks, class Label = std::int64_t,
            RowFinish<typename Statistics::state_type> Finish = keep_no_state>
  static void forward(Exec const& exec, Ranks& ranks, inputs<Label> const& in, vocabulary_part const& part,
                      linear_loss_options const& options, linear_loss_outputs const& out, workspace const& space,
                      Finish const& finish = {}) {
    linear_loss_shape const shape = check_call(exec, where, in, part, options, space);
    arguments::check_outputs(shape, options, out);
    arguments::check_output_places(exec, out);
    check_finish(where, shape.tokens, finish);
    check_reach_of(exec, where, finish);
    regions const at = regions_in(where, ranks.size(), shape, space);
    loss_token_list const tokens = at.token_list(space);
    bool const is_reduced = options.reduction != loss_reduction::none;
    loss_token_outputs const of_tokens{is_reduced ? array_view<float>{} : out.loss, out.log_sum_exp,
                                       out.log_probability, out.entropy, out.prediction};
    std::int64_t const sequence = max(options.sequence == 0 ? shape.tokens : options.sequence, std::int64_t{1});
    exec.run(select_loss_tokens<Label>{in.labels,
                                       {options.ignore_index, options.shift, sequence, part.vocabulary},
                                       tokens,
                                       of_tokens,
                                       space[at.poison],
                                       status_of(exec, {where, "token"})},
             1);
    tell_rows(exec, in, part, options, at, space);
    ranks.all_gather(exec, array_view<row_type const>(space[at.row]), space[at.all_rows]);
    finish_rows(exec, ranks.size(), in, part, options, out, of_tokens, finish, at, space);
    own_loss::replace_softmaxes(exec, shape, own_options(options), space[at.row_lse], space[at.row_entropy],
                                own_space(at, space));
    exec.run(
        stamp_loss<value_type, Label, classifier_type>{stamp_of(shape, part, options), samples_of(in), space[at.stamp]},
        1);
  }

  /// The marks that a side queue needs.
  static constexpr int side_marks = 1;

  /// Enqueues the gradients; all ranks call it, after forward() with the same inputs, options and workspace.
  template <Executor Exec, Communicator<Exec> Ranks, class Label = std::int64_t, class Gradient = value_type>
  static void backward(Exec const& exec, Ranks& ranks, inputs<Label> const& in, vocabulary_part const& part,
                       linear_loss_options const& options, loss_upstream const& upstream,
                       linear_loss_gradients<Gradient> const& out, workspace const& space) {
    check_hidden(out, in);
    own_backward(exec, ranks, in, part, options, upstream, once(ranks, out), space, {});
    if (out.hidden.data != nullptr) {
      array_view<Gradient> const hidden(out.hidden.data, out.hidden.size());
      ranks.all_reduce(exec, array_view<Gradient const>(hidden), rank_reduction::sum, hidden);
    }
  }

  /// The same, with the reduction on a side queue of the executor. `chunk_tokens`: tokens that are reduced together,
  /// the same number on all ranks; 0: see above.
  template <Executor Exec, Communicator<Exec> Ranks, class Label = std::int64_t, class Gradient = value_type>
  static void backward(Exec const& exec, side_queue<Exec> const& side, Ranks& ranks, inputs<Label> const& in,
                       vocabulary_part const& part, linear_loss_options const& options, loss_upstream const& upstream,
                       linear_loss_gradients<Gradient> const& out, workspace const& space,
                       std::int64_t chunk_tokens = 0) {
    detail::check_side(back, exec, side);
    check<value_error>(chunk_tokens >= 0, back, ": chunk_tokens is ", chunk_tokens, " but must not be negative");
    check_hidden(out, in);
    if (out.hidden.data == nullptr) {
      own_backward(exec, ranks, in, part, options, upstream, once(ranks, out), space, {});
      return;
    }
    std::int64_t const channels = out.hidden.extent(1);
    std::int64_t const step = chunk_tokens > 0 ? chunk_tokens
                                               : chunk_of(options, out.hidden.extent(0),
                                                          channels * static_cast<std::int64_t>(sizeof(Gradient)));
    std::int64_t reduced = 0;
    auto const reduce = [&](std::int64_t tokens) {
      while (reduced < tokens && (tokens - reduced >= step || tokens == out.hidden.extent(0))) {
        std::int64_t const count = min(step, tokens - reduced);
        array_view<Gradient> const some(out.hidden.data + reduced * channels, count * channels);
        side.follow();
        ranks.all_reduce(side.executor(), array_view<Gradient const>(some), rank_reduction::sum, some);
        reduced += count;
      }
    };
    std::function<void(std::int64_t)> const told = std::ref(reduce);
    detail::joining(side, [&] {
      own_backward(exec, ranks, in, part, options, upstream, once(ranks, out), space,
                   {&told, step, detail::spared_by(exec, rank_reduction_multiprocessors)});
    });
    side.mark(0);
    side.join(0);
  }

  /// Enqueues the gradients of the rank's own entries, without any exchange: that of hidden states is the rank's part
  /// of a sum over ranks. `progress`: see linear_loss.
  template <Executor Exec, class Ranks, class Label = std::int64_t, class Gradient = value_type>
  static void own_backward(Exec const& exec, Ranks const& ranks, inputs<Label> const& in, vocabulary_part const& part,
                           linear_loss_options const& options, loss_upstream const& upstream,
                           linear_loss_gradients<Gradient> const& out, workspace const& space,
                           hidden_progress const& progress) {
    linear_loss_shape const shape = check_call(exec, back, in, part, options, space);
    arguments::check_gradients(shape, options, upstream, out);
    arguments::check_gradient_places(exec, upstream, out);
    regions const at = regions_in(back, ranks.size(), shape, space);
    loss_token_list const tokens = at.token_list(space);
    check_loss_stamp<value_type, Label, classifier_type> const check_stamp{
        stamp_of(shape, part, options),
        samples_of(in),
        {space[at.stamp], tokens, space[at.is_marked], {}},
        space[at.verdict],
        status_of(exec, {back})};
    exec.run(check_stamp, 1);
    detail::prepare_rank_gradients const prepare{tokens,
                                                 entries_of(in, part),
                                                 {in.weights, in.class_weights},
                                                 space[at.row_lse],
                                                 upstream,
                                                 options.z_factor,
                                                 options.reduction != loss_reduction::none,
                                                 space[at.scale],
                                                 space[at.verdict],
                                                 space[at.by_loss],
                                                 space[at.by_log_sum_exp],
                                                 reinterpret_cast<std::uint64_t*>(space[at.own].data)};
    exec.run(prepare, prepare.groups());
    own_loss::backward(exec, own_inputs(in, at, space), own_options(options),
                       {space[at.by_loss], space[at.by_log_sum_exp], upstream.entropy}, out, own_space(at, space),
                       label_targets{}, progress);
  }

 private:
  static constexpr char const* where = "vocabulary_parallel.forward";
  static constexpr char const* back = "vocabulary_parallel.backward";
  using classifier_type = typename own_loss::layout::classifier_type;
  using state_type = typename Statistics::state_type;
  using row_type = detail::rank_row<state_type>;
  using regions = detail::rank_loss_regions<state_type>;
  using arguments = detail::linear_loss_arguments<value_type, Statistics>;

  template <class Gradient, class Label>
  static void check_hidden(linear_loss_gradients<Gradient> const& out, inputs<Label> const& in) {
    check<shape_error>(out.hidden.data == nullptr || out.hidden.is_contiguous(), back,
                       ": the gradient of the hidden states has strides of ", out.hidden.stride(0), " and ",
                       out.hidden.stride(1), " but must be contiguous, with ", in.hidden.extent(1), " and 1");
  }
  /// Tokens that are reduced together: all, where the filter takes entries in an order of its own.
  static std::int64_t chunk_of(linear_loss_options const& options, std::int64_t tokens, std::int64_t row_bytes) {
    float const hidden = options.hidden_threshold < 0 ? Filter::threshold : options.hidden_threshold;
    float const classifier = options.classifier_threshold < 0 ? Filter::threshold : options.classifier_threshold;
    return min(hidden, classifier) > 0 ? max(tokens, std::int64_t{1}) : rank_reduction_chunk(tokens, row_bytes);
  }
  /// Gradients of which ranks add up those of hidden states: what these accumulate on counts once.
  template <class Ranks, class Gradient>
  static linear_loss_gradients<Gradient> once(Ranks const& ranks, linear_loss_gradients<Gradient> out) {
    out.accumulate_hidden = out.accumulate_hidden && ranks.rank() == 0;
    return out;
  }
  static void check_ranks(char const* function, std::int64_t ranks) {
    check<value_error>(ranks >= 1, function, ": there are ", ranks, " ranks but must be 1 or more");
  }
  /// What is left to the rank's own loss: other options work on what the ranks have in common.
  static linear_loss_options own_options(linear_loss_options const& options) {
    linear_loss_options own;
    own.reduction = loss_reduction::none;
    own.ignore_index = detail::localize_labels::none;
    own.softcap = options.softcap;
    own.temperature = options.temperature;
    own.hidden_threshold = options.hidden_threshold;
    own.classifier_threshold = options.classifier_threshold;
    own.workspace_budget = options.workspace_budget;
    return own;
  }
  template <class Label>
  static detail::rank_entries entries_of(inputs<Label> const& in, vocabulary_part const& part) {
    return {part.first, detail::rows_in(in.classifier)};
  }
  template <class Label>
  static inputs<std::int32_t> own_inputs(inputs<Label> const& in, regions const& at, workspace const& space) {
    inputs<std::int32_t> own{in.hidden, in.classifier, space[at.own_labels], in.bias, {}};
    own.map = in.map;
    return own;
  }
  /// The regions of a workspace, of which the rank's own loss has all that is left.
  static regions regions_in(char const* function, std::int64_t ranks, linear_loss_shape const& shape,
                            workspace const& space) {
    std::int64_t const before = regions(function, ranks, shape.tokens, 0, workspace_plan::record::sizes).plan.bytes();
    space.check_room(function, before, ranks, " ranks with ", shape.tokens, " tokens");
    return regions(function, ranks, shape.tokens, space.bytes() - before, workspace_plan::record::sizes);
  }
  /// The memory of the rank's own loss, which checks that it is large enough.
  static workspace own_space(regions const& at, workspace const& space) {
    workspace_plan plan(where, workspace_plan::record::sizes);
    plan.add<std::byte>("the rank's own loss", at.own.count);
    return {plan, array_view<std::byte>(space[at.own].data, plan.bytes())};
  }

  /// Enqueues the rank's own loss, and what it tells the others.
  template <class Exec, class Label>
  static void tell_rows(Exec const& exec, inputs<Label> const& in, vocabulary_part const& part,
                        linear_loss_options const& options, regions const& at, workspace const& space) {
    loss_token_list const tokens = at.token_list(space);
    detail::localize_labels const localize{tokens, entries_of(in, part), space[at.own_labels]};
    exec.run(localize, localize.groups());
    linear_loss_outputs own;
    own.loss = space[at.own_loss];
    own.log_probability = space[at.log_probability];
    own_loss::forward(exec, own_inputs(in, at, space), own_options(options), own, own_space(at, space),
                      detail::keep_rank_states<state_type>{space[at.row]});
    detail::complete_rank_rows<Statistics> const complete{tokens, entries_of(in, part), space[at.log_probability],
                                                          space[at.row]};
    exec.run(complete, complete.groups());
  }

  /// Enqueues the losses of tokens and of all, from what all ranks have told.
  template <class Exec, class Label, class Finish>
  static void finish_rows(Exec const& exec, std::int64_t ranks, inputs<Label> const& in, vocabulary_part const& part,
                          linear_loss_options const& options, linear_loss_outputs const& out,
                          loss_token_outputs const& of_tokens, Finish const& finish, regions const& at,
                          workspace const& space) {
    std::int64_t const tokens = in.hidden.extent(0);
    matrix_view<state_type> const states(space[at.states].data, {ranks, tokens});
    detail::split_rank_rows<state_type> const split{
        {space[at.all_rows].data, {ranks, tokens}}, states, space[at.targets]};
    exec.run(split, split.groups());
    finish_loss_tokens<Statistics, Statistics, Finish> const finish_tokens{at.token_list(space),
                                                                           {},
                                                                           states,
                                                                           space[at.targets],
                                                                           {in.weights, in.class_weights},
                                                                           {0.0F, options.z_factor, part.vocabulary},
                                                                           of_tokens,
                                                                           space[at.row_lse],
                                                                           space[at.row_entropy],
                                                                           finish,
                                                                           space[at.sums]};
    exec.run(finish_tokens, finish_tokens.groups());
    bool const is_reduced = options.reduction != loss_reduction::none;
    loss_total_outputs const totals{is_reduced ? out.loss : array_view<float>{}, out.accuracy, out.labelled_count};
    exec.run(finish_loss{space[at.sums], space[at.count], space[at.poison], options.reduction == loss_reduction::mean,
                         totals, space[at.scale]},
             1);
  }

  template <class Label>
  static loss_input_samples<value_type, Label, classifier_type> samples_of(inputs<Label> const& in) {
    return {in.hidden, in.classifier, in.labels, in.bias, in.weights, in.class_weights};
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
    return stamp.add(loss_stamp::options, options.z_factor, 0.0F);
  }

  /// Throws for arguments that do not fit together, or lie where programs do not read them; returns the extents.
  template <class Exec, class Label>
  static linear_loss_shape check_call(Exec const& exec, char const* function, inputs<Label> const& in,
                                      vocabulary_part const& part, linear_loss_options const& options,
                                      workspace const& space) {
    std::int64_t const own = detail::rows_in(in.classifier);
    check<shape_error>(part.first >= 0 && own <= part.vocabulary && part.first <= part.vocabulary - own, function,
                       ": the rank has entries ", part.first, " to ", part.first + own - 1, " but there are ",
                       part.vocabulary);
    check<shape_error>(part.vocabulary <= INT32_MAX, function, ": the vocabulary has ", part.vocabulary,
                       " entries but may have ", INT32_MAX);
    check<value_error>(options.smoothing == 0.0F, function, ": the smoothing is ", options.smoothing,
                       " but must be 0 where the classifier is spread over ranks");
    check<shape_error>(in.class_weights.data == nullptr || in.class_weights.size() == part.vocabulary, function,
                       ": there are ", in.class_weights.size(), " weights of classes but ", part.vocabulary,
                       " entries of the vocabulary");
    inputs<Label> of_own = in;
    of_own.class_weights = {};
    linear_loss_shape const shape = arguments::check_inputs(function, of_own, options);
    arguments::check_input_places(exec, function, in, space);
    return shape;
  }
};

}  // namespace v0
}  // namespace tessera
