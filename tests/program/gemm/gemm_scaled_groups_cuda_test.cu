// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/gemm/scaled_linear.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>

#include "program/gemm/products_of_scaled_codes.hpp"
#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// The program that this device has for products of scaled codes.
char const* program_of_groups() {
  return cuda::is_compiled_for<900> && cuda{}.state->architecture() == 900 ? gemm_scaled_groups_model::name
                                                                           : gemm_scaled_ring_model::name;
}

template <class Q, int Rows = 1, class Output = float>
void check_groups(product_shape shape, scale_order order = scale_order::rows_together,
                  char const* program = program_of_groups()) {
  CAPTURE(shape.tokens, shape.columns, shape.depth);
  CHECK(wrong_scaled_products<Q, Rows, Output>(cuda{}, shape, order, program) == 0);
}

/// Multiplies codes that are one, with scales of one but for a NaN at row 70 of the inputs and infinity at row 129 of
/// the weights, in the second of three groups, and counts results that are wrong.
template <class Q, int Rows>
std::int64_t wrong_beside_odd_scales(std::int64_t tokens, std::int64_t columns) {
  using code = typename Q::code_type;
  constexpr std::int64_t groups = 3;
  constexpr std::int64_t depth = groups * Q::group;
  cuda const exec;
  std::int64_t const b_scales = divide_up(columns, std::int64_t{Rows});
  code const one = [] {
    if constexpr (std::is_integral_v<code>) {
      return code{1};
    } else {
      return store<code>(1.0F);
    }
  }();
  std::vector<code> const codes(static_cast<std::size_t>(std::max(tokens, columns) * depth), one);
  std::vector<typename Q::params_type> of_a(static_cast<std::size_t>(tokens * groups), {1.0F});
  std::vector<typename Q::params_type> of_b(static_cast<std::size_t>(b_scales * groups), {1.0F});
  of_a[static_cast<std::size_t>(tokens + 70)].scale = std::numeric_limits<float>::quiet_NaN();
  of_b[static_cast<std::size_t>(b_scales + 129 / Rows)].scale = std::numeric_limits<float>::infinity();
  std::vector<float> found(static_cast<std::size_t>(tokens * columns), -1.0F);
  buffer<code> own_codes(exec, std::max(tokens, columns) * depth);
  buffer<typename Q::params_type> own_a(exec, tokens * groups);
  buffer<typename Q::params_type> own_b(exec, b_scales * groups);
  buffer<float> outputs(exec, tokens * columns);
  exec.copy(codes, own_codes);
  exec.copy(of_a, own_a);
  exec.copy(of_b, own_b);
  exec.copy(found, outputs);
  scaled_operand<Q> const a{{own_codes.data(), {tokens, depth}}, {own_a.data(), {tokens, groups}, {1, tokens}}};
  scaled_operand<Q, Rows> const b{{own_codes.data(), {columns, depth}},
                                  {own_b.data(), {b_scales, groups}, {1, b_scales}}};
  scaled_linear::forward(exec, a, b, matrix_view<float>(outputs.data(), {tokens, columns}));
  exec.copy(outputs, found);
  exec.wait();
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < tokens * columns; ++i) {
    float const value = found[static_cast<std::size_t>(i)];
    bool const is_odd_row = i / columns == 70;
    bool const is_odd_column = i % columns / Rows == 129 / Rows;
    bool const is_right = is_odd_row      ? std::isnan(value)
                          : is_odd_column ? std::isinf(value) && value > 0
                                          : value == static_cast<float>(depth);
    wrong += is_right ? 0 : 1;
  }
  return wrong;
}

/// Multiplies random codes by gemm_ring and by the portable program, into outputs whose rows lie `stride` apart.
/// Returns whether both leave the same bits, and none behind the last eight columns that have results.
template <class Q, int Rows, class Output>
bool has_portable_bits(product_shape shape, std::int64_t stride) {
  cuda const exec;
  random_operand<cuda, Q, 1> a(exec, shape.tokens, shape.depth, scale_order::rows_together_apart, 1);
  random_operand<cuda, Q, Rows> b(exec, shape.columns, shape.depth, scale_order::groups_together, 2);
  if constexpr (!std::is_integral_v<typename Q::code_type>) {
    a.codes.back() = store<typename Q::code_type>(std::numeric_limits<float>::quiet_NaN());
    exec.copy(a.codes, a.own_codes);
  }
  a.params[a.params.size() / 2].scale = std::numeric_limits<float>::quiet_NaN();
  b.params.back().scale = std::numeric_limits<float>::infinity();
  exec.copy(a.params, a.own_params);
  exec.copy(b.params, b.own_params);
  std::vector<Output> found(static_cast<std::size_t>(shape.tokens * stride));
  std::memset(found.data(), 0xff, found.size() * sizeof(Output));
  std::vector<Output> expected = found;
  Output const untouched = found[0];
  buffer<Output> by_ring(exec, shape.tokens * stride);
  buffer<Output> by_portable(exec, shape.tokens * stride);
  exec.copy(found, by_ring);
  exec.copy(found, by_portable);
  scaled_linear_problem<scaled_operand<Q>, scaled_operand<Q, Rows>, Output, plain_sum> problem{
      a.on_device(), b.on_device(), {by_ring.data(), {shape.tokens, shape.columns}, {stride, 1}}, {}};
  CHECK(gemm_scaled_ring_model::refuses(exec, problem).text() == "");
  gemm_scaled_ring_model::run(exec, problem);
  problem.outputs.data = by_portable.data();
  run_portably(exec, problem);
  exec.copy(by_ring, found);
  exec.copy(by_portable, expected);
  exec.wait();
  std::int64_t const end = divide_up(shape.columns, std::int64_t{8}) * 8;
  bool same = true;
  for (std::int64_t i = 0; i < shape.tokens * stride; ++i) {
    bool const is_result = i % stride < shape.columns;
    Output const& other = is_result ? expected[static_cast<std::size_t>(i)] : untouched;
    same = same && ((!is_result && i % stride < end) ||
                    std::memcmp(&found[static_cast<std::size_t>(i)], &other, sizeof(Output)) == 0);
  }
  return same;
}

using floats = scaled_float_quantizer<float8_e4m3, 128>;
using integers = symmetric_quantizer<8, 128>;

}  // namespace

TEST_CASE("products of 8-bit codes with scales of groups on a GPU are right, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const tokens : {1, 7, 127, 128, 129, 255, 256, 257, 300}) {
    check_groups<floats, 128>({tokens, 264, 512});
    check_groups<integers>({tokens, 264, 384});
  }
  for (std::int64_t const columns : {8, 120, 128, 136, 248, 256, 264, 520}) {
    check_groups<floats>({130, columns, 256});
    check_groups<integers, 128>({130, columns, 256});
  }
  for (std::int64_t const depth : {16, 112, 128, 144, 640, 1040}) {
    check_groups<floats, 128>({200, 280, depth});
    check_groups<integers>({200, 280, depth}, scale_order::groups_together);
  }
}

TEST_CASE("products of 8-bit codes on a GPU are right, however scales lie in memory", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (scale_order const order :
       {scale_order::rows_together, scale_order::rows_together_apart, scale_order::groups_together}) {
    CAPTURE(static_cast<int>(order));
    check_groups<floats, 128>({130, 520, 640}, order);
    check_groups<floats>({130, 520, 640}, order);
    check_groups<floats>({130, 264, 128}, order);
    check_groups<integers>({257, 264, 384}, order);
    check_groups<integers, 64>({257, 264, 384}, order);
    check_groups<floats, 32>({129, 264, 384}, order);
    check_groups<integers, 3>({129, 264, 384}, order);
  }
}

TEST_CASE("a scale that is not finite spoils the sums of its rows or columns alone", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(wrong_beside_odd_scales<floats, 128>(300, 520) == 0);
  CHECK(wrong_beside_odd_scales<floats, 1>(300, 520) == 0);
  CHECK(wrong_beside_odd_scales<integers, 128>(300, 520) == 0);
  CHECK(wrong_beside_odd_scales<integers, 1>(300, 520) == 0);
}

TEST_CASE("gemm_ring of scaled codes leaves the bits of the portable program, also beside NaN and infinity", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (product_shape const shape : {product_shape{1, 1, 16},
                                    {7, 8, 128},
                                    {191, 127, 144},
                                    {192, 128, 640},
                                    {193, 129, 256},
                                    {400, 264, 384},
                                    {4000, 1100, 272}}) {
    CAPTURE(shape.tokens, shape.columns, shape.depth);
    std::int64_t const chunks = divide_up(shape.columns, std::int64_t{8}) * 8;
    CHECK(has_portable_bits<integers, 64, bfloat16>(shape, chunks + 8));
    CHECK(has_portable_bits<integers, 1, bfloat16>(shape, chunks + 8));
    CHECK(has_portable_bits<integers, 1, bfloat16>(shape, chunks + 3));
    CHECK(has_portable_bits<floats, 128, bfloat16>(shape, chunks));
    CHECK(has_portable_bits<floats, 1, float>(shape, chunks + 1));
  }
}

TEST_CASE("products of 8-bit codes with longer groups, other floats and 16-bit outputs on a GPU are right", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_groups<scaled_float_quantizer<float8_e4m3, 256>>({130, 272, 1024});
  check_groups<scaled_float_quantizer<float8_e5m2, 128>, 128>({130, 272, 512});
  check_groups<floats, 128, bfloat16>({260, 272, 512});
  check_groups<integers, 64, bfloat16>({260, 272, 512});
}

TEST_CASE("large products of 8-bit codes on a GPU, of several tiles a thread block, are right", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_groups<floats, 128>({2304, 4352, 256});
  check_groups<integers>({2304, 4352, 256});
}

TEST_CASE("scaled codes that warpgroups do not multiply are multiplied by gemm_ring or the portable program",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_groups<integers>({70, 73, 144}, scale_order::groups_together, gemm_scaled_ring_model::name);
  check_groups<symmetric_quantizer<8, 64>>({70, 72, 192}, scale_order::groups_together, nullptr);
  check_groups<scaled_float_quantizer<float8_e4m3, 32>, 3>({70, 72, 100}, scale_order::rows_together, nullptr);
  check_groups<floats>({5, 7, 130}, scale_order::rows_together, nullptr);  // rows that TMA cannot load or write
}
