// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "tile/codes/coded_product.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

template <class Code, class Exec>
bool is_right(Exec const& exec) {
  coded_product_problem<Code, 32> const problem;
  std::vector<float> results(32 * 64, 77.0F);
  std::vector<float> sums(32, 77.0F);
  coded_product<Code, 32, 32> const program{{problem.a.data(), {32, 32}},
                                            {problem.b.data(), {64, 32}},
                                            {problem.codes.data(), {64, 64}},
                                            {results.data(), {32, 64}},
                                            {sums}};
  exec.run(program, 1);
  return results == problem.results && sums == problem.sums;
}

}  // namespace

TEST_CASE("sums of integers become floats, and are multiplied by widened codes", "[host]") {
  CHECK(is_right<float8_e4m3>(cpu{.threads = 1}));
  CHECK(is_right<float8_e5m2>(cpu{.threads = 1}));
  CHECK(is_right<std::int8_t>(testing::adversary{.seed = 5}));
  CHECK(is_right<float16>(testing::adversary{.seed = 6}));
  CHECK(is_right<bfloat16>(cpu{.threads = 1}));
}
