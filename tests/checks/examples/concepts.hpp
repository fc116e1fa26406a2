// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What examples of concepts call by these names: concepts.cmake, map.cmake, testing.cmake.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/entropy/tans_coder.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/tile/row_tile.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

#include "checks/examples/doubled.hpp"

namespace pieces {

/// Names functions that are templates, so that these are compiled.
template <auto...>
struct compiled {};

using Group = tessera::serial_group<32>;
using C = tessera::tans_coder;
using Q = tessera::symmetric_quantizer<8, tessera::per_thread>;

/// Two products that follow each other.
using M = tessera::row_tile<tessera::bfloat16, tessera::shape<64, 128, 16>, Group>;
using Next = tessera::row_tile<tessera::bfloat16, tessera::shape<64, 64, 16>, Group>;

/// The example of Reducer, which others use.
struct longest {
  using state_type = int;
  using input_type = int;
  TESSERA_FN constexpr state_type identity() const { return 0; }
  TESSERA_FN constexpr void push(state_type& state, input_type x) const { state = tessera::max(state, x); }
  TESSERA_FN constexpr void merge(state_type& into, state_type other) const { push(into, other); }
};

/// What the lanes of a program share.
struct lane_values {
  float values[Group::size];
};

/// What a function that refuses wrong calls takes.
template <class T>
struct inputs {
  tessera::matrix_view<T const> values;
};
struct options {};

}  // namespace pieces
