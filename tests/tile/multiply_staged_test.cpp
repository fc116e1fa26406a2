// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
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

}  // namespace

TEST_CASE("staged tiles are multiplied over their whole depth, whichever way the second lies, and added to the sums",
          "[host]") {
  check_staged_product<float, shape<16, 8, 4>>(cpu{});
  check_staged_product<float, shape<16, 8, 4>>(testing::adversary{});
  check_staged_product<bfloat16, shape<32, 24, 16>>(cpu{});
  check_staged_product<bfloat16, shape<32, 24, 16>>(testing::adversary{});
}
