// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tessera/algorithm/gemm/row_reduction.hpp>
#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/reduce/write_top_entries.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/tile/gemm_tile.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"
#include "support/top_entries.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

constexpr float no_number = std::numeric_limits<float>::quiet_NaN();

template <int K>
using with_entropies =
    paired_reducer<paired_reducer<entropy_reducer<float>, sum_reducer<float>>, largest_entries_reducer<K>>;

/// A loss of small tiles with a finish of its own.
template <class T, class Finish>
using loss_for = linear_loss<gemm_tile<T, shape<64, 64, 32 / static_cast<int>(sizeof(T))>>, typename Finish::reducer>;

template <int K, class Finish = write_top_entries<K>, class Exec, class T>
top_results top_of(Exec const& exec, loss_problem<T> const& p) {
  using loss = loss_for<T, Finish>;
  top_results found(p.tokens, K);
  loss_results results(p.tokens, p.options.reduction);
  auto const plan = loss::plan_forward(exec, {p.tokens, p.vocabulary, p.channels}, p.options);
  buffer<std::byte> memory(exec, plan.bytes());
  Finish const finish{{found.entries.data(), {p.tokens, K}}, {found.log_probabilities.data(), {p.tokens, K}}};
  loss::forward(exec, p.inputs(), p.options, results.outputs<typename Finish::reducer>(), workspace(plan, memory),
                finish);
  exec.wait();
  return found;
}

/// Logits of all kinds: of usual data, and exact ones of which many are equal.
template <int K, class Finish = write_top_entries<K>, class T = float, class Exec>
void check_top(Exec const& exec, std::int64_t tokens, std::int64_t vocabulary, std::int64_t channels) {
  CAPTURE(K, tokens, vocabulary, channels);
  auto problem = make_loss_problem<T>(tokens, vocabulary, channels, vocabulary % 2 == 1);
  CHECK(wrong_top_entries(problem, top_of<K, Finish>(exec, problem), K, 1e-5, false) == 0);
  problem.options.softcap = 3.0F;
  problem.options.temperature = 0.75F;
  CHECK(wrong_top_entries(problem, top_of<K, Finish>(exec, problem), K, 1e-5, false) == 0);
  problem.options = {};
  round_operands(problem);
  CHECK(wrong_top_entries(problem, top_of<K, Finish>(exec, problem), K, 1e-5, true) == 0);
}

/// What the finish writes for a row of logits.
template <int K>
top_results top_of_row(std::vector<float> const& logits) {
  using finish = write_top_entries<K>;
  typename finish::reducer const reducer;
  auto state = reducer.identity();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    reducer.push(state, {logits[i], static_cast<std::int32_t>(i)});
  }
  top_results found(1, K);
  finish{{found.entries.data(), {1, K}}, {found.log_probabilities.data(), {1, K}}}(0, 0, state);
  return found;
}

}  // namespace

TEST_CASE("the likeliest entries of tokens and their log-probabilities are those of a sort", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const vocabulary : {1, 3, 7, 63, 64, 65, 300}) {
    check_top<1>(exec, 9, vocabulary, 12);
    check_top<4>(exec, 9, vocabulary, 12);
    check_top<8>(exec, 9, vocabulary, 12);
  }
  for (std::int64_t const tokens : {0, 1, 63, 64, 65}) {
    check_top<4>(exec, tokens, 150, 7);
  }
  check_top<4, write_top_entries<4>, bfloat16>(exec, 70, 200, 33);
  check_top<5, write_top_entries<5>, float16>(exec, 70, 200, 33);
  check_top<3>(exec, 5, 20, 0);  // all are equal: the first entries
}

TEST_CASE("the likeliest entries are written beside entropies, whose sums serve as log-sum-exps", "[host]") {
  cpu const exec{.threads = 1};
  check_top<4, write_top_entries<4, with_entropies<4>>>(exec, 33, 131, 24);
}

TEST_CASE("writing the likeliest entries keeps the rules for programs", "[host]") {
  testing::adversary const exec{.seed = 11};
  check_top<1>(exec, 3, 70, 9);
  check_top<4>(exec, 66, 130, 9);
}

TEST_CASE("the likeliest entries of logits in memory are written by row_reduction", "[host]") {
  cpu const exec{.threads = 1};
  using finish = write_top_entries<2>;
  std::vector<float> const logits{0.0F, 2.0F, 1.0F, 5.0F, 5.0F, 5.0F};
  top_results found(2, 2);
  finish const write{{found.entries.data(), {2, 2}}, {found.log_probabilities.data(), {2, 2}}};
  workspace const none(workspace_plan("test"), {});
  row_reduction<finish::reducer>::reduce(exec, {}, matrix_view<float const>(logits.data(), {2, 3}), write, none);
  CHECK(found.entries == std::vector<std::int32_t>{1, 2, 0, 1});
  double const sum = std::log(1.0 + std::exp(1.0) + std::exp(2.0));
  CHECK(static_cast<double>(found.log_probabilities[0]) == Approx(2.0 - sum));
  CHECK(static_cast<double>(found.log_probabilities[1]) == Approx(1.0 - sum));
  CHECK(static_cast<double>(found.log_probabilities[2]) == Approx(-std::log(3.0)));
  CHECK(static_cast<double>(found.log_probabilities[3]) == Approx(-std::log(3.0)));
  finish const too_few{{found.entries.data(), {1, 2}}};
  CHECK_THAT(message_of([&] {
               row_reduction<finish::reducer>::reduce(exec, {}, matrix_view<float const>(logits.data(), {2, 3}),
                                                      too_few, none);
             }),
             contains("the entries of the top are 1 x 2 but must be 2 x 2"));
}

TEST_CASE("a confident token's log-probability is accurate", "[host]") {
  auto const found = top_of_row<2>({1000.0F, 990.0F, 980.0F});
  CHECK(static_cast<double>(found.log_probabilities[0]) == Approx(-4.54e-5).epsilon(1e-2));
  CHECK(static_cast<double>(found.log_probabilities[1]) == Approx(-10.0000454).epsilon(1e-6));
}

TEST_CASE("NaNs are no entries, and entries that do not exist have index -1 and minus infinity", "[host]") {
  auto const few = top_of_row<3>({1.0F, 1.0F});
  CHECK(few.entries == std::vector<std::int32_t>{0, 1, -1});
  CHECK(static_cast<double>(few.log_probabilities[1]) == Approx(-std::log(2.0)));
  CHECK(few.log_probabilities[2] == -infinity);
  auto const with_nan = top_of_row<3>({1.0F, no_number, 2.0F});
  CHECK(with_nan.entries == std::vector<std::int32_t>{2, 0, -1});
  CHECK(std::isnan(with_nan.log_probabilities[0]));
  CHECK(std::isnan(with_nan.log_probabilities[1]));
  CHECK(with_nan.log_probabilities[2] == -infinity);
  auto const masked = top_of_row<3>({-infinity, 4.0F, -infinity});
  CHECK(masked.entries == std::vector<std::int32_t>{1, 0, 2});
  CHECK(masked.log_probabilities == std::vector<float>{0.0F, -infinity, -infinity});
  auto const all_masked = top_of_row<1>({-infinity, -infinity});
  CHECK(all_masked.entries == std::vector<std::int32_t>{0});
  CHECK(std::isnan(all_masked.log_probabilities[0]));
  auto const infinite = top_of_row<2>({1.0F, infinity});
  CHECK(infinite.entries == std::vector<std::int32_t>{1, 0});
  CHECK(std::isnan(infinite.log_probabilities[0]));
  CHECK(infinite.log_probabilities[1] == -infinity);
  auto const nothing = top_of_row<2>({});
  CHECK(nothing.entries == std::vector<std::int32_t>{-1, -1});
  CHECK(nothing.log_probabilities == std::vector<float>{-infinity, -infinity});
}

TEST_CASE("either matrix of the likeliest entries may be null", "[host]") {
  using finish = write_top_entries<2>;
  auto state = finish::reducer{}.identity();
  finish::reducer{}.push(state, {3.0F, 7});
  std::vector<std::int32_t> entries(2, 5);
  std::vector<float> values(2, 5.0F);
  finish{{entries.data(), {1, 2}}}(0, 0, state);
  finish{{}, {values.data(), {1, 2}}}(0, 0, state);
  finish{}(0, 0, state);
  CHECK(entries == std::vector<std::int32_t>{7, -1});
  CHECK(values == std::vector<float>{0.0F, -infinity});
}

TEST_CASE("matrices of the likeliest entries are refused where they do not fit the tokens", "[host]") {
  std::vector<std::int32_t> entries(12);
  std::vector<float> values(12);
  using finish = write_top_entries<2>;
  auto const refused = [](finish const& given) { return message_of([&] { check_finish("f", 4, given); }); };
  CHECK(refused({{entries.data(), {4, 2}}, {values.data(), {4, 2}}}) == "");
  CHECK(refused({}) == "");
  CHECK(refused({{entries.data(), {3, 2}}}) == "f: the entries of the top are 3 x 2 but must be 4 x 2");
  CHECK(refused({{}, {values.data(), {4, 3}}}) == "f: the log-probabilities of the top are 4 x 3 but must be 4 x 2");
  CHECK(refused({{nullptr, {4, 2}}}) == "f: the entries have no memory but 8 elements");
  CHECK(refused({{}, {values.data(), {4, 2}, {2, 0}}}) ==
        "f: dimension 1 of the log-probabilities has 2 elements with a stride of 0");
  CHECK(message_of([] { check_finish("f", 4, keep_no_state{}); }) == "");
  auto const problem = make_loss_problem<float>(4, 9, 3);
  using loss = loss_for<float, finish>;
  cpu const exec{.threads = 1};
  auto const plan = loss::plan_forward(exec, {4, 9, 3});
  buffer<std::byte> memory(exec, plan.bytes());
  loss_results results(4);
  CHECK(message_of([&] {
          loss::forward(exec, problem.inputs(), {}, results.outputs<finish::reducer>(), workspace(plan, memory),
                        finish{{entries.data(), {5, 2}}});
        }) == "linear_loss.forward: the entries of the top are 5 x 2 but must be 4 x 2");
}
