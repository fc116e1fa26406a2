// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What losses share whose hidden states are spread over ranks: the workspace, checks, the gathering of hidden states
/// and the scattering of their gradient.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include <tessera/algorithm/loss/hidden_progress.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/execution_options.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/tuning/loss/linear_loss.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Elements of the hidden states of all tokens, which ranks gather.
struct spread_elements {
  std::int64_t hidden;
  std::int64_t teacher = 0;  ///< of a distillation's teacher
};

/// The workspace. What follows the loss is at the end, so that both passes find the loss in one place.
template <class T, class Gradient>
struct spread_regions {
  workspace_plan plan;
  region<T> hidden;
  region<T> teacher;
  region<std::byte> own;
  region<Gradient> gradient;

  spread_regions(char const* where, spread_elements const& elements, std::int64_t own_bytes, std::int64_t gradients,
                 workspace_plan::record record)
      : plan(where, record),
        hidden(plan.add<T>("hidden states of all tokens", elements.hidden)),
        teacher(plan.add<T>("the teacher's hidden states of all tokens", elements.teacher)),
        own(plan.add<std::byte>("the loss of all tokens", own_bytes)),
        gradient(plan.add<Gradient>("their gradient", gradients)) {}

  /// The regions of a workspace, in which the loss has all that others leave.
  static spread_regions in(char const* where, spread_elements const& elements, std::int64_t gradients,
                           workspace const& space) {
    std::int64_t const others =
        spread_regions(where, elements, 0, gradients, workspace_plan::record::sizes).plan.bytes();
    space.check_room(where, others, elements.hidden, " elements of hidden states");
    return {where, elements, space.bytes() - others, gradients, workspace_plan::record::sizes};
  }
  /// The memory of the loss, which checks that it is large enough.
  workspace own_space(char const* where, workspace const& space) const {
    workspace_plan made(where, workspace_plan::record::sizes);
    made.add<std::byte>("the loss of all tokens", own.count);
    return {made, array_view<std::byte>(space[own].data, made.bytes())};
  }
};

/// Throws shape_error for tokens that ranks do not share evenly.
inline void check_shared_tokens(char const* function, std::int64_t ranks, std::int64_t tokens) {
  check<shape_error>(tokens % ranks == 0, function, ": there are ", tokens, " tokens, which ", ranks,
                     " ranks do not share evenly");
}

/// Throws for a rank's hidden states that a Communicator does not take. `name`: what errors call them.
template <class Exec, class T>
void check_spread(Exec const& exec, char const* function, char const* name, matrix_view<T const> hidden) {
  check<shape_error>(hidden.is_contiguous(), function, ": the ", name, " have strides of ", hidden.stride(0), " and ",
                     hidden.stride(1), " but must be contiguous, with ", hidden.extent(1), " and 1");
  check_memory(function, name, hidden);
  check_reach(exec, function, name, hidden);
}

/// Enqueues the gathering of all ranks' hidden states. Gives them as a matrix of `tokens` rows.
template <Executor Exec, class Ranks, class T>
matrix_view<T const> gather_hidden(Exec const& exec, Ranks& ranks, matrix_view<T const> own, array_view<T> all,
                                   std::int64_t tokens) {
  ranks.all_gather(exec, array_view<T const>(own.data, own.size()), all);
  return {all.data, {tokens, own.extent(1)}};
}

/// Checks the gradient of a rank's hidden states, and lays what it accumulates on in its place among all tokens'.
template <class Gradient, class Exec, class Ranks, class T>
spread_regions<T, Gradient> begin_spread_backward(Exec const& exec, char const* function, Ranks const& ranks,
                                                  matrix_view<T const> own, spread_elements const& elements,
                                                  linear_loss_gradients<Gradient> const& out, workspace const& space) {
  auto const& hidden = out.hidden;
  bool const is_wanted = hidden.data != nullptr;
  check<shape_error>(!is_wanted || (hidden.extent(0) == own.extent(0) && hidden.extent(1) == own.extent(1)), function,
                     ": the gradient of the hidden states is ", hidden.extent(0), " x ", hidden.extent(1),
                     " but must be ", own.extent(0), " x ", own.extent(1));
  check<shape_error>(!is_wanted || hidden.is_contiguous(), function,
                     ": the gradient of the hidden states has strides of ", hidden.stride(0), " and ", hidden.stride(1),
                     " but must be contiguous, with ", hidden.extent(1), " and 1");
  check_reach(exec, function, "gradients of hidden states", hidden);
  auto const at = spread_regions<T, Gradient>::in(function, elements, elements.hidden, space);
  if (is_wanted && out.accumulate_hidden && elements.hidden > 0) {
    array_view<Gradient> const all = space[at.gradient];
    exec.clear(all);
    exec.copy(array_view<Gradient const>(hidden.data, hidden.size()),
              array_view<Gradient>(all.data + ranks.rank() * hidden.size(), hidden.size()));
  }
  return at;
}

/// Gradients of which that of hidden states is of all tokens, in the workspace.
template <class Gradient>
linear_loss_gradients<Gradient> of_all_tokens(linear_loss_gradients<Gradient> out, array_view<Gradient> all,
                                              std::int64_t tokens) {
  if (out.hidden.data != nullptr) {
    out.hidden = matrix_view<Gradient>(all.data, {tokens, out.hidden.extent(1)});
  }
  return out;
}

/// Enqueues the sum over ranks of all tokens' gradient, of which each gets its own tokens', if it is there.
template <Executor Exec, class Ranks, class Gradient>
void scatter_hidden(Exec const& exec, Ranks& ranks, array_view<Gradient> all, matrix_view<Gradient> own) {
  if (own.data != nullptr) {
    ranks.reduce_scatter(exec, array_view<Gradient const>(all), rank_reduction::sum,
                         array_view<Gradient>(own.data, own.size()));
  }
}

/// A backward pass that makes the gradient of all tokens' hidden states. Backward: backward(hidden_progress).
template <class Gradient, class Backward>
struct spread_pass {
  array_view<Gradient> all;   ///< where it makes that of all tokens
  matrix_view<Gradient> own;  ///< where the rank's is wanted, or null
  std::int64_t tokens;        ///< of all ranks
  Backward backward;          ///< enqueues the pass
};
template <class Gradient, class Backward>
spread_pass(array_view<Gradient>, matrix_view<Gradient>, std::int64_t, Backward) -> spread_pass<Gradient, Backward>;

/// Runs a pass, and then scatters the gradient.
template <Executor Exec, class Ranks, class Gradient, class Backward>
void scatter_hidden_behind(Exec const& exec, Ranks& ranks, spread_pass<Gradient, Backward> const& pass) {
  pass.backward(hidden_progress{});
  scatter_hidden(exec, ranks, pass.all, pass.own);
}

/// Runs a pass, and scatters the gradient on the side queue as soon as the pass tells of all tokens.
template <Executor Exec, class Ranks, class Gradient, class Backward>
void scatter_hidden_beside(Exec const& exec, side_queue<Exec> const& side, Ranks& ranks,
                           spread_pass<Gradient, Backward> const& pass) {
  bool is_scattered = pass.own.data == nullptr;
  auto const scatter_whole = [&](std::int64_t whole) {
    if (whole == pass.tokens && !is_scattered) {
      is_scattered = true;
      side.follow();
      scatter_hidden(side.executor(), ranks, pass.all, pass.own);
    }
  };
  std::function<void(std::int64_t)> const told = std::ref(scatter_whole);
  hidden_progress const progress{&told, pass.tokens, spared_by(exec, rank_reduction_multiprocessors)};
  joining(side, [&] { pass.backward(is_scattered ? hidden_progress{} : progress); });
  side.mark(0);
  side.join(0);
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
