// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/quantize/asymmetric.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/tile/source/dense.hpp>

#include "program/gemm/products_of_codes.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

/// Checks products of many rows, and those of few for which gemm_few_rows is not asked for.
template <class Q, class Output = bfloat16>
void check_products(std::int64_t tokens, std::int64_t rows, std::int64_t columns, std::int64_t gap) {
  check_codes<Q, Output>(tokens, rows, columns, gap, tokens > 16 ? program_of_many_rows(columns) : nullptr);
}

/// A user's source: a matrix that is computed, and has no memory.
template <class T>
struct checkerboard {
  using value_type = T;
  std::int64_t row_count;
  std::int64_t column_count;

  TESSERA_FN std::int64_t rows() const { return row_count; }
  TESSERA_FN std::int64_t columns() const { return column_count; }
  TESSERA_FN T value(std::int64_t row, std::int64_t column) const {
    return tessera::store<T>(static_cast<float>((row * 7 + column * 3) % 11 - 5));
  }
  template <class Group, class Tile>
  TESSERA_FN void load(Group const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    for (int lane : group) {
      for (int i = lane; i < Tile::rows * Tile::columns; i += Group::size) {
        std::int64_t const row = first_row + i / Tile::columns;
        std::int64_t const column = first_column + i % Tile::columns;
        bool const is_inside = row < row_count && column < column_count;
        tile(i / Tile::columns, i % Tile::columns) = is_inside ? value(row, column) : T{};
      }
    }
    group.sync();
  }
};

}  // namespace

TEST_CASE("products with weights of 8-bit codes on a GPU are right, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  using quantizer = symmetric_quantizer<8, 64>;
  for (std::int64_t const tokens : {0, 1, 7, 127, 128, 129, 255, 256, 257, 600}) {
    check_products<quantizer>(tokens, 40, 192, 0);
  }
  for (std::int64_t const rows : {1, 7, 63, 64, 65, 127, 128, 129, 520}) {
    check_products<quantizer>(130, rows, 128, 0);
  }
  for (std::int64_t const columns : {1, 7, 16, 63, 64, 65, 255, 256, 257, 640, 1000}) {
    check_products<quantizer>(130, 40, columns, 0);
    check_products<quantizer>(130, 40, columns, 16 - columns % 16);
  }
}

TEST_CASE("products with weights from sources on a GPU go from tile to tile, tall and small", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_products<symmetric_quantizer<8, 64>>(4300, 1020, 320, 0);
  check_products<symmetric_quantizer<8, 64>, float>(513, 8200, 128, 0);
  check_products<symmetric_quantizer<8, 64>>(1, 16900, 128, 0);
  check_products<symmetric_quantizer<8, 64>>(260, 8191, 64, 0);
}

TEST_CASE("weights of 4-bit pairs, of uneven groups and of whole tensors are multiplied on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const columns : {2, 32, 64, 66, 128, 320}) {
    check_products<two_to_a_byte<symmetric_quantizer<4, 64>>>(150, 140, columns, 0);
    check_products<two_to_a_byte<asymmetric_quantizer<4, 32>>>(150, 140, columns, 16 - columns / 2 % 16);
    check_products<symmetric_quantizer<8, 24>>(150, 140, columns, 0);
    check_products<symmetric_quantizer<8, whole_tensor>>(150, 140, columns, 0);
  }
}

TEST_CASE("weights of any strides and those of a user's source are multiplied on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  auto w = sampled<bfloat16>(exec, 96, 200, {}, 2);
  exec.copy(w.host, w.device);
  std::vector<bfloat16> transposed;
  for (std::int64_t row = 0; row < 200; ++row) {
    for (std::int64_t column = 0; column < 96; ++column) {
      transposed.push_back(w.on_host()(column, row));
    }
  }
  matrix_view<bfloat16 const> const lying = w.on_device().transposed();
  CHECK(wrong_products<float>(300, dense<bfloat16>{lying}, transposed, program_of_many_rows(200)) == 0);
  for (std::int64_t const columns : {130, 136}) {
    checkerboard<float16> const computed{70, columns};
    std::vector<float16> values;
    for (std::int64_t i = 0; i < 70 * columns; ++i) {
      values.push_back(computed.value(i / columns, i % columns));
    }
    CHECK(wrong_products<float16>(257, computed, values, program_of_many_rows(columns)) == 0);
  }
}
