// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/loss/detail/target_rows.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera_test::message_of;

namespace {

struct selected {
  std::vector<std::int32_t> labels;
  std::vector<float> masses;
};

template <class Exec, class Entry>
selected select(Exec const& exec, std::int64_t k, std::vector<Entry> const& entries, std::vector<float> const& weights,
                std::vector<float> const& of_tokens = {}) {
  auto const tokens = static_cast<std::int64_t>(entries.size()) / k;
  selected found{std::vector<std::int32_t>(static_cast<std::size_t>(tokens), -77),
                 std::vector<float>(static_cast<std::size_t>(tokens), -77.0F)};
  array_view<float const> const given =
      of_tokens.empty() ? array_view<float const>{} : array_view<float const>(of_tokens);
  detail::select_targets<Entry> const program{{{entries.data(), {tokens, k}}, {weights.data(), {tokens, k}}, 8, 10},
                                              given,
                                              found.labels,
                                              found.masses,
                                              status_of(exec, {"test", "entry"})};
  exec.run(program, program.groups());
  return found;
}

}  // namespace

TEST_CASE("the heaviest entry of a token is its label, the first of equal ones", "[host]") {
  float const nan = std::numeric_limits<float>::quiet_NaN();
  cpu const exec{.threads = 1};
  auto const found = select<cpu, std::int32_t>(
      exec, 3,
      {1, 2, 3,    // the second
       4, 5, 6,    // the first of equal ones
       -1, 8, -9,  // none: 8 is ignore_index
       7, 3, 2,    // weight 0 is not heavier than a negative one
       9, 1, 2,    // all are 0
       1, 2, 3},   // NaN
      {0.25F, 0.5F, 0.125F, 1.0F, 1.0F, 1.0F, nan, nan, nan, 0.0F, -2.0F, -3.0F, 0.0F, 0.0F, 0.0F, 1.0F, nan, 2.0F},
      {2.0F, 1.0F, 5.0F, 1.0F, 1.0F, 1.0F});
  exec.wait();
  CHECK(found.labels[0] == 2);
  CHECK(found.masses[0] == 1.75F);
  CHECK(found.labels[1] == 4);
  CHECK(found.masses[1] == 3.0F);
  CHECK(found.labels[2] == -1);
  CHECK(found.masses[2] == 0.0F);
  CHECK(found.labels[3] == 3);
  CHECK(found.masses[3] == -5.0F);
  CHECK(found.labels[4] == 9);
  CHECK(found.masses[4] == 0.0F);
  CHECK(found.labels[5] >= 1);
  CHECK(std::isnan(found.masses[5]));
}

TEST_CASE("targets of more entries than lanes are added up alike on all executors", "[host]") {
  std::vector<std::int64_t> entries;
  std::vector<float> weights;
  for (std::int64_t i = 0; i < 5 * 77; ++i) {
    entries.push_back(i % 8);
    weights.push_back(1.0F / static_cast<float>(i + 1));
  }
  weights[2 * 77 + 70] = 4.0F;
  auto const one = select(cpu{.threads = 1}, 77, entries, weights);
  auto const other = select(testing::adversary{.seed = 1}, 77, entries, weights);
  CHECK(one.labels == other.labels);
  CHECK(one.masses == other.masses);
  CHECK(one.labels[0] == 0);
  CHECK(one.labels[2] == (2 * 77 + 70) % 8);
  double sum = 0;
  for (std::size_t i = 0; i < 77; ++i) {
    sum += static_cast<double>(weights[i]);
  }
  CHECK(one.masses[0] == Approx(sum).epsilon(1e-6));
}

TEST_CASE("an entry beyond the vocabulary gives its token no label and a weight of NaN", "[host]") {
  cpu const exec{.threads = 1};
  auto const found = select<cpu, std::int64_t>(exec, 2, {1, 2, 3, std::int64_t{1} << 32, 10, 4}, {1, 1, 1, 0, 1, 1});
  CHECK(message_of([&] { exec.wait(); }) == "test: entry 4294967296 at position 3 of the chosen ones is none of 10");
  CHECK(found.labels == std::vector<std::int32_t>{1, -1, -1});
  CHECK(found.masses[0] == 2.0F);
  CHECK(std::isnan(found.masses[1]));
  CHECK(std::isnan(found.masses[2]));
}
