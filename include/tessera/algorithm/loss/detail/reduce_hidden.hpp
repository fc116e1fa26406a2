// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `reduce_hidden`: adds up the ranks' gradients of hidden states, after products or beside them.
#pragma once

#include <cstdint>
#include <functional>

#include <tessera/algorithm/loss/hidden_progress.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/execution_options.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/tuning/loss/linear_loss.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Throws shape_error where the gradient of hidden states is there and not contiguous.
template <class Gradient>
void check_contiguous(char const* function, matrix_view<Gradient> hidden, std::int64_t channels) {
  check<shape_error>(hidden.data == nullptr || hidden.is_contiguous(), function,
                     ": the gradient of the hidden states has strides of ", hidden.stride(0), " and ", hidden.stride(1),
                     " but must be contiguous, with ", channels, " and 1");
}

/// Gradients of which ranks add up those of hidden states: what these accumulate on counts once.
template <class Ranks, class Gradient>
linear_loss_gradients<Gradient> once(Ranks const& ranks, linear_loss_gradients<Gradient> out) {
  out.accumulate_hidden = out.accumulate_hidden && ranks.rank() == 0;
  return out;
}

/// Enqueues the sum over ranks of a gradient that is there.
template <Executor Exec, class Ranks, class Gradient>
void reduce_hidden(Exec const& exec, Ranks& ranks, matrix_view<Gradient> hidden) {
  if (hidden.data != nullptr) {
    array_view<Gradient> const all(hidden.data, hidden.size());
    ranks.all_reduce(exec, array_view<Gradient const>(all), rank_reduction::sum, all);
  }
}

/// Calls backward(hidden_progress), and sums on the side queue what it tells of, at least `step` tokens at a time.
template <Executor Exec, class Ranks, class Gradient, class Backward>
void reduce_hidden_beside(Exec const& exec, side_queue<Exec> const& side, Ranks& ranks, matrix_view<Gradient> hidden,
                          std::int64_t step, Backward const& backward) {
  std::int64_t const channels = hidden.extent(1);
  std::int64_t reduced = 0;
  auto const reduce = [&](std::int64_t tokens) {
    while (reduced < tokens && (tokens - reduced >= step || tokens == hidden.extent(0))) {
      std::int64_t const count = min(step, tokens - reduced);
      side.follow();
      reduce_hidden(side.executor(), ranks, matrix_view<Gradient>(hidden.data + reduced * channels, {count, channels}));
      reduced += count;
    }
  };
  std::function<void(std::int64_t)> const told = std::ref(reduce);
  joining(side, [&] { backward(hidden_progress{&told, step, spared_by(exec, rank_reduction_multiprocessors)}); });
  side.mark(0);
  side.join(0);
}

/// A rank's backward(gradients, hidden_progress), and then the sum over ranks of the gradient of hidden states.
template <Executor Exec, class Ranks, class Gradient, class Backward>
void reduce_after(char const* function, Exec const& exec, Ranks& ranks, linear_loss_gradients<Gradient> const& out,
                  std::int64_t channels, Backward const& backward) {
  check_contiguous(function, out.hidden, channels);
  backward(once(ranks, out), hidden_progress{});
  reduce_hidden(exec, ranks, out.hidden);
}

/// The same, with the sum on a side queue beside backward(). `chunk_tokens`: tokens that are added up together; 0: what
/// chunk_of(bytes of a token's gradient) says.
template <Executor Exec, class Ranks, class Gradient, class ChunkOf, class Backward>
void reduce_beside(char const* function, Exec const& exec, side_queue<Exec> const& side, Ranks& ranks,
                   linear_loss_gradients<Gradient> const& out, std::int64_t channels, std::int64_t chunk_tokens,
                   ChunkOf const& chunk_of, Backward const& backward) {
  check_side(function, exec, side);
  check<value_error>(chunk_tokens >= 0, function, ": chunk_tokens is ", chunk_tokens, " but must not be negative");
  check_contiguous(function, out.hidden, channels);
  auto const run = [&](hidden_progress const& progress) { backward(once(ranks, out), progress); };
  if (out.hidden.data == nullptr) {
    return run({});
  }
  std::int64_t const row_bytes = out.hidden.extent(1) * static_cast<std::int64_t>(sizeof(Gradient));
  reduce_hidden_beside(exec, side, ranks, out.hidden, chunk_tokens > 0 ? chunk_tokens : chunk_of(row_bytes), run);
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
