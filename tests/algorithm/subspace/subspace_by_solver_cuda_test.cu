// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/algorithm/subspace/factorize_keys.cuh>
#include <tessera/algorithm/subspace/subspace_by_solver.cuh>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"

using namespace tessera;
using tessera_test::to_device;
using tessera_test::to_host;

namespace {

struct searches {
  subspace_measures best;
  subspace_measures found;
  std::vector<float> directions;  ///< the best directions
};

/// Searches by cuSOLVER and in rounds, with the same products.
searches search_both(tessera::cuda const& exec, std::vector<float> const& gram, std::int64_t width, std::int64_t rank) {
  key_factorization const factorization(width, rank);
  subspace_by_solver solver(exec, width, rank);
  workspace_plan const plan_of_rounds = factorization.plan_find(exec);
  workspace_plan const plan_of_solver = solver.plan_find(exec);
  auto const filled = [&](workspace_plan const& plan) {
    return to_device(exec, std::vector<std::byte>(static_cast<std::size_t>(plan.bytes()), std::byte{0xff}));
  };
  buffer<std::byte> memory_of_rounds = filled(plan_of_rounds);
  buffer<std::byte> memory_of_solver = filled(plan_of_solver);
  workspace const of_rounds(plan_of_rounds, memory_of_rounds.view());
  workspace const of_solver(plan_of_solver, memory_of_solver.view());
  buffer<float> const products = to_device(exec, gram);
  buffer<float> best = to_device(exec, std::vector<float>(static_cast<std::size_t>(width * rank), -77.0F));
  buffer<float> found = to_device(exec, std::vector<float>(static_cast<std::size_t>(width * rank), -77.0F));
  matrix_view<float const> const all(products.data(), {width, width});
  solver.find(exec, all, matrix_view<float>(best.data(), {width, rank}), of_solver);
  factorization.find(exec, all, matrix_view<float>(found.data(), {width, rank}), of_rounds);
  std::vector<subspace_measures> measures(2);
  exec.copy(solver.measures(of_solver), array_view<subspace_measures>(&measures[0], 1));
  exec.copy(factorization.measures(of_rounds), array_view<subspace_measures>(&measures[1], 1));
  return {measures[0], measures[1], to_host(exec, best)};
}

/// X^T X of some rows of normal numbers with a mean, where column i has a deviation of (i + 1)^-1/2.
std::vector<float> products_of_samples(std::int64_t rows, std::int64_t width, double mean) {
  std::vector<double> sums(static_cast<std::size_t>(width * width));
  std::vector<double> row(static_cast<std::size_t>(width));
  for (std::int64_t at = 0; at < rows; ++at) {
    for (std::int64_t i = 0; i < width; ++i) {
      auto const index = static_cast<std::uint64_t>(at * width + i);
      row[static_cast<std::size_t>(i)] =
          mean + double{testing::gauss().value(1, index)} / std::sqrt(static_cast<double>(i + 1));
    }
    for (std::int64_t i = 0; i < width; ++i) {
      for (std::int64_t j = 0; j < width; ++j) {
        sums[static_cast<std::size_t>(i * width + j)] +=
            row[static_cast<std::size_t>(i)] * row[static_cast<std::size_t>(j)];
      }
    }
  }
  return {sums.begin(), sums.end()};
}

}  // namespace

TEST_CASE("rounds leave at most a hundredth more than eigenvectors by cuSOLVER", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (double const mean : {0.0, 1.0}) {
    for (std::int64_t const rank : {16, 160}) {
      CAPTURE(mean, rank);
      auto const both = search_both(exec, products_of_samples(1200, 512, mean), 512, rank);
      double const best = both.best.trace - both.best.held;
      double const left = both.found.trace - both.found.held;
      CHECK(both.found.trace == Approx(both.best.trace).epsilon(1e-9));
      CHECK(left <= 1.01 * best + 1e-6 * both.best.trace);
      CHECK(left >= best - 1e-6 * both.best.trace);
    }
  }
}

TEST_CASE("eigenvectors by cuSOLVER are orthonormal", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto const both = search_both(exec, products_of_samples(300, 130, 0.5), 130, 20);
  double worst = 0;
  for (std::size_t a = 0; a < 20; ++a) {
    for (std::size_t b = a; b < 20; ++b) {
      double sum = a == b ? -1.0 : 0.0;
      for (std::size_t i = 0; i < 130; ++i) {
        sum += double{both.directions[i * 20 + a]} * double{both.directions[i * 20 + b]};
      }
      worst = std::max(worst, std::fabs(sum));
    }
  }
  CHECK(worst < 1e-6);
}
