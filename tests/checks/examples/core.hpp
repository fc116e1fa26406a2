// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What examples of core call by these names: core.cmake.
#pragma once

#include <iostream>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/view/attention_shape.hpp>

namespace pieces {

using Executor = tessera::cpu;

/// The limits of some values.
inline constexpr float low = -1.0F;
inline constexpr float high = 2.0F;

/// A call that is compiled for a few numbers of channels.
template <int Channels>
void run(tessera::attention_shape const&) {}

/// A product whose columns are multiplied part by part.
inline constexpr int parts = 2;
struct value_scratch {
  float values[32];
};
inline void multiply(float const (&)[32], float&) {}

}  // namespace pieces
