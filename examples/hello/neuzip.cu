// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Compresses a million bf16 weights on a GPU, and decodes them to the same bits.
#include <cstdio>
#include <cstring>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/testing/generators.hpp>

int main() {
  std::vector<tessera::bfloat16> weights(1 << 20), decoded(weights.size());
  tessera::testing::fill(tessera::testing::gauss{0.02}, 1, weights.data(), weights.size());

  tessera::cuda const exec;
  tessera::buffer<tessera::bfloat16> memory(exec, std::ssize(weights));
  exec.copy(weights, memory);
  auto const stream = tessera::neuzip::encode(exec, memory);
  exec.clear(memory);
  tessera::neuzip::decode(exec, stream, memory);
  exec.copy(memory, decoded);
  exec.wait();

  bool const is_same = std::memcmp(weights.data(), decoded.data(), 2 * weights.size()) == 0;
  std::printf("%.2f of 16 bits a weight, %s\n", 8.0 * static_cast<double>(stream.size()) / (1 << 20),
              is_same ? "decoded bit for bit" : "but decoded to other bits");
  return is_same ? 0 : 1;
}
