// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/float8.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/testing/laws/scaled_source.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/scaled_operand.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera_test::message_of;

TEST_CASE("codes that are multiplied as they are keep the laws of scaled sources", "[host]") {
  std::vector<std::int8_t> const codes(6 * 40, 3);
  std::vector<symmetric_params> const scales(6 * 3, {0.25F});
  scaled_operand<symmetric_quantizer<8, 16>> const source{{codes.data(), {6, 40}}, {scales.data(), {6, 3}}};
  CHECK(testing::check_scaled_laws(source, serial_group<1>{}).text().empty());
  source.check("a call", "inputs");
}

TEST_CASE("neighbouring rows share the scale that the source says", "[host]") {
  using quantizer = scaled_float_quantizer<float8_e4m3, 32>;
  std::vector<float8_e4m3> const codes(5 * 64, store<float8_e4m3>(1.5F));
  std::vector<scaled_float_params> scales;
  for (int i = 0; i < 3 * 2; ++i) {
    scales.push_back({1.0F + static_cast<float>(i)});
  }
  scaled_operand<quantizer, 2> const source{{codes.data(), {5, 64}}, {scales.data(), {3, 2}, {1, 3}}};
  source.check("a call", "weights");
  for (std::int64_t row = 0; row < 5; ++row) {
    for (std::int64_t group = 0; group < 2; ++group) {
      CHECK(source.scale(row, group) == 1.0F + static_cast<float>(row / 2 + 3 * group));
      CHECK(*source.scale_address(row, group) == source.scale(row, group));
    }
  }
  CHECK(load(source.exact(4, 63)) == 1.5F);
}

TEST_CASE("scales that are not those of the codes are refused with both extents", "[host]") {
  std::vector<std::int8_t> const codes(4 * 40);
  std::vector<symmetric_params> const scales(4 * 3);
  using operand = scaled_operand<symmetric_quantizer<8, 16>>;
  operand const few{{codes.data(), {4, 40}}, {scales.data(), {4, 2}}};
  operand const flat{{codes.data(), {4, 40}}, {scales.data(), {3, 3}}};
  CHECK(message_of([&] { few.check("scaled_linear.forward", "weights"); }) ==
        "scaled_linear.forward: the scales of weights are 4 x 2 but must be 4 x 3");
  CHECK(message_of([&] { flat.check("scaled_linear.forward", "inputs"); }) ==
        "scaled_linear.forward: the scales of inputs are 3 x 3 but must be 4 x 3");
}
