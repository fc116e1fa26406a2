// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/explain.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/map/scaled_sum.hpp>
#include <tessera/quantize/asymmetric.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/source/dequantized.hpp>

#include "algorithm/gemm/linear_on_device.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

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

/// Multiplies by a source, whose values on the host are `values`, and counts wrong results.
template <class Output, class Source>
std::int64_t wrong_products(std::int64_t tokens, Source const& source,
                            std::vector<typename Source::value_type> const& values) {
  using value = typename Source::value_type;
  cuda const exec;
  std::int64_t const depth = source.columns();
  auto x = sampled<value>(exec, tokens, depth, aligned<value>(depth), 1);
  matrix_on_device<value> w(exec, source.rows(), depth, {});
  w.host = values;
  matrix_on_device<Output> y(exec, tokens, source.rows(), aligned<Output>(source.rows()));
  if constexpr (cuda::is_compiled_for<900>) {
    if (tokens > 0 && depth > 0) {
      source_linear_problem<value, Source, Output, plain_sum> const call{x.on_device(), source, y.on_device(), {}};
      CHECK(explain(exec, call).choices.at(0).program == gemm_from_source_model::name);
    }
  }
  return wrong_on_device<value>(exec, x, w, y, {},
                                [&] { linear<value>::forward(exec, x.on_device(), source, y.on_device()); });
}

/// Codes of rows x columns with parameters for each group, on the device and decoded on the host.
template <class Q>
struct codes_on_device {
  using source_type = dequantized<Q, bfloat16>;
  static constexpr int in_element = source_type::is_packed ? 2 : 1;
  cuda exec;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t groups = Q::group == whole_tensor ? 1 : divide_up(columns, std::int64_t{Q::group});
  std::int64_t stride;
  std::vector<stored_code<Q>> codes;
  std::vector<typename Q::params_type> params;
  buffer<stored_code<Q>> device_codes{exec, rows* stride};
  buffer<typename Q::params_type> device_params{exec, rows* groups};
  std::vector<bfloat16> values;

  codes_on_device(std::int64_t row_count, std::int64_t column_count, std::int64_t gap)
      : rows(row_count), columns(column_count), stride(divide_up(column_count, std::int64_t{in_element}) + gap) {
    Q const q;
    codes.resize(static_cast<std::size_t>(rows * stride));
    values.resize(static_cast<std::size_t>(rows * columns));
    for (std::int64_t i = 0; i < rows * groups; ++i) {
      auto range = q.range().identity();
      q.range().push(range, 0.5F + static_cast<float>(i % 13));
      q.range().push(range, -1.0F);
      params.push_back(q.fit(range));
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        int const number = static_cast<int>((row * 31 + column * 17) % (Q::bits == 4 ? 15 : 255));
        auto const code = static_cast<typename Q::code_type>(
            std::is_unsigned_v<typename Q::code_type> ? number : number - (Q::bits == 4 ? 7 : 127));
        auto const of_group = static_cast<std::size_t>(
            Q::group == whole_tensor ? 0 : row * groups + column / (Q::group == whole_tensor ? 1 : Q::group));
        auto& stored = codes[static_cast<std::size_t>(row * stride + column / in_element)];
        if constexpr (source_type::is_packed) {
          stored = column % 2 == 0 ? pack_int4(code, 0) : pack_int4(low(stored), code);
        } else {
          stored = code;
        }
        values[static_cast<std::size_t>(row * columns + column)] =
            tessera::store<bfloat16>(q.decode(code, params[of_group]));
      }
    }
    exec.copy(codes, device_codes);
    exec.copy(params, device_params);
    exec.wait();
  }
  source_type source() const {
    return {{},
            {device_codes.data(), {rows, columns / in_element}, {stride, 1}},
            matrix_view<typename Q::params_type const>(device_params.data(),
                                                       {Q::group == whole_tensor ? 1 : rows, groups})};
  }
};

template <class Q, class Output = bfloat16>
void check_codes(std::int64_t tokens, std::int64_t rows, std::int64_t columns, std::int64_t gap) {
  CAPTURE(tokens, rows, columns, gap);
  codes_on_device<Q> const made(rows, columns, gap);
  CHECK(wrong_products<Output>(tokens, made.source(), made.values) == 0);
}

}  // namespace

TEST_CASE("products with weights of 8-bit codes on a GPU are right, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  using quantizer = symmetric_quantizer<8, 64>;
  for (std::int64_t const tokens : {0, 1, 7, 127, 128, 129, 255, 256, 257, 600}) {
    check_codes<quantizer>(tokens, 40, 192, 0);
  }
  for (std::int64_t const rows : {1, 7, 63, 64, 65, 127, 128, 129, 520}) {
    check_codes<quantizer>(130, rows, 128, 0);
  }
  for (std::int64_t const columns : {1, 7, 16, 63, 64, 65, 255, 256, 257, 640, 1000}) {
    check_codes<quantizer>(130, 40, columns, 0);
    check_codes<quantizer>(130, 40, columns, 16 - columns % 16);
  }
}

TEST_CASE("products with weights from sources on a GPU go from tile to tile, tall and small", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_codes<symmetric_quantizer<8, 64>>(4300, 1020, 320, 0);
  check_codes<symmetric_quantizer<8, 64>, float>(513, 8200, 128, 0);
  check_codes<symmetric_quantizer<8, 64>>(1, 16900, 128, 0);
  check_codes<symmetric_quantizer<8, 64>>(260, 8191, 64, 0);
}

TEST_CASE("weights of 4-bit pairs, of uneven groups and of whole tensors are multiplied on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const columns : {2, 32, 64, 66, 128, 320}) {
    check_codes<two_to_a_byte<symmetric_quantizer<4, 64>>>(150, 140, columns, 0);
    check_codes<two_to_a_byte<asymmetric_quantizer<4, 32>>>(150, 140, columns, 16 - columns / 2 % 16);
    check_codes<symmetric_quantizer<8, 24>>(150, 140, columns, 0);
    check_codes<symmetric_quantizer<8, whole_tensor>>(150, 140, columns, 0);
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
  CHECK(wrong_products<float>(300, dense<bfloat16>{lying}, transposed) == 0);
  checkerboard<float16> const computed{70, 130};
  std::vector<float16> values;
  for (std::int64_t i = 0; i < 70 * 130; ++i) {
    values.push_back(computed.value(i / 130, i % 130));
  }
  CHECK(wrong_products<float16>(257, computed, values) == 0);
}
