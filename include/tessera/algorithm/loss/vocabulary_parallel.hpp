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
/// spread over the ranks, too: sequence_parallel.hpp. Targets of several entries, and log-probabilities of chosen ones:
/// vocabulary_parallel_entries.hpp. Distillation: vocabulary_parallel_distillation.hpp. Sources as classifiers:
/// vocabulary_parallel<with_classifier<Loss, Source>>.
///
/// Options are those of linear_loss. Weights of tokens and of classes, outputs and upstream gradients are of all tokens
/// and of the whole vocabulary, and the same on each rank, as are the hidden states. A rank may have no entries; it
/// takes part in all exchanges. Labels are smoothed over the whole vocabulary: each rank's own loss has the smoothing
/// that its part gets, and gradients of labels are made one by one (program/loss/detail/rank_targets.hpp). A bias, a
/// LogitMap and a RowFinish's states have a rank's own entries, counted from its first one, but for those of
/// arg_max_reducer and largest_entries_reducer, which are entries of the vocabulary. A filter leaves out what it would
/// for one rank, or less. The hidden states' gradient is contiguous. Where it accumulates, the ranks' old gradients are
/// the same.
///
/// Memory: that of the loss over the rank's entries, and for each token (1 + 2 * ranks) states and a few words, four
/// more with smoothing. Traffic: ranks * (tokens + 4) * (sizeof(state) + 4) bytes, and the hidden states' gradient.
/// Calls neither wait for a stream nor allocate, as far as the Communicator does not. Results are the same bits each
/// time if the Communicator's reductions are.
///
/// Errors: as linear_loss, with names of vocabulary_parallel where ranks are concerned; one rank that throws leaves the
/// others to its Communicator. Each rank also sends what it was called with: where vocabularies, channels, reductions
/// or other options differ, or the ranks' parts are not all of the vocabulary, exec.wait() of every rank throws a
/// value_error that names the rank, and the loss is NaN. Other numbers of tokens are for the Communicator to find.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/loss/detail/check_ranks.hpp>
#include <tessera/algorithm/loss/detail/rank_loss.hpp>
#include <tessera/algorithm/loss/detail/reduce_hidden.hpp>
#include <tessera/algorithm/loss/hidden_progress.hpp>
#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/loss/detail/element_of.hpp>
#include <tessera/program/loss/detail/rank_rows.hpp>
#include <tessera/program/loss/detail/rank_targets.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/reduce/row_finish.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Loss: a linear_loss whose Reducer has a log-sum-exp; a soft_target_loss of one (vocabulary_parallel_entries.hpp); a
/// linear_distillation (vocabulary_parallel_distillation.hpp).
template <class Loss>
struct vocabulary_parallel;

/// The loss of a linear_loss whose classifier is spread over ranks.
template <class Tile, LogitReducer Statistics, class Filter, LogitMap Map>
struct vocabulary_parallel<linear_loss<Tile, Statistics, Filter, Map>> {
  /// The loss that each rank runs over its own entries.
  using own_loss = linear_loss<Tile, Statistics, Filter, Map>;
  using value_type = typename own_loss::value_type;
  /// The extents of a problem.
  using shape_type = linear_loss_shape;
  /// The inputs of a call, with labels of type Label.
  template <class Label>
  using inputs = typename own_loss::template inputs<Label>;

  /// The workspace of forward() alone. `shape` has the rank's own entries, which may be none.
  template <Executor Exec>
  static workspace_plan plan_forward(Exec const& exec, std::int64_t ranks, linear_loss_shape const& shape,
                                     linear_loss_options const& options = {}) {
    return part_loss::plan_forward(exec, ranks, shape, options, part_loss::places_of(options));
  }
  /// The workspace that forward() and then backward() share.
  template <class Gradient = value_type, Executor Exec>
  static workspace_plan plan_backward(Exec const& exec, std::int64_t ranks, linear_loss_shape const& shape,
                                      linear_loss_options const& options = {}) {
    return part_loss::template plan_backward<Gradient>(exec, ranks, shape, options, part_loss::places_of(options));
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
    std::int64_t const places = part_loss::places_of(options);
    auto const at = part_loss::regions_in(where, ranks.size(), shape.tokens, places, space);
    bool const is_reduced = options.reduction != loss_reduction::none;
    loss_token_outputs const of_tokens{is_reduced ? array_view<float>{} : out.loss, out.log_sum_exp,
                                       out.log_probability, out.entropy, out.prediction};
    part_loss::select(exec, in, part, options, of_tokens, at, space);
    detail::rank_entries const own = part_loss::entries_of(in, part);
    if (places > 0 && own.count > 0) {
      part_loss::run_groups(
          exec, detail::localize_label_targets{
                    at.token_list(space), own, space[at.own_labels], {space[at.entries].data, {shape.tokens, places}}});
      part_loss::write_logits(exec, in, options, places, at, space);
    }
    part_loss::exchange(exec, ranks, in, part, options,
                        detail::rank_label_logit{own, space[at.labels], space[at.log_probability]}, at, space);
    part_loss::finish(exec, ranks.size(), in, part, options, out, of_tokens, finish, at, space);
  }

  /// The marks that a side queue needs.
  static constexpr int side_marks = 1;

  /// Enqueues the gradients; all ranks call it, after forward() with the same inputs, options and workspace.
  template <Executor Exec, Communicator<Exec> Ranks, class Label = std::int64_t, class Gradient = value_type>
  static void backward(Exec const& exec, Ranks& ranks, inputs<Label> const& in, vocabulary_part const& part,
                       linear_loss_options const& options, loss_upstream const& upstream,
                       linear_loss_gradients<Gradient> const& out, workspace const& space) {
    detail::reduce_after(back, exec, ranks, out, in.hidden.extent(1),
                         [&](linear_loss_gradients<Gradient> const& own, hidden_progress const& progress) {
                           own_backward(exec, ranks, in, part, options, upstream, own, space, progress);
                         });
  }

  /// The same, with the reduction on a side queue of the executor. `chunk_tokens`: tokens that are reduced together,
  /// the same number on all ranks; 0: see above.
  template <Executor Exec, Communicator<Exec> Ranks, class Label = std::int64_t, class Gradient = value_type>
  static void backward(Exec const& exec, side_queue<Exec> const& side, Ranks& ranks, inputs<Label> const& in,
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
  template <Executor Exec, class Ranks, class Label = std::int64_t, class Gradient = value_type>
  static void own_backward(Exec const& exec, Ranks const& ranks, inputs<Label> const& in, vocabulary_part const& part,
                           linear_loss_options const& options, loss_upstream const& upstream,
                           linear_loss_gradients<Gradient> const& out, workspace const& space,
                           hidden_progress const& progress) {
    linear_loss_shape const shape = check_call(exec, back, in, part, options, space);
    arguments::check_gradients(shape, options, upstream, out);
    arguments::check_gradient_places(exec, upstream, out);
    std::int64_t const places = part_loss::places_of(options);
    auto const at = part_loss::regions_in(back, ranks.size(), shape.tokens, places, space);
    part_loss::backward(exec, in, part, options, upstream, out, {}, places, at, space, progress);
  }

 private:
  static constexpr char const* where = "vocabulary_parallel.forward";
  static constexpr char const* back = "vocabulary_parallel.backward";
  using part_loss = detail::rank_loss<own_loss, float>;
  using arguments = detail::linear_loss_arguments<value_type, Statistics>;

  /// Throws for arguments that do not fit together, or lie where programs do not read them; returns the extents.
  template <class Exec, class Label>
  static linear_loss_shape check_call(Exec const& exec, char const* function, inputs<Label> const& in,
                                      vocabulary_part const& part, linear_loss_options const& options,
                                      workspace const& space) {
    detail::check_part(function, detail::rows_in(in.classifier), part);
    check<shape_error>(in.class_weights.data == nullptr || in.class_weights.size() == part.vocabulary, function,
                       ": there are ", in.class_weights.size(), " weights of classes but ", part.vocabulary,
                       " entries of the vocabulary");
    inputs<Label> of_own = in;
    of_own.class_weights = {};
    linear_loss_shape const shape = arguments::check_inputs(function, of_own, options, 0);
    arguments::check_input_places(exec, function, in, space);
    return shape;
  }
};

}  // namespace v0
}  // namespace tessera
