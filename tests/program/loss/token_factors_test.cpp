// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/loss/token_factors.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Tokens of which every third has no label, and the factors of those that have one.
struct factored_tokens {
  static constexpr std::int64_t channels = 19;
  std::int64_t tokens;
  std::vector<std::int64_t> order;
  std::vector<std::int64_t> row_of;
  std::vector<std::int32_t> labels;
  std::vector<std::int64_t> count{0};
  std::vector<loss_row_gradient> rows;
  std::vector<bfloat16> hidden;
  std::vector<std::int32_t> slots;  ///< of 10 entries, in reverse
  std::vector<loss_token_factors> factors;
  std::vector<std::uint8_t> unclean;
  std::vector<std::uint8_t> kept = std::vector<std::uint8_t>(1001, 3);

  explicit factored_tokens(std::int64_t of_tokens)
      : tokens(of_tokens),
        hidden(static_cast<std::size_t>(tokens * channels), store<bfloat16>(1.5F)),
        factors(static_cast<std::size_t>(tokens)),
        unclean(static_cast<std::size_t>((tokens + 127) / 128), 9) {
    for (std::int64_t token = 0; token < tokens; ++token) {
      row_of.push_back(has_label(token) ? count[0] : -1);
      if (has_label(token)) {
        auto const number = static_cast<float>(token);
        order.push_back(token);
        labels.push_back(static_cast<std::int32_t>(token % 10));
        rows.push_back({number, number + 0.5F, number + 0.25F, 1000.0F, -number});
        count[0] += 1;
      }
    }
    for (int entry = 0; entry < 10; ++entry) {
      slots.push_back(9 - entry);
    }
  }
  static bool has_label(std::int64_t token) { return token % 3 != 1; }

  template <class Executor>
  int wrong_factors(Executor const& exec, bool is_ordered) {
    make_loss_factors<bfloat16> const program{{order, row_of, labels, count},
                                              rows,
                                              {hidden.data(), {tokens, channels}},
                                              is_ordered ? slots.data() : nullptr,
                                              factors,
                                              unclean,
                                              kept};
    exec.run(program, program.groups());
    int wrong = 0;
    for (std::int64_t token = 0; token < tokens; ++token) {
      loss_token_factors const& own = factors[static_cast<std::size_t>(token)];
      auto const number = static_cast<float>(token);
      auto const label = static_cast<std::int32_t>(is_ordered ? 9 - token % 10 : token % 10);
      bool const is_right =
          has_label(token)
              ? own.log_sum_exp == number && own.by_softmax == number + 1000.25F && own.by_loss == number + 0.25F &&
                    own.label == label && own.by_entropy == -number && own.entropy == number + 0.5F
              : own.label == -1 && own.by_softmax == 0.0F && own.by_loss == 0.0F && own.by_entropy == 0.0F;
      wrong += is_right ? 0 : 1;
    }
    return wrong;
  }
};

}  // namespace

TEST_CASE("factors of tokens are those of their rows, and zeros where there is no label", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const tokens : {0, 1, 7, 127, 128, 129, 400}) {
    CAPTURE(tokens);
    factored_tokens problem(tokens);
    CHECK(problem.wrong_factors(exec, false) == 0);
    CHECK(problem.wrong_factors(exec, true) == 0);
    CHECK(problem.unclean == std::vector<std::uint8_t>(problem.unclean.size(), 0));
    CHECK(problem.kept == std::vector<std::uint8_t>(1001, tokens > 0 ? 0 : 3));
  }
}

TEST_CASE("hidden states that are not finite are noticed where their tokens have no label", "[host]") {
  cpu const exec{.threads = 1};
  for (float const bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    factored_tokens problem(300);
    problem.hidden[131 * 19 + 18] = store<bfloat16>(bad);  // has a label
    problem.hidden[256 * 19] = store<bfloat16>(bad);       // has none
    problem.wrong_factors(exec, false);
    CHECK(factored_tokens::has_label(131));
    CHECK_FALSE(factored_tokens::has_label(256));
    CHECK(problem.unclean == std::vector<std::uint8_t>{0, 0, 1});
  }
}

TEST_CASE("placing factors of tokens keeps the rules for programs", "[host]") {
  factored_tokens problem(200);
  problem.hidden[199 * 19 + 3] = store<bfloat16>(std::numeric_limits<float>::infinity());
  CHECK(problem.wrong_factors(testing::adversary{.seed = 11}, true) == 0);
  CHECK(problem.unclean == std::vector<std::uint8_t>{0, 1});
}

TEST_CASE("factors of tokens and lists of tiles are made in one launch", "[host][threads]") {
  constexpr std::int64_t most = 40;
  for (std::int64_t const tokens : {1, 128, 129, 700}) {
    CAPTURE(tokens);
    factored_tokens problem(tokens);
    factored_tokens apart(tokens);
    CHECK(apart.wrong_factors(cpu{.threads = 2}, true) == 0);
    std::vector<tile_coordinate> tiles(3 * most, {-1, -1});
    std::vector<std::int32_t> counts(3, -1);
    std::int64_t const blocks = divide_up(tokens, std::int64_t{128});
    list_loss_tiles const list{{0, 512, 1100, nullptr}, {}, blocks, 256, 2, {tiles.data(), {3, most}}, counts};
    prepare_loss_parts<bfloat16> const program{{{problem.order, problem.row_of, problem.labels, problem.count},
                                                problem.rows,
                                                {problem.hidden.data(), {tokens, factored_tokens::channels}},
                                                problem.slots.data(),
                                                problem.factors,
                                                problem.unclean,
                                                problem.kept},
                                               list};
    CHECK(program.groups() == blocks + 3);
    testing::adversary{.seed = 3}.run(program, program.groups());
    int wrong = 0;
    for (std::size_t token = 0; token < problem.factors.size(); ++token) {
      loss_token_factors const& own = problem.factors[token];
      loss_token_factors const& other = apart.factors[token];
      wrong += own.log_sum_exp == other.log_sum_exp && own.label == other.label && own.by_loss == other.by_loss ? 0 : 1;
    }
    CHECK(wrong == 0);
    CHECK(problem.unclean == apart.unclean);
    CHECK(problem.kept == std::vector<std::uint8_t>(1001, 0));
    auto const rows = static_cast<std::int32_t>(divide_up(blocks, std::int64_t{2}));
    CHECK(counts == std::vector<std::int32_t>{2 * rows, 2 * rows, rows});
    CHECK(tiles[static_cast<std::size_t>(2 * rows) - 1].row == rows - 1);
  }
}

TEST_CASE("factors of tokens are made and counters cleared in one launch", "[host]") {
  for (std::int64_t const tokens : {1, 129, 700}) {
    CAPTURE(tokens);
    factored_tokens problem(tokens);
    factored_tokens apart(tokens);
    CHECK(apart.wrong_factors(cpu{.threads = 1}, true) == 0);
    std::vector<std::int32_t> counters(300, 7);
    prepare_counted_parts<bfloat16> const program{{{problem.order, problem.row_of, problem.labels, problem.count},
                                                   problem.rows,
                                                   {problem.hidden.data(), {tokens, factored_tokens::channels}},
                                                   problem.slots.data(),
                                                   problem.factors,
                                                   problem.unclean,
                                                   {}},
                                                  counters};
    testing::adversary{.seed = 5}.run(program, program.groups());
    CHECK(counters == std::vector<std::int32_t>(300, 0));
    CHECK(problem.unclean == apart.unclean);
    int wrong = 0;
    for (std::size_t token = 0; token < problem.factors.size(); ++token) {
      wrong += problem.factors[token].log_sum_exp == apart.factors[token].log_sum_exp &&
                       problem.factors[token].label == apart.factors[token].label
                   ? 0
                   : 1;
    }
    CHECK(wrong == 0);
  }
}
