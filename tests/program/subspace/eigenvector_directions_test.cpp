// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/subspace/eigenvector_directions.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

struct kept {
  std::vector<float> directions;
  subspace_measures measures;
};

template <class Executor>
kept keep(Executor const& exec, std::int32_t status) {
  std::vector<double> const vectors{0.1, 0.2, 0.3, 1.1, 1.2, 1.3, 2.1, 2.2, 2.3};  // rows
  std::vector<double> const values{1, 10, 100};
  std::vector<std::int32_t> const info{status};
  std::vector<subspace_measures> measures(1);
  kept result{std::vector<float>(6, -77.0F), {}};
  keep_eigenvectors<float> const program{
      {vectors.data(), {3, 3}}, values, info, {result.directions.data(), {3, 2}}, measures};
  exec.run(program, program.groups());
  result.measures = measures[0];
  return result;
}

}  // namespace

TEST_CASE("the eigenvectors of the largest values become directions, the largest first", "[host][threads]") {
  auto const found = keep(cpu{.threads = 2}, 0);
  CHECK(found.directions == std::vector<float>{2.1F, 1.1F, 2.2F, 1.2F, 2.3F, 1.3F});
  CHECK(found.measures.trace == 111);
  CHECK(found.measures.held == 110);
  CHECK(keep(testing::adversary{.seed = 2}, 0).directions == found.directions);
}

TEST_CASE("where there are no eigenvectors there is no number in directions and measures", "[host]") {
  auto const found = keep(cpu{.threads = 1}, 2);
  CHECK(std::isnan(found.measures.trace));
  CHECK(std::isnan(found.measures.held));
  for (float const value : found.directions) {
    CHECK(std::isnan(value));
  }
}

TEST_CASE("products become doubles as they are", "[host]") {
  std::vector<float> const gram{1.5F, 0.1F, 0.1F, 7.0F};
  std::vector<double> wide(4);
  widen_products const program{{gram.data(), {2, 2}}, {wide.data(), {2, 2}}};
  cpu{.threads = 1}.run(program, program.groups());
  CHECK(wide == std::vector<double>{1.5, double{0.1F}, double{0.1F}, 7.0});
}
