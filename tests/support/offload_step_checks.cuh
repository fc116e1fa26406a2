// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Checks of the programs of a step of an offloaded cache: the device's results against the host's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/offloaded_cache/offloaded_cache.cuh>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>

#include "support/catch.hpp"
#include "support/offload_runs.cuh"
#include "support/offload_steps.cuh"

namespace tessera_test {

inline double apart(double a, double b) {
  return a == b ? 0.0 : std::abs(a - b);
}

/// The largest difference of scores, over all archived chunks of the steps' sequences.
template <class Problem>
double score_error(Problem const& p) {
  auto const& n = p.extents();
  double most = 0;
  for (std::int64_t at = 0; at < p.steps(); ++at) {
    std::int64_t const sequence = p.here->step.sequence(n, p.here->cache.memory.sequences, at);
    if (sequence < 0) {
      continue;
    }
    tessera::cached_sequence const known = p.here->cache.memory.sequences[sequence];
    for (std::int64_t head = 0; head < n.query_heads; ++head) {
      std::int64_t const key_head = head / n.group();
      for (std::int64_t chunk = 0; chunk < known.chunks; ++chunk) {
        std::int64_t const query = head % n.group();
        most = std::max(most, apart(double{p.here->step.scores(known.first + chunk, key_head, query)},
                                    double{p.found->step.scores(known.first + chunk, key_head, query)}));
      }
      for (std::int64_t block = 0; block * tessera::scored_chunks < known.chunks; ++block) {
        tessera::lse_reducer<float> const reducer;
        most = std::max(most, apart(double{reducer.value(p.here->step.score_sums(at, block, head))},
                                    double{reducer.value(p.found->step.score_sums(at, block, head))}));
      }
    }
  }
  return most;
}

/// The largest difference of two lists, relative to the largest magnitude of the first; 0 for NaNs at the same indices.
template <class U>
double list_error(U const* expected, U const* found, std::int64_t count) {
  double most = 0;
  double largest = 1e-30;
  for (std::int64_t i = 0; i < count; ++i) {
    auto const a = static_cast<double>(tessera::load(expected[i]));
    auto const b = static_cast<double>(tessera::load(found[i]));
    if (std::isnan(a) != std::isnan(b)) {
      return 1e30;
    }
    most = std::isnan(a) ? most : std::max(most, apart(a, b));
    largest = std::isnan(a) ? largest : std::max(largest, std::abs(a));
  }
  return most / largest;
}

/// The error of the splits of a step's attention: of their weighted sums and of the sums of their weights.
template <class Problem>
double split_error(Problem const& p, std::int64_t first, std::int64_t count) {
  auto const& n = p.extents();
  double most = 0;
  for (std::int64_t at = 0; at < p.steps(); ++at) {
    if (p.here->step.sequence(n, p.here->cache.memory.sequences, at) < 0) {
      continue;
    }
    for (std::int64_t split = first; split < first + count; ++split) {
      for (std::int64_t head = 0; head < n.query_heads; ++head) {
        auto const a = p.here->step.states(split, at, head);
        auto const b = p.found->step.states(split, at, head);
        CHECK(apart(double{a.largest}, double{b.largest}) < 0.01);
        CHECK(b.reference == b.largest);
        double const by = std::isinf(a.largest) ? 1.0 : std::exp2(double{b.reference} - double{a.reference});
        CHECK(by * double{b.sum} == Approx(double{a.sum}).epsilon(0.003));
        for (std::int64_t c = 0; c < n.channels; ++c) {
          double const difference =
              by * double{p.found->step.totals(split, at, head, c)} - double{p.here->step.totals(split, at, head, c)};
          most = std::max(most, std::abs(difference) / (a.sum > 0 ? double{a.sum} : 1.0));
        }
      }
    }
  }
  return most;
}

/// Checks every program of a step, each on the same memory on host and device.
template <class Method, class T>
void check_step(step_setup const& setup) {
  using problem_type = step_problem<Method, T>;
  using S = typename problem_type::selector_type;
  using E = typename problem_type::element;
  using blocks = typename problem_type::blocks_type;
  problem_type p(setup);
  tessera::offload_extents const n = p.extents();
  auto const in = p.tokens(setup.steps_before);
  auto const& host = p.here->cache;
  tessera::run(tessera::cpu{}, tessera::append_tokens<T, E>{n, host.memory, p.here->step, host.rotary, in.queries,
                                                            in.keys, in.values, nullptr});

  p.run([&](blocks const& b) {
    return tessera::score_chunks<T, S>{n, b.cache.memory, b.step, b.cache.selector, b.cache.scale};
  });
  CHECK(p.differing(2) == -1);
  CHECK(score_error(p) < 2e-4);

  p.run([&](blocks const& b) { return tessera::select_chunks<T, S>{n, b.cache.memory, b.step, b.cache.selector}; });
  CHECK(p.differing() == -1);
  p.run([&](blocks const& b) { return tessera::assign_slots<T, E>{n, b.cache.memory, b.step, true}; });
  CHECK(p.differing() == -1);
  for (bool const crosses_bus : {true, false}) {
    p.run([&](blocks const& b) {
      return tessera::fetch_values<T, E, typename problem_type::codec>{n, b.cache.memory, b.step, crosses_bus};
    });
    CHECK(p.differing() == -1);
  }

  p.run([&](blocks const& b) { return tessera::rebuild_keys<T, E>{n, b.cache.memory, b.step, b.cache.rotary}; });
  CHECK(list_error(p.here->cache.memory.slot_keys.data, p.found->cache.memory.slot_keys.data,
                   p.here->cache.memory.slot_keys.size()) < 0.006);  // within a step of bf16
  std::copy_n(p.here->cache.memory.slot_keys.data, p.here->cache.memory.slot_keys.size(),
              p.found->cache.memory.slot_keys.data);
  CHECK(p.differing() == -1);

  for (bool const is_selected : {false, true}) {
    std::int64_t const first = is_selected ? tessera::resident_splits(n) : 0;
    std::int64_t const count = is_selected ? tessera::selected_splits(n) : tessera::resident_splits(n);
    p.run([&](blocks const& b) {
      return tessera::attend_chunks<T, E>{n, b.cache.memory, b.step, b.cache.scale, first, count};
    });
    CHECK(p.differing(2) == -1);
    CHECK(split_error(p, first, count) < 0.02);
  }

  p.upload();
  tessera::buffer<float> results(p.exec(), p.results().size());
  tessera::buffer<float> sums(p.exec(), p.sums().size());
  auto const host_results = p.results();
  auto const host_sums = p.sums();
  tessera::run(p.exec(), tessera::merge_chunks<T, E, float>{n,
                                                            p.there->cache.memory.sequences,
                                                            p.there->step,
                                                            {results.data(), {p.steps(), n.query_heads, n.channels}},
                                                            {sums.data(), {p.steps(), n.query_heads}}});
  tessera::run(tessera::cpu{},
               tessera::merge_chunks<T, E, float>{n, host.memory.sequences, p.here->step, host_results, host_sums});
  std::vector<float> found(static_cast<std::size_t>(results.size()));
  std::vector<float> found_sums(static_cast<std::size_t>(sums.size()));
  p.exec().copy(results.view(), found);
  p.exec().copy(sums.view(), found_sums);
  p.exec().wait();
  CHECK(list_error(host_results.data, found.data(), results.size()) < 1e-5);
  CHECK(list_error(host_sums.data, found_sums.data(), sums.size()) < 1e-5);

  p.run([&](blocks const& b) { return tessera::project_archived<T, E>{n, b.cache.memory, b.step}; });
  auto const coefficients = host.memory.coefficients;
  CHECK(list_error(coefficients.data, p.found->cache.memory.coefficients.data, coefficients.size()) < 0.006);
  std::copy_n(coefficients.data, coefficients.size(), p.found->cache.memory.coefficients.data);
  for (std::int64_t at = 0; at < p.steps(); ++at) {
    CHECK(p.found->step.residuals[at] == Approx(p.here->step.residuals[at]).margin(1e-4));
    p.found->step.residuals[at] = p.here->step.residuals[at];
  }
  CHECK(p.differing() == -1);
  p.run([&](blocks const& b) {
    return tessera::archive_chunks<T, S, typename problem_type::codec>{n, b.cache.memory, b.step, b.cache.selector,
                                                                       3.0F};
  });
  CHECK(p.differing() == -1);
}

}  // namespace tessera_test
