// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `soft_target_loss`: the cross-entropy of a linear classifier with targets of several entries and weights for each
/// token, as of a teacher's likeliest entries with their probabilities, or mixtures of labels.
///
///     #include <tessera/algorithm/loss/soft_target_loss.hpp>
///     #include <tessera/cut_cross_entropy.hpp>
///
///     using loss = tessera::soft_target_loss<tessera::exact_cross_entropy>;
///     auto const plan = loss::plan_backward(exec, {tokens, vocabulary, channels, entries.extent(1)});
///     tessera::buffer<std::byte> memory(exec, plan.bytes());
///     tessera::workspace const space(plan, memory);
///     loss::inputs<std::int32_t> const inputs{hidden, classifier, entries, entry_weights};
///     loss::forward(exec, inputs, {}, {.loss = value}, space);
///     loss::backward(exec, inputs, {}, {}, {hidden_gradient, classifier_gradient}, space);
///     exec.wait();
///
/// With logits A, log-sum-exps lse, softmaxes S and slopes as in cut_cross_entropy.hpp, the entries x_ik of token i and
/// their weights p_ik:
///
///     loss_i = weight_i sum_k p_ik ((1 - smoothing) (lse_i - A_ix_ik) + smoothing (lse_i - mean_j A_ij)
///                                   + z_factor lse_i^2)
///     loss   = sum_i loss_i, or that / sum_i weight_i over tokens with an entry; 0 where that is 0
///     G_ij   = (u_i (sum_k p_ik S_ij - p_ij) + ...) * slope       p_ij: the sum of p_ik with x_ik = j
///
/// G has the further terms of cut_cross_entropy.hpp: those of options, and of upstream gradients of lse and entropies.
/// So a loss is the weighted sum of those that a token would have with each of its entries as its label, and one entry
/// of weight 1 is a label. Weights need not add up to 1, nor be positive. A mean is PyTorch's of cross_entropy with
/// probabilities: weights of entries do not count in what it is divided by.
///
/// Entries: a negative one, or `ignore_index`, is none, and its weight is not looked at; so is that of weight 0, but
/// that its token counts. A token without an entry has no loss and no gradient, as one without a label. Entries may
/// come in any order and several times; their weights are then added up, from the first to the last. An entry that is
/// not below the vocabulary is never used as an index: exec.wait() throws value_error with its position (token * K + k)
/// and both numbers, the outputs of its token and the reduced loss are NaN, and gradients ignore the token. A weight
/// that is NaN or infinite makes its token's loss and gradients so, as an upstream gradient does.
///
/// Options, outputs, upstream gradients, the Reducer, the filter, the map and the programs are those of the loss that
/// it is given: explain() names them. There is no shift (value_error): entries are a token's own. There are no weights
/// of classes: multiply those of entries. log_probability is sum_k p_ik log S_ix_ik. A prediction is accurate if it is
/// the heaviest entry, the first of equal ones. labelled_count counts tokens with an entry. The filter keeps all blocks
/// with an entry whose weight is not 0. Over ranks: vocabulary_parallel_entries.hpp.
///
/// Cost beside that of the loss: 2 N K D FLOPs for N tokens of D channels with K entries each, whose rows of the
/// classifier are read in the forward pass, and in the backward pass N K entries and weights for each part of the
/// vocabulary. K * K comparisons of a token's entries, so that K ought to be a few hundred at most. Memory: N (K + 5)
/// words. Where a workspace_budget is given, it holds these, too.
///
/// Precision: logits of entries are sums in fp32 in another order than those of all logits, from which they differ by
/// rounding, with tf32 by that of operands. Gradients by them are rounded once.
///
/// Errors: shape_error and value_error; the loss that it is given names itself in those that it finds: outputs,
/// gradients and another forward() in the workspace. Samples of entries and weights are compared, too. No call waits or
/// allocates, and each can be captured in a CUDA graph. Results are the same bits each time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/loss/detail/check_classifier.hpp>
#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/algorithm/loss/linear_loss_arguments.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/mix_bits.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/status_calls.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/program/loss/detail/chosen_logits.hpp>
#include <tessera/program/loss/detail/element_of.hpp>
#include <tessera/program/loss/detail/target_gradients.hpp>
#include <tessera/program/loss/detail/target_losses.hpp>
#include <tessera/program/loss/detail/target_rows.hpp>
#include <tessera/program/loss/finish_loss.hpp>
#include <tessera/program/loss/stamp.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// The extents of a problem.
struct soft_target_shape {
  std::int64_t tokens;      ///< rows of hidden states
  std::int64_t vocabulary;  ///< rows of the classifier
  std::int64_t channels;    ///< numbers of a hidden state: its dimension
  std::int64_t entries;     ///< K: entries of a token
};

/// The inputs of a call. Entry: std::int32_t or std::int64_t. Map: the LogitMap of the loss. Classifier: a view, or the
/// source of a loss `with_classifier`.
template <Scalar T, class Entry, LogitMap Map = identity_logits, class Classifier = matrix_view<T const>>
struct soft_target_inputs {
  matrix_view<T const> hidden;             ///< tokens x channels
  Classifier classifier;                   ///< vocabulary x channels
  matrix_view<Entry const> entries;        ///< tokens x K: entries of the vocabulary; negative: none
  matrix_view<float const> entry_weights;  ///< tokens x K: their weights
  array_view<T const> bias = {};           ///< a value for each entry of the vocabulary, or null
  array_view<float const> weights = {};    ///< a value for each token, or null for ones
  [[no_unique_address]] Map map = {};      ///< the map of logits
};

namespace detail {

/// The workspace of a soft_target_loss: what it knows of targets, then the loss of labels.
struct soft_target_regions {
  workspace_plan plan;
  region<std::uint64_t> stamp;
  region<std::int32_t> labels;
  region<float> masses;
  region<float> logits;
  region<float> losses;
  region<loss_sums> sums;
  region<float> scale;
  region<float> by_loss;
  region<float> by_target;
  region<std::byte> own;

  soft_target_regions(char const* where, soft_target_shape const& shape, std::int64_t own_bytes,
                      workspace_plan::record record)
      : plan(where, record),
        stamp(plan.add<std::uint64_t>("which the targets were", 1)),
        labels(plan.add<std::int32_t>("heaviest entries", shape.tokens)),
        masses(plan.add<float>("weights of tokens times those of entries", shape.tokens)),
        logits(plan.add<float>("logits of entries", checked_multiply(where, shape.tokens, shape.entries))),
        losses(plan.add<float>("losses of tokens", shape.tokens)),
        sums(plan.add<loss_sums>("sums over tokens", divide_up(shape.tokens, std::int64_t{sum_target_losses::lanes}))),
        scale(plan.add<float>("scale of gradients", 1)),
        by_loss(plan.add<float>("upstream gradients of losses", shape.tokens)),
        by_target(plan.add<float>("factors of targets", shape.tokens)),
        own(plan.add<std::byte>("the loss of labels", own_bytes)) {}

  matrix_view<float> logit_matrix(workspace const& space, soft_target_shape const& shape) const {
    return {space[logits].data, {shape.tokens, shape.entries}};
  }
};

}  // namespace detail

/// Loss: a linear_loss, as cut_cross_entropy or exact_cross_entropy.
template <class Loss>
struct soft_target_loss;
// clang-format off
template <class Loss> struct vocabulary_parallel;  // of vocabulary_parallel.hpp
// clang-format on

/// The loss of a linear_loss whose targets are entries with weights.
template <class Tile, LogitReducer Statistics, class Filter, LogitMap Map>
struct soft_target_loss<linear_loss<Tile, Statistics, Filter, Map>> {
  /// The loss of labels that does the work. Its Reducer has a log-sum-exp.
  using label_loss = linear_loss<Tile, loss_reducer<Statistics>, Filter, Map>;
  using value_type = typename label_loss::value_type;
  /// The type of the classifier.
  using classifier_type = typename label_loss::layout::classifier_type;
  /// The inputs of a call, with entries of type Entry.
  template <class Entry>
  using inputs = soft_target_inputs<value_type, Entry, Map, classifier_type>;

  /// The workspace of forward() alone. Throws shape_error or value_error for extents or options that no call takes.
  template <Executor Exec>
  static workspace_plan plan_forward(Exec const& exec, soft_target_shape const& shape,
                                     linear_loss_options const& options = {}) {
    check_call(where, shape, options);
    linear_loss_options const own = own_options(where, shape, options);
    return regions(where, shape, label_loss::plan_forward(exec, own_shape(shape), own).bytes(), all_entries).plan;
  }
  /// The workspace that forward() and then backward() share; both must have these options. Gradient: see
  /// linear_loss_gradients.
  template <class Gradient = value_type, Executor Exec>
  static workspace_plan plan_backward(Exec const& exec, soft_target_shape const& shape,
                                      linear_loss_options const& options = {}) {
    check_call(back, shape, options);
    linear_loss_options const own = own_options(back, shape, options);
    return regions(back, shape, label_loss::template plan_backward<Gradient>(exec, own_shape(shape), own).bytes(),
                   all_entries)
        .plan;
  }

  /// Enqueues the loss, in a workspace of plan_forward() or plan_backward().
  template <Executor Exec, class Entry = std::int32_t>
  static void forward(Exec const& exec, inputs<Entry> const& in, linear_loss_options const& options,
                      linear_loss_outputs const& out, workspace const& space) {
    soft_target_shape const shape = check_inputs(exec, where, in, options, space);
    arguments::check_outputs(own_shape(shape), options, out);
    arguments::check_output_places(exec, out);
    regions const at = regions_in(where, shape, space);
    bool const is_reduced = options.reduction != loss_reduction::none;
    rows<Entry> const targets = targets_of(in, options, shape.vocabulary);
    detail::select_targets<Entry> const select{targets, in.weights, space[at.labels], space[at.masses],
                                               status_of(exec, {where, "entry"})};
    run_groups(exec, select);
    run_groups(exec, detail::write_chosen_log_probabilities<value_type, Entry, identity_logits, classifier_type>{
                         {in.hidden},
                         in.classifier,
                         in.entries,
                         {},
                         {},
                         scaling_of(in, options),
                         at.logit_matrix(space, shape),
                         nullptr});
    detail::keep_target_losses<loss_reducer<Statistics>, Entry, Map> const keep{
        {targets, {options.smoothing, options.z_factor, shape.vocabulary}, space[at.losses], out.log_probability},
        {in.map, at.logit_matrix(space, shape)}};
    linear_loss_outputs own = out;
    own.loss = space[at.losses];
    label_loss::forward(exec, own_inputs(in, at, space), own_options(where, shape, options), own, own_space(at, space),
                        keep);
    loss_token_outputs const of_tokens{is_reduced ? array_view<float>{} : out.loss, out.log_sum_exp,
                                       out.log_probability, out.entropy, out.prediction};
    run_groups(exec, detail::sum_target_losses{space[at.labels], space[at.masses], space[at.losses], in.weights,
                                               of_tokens, space[at.sums]});
    exec.run(detail::finish_target_losses{space[at.sums], options.reduction == loss_reduction::mean,
                                          is_reduced ? out.loss : array_view<float>{}, space[at.scale]},
             1);
    stamp(exec, in, options, at, space, false, shape.vocabulary);
  }

  /// Enqueues the gradients of a loss, after forward() with the same inputs, options and workspace: see
  /// linear_loss::backward().
  template <Executor Exec, class Entry = std::int32_t, class Gradient = value_type>
  static void backward(Exec const& exec, inputs<Entry> const& in, linear_loss_options const& options,
                       loss_upstream const& upstream, linear_loss_gradients<Gradient> const& out,
                       workspace const& space) {
    soft_target_shape const shape = check_inputs(exec, back, in, options, space);
    arguments::check_gradients(own_shape(shape), options, upstream, out);
    arguments::check_gradient_places(exec, upstream, out);
    regions const at = regions_in(back, shape, space);
    run_groups(exec,
               detail::prepare_target_gradients{in.weights, upstream.loss, options.reduction != loss_reduction::none,
                                                space[at.scale], space[at.by_loss], space[at.by_target]});
    stamp(exec, in, options, at, space, true, shape.vocabulary);
    detail::entry_targets<rows<Entry>, Map> const targets{
        targets_of(in, options, shape.vocabulary), {in.map, at.logit_matrix(space, shape)}, space[at.by_target]};
    label_loss::backward(exec, own_inputs(in, at, space), own_options(back, shape, options),
                         {space[at.by_loss], upstream.log_sum_exp, upstream.entropy}, out, own_space(at, space),
                         targets);
  }

 private:
  template <class Loss>
  friend struct vocabulary_parallel;  // which checks the same arguments
  static constexpr char const* where = "soft_target_loss.forward";
  static constexpr char const* back = "soft_target_loss.backward";
  static constexpr auto all_entries = workspace_plan::record::entries;
  static constexpr auto only_sizes = workspace_plan::record::sizes;
  using regions = detail::soft_target_regions;
  using arguments = detail::linear_loss_arguments<value_type, loss_reducer<Statistics>>;
  template <class Entry>
  using rows = detail::target_rows<Entry>;

  template <class Exec, class P>
  static void run_groups(Exec const& exec, P const& program) {
    if (program.groups() > 0) {
      exec.run(program, program.groups());
    }
  }
  static linear_loss_shape own_shape(soft_target_shape const& shape) {
    return {shape.tokens, shape.vocabulary, shape.channels};
  }
  /// What is left to the loss of labels: reductions work on the losses of targets.
  static linear_loss_options label_options(linear_loss_options const& options) {
    linear_loss_options own = options;
    own.reduction = loss_reduction::none;
    own.ignore_index = detail::select_targets<std::int32_t>::no_label;
    own.sequence = 0;
    return own;
  }
  /// The same, with the budget that is left.
  static linear_loss_options own_options(char const* function, soft_target_shape const& shape,
                                         linear_loss_options const& options) {
    linear_loss_options own = label_options(options);
    if (options.workspace_budget > 0) {
      std::int64_t const before = regions(function, shape, 0, only_sizes).plan.bytes();
      check<value_error>(before < options.workspace_budget, function, ": the workspace needs more than ", before,
                         " bytes but the budget is ", options.workspace_budget);
      own.workspace_budget = options.workspace_budget - before;
    }
    return own;
  }
  template <class Entry>
  static typename label_loss::template inputs<std::int32_t> own_inputs(inputs<Entry> const& in, regions const& at,
                                                                       workspace const& space) {
    return {in.hidden, in.classifier, space[at.labels], in.bias, space[at.masses], in.map, {}};
  }
  template <class Entry>
  static rows<Entry> targets_of(inputs<Entry> const& in, linear_loss_options const& options, std::int64_t vocabulary) {
    return {in.entries, in.entry_weights, options.ignore_index, vocabulary};
  }
  template <class Entry>
  static logit_scaling<value_type> scaling_of(inputs<Entry> const& in, linear_loss_options const& options) {
    return {in.bias, options.softcap, 1.0F / options.temperature};
  }
  /// The regions of a workspace, of which the loss of labels has all that is left.
  static regions regions_in(char const* function, soft_target_shape const& shape, workspace const& space) {
    std::int64_t const before = regions(function, shape, 0, only_sizes).plan.bytes();
    std::int64_t const least = before + static_cast<std::int64_t>(loss_stamp::size * sizeof(std::uint64_t));
    space.check_room(function, least, shape.tokens, " tokens with ", shape.entries, " entries each");
    return regions(function, shape, space.bytes() - before, only_sizes);
  }
  /// The memory of the loss of labels, which checks that it is large enough.
  static workspace own_space(regions const& at, workspace const& space) {
    workspace_plan plan(where, only_sizes);
    plan.add<std::byte>("the loss of labels", at.own.count);
    return {plan, array_view<std::byte>(space[at.own].data, plan.bytes())};
  }

  /// Enqueues the writing of the stamp of targets, or its comparison with theirs. The stamp of the loss of labels is at
  /// the start of its memory.
  template <class Exec, class Entry>
  static void stamp(Exec const& exec, inputs<Entry> const& in, linear_loss_options const& options, regions const& at,
                    workspace const& space, bool compares, std::int64_t vocabulary) {
    auto number = static_cast<std::uint64_t>(options.reduction);
    for (std::int64_t const value :
         {options.ignore_index, in.entries.extent(1), static_cast<std::int64_t>(sizeof(Entry))}) {
      number = mix_bits(number, static_cast<std::uint64_t>(value));
    }
    array_view<std::uint64_t> of_labels;
    if (compares) {
      of_labels = {reinterpret_cast<std::uint64_t*>(space[at.own].data), loss_stamp::size};
    }
    exec.run(detail::stamp_targets<Entry>{targets_of(in, options, vocabulary), in.weights, number, space[at.stamp],
                                          of_labels},
             1);
  }

  /// `fewest`: entries that a vocabulary must have.
  static void check_call(char const* function, soft_target_shape const& shape, linear_loss_options const& options,
                         std::int64_t fewest = 1) {
    arguments::check_extents(function, own_shape(shape), fewest);
    check<shape_error>(shape.entries >= 0 && shape.entries <= 0x7fffffff, function, ": a token has ", shape.entries,
                       " entries but must have 0 to ", 0x7fffffff);
    arguments::check_options(function, own_shape(shape), options);
    check<value_error>(options.shift == 0, function, ": the shift is ", options.shift,
                       " but must be 0: entries are a token's own");
    check<value_error>(options.workspace_budget >= 0, function, ": the budget of the workspace is ",
                       options.workspace_budget, " bytes but must not be negative");
  }

  template <class Exec, class Entry>
  static soft_target_shape check_inputs(Exec const& exec, char const* function, inputs<Entry> const& in,
                                        linear_loss_options const& options, workspace const& space,
                                        std::int64_t fewest = 1) {
    soft_target_shape const shape{in.hidden.extent(0), detail::rows_in(in.classifier), in.hidden.extent(1),
                                  in.entries.extent(1)};
    check<shape_error>(detail::columns_in(in.classifier) == shape.channels, function, ": the hidden states have ",
                       shape.channels, " channels but the classifier has ", detail::columns_in(in.classifier));
    check<shape_error>(in.entries.extent(0) == shape.tokens, function, ": there are entries of ", in.entries.extent(0),
                       " tokens but hidden states of ", shape.tokens);
    check<shape_error>(
        in.entry_weights.extent(0) == in.entries.extent(0) && in.entry_weights.extent(1) == in.entries.extent(1),
        function, ": the weights of entries are ", in.entry_weights.extent(0), " x ", in.entry_weights.extent(1),
        " but the entries ", in.entries.extent(0), " x ", in.entries.extent(1));
    check_call(function, shape, options, fewest);
    check<shape_error>(in.bias.data == nullptr || in.bias.size() == shape.vocabulary, function, ": the bias has ",
                       in.bias.size(), " values but the vocabulary has ", shape.vocabulary);
    check<shape_error>(in.weights.data == nullptr || in.weights.size() == shape.tokens, function, ": there are ",
                       in.weights.size(), " weights but ", shape.tokens, " tokens");
    check<value_error>(in.map.steepest() > 0 && in.map.steepest() < infinity, function,
                       ": the map of logits has slopes up to ", in.map.steepest(),
                       " but its steepest() must be positive and finite");
    check_memory(function, "hidden states", in.hidden);
    detail::check_classifier(function, in.classifier);
    check_memory(function, "entries", in.entries);
    check_memory(function, "weights of entries", in.entry_weights);
    check_memory(function, "biases", in.bias);
    check_memory(function, "weights", in.weights);
    check_reach(exec, function, "hidden states", in.hidden, "entries", in.entries, "weights of entries",
                in.entry_weights, "biases", in.bias, "weights", in.weights, "bytes of the workspace", space);
    detail::check_classifier_place(exec, function, in.classifier);
    check_reach_of(exec, function, in.map);
    return shape;
  }
};

}  // namespace v0
}  // namespace tessera
