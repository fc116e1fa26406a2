// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdio>

#include <tessera/core/precision.hpp>
#include <tessera/version.hpp>

int main() {
  auto const rounded = tessera::store<tessera::bfloat16>(1.00390625F);
  std::printf("tessera %s rounds 1.00390625 to bf16 %g\n", TESSERA_VERSION_STRING, double(tessera::load(rounded)));
  return tessera::load(rounded) == 1.0F ? 0 : 1;
}
