// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `sequence_parallel`: a vocabulary_parallel loss, of labels or of soft targets, whose hidden states are spread over
/// the same ranks, too: rank r has those of the r-th of equal parts of the tokens, as where layers work on parts of
/// sequences, and gets the gradient of these.
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
/// gradients and labels are of all tokens, and the same on each rank. A gradient of hidden states that accumulates is
/// added to what the rank's view holds.
///
/// Memory: that of vocabulary_parallel, the hidden states of all tokens, and for the backward pass their gradient.
/// Traffic beside the states: tokens * channels elements to every rank, and as many gradients from it. Errors: as
/// vocabulary_parallel, and shape_error where the ranks do not share the tokens evenly or views are not contiguous.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>

#include <tessera/algorithm/loss/hidden_progress.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/algorithm/loss/vocabulary_parallel.hpp>
#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/execution_options.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/loss/gradient_products.hpp>
#include <tessera/reduce/row_finish.hpp>
#include <tessera/tuning/loss/linear_loss.hpp>
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

/// The workspace of a sequence_parallel. What follows the loss is at the end, so that both passes find the loss in one
/// place.
template <class T, class Gradient>
struct sequence_regions {
  workspace_plan plan;
  region<T> hidden;
  region<std::byte> own;
  region<Gradient> gradient;

  sequence_regions(char const* where, std::int64_t elements, std::int64_t own_bytes, std::int64_t gradients,
                   workspace_plan::record record)
      : plan(where, record),
        hidden(plan.add<T>("hidden states of all tokens", elements)),
        own(plan.add<std::byte>("the loss of all tokens", own_bytes)),
        gradient(plan.add<Gradient>("their gradient", gradients)) {}

  /// The regions of a workspace, in which the loss has all that others leave.
  static sequence_regions in(char const* where, std::int64_t elements, std::int64_t gradients, workspace const& space) {
    std::int64_t const others =
        sequence_regions(where, elements, 0, gradients, workspace_plan::record::sizes).plan.bytes();
    space.check_room(where, others, elements, " elements of hidden states");
    return {where, elements, space.bytes() - others, gradients, workspace_plan::record::sizes};
  }
  /// The memory of the loss, which checks that it is large enough.
  workspace own_space(char const* where, workspace const& space) const {
    workspace_plan made(where, workspace_plan::record::sizes);
    made.add<std::byte>("the loss of all tokens", own.count);
    return {made, array_view<std::byte>(space[own].data, made.bytes())};
  }
};

}  // namespace detail

/// Loss: a vocabulary_parallel of a linear_loss or of a soft_target_loss (vocabulary_parallel_entries.hpp).
template <class Loss>
struct sequence_parallel {
  static_assert(
      requires { typename Loss::template inputs<std::int64_t>; },
      "tessera: sequence_parallel takes a vocabulary_parallel of a linear_loss or of a soft_target_loss; all_gather "
      "hidden states for others, and reduce_scatter their gradient");
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
    check_tokens(where, ranks, shape.tokens);
    return regions<value_type>(where, elements_of(where, shape), own.bytes(), 0, workspace_plan::record::entries).plan;
  }
  /// The workspace that forward() and then backward() share.
  template <class Gradient = value_type, Executor Exec>
  static workspace_plan plan_backward(Exec const& exec, std::int64_t ranks, shape_type const& shape,
                                      linear_loss_options const& options = {}) {
    workspace_plan const own = Loss::template plan_backward<Gradient>(exec, ranks, shape, options);
    check_tokens(back, ranks, shape.tokens);
    std::int64_t const elements = elements_of(back, shape);
    return regions<Gradient>(back, elements, own.bytes(), elements, workspace_plan::record::entries).plan;
  }

  /// Enqueues the loss; all ranks call it: see vocabulary_parallel::forward().
  template <Executor Exec, Communicator<Exec> Ranks, class Label = std::int64_t, class Finish = keep_no_state>
  static void forward(Exec const& exec, Ranks& ranks, inputs<Label> const& in, vocabulary_part const& part,
                      linear_loss_options const& options, linear_loss_outputs const& out, workspace const& space,
                      Finish const& finish = {}) {
    check_call(exec, where, ranks.size(), in, space);
    auto const at = regions<value_type>::in(where, detail::tokens_of(in) * in.hidden.extent(1), 0, space);
    ranks.all_gather(exec, array_view<value_type const>(in.hidden.data, in.hidden.size()), space[at.hidden]);
    auto const all = of_all(in, space[at.hidden]);
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
    auto const at = begin_backward(exec, ranks, in, out, space);
    own_backward(exec, ranks, in, part, options, upstream, out, at, space, {});
    if (out.hidden.data != nullptr) {
      reduce(exec, ranks, space[at.gradient], out.hidden);
    }
  }

  /// The same, with the reduction on a side queue of the executor.
  template <Executor Exec, Communicator<Exec> Ranks, class Label = std::int64_t, class Gradient = value_type>
  static void backward(Exec const& exec, side_queue<Exec> const& side, Ranks& ranks, inputs<Label> const& in,
                       vocabulary_part const& part, linear_loss_options const& options, loss_upstream const& upstream,
                       linear_loss_gradients<Gradient> const& out, workspace const& space) {
    detail::check_side(back, exec, side);
    auto const at = begin_backward(exec, ranks, in, out, space);
    std::int64_t const tokens = detail::tokens_of(in);
    bool is_reduced = out.hidden.data == nullptr;
    auto const reduce_whole = [&](std::int64_t whole) {
      if (whole == tokens && !is_reduced) {
        is_reduced = true;
        side.follow();
        reduce(side.executor(), ranks, space[at.gradient], out.hidden);
      }
    };
    std::function<void(std::int64_t)> const told = std::ref(reduce_whole);
    hidden_progress const progress{&told, tokens, detail::spared_by(exec, rank_reduction_multiprocessors)};
    detail::joining(side, [&] {
      own_backward(exec, ranks, in, part, options, upstream, out, at, space, is_reduced ? hidden_progress{} : progress);
    });
    side.mark(0);
    side.join(0);
  }

 private:
  static constexpr char const* where = "sequence_parallel.forward";
  static constexpr char const* back = "sequence_parallel.backward";
  template <class Gradient>
  using regions = detail::sequence_regions<value_type, Gradient>;

  static void check_tokens(char const* function, std::int64_t ranks, std::int64_t tokens) {
    check<shape_error>(tokens % ranks == 0, function, ": there are ", tokens, " tokens, which ", ranks,
                       " ranks do not share evenly");
  }
  static std::int64_t elements_of(char const* function, shape_type const& shape) {
    return checked_multiply(function, shape.tokens, shape.channels);
  }

  /// Throws for hidden states and labels that do not fit together; all else Loss checks.
  template <class Exec, class Label>
  static void check_call(Exec const& exec, char const* function, std::int64_t ranks, inputs<Label> const& in,
                         workspace const& space) {
    check_tokens(function, ranks, detail::tokens_of(in));
    check<shape_error>(in.hidden.extent(0) == detail::tokens_of(in) / ranks, function,
                       ": the rank has hidden states of ", in.hidden.extent(0), " tokens but ", ranks, " ranks share ",
                       detail::tokens_of(in), " labels");
    check<shape_error>(in.hidden.is_contiguous(), function, ": the hidden states have strides of ", in.hidden.stride(0),
                       " and ", in.hidden.stride(1), " but must be contiguous, with ", in.hidden.extent(1), " and 1");
    check_memory(function, "hidden states", in.hidden);
    check_reach(exec, function, "hidden states", in.hidden, "bytes of the workspace", space);
  }

  /// The inputs of the loss of all tokens.
  template <class Label>
  static inputs<Label> of_all(inputs<Label> const& in, array_view<value_type> hidden) {
    inputs<Label> all = in;
    all.hidden = matrix_view<value_type const>(hidden.data, {detail::tokens_of(in), in.hidden.extent(1)});
    return all;
  }

  /// Checks the call, and lays what the gradient of hidden states accumulates on in its place among all tokens'.
  template <class Exec, class Ranks, class Label, class Gradient>
  static regions<Gradient> begin_backward(Exec const& exec, Ranks const& ranks, inputs<Label> const& in,
                                          linear_loss_gradients<Gradient> const& out, workspace const& space) {
    check_call(exec, back, ranks.size(), in, space);
    auto const& hidden = out.hidden;
    bool const is_wanted = hidden.data != nullptr;
    check<shape_error>(
        !is_wanted || (hidden.extent(0) == in.hidden.extent(0) && hidden.extent(1) == in.hidden.extent(1)), back,
        ": the gradient of the hidden states is ", hidden.extent(0), " x ", hidden.extent(1), " but must be ",
        in.hidden.extent(0), " x ", in.hidden.extent(1));
    check<shape_error>(!is_wanted || hidden.is_contiguous(), back,
                       ": the gradient of the hidden states has strides of ", hidden.stride(0), " and ",
                       hidden.stride(1), " but must be contiguous, with ", hidden.extent(1), " and 1");
    check_reach(exec, back, "gradients of hidden states", hidden);
    std::int64_t const elements = detail::tokens_of(in) * in.hidden.extent(1);
    auto const at = regions<Gradient>::in(back, elements, elements, space);
    if (is_wanted && out.accumulate_hidden && elements > 0) {
      array_view<Gradient> const all = space[at.gradient];
      exec.clear(all);
      exec.copy(array_view<Gradient const>(hidden.data, hidden.size()),
                array_view<Gradient>(all.data + ranks.rank() * hidden.size(), hidden.size()));
    }
    return at;
  }

  template <class Exec, class Ranks, class Label, class Gradient>
  static void own_backward(Exec const& exec, Ranks const& ranks, inputs<Label> const& in, vocabulary_part const& part,
                           linear_loss_options const& options, loss_upstream const& upstream,
                           linear_loss_gradients<Gradient> out, regions<Gradient> const& at, workspace const& space,
                           hidden_progress const& progress) {
    if (out.hidden.data != nullptr) {
      out.hidden = matrix_view<Gradient>(space[at.gradient].data, {detail::tokens_of(in), in.hidden.extent(1)});
    }
    Loss::own_backward(exec, ranks, of_all(in, space[at.hidden]), part, options, upstream, out,
                       at.own_space(back, space), progress);
  }

  template <class Exec, class Ranks, class Gradient>
  static void reduce(Exec const& exec, Ranks& ranks, array_view<Gradient> all, matrix_view<Gradient> own) {
    ranks.reduce_scatter(exec, array_view<Gradient const>(all), rank_reduction::sum,
                         array_view<Gradient>(own.data, own.size()));
  }
};

}  // namespace v0
}  // namespace tessera
