// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/loss/logit_gradient.hpp>
#include <tessera/testing/adversary.hpp>

#include "program/loss/small_logits.hpp"
#include "support/catch.hpp"

using namespace tessera;
using tessera_test::small_logits;

namespace {

/// Blocks of 32 tokens and 16 entries.
struct small_blocks {
  static constexpr int rows = 32;
  static constexpr int columns = 16;
};
using program_type = loss_gradient_tiles<tessera_test::small_logit_tile, small_blocks>;

/// The gradient for a part of the vocabulary, by the program and in double.
struct gradient_problem {
  small_logits logits;
  std::int64_t first;
  std::int64_t entries;
  float smoothing = 0.1F;
  gradient_thresholds thresholds{0.02F, 0.05F};
  std::vector<double> exact_logits;        ///< rows of the list x vocabulary
  std::vector<double> exact_log_sum_exps;  ///< of the rows of the list
  std::vector<loss_row_gradient> rows;
  std::int64_t block_rows;
  std::int64_t block_columns;
  std::vector<bfloat16> gradient;
  std::vector<std::uint8_t> for_hidden;
  std::vector<std::uint8_t> for_classifier;
  std::vector<float> column_sums;

  gradient_problem(std::int64_t tokens, std::int64_t vocabulary, std::int64_t from, std::int64_t count)
      : logits(tokens, vocabulary, 24), first(from), entries(count) {
    logits.bend(5.0F, 0.25F);
    for (std::int64_t row = 0; row < logits.count[0]; ++row) {
      double sum = 0;
      for (std::int64_t entry = 0; entry < vocabulary; ++entry) {
        exact_logits.push_back(logits.logit(row, entry));
        sum += std::exp(exact_logits.back());
      }
      double const log_sum_exp = std::log(sum);
      exact_log_sum_exps.push_back(log_sum_exp);
      double entropy = 0;
      for (std::int64_t entry = 0; entry < vocabulary; ++entry) {
        double const information = information_of(row, entry);
        entropy -= std::exp(information) * information;
      }
      auto const number = static_cast<float>(row % 5);
      rows.push_back({static_cast<float>(log_sum_exp), static_cast<float>(entropy), 1.0F + number, 0.25F * number,
                      -0.5F * number});
    }
    std::int64_t const row_tiles = logits.logits().row_tiles();
    std::int64_t const column_tiles = (entries + 63) / 64;
    block_rows = row_tiles * 2;
    block_columns = column_tiles * 4;
    gradient.resize(static_cast<std::size_t>(tokens * entries), store<bfloat16>(-768.0F));
    for_hidden.resize(static_cast<std::size_t>(block_rows * block_columns), 9);
    for_classifier = for_hidden;
    column_sums.resize(static_cast<std::size_t>(row_tiles * entries), -768.0F);
  }

  template <class Executor>
  void run(Executor const& exec) {
    std::int64_t const row_tiles = logits.logits().row_tiles();
    program_type const program{logits.logits(),
                               logits.list(),
                               rows,
                               smoothing,
                               thresholds,
                               {first,
                                {gradient.data(), {logits.tokens, entries}},
                                {for_hidden.data(), {block_rows, block_columns}},
                                {for_classifier.data(), {block_rows, block_columns}},
                                {column_sums.data(), {row_tiles, entries}}}};
    exec.run(program, program.groups());
  }

  [[nodiscard]] double logit_of(std::int64_t row, std::int64_t entry) const {
    return exact_logits[static_cast<std::size_t>(row * logits.vocabulary + entry)];
  }
  [[nodiscard]] double information_of(std::int64_t row, std::int64_t entry) const {
    return logit_of(row, entry) - exact_log_sum_exps[static_cast<std::size_t>(row)];
  }
  /// Softmax minus target.
  [[nodiscard]] double apart(std::int64_t row, std::int64_t entry) const {
    auto const spread = static_cast<double>(smoothing) / static_cast<double>(logits.vocabulary);
    bool const is_label = logits.labels[static_cast<std::size_t>(row)] == entry;
    double const target = spread + (is_label ? 1.0 - static_cast<double>(smoothing) : 0.0);
    return std::exp(information_of(row, entry)) - target;
  }
  [[nodiscard]] double expected(std::int64_t row, std::int64_t entry) const {
    if (row >= logits.count[0]) {
      return 0.0;
    }
    loss_row_gradient const& own = rows[static_cast<std::size_t>(row)];
    double const logit = logit_of(row, entry);
    double const information = information_of(row, entry);
    double const softmax = std::exp(information);
    double const bent = logit / (static_cast<double>(logits.inverse_temperature) * static_cast<double>(logits.cap));
    double const slope = (1.0 - bent * bent) * static_cast<double>(logits.inverse_temperature);
    return slope *
           (static_cast<double>(own.by_loss) * apart(row, entry) + static_cast<double>(own.by_log_sum_exp) * softmax -
            static_cast<double>(own.by_entropy) * softmax * (information + static_cast<double>(own.entropy)));
  }

  /// How many gradients, sums of columns and marks of blocks are wrong.
  [[nodiscard]] int wrong() const {
    int count = 0;
    std::vector<double> sums(column_sums.size());
    std::vector<double> farthest(for_hidden.size());
    for (std::int64_t row = 0; row < logits.tokens; ++row) {
      for (std::int64_t i = 0; i < entries; ++i) {
        auto const block = static_cast<std::size_t>(row / 32 * block_columns + i / 16);
        double const exact = expected(row, first + i);
        double const found = static_cast<double>(load(gradient[static_cast<std::size_t>(row * entries + i)]));
        bool const is_kept = for_hidden[block] != 0 || for_classifier[block] != 0;
        bool const is_near = std::fabs(found - exact) <= std::fabs(exact) / 256 + 2e-5;
        count += (is_kept ? is_near : found == -768.0) ? 0 : 1;
        sums[static_cast<std::size_t>(row / 64 * entries + i)] += exact;
        if (row < logits.count[0]) {
          farthest[block] = std::fmax(farthest[block], std::fabs(apart(row, first + i)));
        }
      }
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      count += std::fabs(sums[i] - static_cast<double>(column_sums[i])) <= 1e-4 ? 0 : 1;
    }
    for (std::size_t block = 0; block < farthest.size(); ++block) {
      auto const is_right = [&](std::uint8_t kept, float threshold) {
        bool const is_close = std::fabs(farthest[block] - static_cast<double>(threshold)) < 1e-5;
        return is_close || kept == (farthest[block] >= static_cast<double>(threshold) ? 1 : 0);
      };
      count += is_right(for_hidden[block], thresholds.hidden) ? 0 : 1;
      count += is_right(for_classifier[block], thresholds.classifier) ? 0 : 1;
    }
    return count;
  }
};

}  // namespace

TEST_CASE("gradients by logits are those of a loop in double, and blocks below the threshold are left out",
          "[host][slow][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const tokens : {1, 7, 64, 90}) {
    for (std::int64_t const vocabulary : {1, 65, 150}) {
      CAPTURE(tokens, vocabulary);
      gradient_problem problem(tokens, vocabulary, 0, vocabulary);
      problem.run(exec);
      CHECK(problem.wrong() == 0);
    }
  }
  gradient_problem part(70, 300, 64, 100);
  part.run(exec);
  CHECK(part.wrong() == 0);
  int kept = 0;
  for (std::uint8_t const mark : part.for_classifier) {
    kept += mark;
  }
  CHECK(kept > 0);
  CHECK(kept < static_cast<int>(part.for_classifier.size()));
}

TEST_CASE("thresholds of zero keep all blocks that have a token", "[host]") {
  gradient_problem problem(40, 130, 0, 130);
  problem.thresholds = {0.0F, 0.0F};
  problem.run(cpu{.threads = 1});
  for (std::int64_t column = 0; column < 9; ++column) {
    CHECK(problem.for_hidden[static_cast<std::size_t>(column)] == 1);
  }
  for (std::int64_t i = 0; i < 130; ++i) {
    CHECK(load(problem.gradient[static_cast<std::size_t>(i)]) != -768.0F);
  }
}

TEST_CASE("gradients by logits keep the rules for programs", "[host]") {
  gradient_problem problem(9, 70, 0, 70);
  problem.run(testing::adversary{.seed = 7});
  CHECK(problem.wrong() == 0);
}
