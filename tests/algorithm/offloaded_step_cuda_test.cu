// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/offloaded_cache.cuh>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/side_queue.cuh>
#include <tessera/project/low_rank.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/select/coded_landmark.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/offload_problem.hpp"
#include "support/offload_steps.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

template <int Rank, int Chunk = 8, class Codec = exact_values, class Group = group_max>
using cache_of = offloaded_cache<low_rank_projector<Rank>, landmark_selector<Chunk, Group>, keep_outliers<4>, Codec>;
template <int Rank, int Chunk = 8, class Codec = exact_values, class Group = group_max>
using coded_cache_of =
    offloaded_cache<low_rank_projector<Rank>, coded_landmark_selector<Chunk, Group>, keep_outliers<4>, Codec>;

double apart(double a, double b) {
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
    cached_sequence const known = p.here->cache.memory.sequences[sequence];
    for (std::int64_t head = 0; head < n.query_heads; ++head) {
      std::int64_t const key_head = head / n.group();
      for (std::int64_t chunk = 0; chunk < known.chunks; ++chunk) {
        std::int64_t const query = head % n.group();
        most = std::max(most, apart(double{p.here->step.scores(known.first + chunk, key_head, query)},
                                    double{p.found->step.scores(known.first + chunk, key_head, query)}));
      }
      for (std::int64_t block = 0; block * scored_chunks < known.chunks; ++block) {
        lse_reducer<float> const reducer;
        most = std::max(most, apart(double{reducer.value(p.here->step.score_sums(at, block, head))},
                                    double{reducer.value(p.found->step.score_sums(at, block, head))}));
      }
    }
  }
  return most;
}

/// The largest difference of two lists, relative to the largest magnitude of the first; of NaN in the same places 0.
template <class U>
double list_error(U const* expected, U const* found, std::int64_t count) {
  double most = 0;
  double largest = 1e-30;
  for (std::int64_t i = 0; i < count; ++i) {
    auto const a = static_cast<double>(load(expected[i]));
    auto const b = static_cast<double>(load(found[i]));
    if (std::isnan(a) != std::isnan(b)) {
      return 1e30;
    }
    most = std::isnan(a) ? most : std::max(most, apart(a, b));
    largest = std::isnan(a) ? largest : std::max(largest, std::abs(a));
  }
  return most / largest;
}

/// Of the shares of a step's attention: of what they add up to and of their sums.
template <class Problem>
double share_error(Problem const& p, std::int64_t first, std::int64_t count) {
  auto const& n = p.extents();
  double most = 0;
  for (std::int64_t at = 0; at < p.steps(); ++at) {
    if (p.here->step.sequence(n, p.here->cache.memory.sequences, at) < 0) {
      continue;
    }
    for (std::int64_t share = first; share < first + count; ++share) {
      for (std::int64_t head = 0; head < n.query_heads; ++head) {
        auto const a = p.here->step.states(share, at, head);
        auto const b = p.found->step.states(share, at, head);
        CHECK(apart(double{a.largest}, double{b.largest}) < 0.01);
        CHECK(b.reference == b.largest);
        double const by = std::isinf(a.largest) ? 1.0 : std::exp2(double{b.reference} - double{a.reference});
        CHECK(by * double{b.sum} == Approx(double{a.sum}).epsilon(0.003));
        for (std::int64_t c = 0; c < n.channels; ++c) {
          double const difference =
              by * double{p.found->step.totals(share, at, head, c)} - double{p.here->step.totals(share, at, head, c)};
          most = std::max(most, std::abs(difference) / (a.sum > 0 ? double{a.sum} : 1.0));
        }
      }
    }
  }
  return most;
}

/// Every program of a step, each on the same memory here and there.
template <class Method, class T>
void check_step(step_setup const& setup) {
  using problem_type = step_problem<Method, T>;
  using S = typename problem_type::selector_type;
  using E = typename problem_type::element;
  using blocks = typename problem_type::blocks_type;
  problem_type p(setup);
  offload_extents const n = p.extents();
  auto const in = p.tokens(setup.steps_before);
  auto const& host = p.here->cache;
  run_program(cpu{},
              append_tokens<T, E>{n, host.memory, p.here->step, host.rotary, in.queries, in.keys, in.values, nullptr});

  p.run([&](blocks const& b) {
    return score_chunks<T, S>{n, b.cache.memory, b.step, b.cache.selector, b.cache.scale};
  });
  CHECK(p.differing(2) == -1);
  CHECK(score_error(p) < 2e-4);

  p.run([&](blocks const& b) { return select_chunks<T, S>{n, b.cache.memory, b.step, b.cache.selector}; });
  CHECK(p.differing() == -1);
  p.run([&](blocks const& b) { return place_chunks<T, E>{n, b.cache.memory, b.step, true}; });
  CHECK(p.differing() == -1);
  for (bool const crosses_bus : {true, false}) {
    p.run([&](blocks const& b) {
      return fetch_values<T, E, typename problem_type::codec>{n, b.cache.memory, b.step, crosses_bus};
    });
    CHECK(p.differing() == -1);
  }

  p.run([&](blocks const& b) { return rebuild_keys<T, E>{n, b.cache.memory, b.step, b.cache.rotary}; });
  CHECK(list_error(p.here->cache.memory.slot_keys.data, p.found->cache.memory.slot_keys.data,
                   p.here->cache.memory.slot_keys.size()) < 0.006);  // a step of bf16
  std::copy_n(p.here->cache.memory.slot_keys.data, p.here->cache.memory.slot_keys.size(),
              p.found->cache.memory.slot_keys.data);
  CHECK(p.differing() == -1);

  for (bool const is_selected : {false, true}) {
    std::int64_t const first = is_selected ? resident_shares(n) : 0;
    std::int64_t const count = is_selected ? selected_shares(n) : resident_shares(n);
    p.run([&](blocks const& b) { return attend_chunks<T, E>{n, b.cache.memory, b.step, b.cache.scale, first, count}; });
    CHECK(p.differing(2) == -1);
    CHECK(share_error(p, first, count) < 0.02);
  }

  p.upload();
  buffer<float> results(p.exec(), p.results().size());
  buffer<float> sums(p.exec(), p.sums().size());
  auto const host_results = p.results();
  auto const host_sums = p.sums();
  run_program(p.exec(), merge_chunks<T, E, float>{n,
                                                  p.there->cache.memory.sequences,
                                                  p.there->step,
                                                  {results.data(), {p.steps(), n.query_heads, n.channels}},
                                                  {sums.data(), {p.steps(), n.query_heads}}});
  run_program(cpu{}, merge_chunks<T, E, float>{n, host.memory.sequences, p.here->step, host_results, host_sums});
  std::vector<float> found(static_cast<std::size_t>(results.size()));
  std::vector<float> found_sums(static_cast<std::size_t>(sums.size()));
  p.exec().copy(results.view(), found);
  p.exec().copy(sums.view(), found_sums);
  p.exec().wait();
  CHECK(list_error(host_results.data, found.data(), results.size()) < 1e-5);
  CHECK(list_error(host_sums.data, found_sums.data(), sums.size()) < 1e-5);

  p.run([&](blocks const& b) { return project_archived<T, E>{n, b.cache.memory, b.step}; });
  auto const coefficients = host.memory.coefficients;
  CHECK(list_error(coefficients.data, p.found->cache.memory.coefficients.data, coefficients.size()) < 0.006);
  std::copy_n(coefficients.data, coefficients.size(), p.found->cache.memory.coefficients.data);
  for (std::int64_t at = 0; at < p.steps(); ++at) {
    CHECK(p.found->step.residuals[at] == Approx(p.here->step.residuals[at]).margin(1e-4));
    p.found->step.residuals[at] = p.here->step.residuals[at];
  }
  CHECK(p.differing() == -1);
  p.run([&](blocks const& b) {
    return archive_chunks<T, S, typename problem_type::codec>{n, b.cache.memory, b.step, b.cache.selector, 3.0F};
  });
  CHECK(p.differing() == -1);
}

/// Of steps on the device, against dense attention in double.
template <class Method, class T>
double dense_error(step_setup const& setup, std::int64_t steps) {
  step_problem<Method, T> p(setup);
  p.upload();
  offload_heads const& h = setup.heads;
  side_queue<tessera::cuda> const side(p.exec(), Method::side_marks);
  double error = 0;
  for (std::int64_t k = setup.steps_before; k < setup.steps_before + steps; ++k) {
    auto const found = p.decode_there(side, k);
    std::size_t first = 0;
    for (std::size_t i = 0; i < setup.prompts.size(); ++i) {
      auto const expected = dense_attention(h, p.sequence(i), setup.prompts[i] + k, p.embedding());
      std::vector<float> const own(found.begin() + static_cast<std::ptrdiff_t>(first),
                                   found.begin() + static_cast<std::ptrdiff_t>(first + expected.size()));
      error = std::max(error, relative_error(own, expected));
      first += expected.size();
    }
  }
  return error;
}

}  // namespace

TEST_CASE("programs of a step leave on the device what they leave on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  SECTION("64 channels") {
    check_step<cache_of<64>, bfloat16>({});
  }
  SECTION("the paper's heads") {
    check_step<cache_of<160>, bfloat16>({{32, 8, 128}, {700, 130}, 2, 20, 0, 128, rotary_pairs::halves, {}});
  }
  SECTION("as many chunks as there are") {
    check_step<cache_of<64>, bfloat16>({{8, 2, 64}, {300, 90}, 2, 64, 0, 64, rotary_pairs::halves, {}});
  }
  SECTION("more slots than chunks are selected") {
    check_step<cache_of<96>, bfloat16>({{3, 3, 64}, {420}, 9, 5, 17, 64, rotary_pairs::halves, {}});
  }
  SECTION("many query heads, in 16-bit floats, neighbouring channels that turn in part") {
    check_step<cache_of<64>, float16>({{24, 2, 64}, {420, 77}, 3, 12, 0, 32, rotary_pairs::neighbours, {}});
  }
  SECTION("the largest rank, and neighbouring channels that all turn") {
    check_step<cache_of<192>, bfloat16>({{8, 4, 64}, {650, 90}, 3, 40, 50, 64, rotary_pairs::neighbours, {}});
  }
  SECTION("one table of the turns of all positions") {
    check_step<cache_of<64>, bfloat16>({{8, 2, 64}, {650, 90}, 3, 12, 0, 64, rotary_pairs::halves, {}, true});
  }
  SECTION("many query heads of bfloat16, without rotations, chunks of 16") {
    check_step<cache_of<32, 16>, bfloat16>({{32, 2, 128}, {660}, 3, 9, 0, 0, rotary_pairs::halves, {}});
  }
  SECTION("steps of some sequences") {
    check_step<cache_of<64>, bfloat16>({{8, 2, 64}, {650, 90, 200}, 3, 12, 0, 64, rotary_pairs::halves, {2, -1, 0}});
  }
  SECTION("a chunk leaves the ring") {
    check_step<cache_of<64>, bfloat16>({{8, 2, 64}, {650, 90, 3}, 5, 12, 0, 64, rotary_pairs::halves, {}});
  }
  SECTION("a chunk of 16 leaves the ring") {
    check_step<cache_of<72, 16>, float16>({{4, 2, 64}, {640}, 15, 6, 0, 64, rotary_pairs::halves, {}});
  }
  SECTION("several blocks of chunks, more chunks than lanes") {
    check_step<cache_of<64>, bfloat16>({{2, 1, 64}, {4500, 1500}, 2, 100, 0, 64, rotary_pairs::halves, {}});
  }
  SECTION("the mean of shares") {
    check_step<cache_of<64, 8, exact_values, group_mean>, bfloat16>({});
  }
}

TEST_CASE("programs of a step leave on the device what they leave on the host, with landmarks in codes", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  SECTION("64 channels") {
    check_step<coded_cache_of<64>, bfloat16>({});
  }
  SECTION("the paper's heads") {
    check_step<coded_cache_of<160>, bfloat16>({{32, 8, 128}, {700, 130}, 2, 20, 0, 128, rotary_pairs::halves, {}});
  }
  SECTION("in 16-bit floats") {
    check_step<coded_cache_of<64>, float16>({{24, 2, 64}, {420, 77}, 3, 12, 0, 32, rotary_pairs::neighbours, {}});
  }
  SECTION("many query heads without rotations, chunks of 16") {
    check_step<coded_cache_of<32, 16>, bfloat16>({{32, 2, 128}, {660}, 3, 9, 0, 0, rotary_pairs::halves, {}});
  }
  SECTION("steps of some sequences") {
    check_step<coded_cache_of<64>, bfloat16>(
        {{8, 2, 64}, {650, 90, 200}, 3, 12, 0, 64, rotary_pairs::halves, {2, -1, 0}});
  }
  SECTION("a chunk leaves the ring") {
    check_step<coded_cache_of<64>, bfloat16>({{8, 2, 64}, {650, 90, 3}, 5, 12, 0, 64, rotary_pairs::halves, {}});
  }
  SECTION("several blocks of chunks, one key head") {
    check_step<coded_cache_of<64>, bfloat16>({{2, 1, 64}, {4500, 1500}, 2, 100, 0, 64, rotary_pairs::halves, {}});
  }
  SECTION("the mean of shares, values in codes") {
    check_step<coded_cache_of<64, 8, float8_quantizer<float8_e4m3>, group_mean>, bfloat16>({});
  }
}

TEST_CASE("steps on the device that attend to all chunks, with all directions, are dense attention", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(dense_error<cache_of<128>, bfloat16>({{8, 2, 64}, {300, 90}, 2, 64, 0, 64, rotary_pairs::halves, {}}, 20) <
        0.012);
  CHECK(dense_error<cache_of<128>, float16>({{16, 1, 128}, {260}, 3, 64, 0, 128, rotary_pairs::neighbours, {}}, 9) <
        0.002);
}

TEST_CASE("coded values of a step are fetched as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_step<cache_of<64, 8, float8_quantizer<float8_e4m3>>, bfloat16>(
      {{8, 2, 64}, {650, 90, 3}, 5, 12, 0, 64, rotary_pairs::halves, {}});
  check_step<cache_of<160, 8, float8_quantizer<float8_e4m3>>, bfloat16>(
      {{16, 4, 128}, {500, 130}, 2, 20, 0, 128, rotary_pairs::halves, {}});
  check_step<cache_of<64, 8, symmetric_quantizer<4, 64>>, float16>({});
}
