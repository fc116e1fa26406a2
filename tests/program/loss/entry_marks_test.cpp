// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/loss/entry_marks.hpp>
#include <tessera/reduce/sum.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using lse = lse_reducer<float>;
using with_entropy = paired_reducer<entropy_reducer<float>, sum_reducer<float>>;
constexpr double log2_of_e = 1.4426950408889634;
constexpr float infinite = std::numeric_limits<float>::infinity();

/// States of some splits and rows, each of three logits.
template <class R>
struct split_states {
  std::int64_t splits;
  std::int64_t rows;
  std::vector<typename R::state_type> states;
  std::vector<loss_bound> bounds;
  std::vector<known_loss> known;
  std::vector<std::uint32_t> live{1};
  std::vector<std::int32_t> is_marked{0};

  split_states(std::int64_t of_splits, std::int64_t of_rows)
      : splits(of_splits),
        rows(of_rows),
        states(static_cast<std::size_t>(splits * rows)),
        bounds(states.size(), {3.0F, 4.0F}),
        known(static_cast<std::size_t>(rows), {-5.0F, -5.0F}) {}

  static float logit(std::int64_t split, std::int64_t row, int i) {
    return static_cast<float>((split * 7 + row * 3 + i * 5) % 11) - 4.0F;
  }
  void push() {
    for (std::int64_t split = 0; split < splits; ++split) {
      for (std::int64_t row = 0; row < rows; ++row) {
        auto const at = static_cast<std::size_t>(split * rows + row);
        for (int i = 0; i < 3; ++i) {
          push_indexed(R{}, states[at], indexed_value<float>{logit(split, row, i), i});
        }
        bounds[at] = {static_cast<float>((split * 5 + row) % 9), 0.0F};
      }
    }
  }
  loss_marks marks(float threshold) {
    return {{live.data(), {1, 1}}, {bounds.data(), {splits, rows}}, known, is_marked, threshold};
  }
  template <class Executor>
  void clear(Executor const& exec, float threshold) {
    clear_loss_states<R> const program{{states.data(), {splits, rows}}, marks(threshold)};
    exec.run(program, program.groups());
  }
  /// How many of the first `count` rows do not know what their splits have seen, and how many others were written.
  template <class Executor>
  int wrong_known(Executor const& exec, std::int64_t count) {
    std::vector<std::int64_t> const counted{count};
    share_loss_bounds<R> const program{{states.data(), {splits, rows}}, marks(0.5F), counted};
    exec.run(program, program.groups());
    int wrong = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      known_loss const& found = known[static_cast<std::size_t>(row)];
      double sum = 0;
      float least = infinite;
      for (std::int64_t split = 0; split < splits; ++split) {
        least = std::fmin(least, bounds[static_cast<std::size_t>(split * rows + row)].least);
        for (int i = 0; i < 3; ++i) {
          sum += std::exp(static_cast<double>(logit(split, row, i)));
        }
      }
      double const expected = std::log(sum) * log2_of_e;
      bool const is_right = row < count
                                ? std::fabs(static_cast<double>(found.sum) - expected) < 1e-5 && found.least == least
                                : found.sum == -5.0F && found.least == -5.0F;
      wrong += is_right ? 0 : 1;
    }
    return wrong;
  }
};

/// Marks of `tokens` tokens, all with a label, before they are checked.
struct marked_tokens {
  std::int64_t tokens;
  std::int64_t vocabulary;
  std::vector<std::uint32_t> live;
  std::vector<loss_bound> bounds;
  std::vector<std::int32_t> is_marked{0};
  std::vector<std::int64_t> row_of;
  std::vector<float> row_lse;

  marked_tokens(std::int64_t of_tokens, std::int64_t of_vocabulary)
      : tokens(of_tokens),
        vocabulary(of_vocabulary),
        live(static_cast<std::size_t>(blocks() * words()), 0x00000100U),
        bounds(static_cast<std::size_t>(2 * tokens)) {
    for (std::int64_t token = 0; token < tokens; ++token) {
      row_of.push_back(token);
      row_lse.push_back(static_cast<float>(token % 10));
      auto const highest = static_cast<float>(static_cast<double>(token % 10) * log2_of_e);
      bounds[static_cast<std::size_t>(token)] = {0.0F, highest};
      bounds[static_cast<std::size_t>(tokens + token)] = {0.0F, highest - 1.0F};
    }
  }
  [[nodiscard]] std::int64_t blocks() const { return (tokens + 127) / 128; }
  [[nodiscard]] std::int64_t words() const { return (vocabulary + 31) / 32; }

  template <class Executor>
  void check(Executor const& exec) {
    check_loss_marks const program{
        {{live.data(), {blocks(), words()}}, {bounds.data(), {2, tokens}}, {}, is_marked, 0.5F},
        {{}, row_of, {}, {}},
        row_lse,
        vocabulary};
    exec.run(program, program.groups());
  }
  /// The number of bits that are set for a block.
  [[nodiscard]] int bits(std::int64_t block) const {
    int count = 0;
    for (std::int64_t word = 0; word < words(); ++word) {
      for (std::uint32_t left = live[static_cast<std::size_t>(block * words() + word)]; left != 0; left &= left - 1) {
        ++count;
      }
    }
    return count;
  }
};

}  // namespace

TEST_CASE("states and bounds begin as those of no logits", "[host][threads]") {
  for (std::int64_t const rows : {0, 1, 255, 256, 257}) {
    split_states<lse> found(3, rows);
    found.clear(cpu{.threads = 2}, 0.5F);
    int wrong = 0;
    for (std::size_t i = 0; i < found.states.size(); ++i) {
      bool const is_empty = lse{}.value(found.states[i]) == -infinite;
      wrong += is_empty && found.bounds[i].least == infinite && found.bounds[i].highest == -infinite ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
  split_states<lse> without_marks(1, 2);
  without_marks.clear(cpu{.threads = 1}, 0.0F);
  CHECK(without_marks.bounds[1].least == 3.0F);
  CHECK(lse{}.value(without_marks.states[1]) == -infinite);
}

TEST_CASE("a row knows what all splits of the vocabulary have seen", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const rows : {1, 7, 255, 256, 300}) {
    CAPTURE(rows);
    split_states<lse> plain(4, rows);
    plain.clear(exec, 0.5F);
    plain.push();
    CHECK(plain.wrong_known(exec, rows) == 0);
    split_states<with_entropy> more(2, rows);
    more.clear(exec, 0.5F);
    more.push();
    CHECK(more.wrong_known(exec, rows / 2) == 0);
  }
}

TEST_CASE("a block gets all bits where a bound was above the log-sum-exp or that is not finite", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const vocabulary : {1, 31, 32, 33, 300}) {
    CAPTURE(vocabulary);
    marked_tokens problem(300, vocabulary);
    int const before = problem.bits(0);
    problem.check(exec);
    CHECK(problem.is_marked[0] == 1);
    CHECK(problem.bits(0) == before);
    CHECK(problem.bits(2) == before);
    problem.bounds[static_cast<std::size_t>(300 + 200)].highest = problem.row_lse[200] * 1.4427F + 0.01F;
    problem.row_lse[299] = std::nanf("");
    problem.check(exec);
    CHECK(problem.bits(0) == before);
    CHECK(problem.bits(1) == static_cast<int>(vocabulary));
    CHECK(problem.bits(2) == static_cast<int>(vocabulary));
    problem.row_of[3] = -1;  // a token without a label has no bounds
    problem.row_lse[3] = infinite;
    problem.check(exec);
    CHECK(problem.bits(0) == before);
    problem.row_lse[4] = -infinite;
    problem.check(exec);
    CHECK(problem.bits(0) == static_cast<int>(vocabulary));
  }
}

TEST_CASE("marks of entries keep the rules for programs", "[host]") {
  testing::adversary const exec{.seed = 12};
  split_states<lse> found(2, 40);
  found.clear(exec, 0.5F);
  found.push();
  CHECK(found.wrong_known(exec, 33) == 0);
  marked_tokens problem(130, 70);
  problem.row_lse[129] = infinite;
  problem.check(exec);
  CHECK(problem.bits(0) == 3);
  CHECK(problem.bits(1) == 70);
}
