// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: programs of this executor do not read a std::vector or std::array, which lies in the host's memory
#include <vector>

#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/neuzip.hpp>

/// As tessera::cuda is, where there is no nvcc.
struct with_own_memory : tessera::cpu {
  void check_reach(char const*, char const*, void const*) const {}
};

tessera::buffer<std::byte> pack(with_own_memory const& exec, std::vector<tessera::bfloat16> const& weights) {
#if defined(TESSERA_FAIL)
  return tessera::neuzip::encode(exec, weights);
#else
  return tessera::neuzip::encode(exec, tessera::array_view<tessera::bfloat16 const>(weights));
#endif
}

/// Operands of any number are asked for in one call.
void check_operands(with_own_memory const& exec, tessera::array_view<float> inputs, std::vector<int> const& lengths) {
#if defined(TESSERA_FAIL)
  tessera::check_reach(exec, "f", "inputs", inputs, "lengths", lengths);
#else
  tessera::check_reach(exec, "f", "inputs", inputs, "lengths", tessera::array_view<int const>(lengths));
#endif
}
