// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Losses of mapped logits on a GPU, compared with the reference in double.
#pragma once

#include <cstdint>

#include <tessera/cut_cross_entropy.hpp>

#include "algorithm/loss/linear_loss_on_device.cuh"
#include "support/loss_maps.hpp"

namespace tessera_test {

using namespace tessera;

template <class T, class Map>
using exact_mapped_loss = exact_cross_entropy_of<T, lse_reducer<float>, Map>;
template <class T, class Map>
using filtered_mapped_loss = cut_cross_entropy_of<T, lse_reducer<float>, Map>;

/// Compares both passes on a device with the reference, with a gradient of the bias and without, where a filtered pass
/// takes entries in another order.
template <class Loss, class T, class Map>
void check_mapped_passes(loss_problem<T> const& problem, Map const& map, double gradient_tolerance) {
  tessera::cuda const exec;
  auto const expected = reference_gradient(problem);
  for (bool const with_bias : {true, false}) {
    CAPTURE(with_bias, problem.tokens, problem.vocabulary, problem.channels);
    auto const found = run_on_device<Loss, T>(exec, problem, with_bias, {}, map);
    CHECK(wrong_losses(problem, found, 2e-5) == 0);
    CHECK(relative_distance(found.hidden, expected.hidden) <= gradient_tolerance);
    CHECK(relative_distance(found.classifier, expected.classifier) <= gradient_tolerance);
    if (with_bias) {
      CHECK(relative_distance(found.bias, expected.bias) <= 2 * gradient_tolerance);
    }
  }
}

/// By wgmma and portably, with one part of the vocabulary and with several, without a cap and with one.
template <class T, class Map>
void check_mapped_losses(Map const& map, reference_map const& reference, double tolerance) {
  for (std::int64_t const channels : {72, 63}) {
    for (float const softcap : {0.0F, 6.0F}) {
      auto problem = make_loss_problem<T>(300, 1000, channels, true);
      problem.map = reference;
      problem.options.softcap = softcap;
      problem.options.temperature = 1.5F;
      check_mapped_passes<exact_mapped_loss<T, Map>>(problem, map, tolerance);
      check_mapped_passes<filtered_mapped_loss<T, Map>>(problem, map, tolerance);
    }
  }
  auto parts = make_loss_problem<T>(300, 1000, 64, true);
  parts.map = reference;
  parts.options.workspace_budget =
      exact_mapped_loss<T, Map>::template plan_backward<T>(tessera::cuda{}, {300, 1000, 64}).bytes() * 3 / 4;
  check_mapped_passes<exact_mapped_loss<T, Map>>(parts, map, tolerance);
}

}  // namespace tessera_test
