// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "tile/two_products.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

template <class T, class Exec>
bool is_right(Exec const& exec) {
  two_products_problem<T, 32> const problem;
  std::vector<float> results(32 * 24, 77.0F);
  std::vector<float> largest(32, 77.0F);
  std::vector<float> sums(32, 77.0F);
  two_products<T, 32, 32> const program{{problem.a.data(), {32, 16}},
                                        {problem.b.data(), {48, 16}},
                                        {problem.c.data(), {48, 24}},
                                        {results.data(), {32, 24}},
                                        {largest},
                                        {sums}};
  exec.run(program, 1);
  return results == problem.results && largest == problem.largest && sums == problem.sums;
}

}  // namespace

TEST_CASE("sums of a product are reduced by rows, changed, and the left operand of the next product", "[host]") {
  CHECK(is_right<bfloat16>(cpu{.threads = 1}));
  CHECK(is_right<float16>(testing::adversary{.seed = 5}));
  CHECK(is_right<float>(testing::adversary{.seed = 6}));
}
