// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Moves matrices of 8 rows of 16 bytes between shared memory and the registers of a warp, laid out for tensor cores.
///
/// Lane l gives the address of row l % 8 of matrix l / 8, a multiple of 16. Afterwards lane l holds bytes 4 * (l % 4)
/// to 4 * (l % 4) + 3 of row l / 4 of each matrix. The transposed loads are for elements of 2 bytes: lane l holds
/// column l / 4 of rows 2 * (l % 4) and 2 * (l % 4) + 1.
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// Loads two matrices; the addresses of lanes 0 to 15 count.
__device__ __forceinline__ void load_matrix_x2(std::uint32_t (&to)[2], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(address));
}
/// Loads four matrices; the addresses of all lanes count.
__device__ __forceinline__ void load_matrix_x4(std::uint32_t (&to)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}
/// Loads two matrices, transposed; the addresses of lanes 0 to 15 count.
__device__ __forceinline__ void load_matrix_x2_transposed(std::uint32_t (&to)[2], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(address));
}
/// Loads four matrices, transposed; the addresses of all lanes count.
__device__ __forceinline__ void load_matrix_x4_transposed(std::uint32_t (&to)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}

/// Stores four matrices, the inverse of load_matrix_x4 (sm_90).
__device__ __forceinline__ void store_matrix_x4(std::uint32_t address, std::uint32_t a, std::uint32_t b,
                                                std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}

}  // namespace v0
}  // namespace tessera
