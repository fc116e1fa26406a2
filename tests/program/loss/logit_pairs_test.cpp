// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/map/jensen_shannon.hpp>
#include <tessera/program/loss/logit_pairs.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/program.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Logits of a student and its teacher, in parts of a vocabulary.
struct pair_rows {
  std::int64_t tokens;
  std::int64_t entries;
  std::vector<float> student = {};
  std::vector<float> teacher = {};

  pair_rows(std::int64_t of_tokens, std::int64_t of_entries) : tokens(of_tokens), entries(of_entries) {
    for (std::int64_t i = 0; i < tokens * entries; ++i) {
      student.push_back(3.0F * testing::gauss{}.value(1, static_cast<std::uint64_t>(i)) + 200.0F);
      teacher.push_back(2.0F * testing::gauss{}.value(2, static_cast<std::uint64_t>(i)) - 50.0F);
    }
  }
  [[nodiscard]] matrix_view<float const> part(std::vector<float> const& of, std::int64_t first,
                                              std::int64_t end) const {
    return {of.data() + first, {tokens, end - first}, {entries, 1}};
  }
  [[nodiscard]] double log_sum(std::vector<float> const& of, std::int64_t token) const {
    double sum = 0;
    for (std::int64_t j = 0; j < entries; ++j) {
      sum += std::exp(static_cast<double>(of[static_cast<std::size_t>(token * entries + j)]) - 100);
    }
    return std::log(sum) + 100;
  }
  /// The mean of how much one side's log-probabilities exceed the other's, by the side's own probabilities.
  [[nodiscard]] double mean(std::vector<float> const& by, std::vector<float> const& other, std::int64_t token) const {
    double sum = 0;
    for (std::int64_t j = 0; j < entries; ++j) {
      auto const at = static_cast<std::size_t>(token * entries + j);
      double const log_by = static_cast<double>(by[at]) - log_sum(by, token);
      sum += std::exp(log_by) * (log_by - (static_cast<double>(other[at]) - log_sum(other, token)));
    }
    return sum;
  }
};

template <mean_log_ratio Ratio, class Exec>
std::vector<divergence_row> rows_of(Exec const& exec, pair_rows const& p, std::vector<std::int64_t> const& ends) {
  std::vector<logit_pair_state> states(static_cast<std::size_t>(p.tokens), {{NAN, NAN}, {NAN, NAN}, NAN});
  std::vector<divergence_row> rows(states.size(), {NAN, NAN, NAN, NAN});
  std::int64_t first = 0;
  for (std::int64_t const end : ends) {
    reduce_logit_pairs<Ratio> const reduction{p.part(p.student, first, end), p.part(p.teacher, first, end), states,
                                              first == 0};
    exec.run(reduction, reduction.groups());
    first = end;
  }
  finish_logit_pairs<Ratio> const finish{states, rows};
  exec.run(finish, finish.groups());
  return rows;
}

template <mean_log_ratio Ratio, class Exec>
void check_rows(Exec const& exec, pair_rows const& p, std::vector<std::int64_t> const& ends) {
  auto const rows = rows_of<Ratio>(exec, p, ends);
  for (std::int64_t i = 0; i < p.tokens; ++i) {
    auto const& row = rows[static_cast<std::size_t>(i)];
    bool const by_teacher = Ratio == mean_log_ratio::teacher;
    double const expected = Ratio == mean_log_ratio::none ? 0
                            : by_teacher                  ? p.mean(p.teacher, p.student, i)
                                                          : p.mean(p.student, p.teacher, i);
    CAPTURE(i, p.entries);
    CHECK(std::fabs(static_cast<double>(row.student) - p.log_sum(p.student, i)) <= 1e-4);
    CHECK(std::fabs(static_cast<double>(row.teacher) - p.log_sum(p.teacher, i)) <= 1e-4);
    CHECK(std::fabs(static_cast<double>(row.value) - expected) <= 1e-4 * (1 + expected));
    double const slopes = Ratio == mean_log_ratio::none ? 0 : by_teacher ? -1 : expected + 1;
    CHECK(std::fabs(static_cast<double>(row.slope_sum) - slopes) <= 1e-4 * (1 + expected));
  }
}

}  // namespace

TEST_CASE("pairs of logits give both log-sum-exps and means of log-ratios, over parts of any width", "[host]") {
  for (std::int64_t const tokens : {1, 7, 257}) {
    for (auto const& ends : {std::vector<std::int64_t>{1}, {255, 256, 513}, {300}, {1, 2, 30}, {1, 2, 600}}) {
      if (tokens == 257 && ends.back() > 300) {
        continue;  // wide parts for few tokens; many tokens for parts that are narrow, and for one
      }
      pair_rows const p(tokens, ends.back());
      check_rows<mean_log_ratio::none>(cpu{.threads = 1}, p, ends);
      check_rows<mean_log_ratio::teacher>(cpu{.threads = 1}, p, ends);
      check_rows<mean_log_ratio::student>(cpu{.threads = 1}, p, ends);
      check_rows<mean_log_ratio::teacher>(testing::adversary{.seed = 3}, p, ends);
    }
  }
}

TEST_CASE("a logit of minus infinity has no part in either mean", "[host]") {
  pair_rows p(2, 5);
  p.teacher[1] = -infinity;
  p.student[6] = -infinity;
  auto const by_teacher = rows_of<mean_log_ratio::teacher>(cpu{.threads = 1}, p, {5});
  CHECK(std::isfinite(by_teacher[0].value));
  CHECK(by_teacher[1].value == infinity);
  auto const by_student = rows_of<mean_log_ratio::student>(cpu{.threads = 1}, p, {5});
  CHECK(by_student[0].value == infinity);
  CHECK(std::isfinite(by_student[1].value));
}

TEST_CASE("values and slopes of parts are added up", "[host]") {
  pair_rows const p(5, 600);
  jensen_shannon const half;
  for (int run = 0; run < 2; ++run) {
    auto rows = rows_of<mean_log_ratio::none>(cpu{.threads = 1}, p, {600});
    std::int64_t first = 0;
    for (std::int64_t const end : {1, 257, 600}) {
      add_divergences<jensen_shannon> const add{half, p.part(p.student, first, end), p.part(p.teacher, first, end),
                                                rows};
      run == 0 ? cpu{.threads = 1}.run(add, add.groups()) : testing::adversary{.seed = 4}.run(add, add.groups());
      first = end;
    }
    for (std::int64_t i = 0; i < 5; ++i) {
      double value = 0;
      double slope = 0;
      for (std::int64_t j = 0; j < 600; ++j) {
        auto const at = static_cast<std::size_t>(i * 600 + j);
        auto const log_p = static_cast<float>(static_cast<double>(p.teacher[at]) - p.log_sum(p.teacher, i));
        auto const log_q = static_cast<float>(static_cast<double>(p.student[at]) - p.log_sum(p.student, i));
        value += static_cast<double>(half.value(log_p, log_q));
        slope += static_cast<double>(half.slope(log_p, log_q));
      }
      CHECK(std::fabs(static_cast<double>(rows[static_cast<std::size_t>(i)].value) - value) <= 1e-4);
      CHECK(std::fabs(static_cast<double>(rows[static_cast<std::size_t>(i)].slope_sum) - slope) <= 1e-4);
    }
  }
}

TEST_CASE("losses of tokens are weighted, summed and averaged; weights of 0 hide NaN", "[host]") {
  for (std::int64_t const tokens : {0, 1, 7, 256, 1000}) {
    std::vector<divergence_row> rows;
    std::vector<float> weights;
    double sum = 0;
    double of_weights = 0;
    for (std::int64_t i = 0; i < tokens; ++i) {
      float const value = testing::uniform{0.0, 2.0}.value(5, static_cast<std::uint64_t>(i));
      weights.push_back(i % 3 == 2 ? 0.0F : value + 0.5F);
      rows.push_back({0.0F, 0.0F, i % 3 == 2 ? NAN : value, 0.0F});
      sum += i % 3 == 2 ? 0.0 : static_cast<double>(weights.back()) * static_cast<double>(value);
      of_weights += static_cast<double>(weights.back());
    }
    for (int kind = 0; kind < 3; ++kind) {
      std::vector<float> loss(kind == 0 ? static_cast<std::size_t>(tokens) : 1, NAN);
      std::vector<float> scale(1, NAN);
      finish_distillation const finish{rows, weights, kind != 0, kind == 2, loss, {}, scale};
      cpu{.threads = 1}.run(finish, 1);
      double const expected = kind == 2 && tokens > 0 ? sum / of_weights : sum;
      if (kind != 0) {
        CHECK(std::fabs(static_cast<double>(loss[0]) - expected) <= 1e-5 * (1 + expected));
      }
      for (std::size_t i = 0; kind == 0 && i < loss.size(); ++i) {
        CHECK(loss[i] == (i % 3 == 2 ? 0.0F : weights[i] * rows[i].value));
      }
      double const factor = kind != 2 ? 1.0 : tokens > 0 ? 1 / of_weights : 0.0;
      CHECK(std::fabs(static_cast<double>(scale[0]) - factor) <= 1e-6);
    }
  }
}
