// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Asks the processor whether upper halves of vector registers are in use: after blocks that clear them, and after the
/// library's own functions for AVX.
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/cpu_features.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/tile/serial/add_products.hpp>
#include <tessera/tile/serial/clear_vectors.hpp>

#include "support/catch.hpp"

using namespace tessera;

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__AVX__)

namespace {

/// Upper halves of registers 0 to 15: bits 128 to 255, and 256 to 511.
constexpr std::uint64_t upper_halves = 1U << 2 | 1U << 6;

/// Whether the processor can say which state is in use: XGETBV with 1.
bool can_say() {
  std::uint32_t eax = 13;
  std::uint32_t ebx = 0;
  std::uint32_t ecx = 1;
  std::uint32_t edx = 0;
  __asm__ volatile("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
  return best_simd_level() >= simd_level::avx2 && (eax & 4U) != 0;
}
bool are_in_use() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return (low & upper_halves) != 0;
}

/// Sets all bits of a register. Compilers do not know of it, and clear nothing by themselves.
[[gnu::target("avx2")]] void use_vectors() {
  __asm__ volatile("vpcmpeqd %%ymm0, %%ymm0, %%ymm0" ::: "xmm0");
}
[[gnu::target("avx2")]] void use_and_clear_vectors() {
  tessera::detail::clear_vectors const at_end;
  use_vectors();
}

}  // namespace

TEST_CASE("blocks clear the upper halves of vector registers where they end", "[tile]") {
  if (!can_say()) {
    TESSERA_SKIP("this processor does not say which registers are in use");
  }
  use_vectors();
  bool const are_left = are_in_use();
  use_and_clear_vectors();
  bool const are_cleared = !are_in_use();
  CHECK(are_left);
  CHECK(are_cleared);
}

TEST_CASE("attention, products and coders leave no upper half of a vector register in use", "[tile]") {
  if (!can_say()) {
    TESSERA_SKIP("this processor does not say which registers are in use");
  }
  cpu const exec{1};
  std::vector<bfloat16> heads(std::size_t{4} * 128 * 64, bfloat16{0x3f00});  // 0.5
  std::vector<bfloat16> results(heads.size());
  attention_shape const shape{1, 1, 1, 128, 128, 64};
  auto const plan = sage_attention2::plan_forward(exec, shape);
  buffer<std::byte> memory(exec, plan.bytes());
  head_view<bfloat16 const> const in(heads.data(), {1, 1, 128, 64});
  sage_attention2::forward(exec, {in, in, in}, {}, {head_view<bfloat16>(results.data(), {1, 1, 128, 64})},
                           workspace(plan, memory));
  bool const are_clear_after_attention = !are_in_use();
  auto const stream = neuzip::encode(exec, array_view<bfloat16 const>(heads.data(), std::int64_t{4096}));
  bool const are_clear_after_encode = !are_in_use();
  neuzip::decode(exec, array_view<std::byte const>(stream.data(), stream.bytes()),
                 array_view<bfloat16>(results.data(), std::int64_t{4096}));
  bool const are_clear_after_decode = !are_in_use();
  float a[4][16] = {};
  float b[16][64] = {};
  float sums[4][64] = {};
  add_products<4, 64, 16>(a, b, sums);  // fused, where the processor gains by it
  bool const are_clear_after_exact_products = !are_in_use();
  a[0][0] = 0.1F;
  add_products<4, 64, 16>(a, b, sums);
  bool const are_clear_after_products = !are_in_use();
  CHECK(are_clear_after_exact_products);
  CHECK(are_clear_after_products);
  CHECK(are_clear_after_attention);
  CHECK(are_clear_after_encode);
  CHECK(are_clear_after_decode);
}

#endif
