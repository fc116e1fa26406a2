// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Checks products with weights from sources on a GPU against those with the same values on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/explain.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/tile/source/dequantized.hpp>

#include "algorithm/gemm/linear_on_device.cuh"

namespace tessera_test {

using namespace tessera;

/// Whether this device has sm_90a's programs.
inline bool has_warpgroup_programs() {
  return cuda::is_compiled_for<900> && cuda{}.state->architecture() == 900;
}
/// The program of products with more than a few rows of so many elements of 16 bits on this device, or null where only
/// the portable one runs: rows of inputs begin at multiples of 16 bytes, and gemm_ring needs rows that end there, too.
inline char const* program_of_many_rows(std::int64_t columns) {
  return has_warpgroup_programs() ? gemm_from_source_model::name
         : columns % 8 == 0       ? gemm_ring_from_source_model::name
                                  : nullptr;
}

/// The program of products of few rows with a coded_matrix on this device.
inline char const* program_of_coded_rows() {
  return has_warpgroup_programs() ? gemm_few_rows_boxes_model::name : gemm_few_rows_coded_model::name;
}

/// Multiplies by a source, whose values on the host are `values`, and counts wrong results. `program` is the one that
/// must be chosen, or null.
template <class Output, class Source>
std::int64_t wrong_products(std::int64_t tokens, Source const& source,
                            std::vector<typename Source::value_type> const& values, char const* program) {
  using value = typename Source::value_type;
  cuda const exec;
  std::int64_t const depth = source.columns();
  auto x = sampled<value>(exec, tokens, depth, aligned<value>(depth), 1);
  matrix_on_device<value> w(exec, source.rows(), depth, {});
  w.host = values;
  matrix_on_device<Output> y(exec, tokens, source.rows(), aligned<Output>(source.rows()));
  if (program != nullptr && tokens > 0 && depth > 0) {
    source_linear_problem<value, Source, Output, plain_sum> const call{x.on_device(), source, y.on_device(), {}};
    CHECK(explain(exec, call).choices.at(0).program == program);
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

/// Checks the product of random inputs with codes whose rows are `gap` elements further apart than they are long.
template <class Q, class Output = bfloat16>
void check_codes(std::int64_t tokens, std::int64_t rows, std::int64_t columns, std::int64_t gap,
                 char const* program = nullptr) {
  CAPTURE(tokens, rows, columns, gap);
  codes_on_device<Q> const made(rows, columns, gap);
  CHECK(wrong_products<Output>(tokens, made.source(), made.values, program) == 0);
}

}  // namespace tessera_test
