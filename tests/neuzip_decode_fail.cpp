// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: tessera: weights are a list of the codec's value_type
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/neuzip.hpp>

void unpack(std::vector<std::byte> const& stream, std::vector<tessera::bfloat16>& weights) {
#if defined(TESSERA_FAIL)
  auto const& written = weights;  // const
#else
  auto& written = weights;
#endif
  tessera::neuzip::decode(tessera::cpu{}, stream, written);
}
