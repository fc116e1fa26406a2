// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: tessera: weights are a list of the codec's value_type
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/neuzip.hpp>

tessera::buffer<std::byte> pack(std::vector<float> const& weights) {
#if defined(TESSERA_FAIL)
  return tessera::neuzip::encode(tessera::cpu{}, weights);  // neuzip's weights are bfloat16
#else
  return tessera::neuzip_of<float>::encode(tessera::cpu{}, weights);
#endif
}
