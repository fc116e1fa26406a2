// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The likeliest entries of tokens by the fast forward programs: that of sm_90a, and that of sm_80 on whatever GPU there
// is. Executors refuse slower programs, so that a test fails where these would not run.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/loss/with_classifier.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/reduce/write_top_entries.hpp>

#include "algorithm/loss/linear_loss_on_device.cuh"
#include "algorithm/loss/strict_executor.cuh"
#include "support/stored_classifiers.hpp"
#include "support/top_entries.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

template <int K>
using top_loss = cut_cross_entropy_of<bfloat16, typename write_top_entries<K>::reducer>;

/// `in`: the inputs of the loss, whose classifier may be a source.
template <int K, class Loss, class Exec, class Inputs>
top_results top_of_inputs(Exec exec, loss_problem<bfloat16> const& p, Inputs const& in) {
  using finish = write_top_entries<K>;
  exec.options.refuses_slower_programs = true;
  tessera::cuda const host;
  top_results found(p.tokens, K);
  auto entries = to_device(host, found.entries);
  auto log_probabilities = to_device(host, found.log_probabilities);
  buffer<float> loss_of_all(host, 1);
  auto const plan = Loss::plan_forward(exec, {p.tokens, p.vocabulary, p.channels}, p.options);
  buffer<std::byte> memory(host, plan.bytes());
  host.wait();
  Loss::forward(exec, in, p.options, {.loss = loss_of_all.view()}, workspace(plan, memory),
                finish{{entries.data(), {p.tokens, K}}, {log_probabilities.data(), {p.tokens, K}}});
  exec.wait();
  found.entries = to_host(host, entries);
  found.log_probabilities = to_host(host, log_probabilities);
  return found;
}

template <int K, class Exec>
top_results top_on_device(Exec const& exec, loss_problem<bfloat16> const& p) {
  device_problem<bfloat16, std::int64_t> const in(tessera::cuda{}, p);
  return top_of_inputs<K, top_loss<K>>(exec, p, in.inputs());
}

template <int K>
void check_top(loss_problem<bfloat16> const& p, double tolerance, bool are_exact) {
  CAPTURE(K, p.tokens, p.vocabulary, p.channels, p.options.softcap, p.options.temperature, are_exact);
  CHECK(wrong_top_entries(p, top_on_device<K>(ring_executor{}, p), K, tolerance, are_exact) == 0);
  if (is_hopper()) {
    CHECK(wrong_top_entries(p, top_on_device<K>(tessera::cuda{}, p), K, tolerance, are_exact) == 0);
  }
}

/// Usual logits, and exact ones of which many are equal: the first of them come first.
template <int K>
void check_extents(std::int64_t tokens, std::int64_t vocabulary, std::int64_t channels) {
  auto problem = make_loss_problem<bfloat16>(tokens, vocabulary, channels, vocabulary % 2 == 1);
  check_top<K>(problem, 1e-5, false);
  round_operands(problem);
  check_top<K>(problem, 1e-5, true);
}

template <int K>
void check_all() {
  for (std::int64_t const vocabulary : {1, 3, 7, 127, 128, 129, 191, 192, 193, 1000, 20000}) {
    check_extents<K>(70, vocabulary, 64);
  }
  for (std::int64_t const tokens : {1, 7, 127, 128, 129, 300}) {
    check_extents<K>(tokens, 777, 72);
  }
  check_extents<K>(2000, 9000, 128);  // several splits of a row
  auto problem = make_loss_problem<bfloat16>(140, 700, 64, true);
  for (std::size_t entry = 100; entry < 600; ++entry) {  // whole tiles, and parts of others
    problem.bias[entry] = store<bfloat16>(-INFINITY);
  }
  check_top<K>(problem, 1e-5, false);
  problem = make_loss_problem<bfloat16>(140, 700, 64, true);
  problem.options.temperature = 0.5F;
  check_top<K>(problem, 1e-5, false);
  problem.options.softcap = 5.0F;
  check_top<K>(problem, 5e-4, false);  // the cap is by fast exponentials
}

}  // namespace

TEST_CASE("the likeliest entry of each token is found by the fast programs on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_all<1>();
}

TEST_CASE("the four likeliest entries of each token are found by the fast programs on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_all<4>();
}

TEST_CASE("the eight likeliest entries of each token are found by the fast programs on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_all<8>();
}

TEST_CASE("the likeliest entries of rows that a source gives are found on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  using source = row_scaled<bfloat16>;
  tessera::cuda const host;
  for (std::int64_t const vocabulary : {7, 3001}) {
    auto const p = make_stored_problem<source>(130, vocabulary, 72, true);
    device_problem<bfloat16, std::int64_t> const there(host, p.rounded);
    auto const codes = to_device(host, p.codes);
    auto const scales = to_device(host, p.params);
    auto const plain = there.inputs();
    linear_loss_inputs<bfloat16, std::int64_t, identity_logits, source> const in{
        plain.hidden, source_memory<source>::source(codes.data(), scales.data(), vocabulary, 72), plain.labels,
        plain.bias, plain.weights};
    using loss = with_classifier<top_loss<4>, source>;
    CHECK(wrong_top_entries(p.rounded, top_of_inputs<4, loss>(host, p.rounded, in), 4, 1e-5, false) == 0);
  }
}

TEST_CASE("NaNs are no likeliest entries, and make a row's log-probabilities NaN, on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto problem = make_loss_problem<bfloat16>(140, 700, 64, true);
  for (std::int64_t const entry : {0, 5, 699}) {
    problem.bias[static_cast<std::size_t>(entry)] = store<bfloat16>(NAN);
  }
  problem.labels.assign(140, 3);
  auto const check = [&](top_results const& found) {
    int wrong = 0;
    for (std::int32_t const entry : found.entries) {
      wrong += entry > 0 && entry < 699 && entry != 5 ? 0 : 1;
    }
    for (float const value : found.log_probabilities) {
      wrong += std::isnan(value) ? 0 : 1;
    }
    CHECK(wrong == 0);
  };
  check(top_on_device<4>(ring_executor{}, problem));
  if (is_hopper()) {
    check(top_on_device<4>(tessera::cuda{}, problem));
  }
}

TEST_CASE("the likeliest entries are refused where their matrix lies in the host's memory", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  using finish = write_top_entries<1>;
  using loss = cut_cross_entropy_of<bfloat16, finish::reducer>;
  auto const problem = make_loss_problem<bfloat16>(8, 64, 64);
  device_problem<bfloat16, std::int64_t> const in(exec, problem);
  buffer<float> value(exec, 1);
  auto const plan = loss::plan_forward(exec, {8, 64, 64});
  buffer<std::byte> memory(exec, plan.bytes());
  std::vector<std::int32_t> entries(8);
  CHECK_THROWS_AS(loss::forward(exec, in.inputs(), {}, {.loss = value.view()}, workspace(plan, memory),
                                finish{{entries.data(), {8, 1}}}),
                  value_error);
}
