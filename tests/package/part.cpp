// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The C++ compiler's half of the CUDA programs.
#include <tessera/core/precision.hpp>

float rounded_by_the_host(float value) {
  return tessera::load(tessera::store<tessera::bfloat16>(value));
}
