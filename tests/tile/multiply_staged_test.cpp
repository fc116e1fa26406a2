// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "tile/staged_product.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

template <class T, class Shape, class Exec>
void check_staged_product(Exec const& exec) {
  staged_product_problem<T, Shape> const problem;
  std::vector<float> sums(problem.sums.size(), 77.0F);
  staged_product<T, Shape, 32> const program{{problem.a.data(), {Shape::m, problem.depth}},
                                             {problem.b.data(), {Shape::n, problem.depth}},
                                             {sums.data(), {Shape::m, Shape::n}}};
  exec.run(program, 1);
  CHECK(sums == problem.sums);
}

template <class T, class Shape, class Exec>
std::vector<float> sums_by_words(Exec const& exec, std::vector<T> const& a, std::vector<T> const& b,
                                 std::int64_t stride) {
  std::vector<float> sums(static_cast<std::size_t>(Shape::m * Shape::n), 77.0F);
  std::int64_t const depth = 3 * Shape::k;
  exec.run(product_of_words<T, Shape, 32>{{a.data(), {Shape::m, depth}, {stride, 1}},
                                          {b.data(), {Shape::n, depth}, {stride, 1}},
                                          {sums.data(), {Shape::m, Shape::n}}},
           1);
  return sums;
}

}  // namespace

TEST_CASE("staged tiles are multiplied over their whole depth, whichever way the second lies, and added to the sums",
          "[host]") {
  check_staged_product<float, shape<16, 8, 4>>(cpu{});
  check_staged_product<float, shape<16, 8, 4>>(testing::adversary{});
  check_staged_product<bfloat16, shape<32, 24, 16>>(cpu{});
  check_staged_product<bfloat16, shape<32, 24, 16>>(testing::adversary{});
}

TEST_CASE("multiply_words multiplies sources that have words, and leaves others, and keeps the rules for programs",
          "[host]") {
  using tile = shape<32, 24, 16>;
  staged_product_problem<bfloat16, tile> const problem;
  for (std::uint64_t const seed : {1, 2}) {
    CHECK(sums_by_words<bfloat16, tile>(testing::adversary{.seed = seed}, problem.a, problem.b, problem.depth) ==
          problem.sums);
  }
  std::vector<bfloat16> const more(static_cast<std::size_t>(33 * (problem.depth + 1)));
  CHECK(sums_by_words<bfloat16, tile>(cpu{}, more, more, problem.depth + 1) ==
        std::vector<float>(problem.sums.size(), 77.0F));
}
