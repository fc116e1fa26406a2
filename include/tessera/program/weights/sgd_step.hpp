// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// One step of stochastic gradient descent on weights in place: w - rate * g, in fp32 with one rounding (a fused
/// multiply-add), then rounded to the nearest value of the storage type, ties to even. Each weight is computed by
/// itself, so that every executor gives the same bits.
///
///     sgd_step<bfloat16, float> const step{weights, gradient, 0.01F};
///     exec.run(step, step.groups());
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

template <class Weight, class Gradient>
struct sgd_step {
  static constexpr int lanes = 32;
  static constexpr std::int64_t weights_a_group = 1024;  ///< weights of a group, in turns of the lanes
  struct scratch_type {};

  array_view<Weight> weights;           ///< the weights, changed in place
  array_view<Gradient const> gradient;  ///< the gradient of each weight
  float rate;                           ///< the factor of gradients

  std::int64_t groups() const { return divide_up(weights.size(), weights_a_group); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const first = which * weights_a_group;
    std::int64_t const last = min(first + weights_a_group, weights.size());
    for (int lane : group) {
      for (std::int64_t i = first + lane; i < last; i += lanes) {
        weights[i] = store<Weight>(multiply_add(-rate, load(gradient[i]), load(weights[i])));
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
