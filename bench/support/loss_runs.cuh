// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Losses on CUDA devices as several benchmarks measure them. Half of the time for compiling these benchmarks would go
/// into the same kernels again and again, so each pass is compiled once, for all losses together (in loss_forward.cu
/// and loss_backward.cu): the largest kernels are those of gradients, which all losses share.
#pragma once

#include <cstdint>

#include <tessera/algorithm/loss/linear_loss.cuh>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/cuda.cuh>

namespace bench {

/// A user's own reducer: the four largest logits and where they stood, the first of equal ones first.
struct top_four {
  struct state_type {
    tessera::indexed_value<float> best[4];
  };
  using input_type = tessera::indexed_value<float>;

  TESSERA_FN constexpr state_type identity() const {
    constexpr input_type none{-tessera::infinity, -1};
    return {{none, none, none, none}};
  }
  TESSERA_FN constexpr void push(state_type& state, input_type value) const {
    for (input_type& best : state.best) {
      bool const is_earlier = static_cast<std::uint32_t>(value.index) < static_cast<std::uint32_t>(best.index);
      if (value.value > best.value || (value.value == best.value && is_earlier)) {
        input_type const next = best;
        best = value;
        value = next;
      }
    }
  }
  TESSERA_FN constexpr void merge(state_type& into, state_type const& other) const {
    for (input_type const& best : other.best) {
      push(into, best);
    }
  }
};
using with_top_four = tessera::paired_reducer<tessera::lse_reducer<float>, top_four>;

/// A user's own entropy, by push() alone: the dearest reducer that is likely, with an exponential for each logit. Sums
/// are of e = exp(x - largest) and of (x - largest) * e.
struct pushed_entropy {
  struct state_type {
    float largest;
    float sum;
    float weighted;
  };
  using input_type = float;

  TESSERA_FN constexpr state_type identity() const { return {-tessera::infinity, 0.0F, 0.0F}; }
  TESSERA_FN void push(state_type& state, input_type value) const {
    if (value > state.largest) {
      move(state, value);
    }
    if (value > -tessera::infinity) {
      float const below = value - state.largest;
      float const weight = tessera::exp(below);
      state.sum += weight;
      state.weighted += below * weight;
    }
  }
  TESSERA_FN void merge(state_type& into, state_type const& other) const {
    state_type from = other;
    float const largest = into.largest > from.largest ? into.largest : from.largest;
    move(into, largest);
    move(from, largest);
    into.sum += from.sum;
    into.weighted += from.weighted;
  }

 private:
  /// Makes sums relative to a larger value.
  TESSERA_FN static void move(state_type& state, float largest) {
    if (state.sum > 0.0F) {
      float const below = state.largest - largest;
      float const factor = tessera::exp(below);
      state.weighted = factor * (state.weighted + below * state.sum);
      state.sum *= factor;
    }
    state.largest = largest;
  }
};
using with_pushed_entropy = tessera::paired_reducer<tessera::lse_reducer<float>, pushed_entropy>;

using exact_with_statistics = tessera::exact_cross_entropy_of<tessera::bfloat16, tessera::loss_statistics>;
using exact_with_top_four = tessera::exact_cross_entropy_of<tessera::bfloat16, with_top_four>;
using exact_with_pushed_entropy = tessera::exact_cross_entropy_of<tessera::bfloat16, with_pushed_entropy>;

using loss_inputs = tessera::linear_loss_inputs<tessera::bfloat16, std::int64_t>;

/// Enqueues Loss::forward().
template <class Loss>
void run_forward(tessera::cuda const& exec, loss_inputs const& in, tessera::linear_loss_options const& options,
                 tessera::linear_loss_outputs const& out, tessera::workspace const& space) {
  Loss::forward(exec, in, options, out, space);
}

/// Enqueues Loss::backward() for the gradients by the loss itself.
template <class Loss, class Gradient>
void run_backward(tessera::cuda const& exec, loss_inputs const& in, tessera::linear_loss_options const& options,
                  tessera::linear_loss_gradients<Gradient> const& out, tessera::workspace const& space) {
  Loss::backward(exec, in, options, {}, out, space);
}

}  // namespace bench

#define TESSERA_BENCH_FORWARD(words, loss)                                                                      \
  words void bench::run_forward<loss>(tessera::cuda const&, bench::loss_inputs const&,                          \
                                      tessera::linear_loss_options const&, tessera::linear_loss_outputs const&, \
                                      tessera::workspace const&)

#define TESSERA_BENCH_BACKWARD(words, loss, gradient)                                   \
  words void bench::run_backward<loss>(tessera::cuda const&, bench::loss_inputs const&, \
                                       tessera::linear_loss_options const&,             \
                                       tessera::linear_loss_gradients<gradient> const&, tessera::workspace const&)

/// Forward passes, after `extern template` or `template`.
#define TESSERA_BENCH_FORWARD_PASSES(words)                   \
  TESSERA_BENCH_FORWARD(words, tessera::cut_cross_entropy);   \
  TESSERA_BENCH_FORWARD(words, tessera::exact_cross_entropy); \
  TESSERA_BENCH_FORWARD(words, bench::exact_with_statistics); \
  TESSERA_BENCH_FORWARD(words, bench::exact_with_top_four);   \
  TESSERA_BENCH_FORWARD(words, bench::exact_with_pushed_entropy)

/// Backward passes, after `extern template` or `template`.
#define TESSERA_BENCH_BACKWARD_PASSES(words)                                      \
  TESSERA_BENCH_BACKWARD(words, tessera::cut_cross_entropy, tessera::bfloat16);   \
  TESSERA_BENCH_BACKWARD(words, tessera::exact_cross_entropy, tessera::bfloat16); \
  TESSERA_BENCH_BACKWARD(words, tessera::exact_cross_entropy, float);             \
  TESSERA_BENCH_BACKWARD(words, bench::exact_with_statistics, tessera::bfloat16); \
  TESSERA_BENCH_BACKWARD(words, bench::exact_with_top_four, tessera::bfloat16)

TESSERA_BENCH_FORWARD_PASSES(extern template);
TESSERA_BENCH_BACKWARD_PASSES(extern template);
