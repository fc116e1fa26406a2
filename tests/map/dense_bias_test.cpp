// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/map/dense_bias.hpp>

#include "support/attention_reference.hpp"
#include "support/attention_runs.hpp"
#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("a dense bias is what lies in memory, of any strides", "[map]") {
  std::vector<bfloat16> memory(24);
  for (std::int64_t i = 0; i < 24; ++i) {
    memory[as_size(i)] = store<bfloat16>(static_cast<float>(i));
  }
  dense_bias<bfloat16> const bias{{memory.data(), {2, 2, 3, 4}, {0, 12, 4, 1}}};  // sequences share biases
  CHECK(bias(0, 0, 0, 0) == 0.0F);
  CHECK(bias(1, 1, 2, 3) == 23.0F);
  CHECK(bias(0, 1, 1, 2) == bias(1, 1, 1, 2));
}

TEST_CASE("attention with a dense bias is that of the formula, minus infinity hides, other extents are refused",
          "[map]") {
  auto p = make_attention_problem<bfloat16>({2, 2, 1, 70, 150, 64});
  std::vector<float> memory(as_size(2 * 70 * 150));
  for (std::int64_t i = 0; i < 2 * 70 * 150; ++i) {
    memory[as_size(i)] = i % 7 == 3 ? -infinity : testing::gauss{}.value(3, static_cast<std::uint64_t>(i));
  }
  dense_bias<float> const bias{{memory.data(), {2, 2, 70, 150}, {0, 70 * 150, 150, 1}}};
  auto const found = run_attention_problem<sage_attention2, bfloat16>(cpu{}, p, bias);
  auto const expected =
      attention_by_formula(p, [&](std::int64_t sequence, std::int64_t head, std::int64_t query, std::int64_t key) {
        return static_cast<double>(bias(sequence, head, query, key));
      });
  CHECK(error_of(found.result, expected.result).relative_l1 < 0.06);
  dense_bias<float> const one_key_less{{memory.data(), {2, 2, 70, 149}, {0, 70 * 150, 150, 1}}};
  CHECK(message_of([&] { run_attention_problem<sage_attention2, bfloat16>(cpu{}, p, one_key_less); }) ==
        "attention.forward: dimension 3 of the biases has 149 elements but needs 150");
  dense_bias<float> const nowhere{{nullptr, {2, 2, 70, 150}}};
  CHECK(message_of([&] { run_attention_problem<sage_attention2, bfloat16>(cpu{}, p, nowhere); }) ==
        "attention.forward: the biases have no memory but 42000 elements");
}
