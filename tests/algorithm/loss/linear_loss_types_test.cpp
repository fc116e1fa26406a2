// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include <tessera/algorithm/loss/linear_loss_types.hpp>

#include "support/catch.hpp"

using namespace tessera;

// Hidden states and biases of another type than the loss's operands are refused (docs/slots.md).
using bf16_inputs = linear_loss_inputs<bfloat16, std::int64_t>;
static_assert(std::is_assignable_v<decltype((std::declval<bf16_inputs&>().hidden)), matrix_view<bfloat16 const>>);
static_assert(!std::is_assignable_v<decltype((std::declval<bf16_inputs&>().hidden)), matrix_view<float const>>);
static_assert(std::is_assignable_v<decltype((std::declval<bf16_inputs&>().bias)), array_view<bfloat16 const>>);
static_assert(!std::is_assignable_v<decltype((std::declval<bf16_inputs&>().bias)), array_view<float const>>);

TEST_CASE("the paper's filter leaves out what is less than a 32nd of epsilon", "[host]") {
  CHECK(gradient_filter_for<bfloat16>::threshold == std::ldexp(1.0F, -7) / 32);
  CHECK(gradient_filter_for<float16>::threshold == std::ldexp(1.0F, -10) / 32);
  CHECK(gradient_filter_for<float>::threshold == std::numeric_limits<float>::epsilon() / 32);
}

TEST_CASE("a filter leaves out what is less than a power of two, and one of no bits nothing", "[host]") {
  CHECK(gradient_filter<0>::threshold == 0.0F);
  CHECK(gradient_filter<1>::threshold == 0.5F);
  CHECK(gradient_filter<12>::threshold == std::ldexp(1.0F, -12));
  CHECK(gradient_filter<31>::threshold == std::ldexp(1.0F, -31));
  CHECK(gradient_filter<60>::threshold == std::ldexp(1.0F, -60));
  CHECK((gradient_filter<12>::rows == 128 && gradient_filter<12>::columns == 128));
  CHECK((gradient_filter<12, 64, 32>::rows == 64 && gradient_filter<12, 64, 32>::columns == 32));
}
