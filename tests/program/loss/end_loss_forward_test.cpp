// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/loss/end_loss_forward.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

constexpr std::int64_t tokens = 300;
constexpr std::int64_t vocabulary = 70;
constexpr std::int64_t words = 3;
constexpr std::int64_t blocks = 3;

/// What is left when the losses of tokens are known.
struct ended_pass {
  std::vector<loss_sums> sums;
  std::vector<std::int64_t> count{tokens};
  std::vector<float> poison{0.0F};
  std::vector<float> loss{-1.0F};
  std::vector<float> scale{-1.0F};
  std::vector<std::uint64_t> stamp = std::vector<std::uint64_t>(loss_stamp::size, 1);
  std::vector<std::uint32_t> live = std::vector<std::uint32_t>(blocks * words, 0x00000100U);
  std::vector<loss_bound> bounds = std::vector<loss_bound>(tokens, {0.0F, 1.0F});
  std::vector<std::int32_t> is_marked{0};
  std::vector<std::int64_t> row_of;
  std::vector<float> row_lse = std::vector<float>(tokens, 1.0F);
  std::vector<bfloat16> hidden;

  explicit ended_pass(std::int64_t groups) {
    for (std::int64_t group = 0; group < groups; ++group) {
      auto const number = static_cast<std::uint64_t>(group);
      sums.push_back({std::ldexp(static_cast<double>(testing::sample<float>(testing::gauss{}, 3, number)),
                                 static_cast<int>(group % 40)),
                      1.0 + static_cast<double>(group % 7), 0.0});
    }
    for (std::int64_t token = 0; token < tokens; ++token) {
      row_of.push_back(token);
      hidden.push_back(testing::sample<bfloat16>(testing::gauss{}, 4, static_cast<std::uint64_t>(token)));
    }
    row_lse[200] = std::nanf("");
  }

  [[nodiscard]] end_loss_forward<bfloat16, std::int32_t> program(bool is_marking) {
    loss_marks const marks{{live.data(), {blocks, words}}, {bounds.data(), {1, tokens}}, {}, is_marked, 0.5F};
    return {{sums, count, poison, true, {loss, {}, {}}, scale},
            {loss_stamp{}.set(loss_stamp::tokens, tokens), {{hidden.data(), {tokens, 1}}, {}, {}, {}, {}}, stamp},
            {is_marking ? marks : loss_marks{}, {{}, row_of, {}, {}}, row_lse, vocabulary}};
  }
};

/// The sum of losses by 256 lanes, each of which adds up its own in order, and a tree over the lanes.
double loss_of_256_lanes(std::vector<loss_sums> const& sums) {
  std::vector<double> own(256, 0.0);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    own[i % 256] += sums[i].loss;
  }
  serial_group<256> const group;
  per_lane<double, serial_group<256>> lanes;
  for (int lane : group) {
    lanes[lane] = own[static_cast<std::size_t>(lane)];
  }
  return sum(group, lanes);
}

}  // namespace

TEST_CASE("a forward pass ends with its loss, its stamp and checked marks", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const groups : {1, 2, 255, 256, 257, 1000, 1025, 3000}) {
    CAPTURE(groups);
    ended_pass apart(groups);
    auto const parts = apart.program(true);
    exec.run(parts.finish, 1);
    exec.run(parts.stamp, 1);
    exec.run(parts.check, parts.check.groups());
    ended_pass together(groups);
    auto const whole = together.program(true);
    CHECK(whole.groups() == 2 + blocks);
    exec.run(whole, whole.groups());
    double weight = 0;
    for (loss_sums const& one : together.sums) {
      weight += one.weight;
    }
    CHECK(together.scale[0] == static_cast<float>(1.0 / weight));
    CHECK(together.loss[0] == static_cast<float>(loss_of_256_lanes(together.sums) * (1.0 / weight)));
    CHECK(together.loss == apart.loss);
    CHECK(together.scale == apart.scale);
    CHECK(together.stamp[loss_stamp::mark] == loss_stamp::made);
    CHECK(together.stamp[loss_stamp::tokens] == tokens);
    CHECK(together.stamp == apart.stamp);
    CHECK(together.is_marked[0] == 1);
    CHECK(together.live[0] == 0x00000100U);
    CHECK(together.live[words] == ~std::uint32_t{0});
    CHECK(together.live == apart.live);
  }
}

TEST_CASE("a forward pass without marks ends without checking them", "[host]") {
  cpu const exec{.threads = 1};
  ended_pass ended(4);
  auto const whole = ended.program(false);
  CHECK(whole.groups() == 2);
  exec.run(whole, whole.groups());
  CHECK(ended.stamp[loss_stamp::mark] == loss_stamp::made);
  CHECK(ended.loss[0] != -1.0F);
  CHECK(ended.is_marked[0] == 0);
  CHECK(ended.live[words] == 0x00000100U);
}

TEST_CASE("the end of a forward pass keeps the rules for programs", "[host]") {
  ended_pass expected(300);
  ended_pass found(300);
  auto const whole = expected.program(true);
  cpu{.threads = 1}.run(whole, whole.groups());
  auto const other = found.program(true);
  testing::adversary{.seed = 5}.run(other, other.groups());
  CHECK(found.loss == expected.loss);
  CHECK(found.stamp == expected.stamp);
  CHECK(found.live == expected.live);
}
