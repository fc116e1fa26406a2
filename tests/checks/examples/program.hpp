// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What examples of programs call by these names: program.cmake, program_weights.cmake.
#pragma once

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/tile/row_tile.hpp>
#include <tessera/tile/serial/group.hpp>

namespace pieces {

using T = tessera::bfloat16;
using Group = tessera::serial_group<128>;
using Method = tessera::sage_attention2::method;
using Softmax = Method::softmax;
/// The quantizer of a softmax's weights.
using Q = Method::value_quantizer;
/// The product whose sums are scores.
using Product = tessera::row_tile<tessera::widened_code<Q::code_type>, tessera::shape<64, 64, 32>, Group>;

}  // namespace pieces
