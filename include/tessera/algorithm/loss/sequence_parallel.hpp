// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `sequence_parallel`: a vocabulary_parallel loss, of labels, of soft targets or of a teacher, or vocabulary_parallel
/// log-probabilities of chosen entries, whose hidden states are spread over the same ranks, too: rank r has those of
/// the r-th of equal parts of the tokens, as where layers work on parts of sequences, and gets the gradient of these.
///
///     #include <tessera/algorithm/loss/sequence_parallel.hpp>
///     #include <tessera/comm/loopback.hpp>
///     #include <tessera/cut_cross_entropy.hpp>
///
///     using loss = tessera::sequence_parallel<tessera::vocabulary_parallel<tessera::exact_cross_entropy>>;
///     tessera::loopback ranks;                                        // or tessera::nccl of a ncclComm_t
///     auto const plan = loss::plan_backward(exec, ranks.size(), {tokens, own_entries, channels});   // all tokens
///     tessera::buffer<std::byte> memory(exec, plan.bytes());
///     tessera::workspace const space(plan, memory);
///     loss::inputs<std::int64_t> const inputs{own_hidden, own_rows, labels};     // tokens / ranks rows; all labels
///     loss::forward(exec, ranks, inputs, {first_entry, vocabulary}, {}, {value}, space);
///     tessera::side_queue const side(exec, loss::side_marks, true);   // for the reduction; without, it is in the end
///     linear_loss_gradients<bfloat16> const gradients{own_gradient, rows_gradient};
///     loss::backward(exec, side, ranks, inputs, {first_entry, vocabulary}, {}, {}, gradients, space);
///
/// The forward pass begins with an all_gather of the hidden states, which the workspace keeps for the backward pass.
/// That ends with a reduce_scatter of their gradient, in its own type: with a side queue beside the last products of
/// the classifier's gradient, without one after them. All else is vocabulary_parallel's: options, outputs, upstream
/// gradients, labels and entries are of all tokens, and the same on each rank. A gradient of hidden states that
/// accumulates is added to what the rank's view holds.
///
/// Of a distillation (include vocabulary_parallel_distillation.hpp) the teacher's hidden states are spread in the same
/// way, and weights are of all tokens. Of chosen_log_probabilities (vocabulary_parallel_entries.hpp) log-sum-exps and
/// log-probabilities are of all tokens.
///
/// Memory: that of vocabulary_parallel, the hidden states of all tokens, and for the backward pass their gradient.
/// Traffic beside the states: tokens * channels elements to every rank, and as many gradients from it. Errors: as
/// vocabulary_parallel, and shape_error where the ranks do not share the tokens evenly or views are not contiguous.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/algorithm/loss/detail/spread_hidden.hpp>
#include <tessera/algorithm/loss/hidden_progress.hpp>
#include <tessera/algorithm/loss/linear_distillation_types.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/algorithm/loss/vocabulary_parallel.hpp>
#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/reduce/row_finish.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Tokens of all ranks, of which each has a label or a row of entries.
template <class Inputs>
std::int64_t tokens_of(Inputs const& in) {
  if constexpr (requires { in.labels; }) {
    return in.labels.size();
  } else {
    return in.entries.extent(0);
  }
}

/// Whether a loss is a vocabulary_parallel of a distillation.
template <class Loss>
constexpr bool spreads_teacher = requires {
  std::declval<typename Loss::inputs const&>().teacher_hidden;
  Loss::side_marks;
};
/// Whether a call is vocabulary_parallel log-probabilities of chosen entries.
template <class Call>
constexpr bool spreads_chosen = requires {
  typename Call::whole_call;
  std::declval<typename Call::template inputs<std::int32_t> const&>().log_sum_exp;
};

/// A checked call's backward pass of all tokens, of a loss whose forward pass has left their hidden states, and a
/// teacher's if there is one, in the workspace. It refers to the arguments.
template <class Loss, class Exec, class Ranks, class Gradient>
auto spread_backward(char const* function, Exec const& exec, Ranks& ranks, spread_elements const& elements,
                     auto const& in, vocabulary_part const& part, auto const& options, auto const& upstream,
                     linear_loss_gradients<Gradient> const& out, workspace const& space) {
  std::int64_t const tokens = in.hidden.extent(0) * ranks.size();
  auto const at = begin_spread_backward(exec, function, ranks, in.hidden, elements, out, space);
  auto all = in;
  all.hidden = {space[at.hidden].data, {tokens, in.hidden.extent(1)}};
  if constexpr (spreads_teacher<Loss>) {
    all.teacher_hidden = {space[at.teacher].data, {tokens, in.teacher_hidden.extent(1)}};
  }
  auto const own_pass = [&, function, at, all, tokens](hidden_progress const& progress) {
    Loss::own_backward(exec, ranks, all, part, options, upstream, of_all_tokens(out, space[at.gradient], tokens),
                       at.own_space(function, space), progress);
  };
  return spread_pass{space[at.gradient], out.hidden, tokens, own_pass};
}

}  // namespace detail

/// Loss: a vocabulary_parallel of a linear_loss, or of a soft_target_loss or chosen_log_probabilities
/// (vocabulary_parallel_entries.hpp), or of a linear_distillation (vocabulary_parallel_distillation.hpp).
template <class Loss>
struct sequence_parallel {
  static_assert(
      requires {
        typename Loss::template inputs<std::int64_t>;
        Loss::side_marks;
      },
      "tessera: sequence_parallel takes a vocabulary_parallel of a linear_loss, a soft_target_loss, a "
      "linear_distillation or chosen_log_probabilities; all_gather hidden states for others");
  /// The extents of a problem.
  using shape_type = typename Loss::shape_type;
  using value_type = typename Loss::value_type;
  /// The inputs of a call, with labels of type Label: hidden states of the rank's tokens, all else of all tokens.
  template <class Label>
  using inputs = typename Loss::template inputs<Label>;
  /// The marks that a side queue needs.
  static constexpr int side_marks = Loss::side_marks;

  /// The workspace of forward() alone. `shape` has all tokens, and the rank's own entries.
  template <Executor Exec>
  static workspace_plan plan_forward(Exec const& exec, std::int64_t ranks, shape_type const& shape,
                                     linear_loss_options const& options = {}) {
    workspace_plan const own = Loss::plan_forward(exec, ranks, shape, options);
    detail::check_shared_tokens(where, ranks, shape.tokens);
    return regions<value_type>(where, {elements_of(where, shape)}, own.bytes(), 0, workspace_plan::record::entries)
        .plan;
  }
  /// The workspace that forward() and then backward() share.
  template <class Gradient = value_type, Executor Exec>
  static workspace_plan plan_backward(Exec const& exec, std::int64_t ranks, shape_type const& shape,
                                      linear_loss_options const& options = {}) {
    workspace_plan const own = Loss::template plan_backward<Gradient>(exec, ranks, shape, options);
    detail::check_shared_tokens(back, ranks, shape.tokens);
    std::int64_t const elements = elements_of(back, shape);
    return regions<Gradient>(back, {elements}, own.bytes(), elements, workspace_plan::record::entries).plan;
  }

  /// Enqueues the loss; all ranks call it: see vocabulary_parallel::forward().
  template <Executor Exec, Communicator<Exec> Ranks, class Label = std::int64_t, class Finish = keep_no_state>
  static void forward(Exec const& exec, Ranks& ranks, inputs<Label> const& in, vocabulary_part const& part,
                      linear_loss_options const& options, linear_loss_outputs const& out, workspace const& space,
                      Finish const& finish = {}) {
    auto const at = regions<value_type>::in(where, check_call(exec, where, ranks.size(), in, space), 0, space);
    inputs<Label> all = in;
    all.hidden = detail::gather_hidden(exec, ranks, in.hidden, space[at.hidden], detail::tokens_of(in));
    if constexpr (std::is_same_v<Finish, keep_no_state>) {
      Loss::forward(exec, ranks, all, part, options, out, at.own_space(where, space));
    } else {
      Loss::forward(exec, ranks, all, part, options, out, at.own_space(where, space), finish);
    }
  }

  /// Enqueues the gradients; all ranks call it, after forward() with the same inputs, options and workspace.
  template <Executor Exec, Communicator<Exec> Ranks, class Label = std::int64_t, class Gradient = value_type>
  static void backward(Exec const& exec, Ranks& ranks, inputs<Label> const& in, vocabulary_part const& part,
                       linear_loss_options const& options, loss_upstream const& upstream,
                       linear_loss_gradients<Gradient> const& out, workspace const& space) {
    detail::spread_elements const elements = check_call(exec, back, ranks.size(), in, space);
    detail::scatter_hidden_behind(
        exec, ranks,
        detail::spread_backward<Loss>(back, exec, ranks, elements, in, part, options, upstream, out, space));
  }

  /// The same, with the reduction on a side queue of the executor.
  template <Executor Exec, Communicator<Exec> Ranks, class Label = std::int64_t, class Gradient = value_type>
  static void backward(Exec const& exec, side_queue<Exec> const& side, Ranks& ranks, inputs<Label> const& in,
                       vocabulary_part const& part, linear_loss_options const& options, loss_upstream const& upstream,
                       linear_loss_gradients<Gradient> const& out, workspace const& space) {
    detail::check_side(back, exec, side);
    detail::spread_elements const elements = check_call(exec, back, ranks.size(), in, space);
    detail::scatter_hidden_beside(
        exec, side, ranks,
        detail::spread_backward<Loss>(back, exec, ranks, elements, in, part, options, upstream, out, space));
  }

 private:
  static constexpr char const* where = "sequence_parallel.forward";
  static constexpr char const* back = "sequence_parallel.backward";
  template <class Gradient>
  using regions = detail::spread_regions<value_type, Gradient>;

  static std::int64_t elements_of(char const* function, shape_type const& shape) {
    return checked_multiply(function, shape.tokens, shape.channels);
  }

  /// Throws for hidden states and labels that do not fit together; all else Loss checks. Gives the elements of all
  /// tokens' hidden states.
  template <class Exec, class Label>
  static detail::spread_elements check_call(Exec const& exec, char const* function, std::int64_t ranks,
                                            inputs<Label> const& in, workspace const& space) {
    std::int64_t const tokens = detail::tokens_of(in);
    detail::check_shared_tokens(function, ranks, tokens);
    check<shape_error>(in.hidden.extent(0) == tokens / ranks, function, ": the rank has hidden states of ",
                       in.hidden.extent(0), " tokens but ", ranks, " ranks share ", tokens, " labels");
    detail::check_spread(exec, function, "hidden states", in.hidden);
    check_reach(exec, function, "bytes of the workspace", space);
    return {tokens * in.hidden.extent(1)};
  }
};

/// The same of a distillation, whose teacher's hidden states are spread, too.
template <class Loss>
requires(detail::spreads_teacher<Loss>) struct sequence_parallel<Loss> {
  using value_type = typename Loss::value_type;
  /// The inputs of a call: hidden states of the rank's tokens, weights of all tokens.
  using inputs = typename Loss::inputs;
  /// The marks that a side queue needs.
  static constexpr int side_marks = Loss::side_marks;

  /// The workspace of forward() alone. `shape` has all tokens, and the rank's own entries.
  template <Executor Exec>
  static workspace_plan plan_forward(Exec const& exec, std::int64_t ranks, distillation_shape const& shape,
                                     distillation_options const& options = {}) {
    workspace_plan const own = Loss::plan_forward(exec, ranks, shape, options);
    detail::check_shared_tokens(where, ranks, shape.tokens);
    return regions<value_type>(where, elements_of(where, shape), own.bytes(), 0, workspace_plan::record::entries).plan;
  }
  /// The workspace that forward() and then backward() share.
  template <class Gradient = value_type, Executor Exec>
  static workspace_plan plan_backward(Exec const& exec, std::int64_t ranks, distillation_shape const& shape,
                                      distillation_options const& options = {}) {
    workspace_plan const own = Loss::template plan_backward<Gradient>(exec, ranks, shape, options);
    detail::check_shared_tokens(back, ranks, shape.tokens);
    detail::spread_elements const elements = elements_of(back, shape);
    return regions<Gradient>(back, elements, own.bytes(), elements.hidden, workspace_plan::record::entries).plan;
  }

  /// Enqueues the loss; all ranks call it.
  template <Executor Exec, Communicator<Exec> Ranks>
  static void forward(Exec const& exec, Ranks& ranks, inputs const& in, vocabulary_part const& part,
                      distillation_options const& options, distillation_outputs const& out, workspace const& space) {
    auto const at = regions<value_type>::in(where, check_call(exec, where, ranks.size(), in, space), 0, space);
    std::int64_t const tokens = in.hidden.extent(0) * ranks.size();
    inputs all = in;
    all.hidden = detail::gather_hidden(exec, ranks, in.hidden, space[at.hidden], tokens);
    all.teacher_hidden = detail::gather_hidden(exec, ranks, in.teacher_hidden, space[at.teacher], tokens);
    Loss::forward(exec, ranks, all, part, options, out, at.own_space(where, space));
  }

  /// Enqueues the student's gradients; all ranks call it, after forward() with the same inputs, options and workspace.
  template <Executor Exec, Communicator<Exec> Ranks, class Gradient = value_type>
  static void backward(Exec const& exec, Ranks& ranks, inputs const& in, vocabulary_part const& part,
                       distillation_options const& options, array_view<float const> upstream,
                       linear_loss_gradients<Gradient> const& out, workspace const& space) {
    detail::spread_elements const elements = check_call(exec, back, ranks.size(), in, space);
    detail::scatter_hidden_behind(
        exec, ranks,
        detail::spread_backward<Loss>(back, exec, ranks, elements, in, part, options, upstream, out, space));
  }

  /// The same, with the reduction on a side queue of the executor.
  template <Executor Exec, Communicator<Exec> Ranks, class Gradient = value_type>
  static void backward(Exec const& exec, side_queue<Exec> const& side, Ranks& ranks, inputs const& in,
                       vocabulary_part const& part, distillation_options const& options,
                       array_view<float const> upstream, linear_loss_gradients<Gradient> const& out,
                       workspace const& space) {
    detail::check_side(back, exec, side);
    detail::spread_elements const elements = check_call(exec, back, ranks.size(), in, space);
    detail::scatter_hidden_beside(
        exec, side, ranks,
        detail::spread_backward<Loss>(back, exec, ranks, elements, in, part, options, upstream, out, space));
  }

 private:
  static constexpr char const* where = "sequence_parallel.forward";
  static constexpr char const* back = "sequence_parallel.backward";
  template <class Gradient>
  using regions = detail::spread_regions<value_type, Gradient>;

  static detail::spread_elements elements_of(char const* function, distillation_shape const& shape) {
    return {checked_multiply(function, shape.tokens, shape.channels),
            checked_multiply(function, shape.tokens, shape.teacher_channels)};
  }

  /// Throws for hidden states that do not fit together; all else Loss checks. Gives the elements of all tokens'.
  template <class Exec>
  static detail::spread_elements check_call(Exec const& exec, char const* function, std::int64_t ranks,
                                            inputs const& in, workspace const& space) {
    check<shape_error>(in.hidden.extent(0) == in.teacher_hidden.extent(0), function, ": the student has ",
                       in.hidden.extent(0), " tokens of the rank but the teacher has ", in.teacher_hidden.extent(0));
    std::int64_t const tokens = checked_multiply(function, in.hidden.extent(0), ranks);
    check<shape_error>(in.weights.data == nullptr || in.weights.size() == tokens, function, ": the rank has ",
                       in.hidden.extent(0), " tokens, and ", ranks, " ranks as many each, but there are ",
                       in.weights.size(), " weights");
    detail::check_spread(exec, function, "hidden states", in.hidden);
    detail::check_spread(exec, function, "teacher's hidden states", in.teacher_hidden);
    check_reach(exec, function, "bytes of the workspace", space);
    return elements_of(function, {tokens, 0, in.hidden.extent(1), in.teacher_hidden.extent(1)});
  }
};

/// The same of log-probabilities of chosen entries, which have no backward pass.
template <class Call>
requires(detail::spreads_chosen<Call>) struct sequence_parallel<Call> {
  using value_type = typename Call::value_type;
  /// The inputs of a call, with entries of type Entry: hidden states of the rank's tokens, all else of all tokens.
  template <class Entry>
  using inputs = typename Call::template inputs<Entry>;

  /// The workspace of forward(), for so many tokens of all ranks with `entries` entries each.
  static workspace_plan plan_forward(std::int64_t ranks, std::int64_t tokens, std::int64_t entries,
                                     std::int64_t channels) {
    workspace_plan const own = Call::plan_forward(ranks, tokens, entries);
    detail::check_shared_tokens(where, ranks, tokens);
    check<shape_error>(channels >= 0, where, ": there are ", channels, " channels but must be 0 or more");
    return regions(where, {checked_multiply(where, tokens, channels)}, own.bytes(), 0, workspace_plan::record::entries)
        .plan;
  }

  /// Enqueues the log-probabilities of all tokens, tokens x K, in nats, of which all ranks get the same bits; all ranks
  /// call it.
  template <Executor Exec, Communicator<Exec> Ranks, class Entry = std::int32_t>
  static void forward(Exec const& exec, Ranks& ranks, inputs<Entry> const& in, vocabulary_part const& part,
                      linear_loss_options const& options, matrix_view<float> log_probabilities,
                      workspace const& space) {
    std::int64_t const tokens = in.entries.extent(0);
    detail::check_shared_tokens(where, ranks.size(), tokens);
    check<shape_error>(in.hidden.extent(0) == tokens / ranks.size(), where, ": the rank has hidden states of ",
                       in.hidden.extent(0), " tokens but ", ranks.size(), " ranks share chosen entries of ", tokens);
    detail::check_spread(exec, where, "hidden states", in.hidden);
    check_reach(exec, where, "bytes of the workspace", space);
    auto const at = regions::in(where, {checked_multiply(where, tokens, in.hidden.extent(1))}, 0, space);
    inputs<Entry> all = in;
    all.hidden = detail::gather_hidden(exec, ranks, in.hidden, space[at.hidden], tokens);
    Call::forward(exec, ranks, all, part, options, log_probabilities, at.own_space(where, space));
  }

 private:
  static constexpr char const* where = "sequence_parallel.forward";
  using regions = detail::spread_regions<value_type, value_type>;
};

}  // namespace v0
}  // namespace tessera
