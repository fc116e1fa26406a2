// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Layers of all extents for the kernel of examples/custom_kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/testing/generators.hpp>

#include "../../examples/custom_kernel/layer_check.hpp"

namespace tessera_test {

inline tessera_examples::layer_data some_layer(std::int64_t tokens, std::int64_t columns, std::int64_t depth) {
  tessera_examples::layer_data layer{"", tokens, columns, depth, {}, {}};
  layer.inputs.resize(static_cast<std::size_t>(tokens * depth));
  layer.weights.resize(static_cast<std::size_t>(columns * depth));
  tessera::testing::fill(tessera::testing::gauss{}, 1, layer.inputs.data(), layer.inputs.size());
  tessera::testing::fill(tessera::testing::student_t{.freedom = 3, .scale = 0.02}, 2, layer.weights.data(),
                         layer.weights.size());
  return layer;
}

template <class Executor>
bool is_right(Executor const& exec, std::int64_t tokens, std::int64_t columns, std::int64_t depth) {
  return tessera_examples::check_layer(exec, some_layer(tokens, columns, depth)).are_within_bounds();
}

}  // namespace tessera_test
