// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products whose weights from a source are written to memory, a panel at a time.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/explain.hpp>
#include <tessera/exec/policy_of.hpp>
#include <tessera/map/add_bias.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/tuning/gemm/linear.hpp>

#include "program/gemm/products_of_codes.cuh"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// The program of panels of so many columns on this device, or null where the portable one runs.
char const* program_of_panels(std::int64_t columns) {
  return has_warpgroup_programs() ? gemm_of_panels_model::name
         : columns % 8 == 0       ? gemm_ring_of_panels_model::name
                                  : nullptr;
}
/// The fewest tokens for which it runs.
std::int64_t fewest_tokens() {
  return policy_of<panel_gemm_tuning>(has_warpgroup_programs() ? 900 : 800).least_tokens;
}

/// A product of random inputs with codes of Q, in a workspace that is full of NaNs.
template <class Q, class Output>
class paneled_product {
 public:
  using layer = linear<bfloat16>;
  paneled_product(std::int64_t tokens, std::int64_t rows, std::int64_t columns, placement outputs)
      : made_(rows, columns, 0),
        x_(sampled<bfloat16>(exec_, tokens, columns, aligned<bfloat16>(columns), 1)),
        w_(exec_, rows, columns, {}),
        y_(exec_, tokens, rows, outputs),
        bias_(operand_samples<float>(rows, 3)),
        device_bias_(exec_, rows) {
    w_.host = made_.values;
    exec_.copy(bias_, device_bias_);
  }
  /// Counts wrong results with a workspace of at most `budget` bytes. `program`: what must be chosen, or null.
  std::int64_t wrong(std::int64_t budget, char const* program) {
    linear_options const options{.workspace_budget = budget};
    auto const source = made_.source();
    auto const plan = layer::plan_forward(exec_, x_.rows, source, options);
    CHECK(plan.bytes() <= align_up(budget, workspace_plan::alignment));
    std::vector<std::byte> const poison(static_cast<std::size_t>(plan.bytes()), std::byte{0xff});
    buffer<std::byte> memory(exec_, plan.bytes());
    exec_.copy(poison, memory);
    workspace const space(plan, memory);
    add_bias<float> const map{device_bias_.view()};
    auto const forward = [&](auto const& exec) {
      layer::forward(exec, x_.on_device(), source, map, y_.on_device(), space, options);
    };
    if (program != nullptr) {
      CHECK(explain(exec_, forward).choices.at(0).program == program);
    }
    return wrong_on_device<bfloat16>(exec_, x_, w_, y_, bias_, [&] { forward(exec_); });
  }

 private:
  cuda exec_;
  codes_on_device<Q> made_;
  matrix_on_device<bfloat16> x_;
  matrix_on_device<bfloat16> w_;
  matrix_on_device<Output> y_;
  std::vector<float> bias_;
  buffer<float> device_bias_;
};

constexpr std::int64_t room = std::int64_t{1} << 27;

/// Checks a product in one panel, and in panels of 256 rows.
template <class Q, class Output = bfloat16>
void check_panels(std::int64_t tokens, std::int64_t rows, std::int64_t columns, placement outputs) {
  CAPTURE(tokens, rows, columns, outputs.offset, outputs.gap);
  paneled_product<Q, Output> product(tokens, rows, columns, outputs);
  CHECK(product.wrong(room, program_of_panels(columns)) == 0);
  CHECK(product.wrong(256 * 2 * align_up(columns, 8), program_of_panels(columns)) == 0);
}

}  // namespace

TEST_CASE("products with panels of weights on a GPU are right, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  std::int64_t const least_tokens = fewest_tokens();
  using quantizer = symmetric_quantizer<8, 64>;
  for (std::int64_t const rows : {1, 7, 8, 255, 256, 257, 520}) {
    check_panels<quantizer>(least_tokens, rows, 64, aligned<bfloat16>(rows));
  }
  for (std::int64_t const columns : {1, 7, 8, 63, 65, 72, 130, 136}) {
    check_panels<quantizer>(least_tokens + 1, 264, columns, aligned<bfloat16>(264));
    check_panels<two_to_a_byte<symmetric_quantizer<4, 64>>>(least_tokens + 1, 264, 2 * columns, {});
  }
  check_panels<quantizer, float>(least_tokens + 130, 300, 72, aligned<float>(300));
  check_panels<quantizer, float>(least_tokens + 130, 301, 72, {1, 3});
  check_panels<quantizer>(least_tokens + 130, 780, 72, {0, 1});
}

TEST_CASE("without room for a panel, or with few tokens, weights are multiplied as they are made", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  std::int64_t const least_tokens = fewest_tokens();
  using product = paneled_product<symmetric_quantizer<8, 64>, bfloat16>;
  product many(least_tokens, 264, 128, {});
  CHECK(many.wrong(256 * 2 * 128 - 1, program_of_many_rows(128)) == 0);
  CHECK(many.wrong(0, program_of_many_rows(128)) == 0);
  CHECK(product(least_tokens - 1, 264, 128, {}).wrong(room, program_of_many_rows(128)) == 0);
  CHECK(product(16, 264, 128, {}).wrong(room, gemm_few_rows_model::name) == 0);
}

TEST_CASE("a workspace of fewer tokens, and a budget below zero, are refused", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  std::int64_t const least_tokens = fewest_tokens();
  using layer = linear<bfloat16>;
  cuda const exec;
  codes_on_device<symmetric_quantizer<8, 64>> const made(264, 128, 0);
  matrix_on_device<bfloat16> x(exec, least_tokens, 128, {});
  matrix_on_device<bfloat16> y(exec, least_tokens, 264, {});
  auto const source = made.source();
  workspace_plan const plan = layer::plan_forward(exec, 16, source);
  REQUIRE(plan.bytes() == 0);
  workspace const space(plan, array_view<std::byte>{});
  CHECK(message_of([&] { layer::forward(exec, x.on_device(), source, y.on_device(), space); }) ==
        "linear.forward: the workspace is of a plan of 0 bytes but " + std::to_string(least_tokens) +
            " tokens of 264 x 128 weights need 67584");
  CHECK(message_of([&] { static_cast<void>(layer::plan_forward(exec, 16, source, {.workspace_budget = -1})); }) ==
        "linear.forward: the budget of the workspace is -1 bytes but must not be negative");
}
