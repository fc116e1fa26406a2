// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>

#include "custom_layers.hpp"
#include "support/catch.hpp"

using namespace tessera;
using tessera_test::is_right;

TEST_CASE("the kernel of the example is right whatever the extents", "[host][threads]") {
  cpu const exec{.threads = 2};
  std::int64_t const all_tokens[] = {1, 15, 16, 17, 129};
  std::int64_t const all_columns[] = {1, 31, 33, 65};
  std::int64_t const all_depths[] = {2, 126, 128, 130, 384};
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t j = 0; j < 4; ++j) {
      for (std::size_t const k : {(i + j) % 5, (i + j + 2) % 5}) {  // any two extents meet
        CAPTURE(all_tokens[i], all_columns[j], all_depths[k]);
        CHECK(is_right(exec, all_tokens[i], all_columns[j], all_depths[k]));
      }
    }
  }
  CHECK(is_right(exec, 3, 5, 128 * 35));  // three parts of the depth
}

TEST_CASE("the kernel of the example keeps the rules for programs", "[host]") {
  testing::adversary const exec{.seed = 4};
  CHECK(is_right(exec, 3, 33, 128 * 17));
  CHECK(is_right(exec, 17, 65, 192));
}

TEST_CASE("the example takes no odd depth and too few partial sums", "[host]") {
  cpu const exec{.threads = 1};
  CHECK_THROWS_AS(is_right(exec, 1, 1, 3), shape_error);
  auto const data = tessera_test::some_layer(2, 8, 16);
  tessera_examples::int4_layer const layer(exec, {data.weights.data(), {8, 16}});
  std::vector<bfloat16> outputs(16);
  CHECK_THROWS_AS(layer.forward(exec, {data.inputs.data(), {2, 16}}, {}, {outputs.data(), {2, 8}}), shape_error);
}

TEST_CASE("the example's check finds an output that is wrong, and one that is no number", "[host]") {
  cpu const exec{.threads = 1};
  auto const data = tessera_test::some_layer(2, 8, 64);
  tessera_examples::int4_layer const layer(exec, {data.weights.data(), {8, 64}});
  std::vector<float> sums(static_cast<std::size_t>(layer.partial_sums(2)));
  std::vector<bfloat16> outputs(16);
  layer.forward(exec, {data.inputs.data(), {2, 64}}, sums, {outputs.data(), {2, 8}});
  CHECK(tessera_examples::errors_of(exec, data, layer, outputs).are_within_bounds());
  for (float const wrong : {1.02F * load(outputs[5]), std::numeric_limits<float>::quiet_NaN()}) {
    auto changed = outputs;
    changed[5] = store<bfloat16>(wrong);
    CHECK_FALSE(tessera_examples::errors_of(exec, data, layer, changed).are_within_bounds());
  }
}
