// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/algorithm/gemm/quantized_matrix.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/map/add_bias.hpp>
#include <tessera/map/add_matrix.hpp>
#include <tessera/map/chained.hpp>
#include <tessera/map/from_column.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/map/scaled_sum.hpp>
#include <tessera/map/soft_capped.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/source/dequantized.hpp>

#include "support/catch.hpp"
#include "support/gemm_reference.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera_test::message_of;
using tessera_test::operand_samples;
using tessera_test::wrong_sums;

namespace {

/// Whether a call of linear.forward is taken; others are refused in one sentence.
template <class Weights, class... Behind>
constexpr bool linear_takes = detail::takes_call<linear<bfloat16>, matrix_view<bfloat16 const>, Weights, Behind...>;
static_assert(linear_takes<matrix_view<bfloat16 const>, matrix_view<float>> &&
              linear_takes<matrix_view<bfloat16 const>, array_view<float const>, matrix_view<float>>);
static_assert(!linear_takes<matrix_view<float>, matrix_view<float>> && !linear_takes<matrix_view<bfloat16 const>> &&
              !linear_takes<matrix_view<bfloat16 const>, matrix_view<float>, workspace>);

/// Checks a layer with a bias and without one.
template <class Operand, class Output, class Executor>
void check_linear(Executor const& exec, std::int64_t tokens, std::int64_t columns, std::int64_t depth) {
  using value = typename gemm_operand<Operand>::value_type;
  CAPTURE(tokens, columns, depth);
  auto const inputs = operand_samples<value>(tokens * depth, 1);
  auto const weights = operand_samples<value>(columns * depth, 2);
  auto const bias = operand_samples<float>(columns, 3);
  std::vector<Output> plain(static_cast<std::size_t>(tokens * columns), detail::stored_sum<Output>(77.0F));
  std::vector<Output> biased = plain;
  matrix_view<value const> const x(inputs.data(), {tokens, depth});
  matrix_view<value const> const w(weights.data(), {columns, depth});
  matrix_view<Output> const y(plain.data(), {tokens, columns});
  matrix_view<Output> const z(biased.data(), {tokens, columns});
  linear<Operand>::forward(exec, x, w, y);
  linear<Operand>::forward(exec, x, w, array_view<float const>(bias), z);
  exec.wait();
  CHECK(wrong_sums<Operand, value, Output>(x, w, {}, y) == 0);
  CHECK(wrong_sums<Operand, value, Output>(x, w, bias, z) == 0);
}

template <class Operand, class Map>
inline constexpr bool may_lie_across = linear_problem<Operand, float, Map>::may_lie_across;
static_assert(may_lie_across<bfloat16, plain_sum> && may_lie_across<float16, scaled_sum>);
static_assert(!may_lie_across<bfloat16, from_column<plain_sum>> && !may_lie_across<float8_e4m3, plain_sum>);

/// A map that says in which way its operands lie across the depth.
struct of_turned_weights : plain_sum {
  static constexpr bool may_lie(bool inputs_are_across, bool weights_are_across) {
    return !inputs_are_across && weights_are_across;
  }
};
template <class Operand, class Map>
inline constexpr int orders = linear_problem<Operand, float, Map>::may_lie(false, false) +
                              2 * linear_problem<Operand, float, Map>::may_lie(false, true) +
                              4 * linear_problem<Operand, float, Map>::may_lie(true, false) +
                              8 * linear_problem<Operand, float, Map>::may_lie(true, true);
static_assert(orders<bfloat16, plain_sum> == 15 && orders<bfloat16, from_column<plain_sum>> == 1);
static_assert(orders<bfloat16, of_turned_weights> == 3 && orders<float, of_turned_weights> == 1);

}  // namespace

TEST_CASE("a linear layer is right, whatever the extents", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const tokens : {0, 1, 63, 64, 65}) {
    check_linear<bfloat16, bfloat16>(exec, tokens, 7, 33);
  }
  for (std::int64_t const columns : {0, 1, 63, 64, 65, 130}) {
    check_linear<bfloat16, float>(exec, 3, columns, 64);
  }
  for (std::int64_t const depth : {0, 1, 7, 31, 32, 33, 500}) {
    check_linear<bfloat16, float>(exec, 5, 9, depth);
  }
}

TEST_CASE("a linear layer works with every operand", "[host][threads]") {
  cpu const exec{.threads = 2};
  check_linear<float, float>(exec, 9, 70, 65);
  check_linear<tf32, float>(exec, 9, 70, 65);
  check_linear<float16, float16>(exec, 9, 70, 65);
  check_linear<float8_e4m3, bfloat16>(exec, 9, 70, 65);
  check_linear<float8_e5m2, float>(exec, 9, 70, 65);
  check_linear<std::int8_t, float>(exec, 9, 70, 65);
}

TEST_CASE("integer sums are exact and can be kept or scaled", "[host]") {
  cpu const exec{.threads = 1};
  auto const inputs = operand_samples<std::int8_t>(9 * 65, 1);
  auto const weights = operand_samples<std::int8_t>(70 * 65, 2);
  std::vector<std::int32_t> sums(9 * 70);
  std::vector<float> scaled(9 * 70);
  matrix_view<std::int8_t const> const x(inputs.data(), {9, 65});
  matrix_view<std::int8_t const> const w(weights.data(), {70, 65});
  linear<std::int8_t>::forward(exec, x, w, matrix_view<std::int32_t>(sums.data(), {9, 70}));
  linear<std::int8_t>::forward(exec, x, w, scaled_sum{0.25F}, matrix_view<float>(scaled.data(), {9, 70}));
  CHECK(wrong_sums<std::int8_t, std::int8_t, std::int32_t>(x, w, {}, matrix_view<std::int32_t>(sums.data(), {9, 70})) ==
        0);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    CHECK(scaled[i] == 0.25F * static_cast<float>(sums[i]));
  }
}

TEST_CASE("sums can be mapped by several maps in a row, and accumulated", "[host]") {
  cpu const exec{.threads = 1};
  auto const inputs = operand_samples<float>(3 * 20, 1);
  auto const weights = operand_samples<float>(5 * 20, 2);
  auto const bias = operand_samples<float>(5, 3);
  std::vector<float> plain(15);
  std::vector<float> mapped(15, 2.0F);
  matrix_view<float const> const x(inputs.data(), {3, 20});
  matrix_view<float const> const w(weights.data(), {5, 20});
  matrix_view<float> const y(mapped.data(), {3, 5});
  linear<float>::forward(exec, x, w, matrix_view<float>(plain.data(), {3, 5}));
  using biased = chained<add_bias<float>, soft_capped>;
  linear<float>::forward(exec, x, w, chained<biased, add_matrix<float>>{{{bias}, {3.0F}}, {y}}, y);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    CHECK(mapped[i] == 3.0F * ::tanhf((plain[i] + bias[i % 5]) / 3.0F) + 2.0F);
  }
}

TEST_CASE("a linear layer keeps the rules for programs", "[host]") {
  check_linear<bfloat16, float>(testing::adversary{.seed = 4}, 70, 66, 40);
}

TEST_CASE("a linear layer honours strides and leaves the gaps alone", "[host][threads]") {
  cpu const exec{.threads = 2};
  auto const inputs = operand_samples<float>(5 * 40, 1);
  auto const weights = operand_samples<float>(2 * 33 * 40, 2);
  matrix_view<float const> const x = matrix_view<float const>(inputs.data(), {40, 5}).transposed();
  matrix_view<float const> const w(weights.data() + 2 * 33 * 40 - 1, {33, 40}, {-80, -2});
  std::vector<float> spread(5 * 33 * 2, 5.0F);
  matrix_view<float> const y(spread.data(), {5, 33}, {66, 2});
  linear<float>::forward(exec, x, w, y);
  CHECK(wrong_sums<float, float, float>(x, w, {}, y) == 0);
  for (std::size_t i = 1; i < spread.size(); i += 2) {
    CHECK(spread[i] == 5.0F);
  }
}

TEST_CASE("infinities and NaNs of a row reach its outputs and no others", "[host]") {
  cpu const exec{.threads = 1};
  auto inputs = operand_samples<float>(4 * 20, 1);
  auto const weights = operand_samples<float>(6 * 20, 2);
  inputs[20 + 3] = std::numeric_limits<float>::infinity();
  inputs[40 + 3] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> out(4 * 6);
  matrix_view<float const> const x(inputs.data(), {4, 20});
  matrix_view<float const> const w(weights.data(), {6, 20});
  linear<float>::forward(exec, x, w, matrix_view<float>(out.data(), {4, 6}));
  CHECK(wrong_sums<float, float, float>(x, w, {}, matrix_view<float>(out.data(), {4, 6})) == 0);
}

TEST_CASE("rows gathered by number are multiplied as rows that lie in order", "[host]") {
  auto const hidden = operand_samples<bfloat16>(10 * 48, 1);
  auto const weights = operand_samples<bfloat16>(12 * 48, 2);
  std::vector<std::int64_t> const order{9, 2, 2, 0};
  std::vector<float> found(4 * 12);
  std::vector<float> whole(10 * 12);
  using product = gemm_tiles<bfloat16, gathered<bfloat16>, dense<bfloat16>, store_sums<float, plain_sum>>;
  matrix_view<bfloat16 const> const x(hidden.data(), {10, 48});
  matrix_view<bfloat16 const> const w(weights.data(), {12, 48});
  product const program{{x, order}, {w}, {matrix_view<float>(found.data(), {4, 12}), {}}};
  cpu const exec{.threads = 1};
  exec.run(program, program.tiles());
  linear<bfloat16>::forward(exec, x, w, matrix_view<float>(whole.data(), {10, 12}));
  for (std::size_t row = 0; row < order.size(); ++row) {
    for (std::size_t column = 0; column < 12; ++column) {
      CHECK(found[row * 12 + column] == whole[static_cast<std::size_t>(order[row]) * 12 + column]);
    }
  }
}

TEST_CASE("a linear layer says what does not fit together", "[host]") {
  cpu const exec{.threads = 1};
  std::vector<float> memory(100);
  auto const matrix = [&](std::int64_t rows, std::int64_t columns) {
    return matrix_view<float>(memory.data(), {rows, columns});
  };
  auto const message = [&](matrix_view<float> x, matrix_view<float> w, matrix_view<float> y) -> std::string {
    return message_of([&] { linear<float>::forward(exec, x, w, y); });
  };
  CHECK(message(matrix(2, 3), matrix(4, 3), matrix(2, 4)) == "");
  CHECK(message(matrix(3, 3), matrix(4, 3), matrix(2, 4)) ==
        "linear.forward: the inputs have 3 rows but the outputs have 2");
  CHECK(message(matrix(2, 3), matrix(5, 3), matrix(2, 4)) ==
        "linear.forward: the weights have 5 rows but the outputs have 4 columns");
  CHECK(message(matrix(2, 4), matrix(4, 3), matrix(2, 4)) ==
        "linear.forward: the inputs have 4 columns but the weights have 3");
  CHECK(message(matrix(2, 3), matrix(4, 3), matrix_view<float>(memory.data(), {2, 4}, {0, 1})) ==
        "linear.forward: dimension 0 of the outputs has 2 elements with a stride of 0");
  auto const nothing = [](std::int64_t rows, std::int64_t columns) {
    return matrix_view<float>(nullptr, {rows, columns});
  };
  CHECK(message(nothing(2, 3), matrix(4, 3), matrix(2, 4)) ==
        "linear.forward: the inputs have no memory but 6 elements");
  CHECK(message(matrix(2, 3), nothing(4, 3), matrix(2, 4)) ==
        "linear.forward: the weights have no memory but 12 elements");
  CHECK(message(matrix(2, 3), matrix(4, 3), nothing(2, 4)) ==
        "linear.forward: the outputs have no memory but 8 elements");
  CHECK_THROWS_WITH(
      linear<float>::forward(exec, matrix(2, 3), matrix(4, 3), array_view<float const>(nullptr, 4), matrix(2, 4)),
      "linear.forward: the biases have no memory but 4 elements");
  std::vector<float> const bias(3);
  CHECK_THROWS_AS(linear<float>::forward(exec, matrix(2, 3), matrix(4, 3), array_view<float const>(bias), matrix(2, 4)),
                  shape_error);
}

TEST_CASE("a linear layer takes weights from any source, and gives what it gives with the same weights in memory",
          "[host][threads]") {
  using quantizer = symmetric_quantizer<8, 16>;
  constexpr std::int64_t columns = 70;
  constexpr std::int64_t depth = 80;
  std::vector<std::int8_t> codes;
  std::vector<symmetric_params> scales;
  std::vector<bfloat16> weights;
  for (std::int64_t i = 0; i < columns * depth; ++i) {
    if (i % quantizer::group == 0) {
      scales.push_back({0.01F + 0.001F * static_cast<float>(i % 37)});
    }
    codes.push_back(static_cast<std::int8_t>(i % 255 - 127));
    weights.push_back(store<bfloat16>(quantizer{}.decode(codes.back(), scales.back())));
  }
  dequantized<quantizer, bfloat16> const source{{},
                                                matrix_view<std::int8_t const>(codes.data(), {columns, depth}),
                                                matrix_view<symmetric_params const>(scales.data(), {columns, 5})};
  for (std::int64_t const tokens : {0, 1, 7, 64, 65}) {
    CAPTURE(tokens);
    auto const inputs = operand_samples<bfloat16>(tokens * depth, 1);
    matrix_view<bfloat16 const> const x(inputs.data(), {tokens, depth});
    std::vector<float> results[3];
    for (auto& result : results) {
      result.assign(static_cast<std::size_t>(tokens * columns), 77.0F);
    }
    auto const output = [&](int i) { return matrix_view<float>(results[i].data(), {tokens, columns}); };
    cpu const exec{.threads = 2};
    linear<bfloat16>::forward(exec, x, matrix_view<bfloat16 const>(weights.data(), {columns, depth}), output(0));
    linear<bfloat16>::forward(exec, x, source, output(1));
    linear<bfloat16>::forward(testing::adversary{}, x, source, scaled_sum{2.0F}, output(2));
    CHECK(results[1] == results[0]);
    for (float& result : results[0]) {
      result *= 2.0F;  // exact, as the map's product is
    }
    CHECK(results[2] == results[0]);
  }
}

TEST_CASE("a linear layer takes a workspace for weights from a source, and needs none on a CPU", "[host]") {
  cpu const exec{.threads = 1};
  auto const inputs = operand_samples<float>(3 * 20, 1);
  auto const weights = operand_samples<float>(5 * 20, 2);
  std::vector<float> results[2] = {std::vector<float>(15, 77.0F), std::vector<float>(15, 78.0F)};
  matrix_view<float const> const x(inputs.data(), {3, 20});
  dense<float> const source{{weights.data(), {5, 20}}};
  linear<float>::forward(exec, x, source, matrix_view<float>(results[0].data(), {3, 5}));
  workspace_plan const plan = linear<float>::plan_forward(exec, 1 << 20, source);
  CHECK(plan.bytes() == 0);
  workspace const space(plan, array_view<std::byte>{});
  linear<float>::forward(exec, x, source, matrix_view<float>(results[1].data(), {3, 5}), space);
  CHECK(results[0] == results[1]);
  CHECK(message_of([&] {
          linear<float>::forward(exec, x, source, scaled_sum{1.0F}, matrix_view<float>(results[1].data(), {3, 5}),
                                 space, {.workspace_budget = -2});
        }) == "linear.forward: the budget of the workspace is -2 bytes but must not be negative");
}

TEST_CASE("a linear layer refuses weights of a source whose shape does not fit", "[host]") {
  std::vector<bfloat16> memory(100);
  std::vector<float> results(100, 77.0F);
  auto const refused = [&](std::int64_t rows, std::int64_t columns) {
    return message_of([&] {
      linear<bfloat16>::forward(cpu{}, matrix_view<bfloat16 const>(memory.data(), {3, 5}),
                                dense<bfloat16>{{memory.data(), {rows, columns}}},
                                matrix_view<float>(results.data(), {3, 4}));
    });
  };
  CHECK(refused(6, 5) == "linear.forward: the weights have 6 rows but the outputs have 4 columns");
  CHECK(refused(4, 7) == "linear.forward: the inputs have 5 columns but the weights have 7");
  CHECK(results == std::vector<float>(100, 77.0F));
}

TEST_CASE("a linear layer refuses codes without a scale for each group, and maps with too few numbers", "[host]") {
  std::vector<bfloat16> const memory(100);
  std::vector<std::int8_t> const codes(4 * 24);
  std::vector<symmetric_params> const scales(12);
  std::vector<float> const bias(3);
  std::vector<float> results(100, 77.0F);
  auto const refused = [&](std::int8_t const* first, std::int64_t groups, auto const& map) {
    dequantized<symmetric_quantizer<8, 8>, bfloat16> const source{{}, {first, {4, 24}}, {scales.data(), {4, groups}}};
    return message_of([&] {
      linear<bfloat16>::forward(cpu{.threads = 1}, matrix_view<bfloat16 const>(memory.data(), {3, 24}), source, map,
                                matrix_view<float>(results.data(), {3, 4}));
    });
  };
  CHECK(refused(codes.data(), 2, plain_sum{}) ==
        "linear.forward: the parameters of the codes of the weights are 4 x 2 but must be 4 x 3");
  CHECK(refused(nullptr, 3, plain_sum{}) == "linear.forward: the codes of the source have no memory but 96 elements");
  CHECK(refused(codes.data(), 3, add_bias<float>{bias}) ==
        "linear.forward: the bias has 3 values but the outputs have 4 columns");
  CHECK(refused(codes.data(), 3, chained<scaled_sum, add_bias<float>>{{2.0F}, {bias}}) ==
        "linear.forward: the bias has 3 values but the outputs have 4 columns");
  CHECK(results == std::vector<float>(100, 77.0F));
  CHECK(refused(codes.data(), 3, plain_sum{}) == "");
}

TEST_CASE("outputs in braces have the type of the operands, and values to be quantized are bfloat16", "[host]") {
  using codes_of = quantized_matrix<symmetric_quantizer<8, 16>>;
  cpu const exec{.threads = 1};
  auto const inputs = operand_samples<bfloat16>(3 * 16, 1);
  auto const weights = operand_samples<bfloat16>(5 * 16, 2);
  std::vector<bfloat16> found(15);
  std::vector<bfloat16> expected(15);
  linear<bfloat16>::forward(exec, {inputs.data(), {3, 16}}, {weights.data(), {5, 16}}, {found.data(), {3, 5}});
  linear<bfloat16>::forward(exec, {inputs.data(), {3, 16}}, {weights.data(), {5, 16}},
                            matrix_view<bfloat16>(expected.data(), {3, 5}));
  CHECK(std::equal(found.begin(), found.end(), expected.begin(), [](auto a, auto b) { return a.bits == b.bits; }));
  std::vector<std::int8_t> codes(5 * 16);
  std::vector<symmetric_params> scales(5);
  std::vector<bfloat16> near(5 * 16);
  codes_of::quantize(exec, {}, {weights.data(), {5, 16}}, {codes.data(), {5, 16}}, {scales.data(), {5, 1}});
  codes_of::dequantize(exec, {}, {codes.data(), {5, 16}}, {scales.data(), {5, 1}}, {near.data(), {5, 16}});
  double most = 0;
  for (std::size_t i = 0; i < near.size(); ++i) {
    most = std::max(most, static_cast<double>(std::abs(load(near[i]) - load(weights[i]))));
  }
  CHECK(most < 0.05);
}
