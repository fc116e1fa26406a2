// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/algorithm/gemm/materialize.hpp>
#include <tessera/algorithm/gemm/quantized_matrix.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/quantize/asymmetric.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/quantize/unscaled.hpp>
#include <tessera/tile/source/converted.hpp>

#include "algorithm/gemm/quantized_samples.hpp"
#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/log_scalar.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("codes of matrices made on the GPU are those of the quantizer, for all extents and strides", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_quantizers<float>(cuda());
  check_quantizers<bfloat16>(cuda());
}

TEST_CASE("matrices on the GPU take quantizers with a minimum and of floating-point codes", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  row_samples<float16> const samples(300, 192, false);
  codes_on<asymmetric_quantizer<8, 64>, cuda> asymmetric(cuda(), samples);
  CHECK(asymmetric.found() == expected_codes<asymmetric_quantizer<8, 64>>(samples));
  check_quantized<scaled_float_quantizer<float8_e4m3, 64>>(cuda(), samples);
  check_quantized<symmetric_quantizer<8, 64>>(cuda(), row_samples<bfloat16>(300, 4096, false));
}

TEST_CASE("a product on the GPU takes weights in float8 and in a scalar of a user's own", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  row_samples<float> const weights(130, 200, false, 1.0);
  row_samples<bfloat16> const inputs(70, 200, false, 1.0);
  auto const check = [&](auto scalar) {
    using from = decltype(scalar);
    using coded = quantized_matrix<unscaled_quantizer<from>>;
    auto const values = sent(exec, weights.values);
    auto const x = sent(exec, inputs.values);
    buffer<from> codes(exec, 130 * 200);
    buffer<float> outputs(exec, 70 * 130);
    matrix_view<from> const matrix(codes.data(), {130, 200});
    coded::quantize(exec, {}, weights.view_of(values.data()), matrix, {},
                    workspace(coded::plan(exec, 130, 200), array_view<std::byte>()));
    linear<bfloat16>::forward(exec, inputs.view_of(x.data()), converted<from, bfloat16>(matrix),
                              matrix_view<float>(outputs.data(), {70, 130}));
    auto const found = fetched(exec, outputs);
    auto const found_codes = fetched(exec, codes);
    CAPTURE(scalar_traits<from>::name());
    for (std::size_t i = 0; i < found_codes.size(); ++i) {
      REQUIRE(to_bits(found_codes[i]) == to_bits(store<from>(weights.values[i])));
    }
    int wrong = 0;
    double largest_error = 0;
    for (std::int64_t token = 0; token < 70; ++token) {
      for (std::int64_t row = 0; row < 130; ++row) {
        double sum = 0;
        double size = 0;
        for (std::int64_t i = 0; i < 200; ++i) {
          double const weight = static_cast<double>(load(store<bfloat16>(load(store<from>(weights.at(row, i))))));
          sum += static_cast<double>(inputs.at(token, i)) * weight;
          size += std::abs(static_cast<double>(inputs.at(token, i)) * weight);
        }
        double const error = std::abs(static_cast<double>(found[static_cast<std::size_t>(token * 130 + row)]) - sum);
        wrong += error > 1e-5 * size;
        largest_error = std::max(largest_error, error / size);
      }
    }
    CAPTURE(largest_error);
    CHECK(wrong == 0);
  };
  check(float8_e4m3{});
  check(log_scalar{});
}
