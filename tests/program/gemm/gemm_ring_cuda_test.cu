// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The product of GPUs without wgmma, on whatever GPU there is, against sums in double.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/gemm/linear.cuh>
#include <tessera/concepts/tuning.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/exec/policy_of.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/program/gemm/gemm_ring.cuh>
#include <tessera/program/gemm/store_sums.cuh>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/tile/gemm_schedule.hpp>
#include <tessera/tuning/gemm/linear.hpp>

#include "algorithm/gemm/linear_on_device.cuh"
#include "program/gemm/products_of_codes.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

struct product_extents {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
};

/// Counts wrong results of the ring, with `gap` more elements between rows of results.
template <class Operand, class Output>
std::int64_t wrong_in_ring(product_extents const& extents, std::int64_t gap = 0, across_depth across = {}) {
  using value = typename gemm_operand<Operand>::value_type;
  tessera::cuda const exec;
  auto const chunk = static_cast<std::int64_t>(16 / sizeof(value));
  auto x = sampled<value>(exec, extents.rows, extents.depth, {0, chunk}, 1, across.inputs);
  auto w = sampled<value>(exec, extents.columns, extents.depth, {chunk, 0}, 2, across.weights);
  matrix_on_device<Output> y(exec, extents.rows, extents.columns, {0, gap});
  return wrong_on_device<Operand>(exec, x, w, y, {}, [&] {
    linear_problem<Operand, Output, plain_sum> const problem{x.on_device(), w.on_device(), y.on_device(), {}};
    REQUIRE(!gemm_ring_model::refuses(exec, problem));
    gemm_ring_model::run(exec, problem);
  });
}

/// The same for extents around those of tiles and of stages.
template <class Operand, class Output>
void check_ring() {
  auto const chunk = static_cast<std::int64_t>(16 / sizeof(typename gemm_operand<Operand>::value_type));
  for (std::int64_t const chunks : {1, 7, 8, 9, 16, 25}) {
    for (std::int64_t const rows : {1, 7, 127, 128, 129, 300}) {
      CAPTURE(chunks, rows);
      CHECK(wrong_in_ring<Operand, Output>({rows, 8, chunks * chunk}) == 0);
      CHECK(wrong_in_ring<Operand, Output>({3, rows, chunks * chunk}) == 0);
    }
  }
  CHECK(wrong_in_ring<Operand, Output>({129, 264, 9 * chunk}, 8) == 0);
  CHECK(wrong_in_ring<Operand, Output>({130, 257, 8 * chunk}, 3) == 0);
}

/// Counts wrong results of a ring by a policy, with tiles and stages from lists, also empty ones.
template <Tuning Chosen>
std::int64_t wrong_of_lists() {
  using ring = gemm_ring<bfloat16, listed_schedule, store_sums_directly<float, plain_sum>, policy_of<Chosen>(800)>;
  tessera::cuda const exec;
  if (exec.template lacks<ring>()) {
    WARN("this device has no shared memory for " << ring::rows << " x " << ring::columns << " sums");
    return 0;
  }
  auto x = sampled<bfloat16>(exec, 300, 5 * ring::depth, {}, 1);
  auto w = sampled<bfloat16>(exec, 260, 5 * ring::depth, {}, 2);
  matrix_on_device<float> y(exec, 300, 260, {});
  y.host.assign(y.host.size(), -77.0F);
  std::vector<gemm_work_item> const items{{2, 1, 0, 3}, {0, 2, 3, 0}, {1, 0, 3, 2}, {0, 0, 2, 1}};
  std::vector<std::int32_t> const list{4, 0, 2, 1, 3};
  buffer<gemm_work_item> device_items(exec, 4);
  buffer<std::int32_t> device_list(exec, 5);
  exec.copy(items, device_items);
  exec.copy(list, device_list);
  exec.copy(x.host, x.device);
  exec.copy(w.host, w.device);
  exec.copy(y.host, y.device);
  ring const whole{{x.on_device()}, {w.on_device()}, {device_items.data(), 4, device_list.data()}, {y.on_device(), {}}};
  exec.run(whole, 2);  // each thread block takes two tiles
  exec.copy(y.device, y.host);
  exec.wait();
  std::int64_t wrong = 0;
  for (std::int64_t row = 0; row < 300; ++row) {
    for (std::int64_t column = 0; column < 260; ++column) {
      double expected = -77;
      for (gemm_work_item const& item : items) {
        if (row / ring::rows == item.row && column / ring::columns == item.column) {
          expected = 0;
          for (int k = 0; k < item.k_tiles * ring::depth; ++k) {
            int const at = list[static_cast<std::size_t>(item.first + k / ring::depth)] * ring::depth + k % ring::depth;
            expected +=
                static_cast<double>(load(x.on_host()(row, at))) * static_cast<double>(load(w.on_host()(column, at)));
          }
        }
      }
      wrong += std::fabs(static_cast<double>(y.on_host()(row, column)) - expected) <= 1e-4 * (1 + std::fabs(expected))
                   ? 0
                   : 1;
    }
  }
  return wrong;
}

/// The same for all tiles of a product of 16-bit floats, by so many thread blocks.
template <Tuning Chosen>
std::int64_t wrong_of_policy(product_extents const& extents, std::int64_t workers) {
  using ring = gemm_ring<bfloat16, dense_schedule, store_sums_by_rows<bfloat16, plain_sum>, policy_of<Chosen>(800)>;
  tessera::cuda const exec;
  if (exec.template lacks<ring>()) {
    WARN("this device has no shared memory for " << ring::rows << " x " << ring::columns << " sums");
    return 0;
  }
  auto x = sampled<bfloat16>(exec, extents.rows, extents.depth, {0, 8}, 1);
  auto w = sampled<bfloat16>(exec, extents.columns, extents.depth, {8, 0}, 2);
  matrix_on_device<bfloat16> y(exec, extents.rows, extents.columns, {0, 8});
  auto const tiles_of = [](std::int64_t extent, int size) {
    return static_cast<std::int32_t>(divide_up(extent, std::int64_t{size}));
  };
  dense_schedule const schedule{{tiles_of(extents.rows, ring::rows), tiles_of(extents.columns, ring::columns), 2},
                                tiles_of(extents.depth, ring::depth)};
  return wrong_on_device<bfloat16>(exec, x, w, y, {}, [&] {
    ring const whole{{x.on_device()}, {w.on_device()}, schedule, {{y.on_device()}, {}}};
    exec.run(whole, workers);
  });
}

/// The same with weights that a source makes of codes.
template <Tuning Chosen, class Q>
std::int64_t wrong_of_codes(product_extents const& extents, std::int64_t workers) {
  codes_on_device<Q> const made(extents.columns, extents.depth, 0);
  auto const source = made.source();
  using ring = gemm_ring<operand_from_source<bfloat16, std::remove_const_t<decltype(source)>>, dense_schedule,
                         store_sums_by_rows<bfloat16, plain_sum>, policy_of<Chosen>(800)>;
  tessera::cuda const exec;
  if (exec.template lacks<ring>()) {
    WARN("this device has no shared memory for " << ring::rows << " x " << ring::columns << " sums");
    return 0;
  }
  auto x = sampled<bfloat16>(exec, extents.rows, extents.depth, {0, 8}, 1);
  matrix_on_device<bfloat16> w(exec, extents.columns, extents.depth, {});
  w.host = made.values;
  matrix_on_device<bfloat16> y(exec, extents.rows, extents.columns, aligned<bfloat16>(extents.columns));
  auto const tiles_of = [](std::int64_t extent, int size) {
    return static_cast<std::int32_t>(divide_up(extent, std::int64_t{size}));
  };
  dense_schedule const schedule{{tiles_of(extents.rows, ring::rows), tiles_of(extents.columns, ring::columns), 2},
                                tiles_of(extents.depth, ring::depth)};
  return wrong_on_device<bfloat16>(exec, x, w, y, {}, [&] {
    ring const whole{{x.on_device()}, source, schedule, {{y.on_device()}, {}}};
    exec.run(whole, workers);
  });
}

/// The same for extents around those of tiles and of stages.
template <Tuning Chosen, class Q>
void check_codes_by() {
  constexpr gemm_ring_policy policy = policy_of<Chosen>(800);
  for (std::int64_t const depth : {8, 64, 72, 136, 200, 640}) {
    for (std::int64_t const more : {-8, 0, 8}) {
      CAPTURE(policy.rows, policy.columns, depth, more);
      CHECK(wrong_of_codes<Chosen, Q>({policy.rows + more, policy.columns - more, depth}, 1) == 0);
      CHECK(wrong_of_codes<Chosen, Q>({2 * policy.rows + more, 3 * policy.columns + more, depth}, 2) == 0);
    }
  }
}

/// The same for extents around those of tiles and of stages.
template <Tuning Chosen>
void check_policy() {
  constexpr gemm_ring_policy policy = policy_of<Chosen>(800);
  for (std::int64_t const depth : {8, 64, 72, 136, 200, 640}) {
    for (std::int64_t const more : {-8, 0, 8}) {
      CAPTURE(policy.rows, policy.columns, depth, more);
      CHECK(wrong_of_policy<Chosen>({policy.rows + more, policy.columns - more, depth}, 1) == 0);
      CHECK(wrong_of_policy<Chosen>({2 * policy.rows + more, 3 * policy.columns + more, depth}, 2) == 0);
    }
  }
}

}  // namespace

TEST_CASE("a ring of stages on a GPU gives the product, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_ring<bfloat16, bfloat16>();
  check_ring<float16, float>();
}

TEST_CASE("a ring of stages on a GPU multiplies bytes and tf32", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_ring<std::int8_t, std::int32_t>();
  check_ring<float8_e4m3, bfloat16>();
  check_ring<tf32, float>();
}

TEST_CASE("thread blocks of a ring go from tile to tile", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(wrong_in_ring<bfloat16, bfloat16>({2100, 2300, 72}) == 0);  // 306 tiles
}

TEST_CASE("rings of all sizes take tiles and stages from lists, also empty ones", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(wrong_of_lists<gemm_ring_tuning>() == 0);
  CHECK(wrong_of_lists<wide_gemm_ring_tuning>() == 0);
  CHECK(wrong_of_lists<tall_gemm_ring_tuning>() == 0);
}

TEST_CASE("rings of all sizes give the product, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_policy<gemm_ring_tuning>();
  check_policy<wide_gemm_ring_tuning>();
  check_policy<tall_gemm_ring_tuning>();
}

TEST_CASE("rings whose lanes make stages of codes give the product, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_codes_by<gemm_ring_tuning, symmetric_quantizer<8, 64>>();
  check_codes_by<source_gemm_ring_tuning, symmetric_quantizer<8, 64>>();
  check_codes_by<gemm_ring_tuning, two_to_a_byte<symmetric_quantizer<4, 64>>>();
  check_codes_by<source_gemm_ring_tuning, two_to_a_byte<symmetric_quantizer<4, 64>>>();
}

TEST_CASE("operands of a ring may lie across the depth", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  with_each_order([](across_depth across) {
    for (std::int64_t const depth : {8, 56, 64, 72, 136}) {
      for (std::int64_t const rows : {8, 120, 128, 136, 264}) {
        CAPTURE(depth, rows);
        CHECK(wrong_in_ring<bfloat16, bfloat16>({rows, 40, depth}, 0, across) == 0);
        CHECK(wrong_in_ring<bfloat16, bfloat16>({24, rows, depth}, 3, across) == 0);
      }
    }
    CHECK(wrong_in_ring<bfloat16, bfloat16>({136, 16896, 72}, 0, across) == 0);  // large tiles
  });
}

TEST_CASE("a ring of stages says which rows it does not take", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto x = sampled<bfloat16>(exec, 4, 63, {0, 1}, 1);
  auto w = sampled<bfloat16>(exec, 4, 63, {0, 1}, 2);
  matrix_on_device<bfloat16> y(exec, 4, 4, {});
  linear_problem<bfloat16, bfloat16, plain_sum> const problem{x.on_device(), w.on_device(), y.on_device(), {}};
  refusal const why = gemm_ring_model::refuses(exec, problem);
  CHECK(why.text() == "rows of inputs do not begin and end at multiples of 16 bytes");
  auto bytes = sampled<std::int8_t>(exec, 64, 64, {}, 1);
  matrix_on_device<std::int32_t> sums(exec, 64, 64, {});
  linear_problem<std::int8_t, std::int32_t, plain_sum> const turned{
      bytes.on_device(), bytes.on_device().transposed(), sums.on_device(), {}};
  CHECK(gemm_ring_model::refuses(exec, turned).text() ==
        "weights lie across the depth, and ldmatrix turns only elements of 2 bytes");
}
