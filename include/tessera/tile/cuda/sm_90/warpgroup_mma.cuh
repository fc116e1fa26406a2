// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// wgmma (sm_90a): a warpgroup, four warps that begin at a multiple of four, multiplies 64 rows by up to 256 columns,
/// over a depth of 32 bytes of operands, while its threads go on.
///
///     using mma = warpgroup_mma<bfloat16, 256>;
///     typename mma::sum_type sums[mma::registers];
///     begin_multiply(sums);                                       // before multiply, and after touching the sums
///     mma::multiply(sums, a, b, false);                           // false: the old sums count as zero
///     mma::multiply(sums, a.further(32), b.further(32), true);    // the next 32 bytes of depth
///     commit_multiply();
///     await_multiply<0>(sums);                                    // all but the last 0 commits are done
///
/// Operands lie in shared memory as TMA writes them with a swizzle of 128 bytes: rows of 128 bytes along the depth,
/// tiles aligned to 1024 bytes; or rows of 64 bytes, where the depth is less; or rows of 16 bytes without a swizzle.
/// Thread t of the warpgroup holds, in register 4 j + 2 h + i, the sum of row 16 (t / 32) + (t % 32) / 4 + 8 h and
/// column 8 j + 2 (t % 4) + i.
///
/// Sums of 8-bit floats keep about 13 bits of mantissa below the largest addend (as cuBLAS does with fast
/// accumulation). Sums of other types round as fp32, or are exact.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/tile/cuda/sm_90/detail/warpgroup_instruction.cuh>
#include <tessera/tile/gemm_operand.hpp>

namespace tessera {
inline namespace v0 {

/// The word by which wgmma finds an operand in shared memory.
struct matrix_descriptor {
  std::uint64_t bits;  ///< the hardware's, opaque

  /// Rows of 128 swizzled bytes along the depth; each 8 rows take 1024 bytes.
  __device__ __forceinline__ static matrix_descriptor rows_of_128_bytes(std::uint32_t address) {
    return with_strides(address, 16, 1024);
  }
  /// Rows of `Bytes` swizzled bytes along the depth, 128 or 64, one after the other.
  template <int Bytes>
  __device__ __forceinline__ static matrix_descriptor rows_of(std::uint32_t address) {
    static_assert(Bytes == 128 || Bytes == 64, "tessera: rows of operands have 128 or 64 bytes");
    constexpr std::uint64_t swizzle = Bytes == 128 ? 1 : 2;
    constexpr std::uint64_t stride = 8 * Bytes;
    return {swizzle << 62 | stride >> 4 << 32 | std::uint64_t{1} << 16 | ((address & 0x3ffffU) >> 4)};
  }
  /// Rows of 16 bytes along the depth, one after the other, not swizzled: half of what one multiply() takes. The other
  /// half, of all rows, lies `leading` bytes further on; 0: it is the same.
  __device__ __forceinline__ static matrix_descriptor rows_of_16_bytes(std::uint32_t address, int leading) {
    constexpr std::uint64_t stride = std::uint64_t{8} * 16;
    return {stride >> 4 << 32 | static_cast<std::uint64_t>(leading >> 4) << 16 | ((address & 0x3ffffU) >> 4)};
  }
  /// Swizzled by 128 bytes. The meaning of the strides, in bytes, depends on the order: PTX ISA, "Matrix Descriptor".
  __device__ __forceinline__ static matrix_descriptor with_strides(std::uint32_t address, int leading, int stride) {
    constexpr std::uint64_t swizzle_of_128_bytes = std::uint64_t{1} << 62;
    return {swizzle_of_128_bytes | static_cast<std::uint64_t>(stride >> 4) << 32 |
            static_cast<std::uint64_t>(leading >> 4) << 16 | ((address & 0x3ffffU) >> 4)};
  }
  /// The operand that begins so many bytes after this one; inside of a row of 128 bytes, or at a whole number of 1024.
  /// Addresses are in the lower word, which never overflows: one addition of 32 bits.
  [[nodiscard]] __device__ __forceinline__ matrix_descriptor further(int bytes) const {
    std::uint32_t const low = static_cast<std::uint32_t>(bits) + static_cast<std::uint32_t>(bytes / 16);
    return {bits >> 32 << 32 | low};
  }
  /// This operand, with its address pinned in a register; otherwise the compiler recomputes the address at each use.
  [[nodiscard]] __device__ __forceinline__ matrix_descriptor kept() const {
    auto low = static_cast<std::uint32_t>(bits);
    asm volatile("mov.b32 %0, %0;" : "+r"(low));
    return {bits >> 32 << 32 | low};
  }
};

namespace detail {

/// The texts that complete the instruction.
template <class T, operand_order A, operand_order B>
struct warpgroup_mma_name;

template <operand_order A, operand_order B>
struct half_precision_tail {
  static constexpr char tail[] = ", 1, 1, 0, 0";
  static constexpr char register_tail[] = ", 1, 1, 0";
};
template <>
struct half_precision_tail<operand_order::along_depth, operand_order::across_depth> {
  static constexpr char tail[] = ", 1, 1, 0, 1";
  static constexpr char register_tail[] = ", 1, 1, 1";
};
template <>
struct half_precision_tail<operand_order::across_depth, operand_order::along_depth> {
  static constexpr char tail[] = ", 1, 1, 1, 0";
};
template <>
struct half_precision_tail<operand_order::across_depth, operand_order::across_depth> {
  static constexpr char tail[] = ", 1, 1, 1, 1";
};
struct float_tail {
  static constexpr char tail[] = ", 1, 1";
  static constexpr char register_tail[] = ", 1, 1";
};

template <operand_order A, operand_order B>
struct warpgroup_mma_name<bfloat16, A, B> : half_precision_tail<A, B> {
  static constexpr char kind[] = "k16.f32.bf16.bf16";
};
template <operand_order A, operand_order B>
struct warpgroup_mma_name<float16, A, B> : half_precision_tail<A, B> {
  static constexpr char kind[] = "k16.f32.f16.f16";
};
template <>
struct warpgroup_mma_name<tf32, operand_order::along_depth, operand_order::along_depth> : float_tail {
  static constexpr char kind[] = "k8.f32.tf32.tf32";
};
template <>
struct warpgroup_mma_name<float8_e4m3, operand_order::along_depth, operand_order::along_depth> : float_tail {
  static constexpr char kind[] = "k32.f32.e4m3.e4m3";
};
template <>
struct warpgroup_mma_name<float8_e5m2, operand_order::along_depth, operand_order::along_depth> : float_tail {
  static constexpr char kind[] = "k32.f32.e5m2.e5m2";
};
template <>
struct warpgroup_mma_name<std::int8_t, operand_order::along_depth, operand_order::along_depth> {
  static constexpr char kind[] = "k32.s32.s8.s8";
  static constexpr char tail[] = "";
  static constexpr char register_tail[] = "";
};

}  // namespace detail

/// Columns: 8, 16, 32, 64, 72, 80, 96, 128, 160, 192 or 256; 72 not for std::int8_t. Only bfloat16 and float16 may lie
/// across the depth.
template <class T, int Columns, operand_order A = operand_order::along_depth,
          operand_order B = operand_order::along_depth>
struct warpgroup_mma {
  using operand_type = typename gemm_operand<T>::value_type;
  using sum_type = typename gemm_operand<T>::sum_type;
  using a_tile = std::uint32_t[4];  ///< rows x depth in registers
  static constexpr int rows = 64;
  static constexpr int columns = Columns;
  static constexpr int depth = 32 / static_cast<int>(sizeof(operand_type));
  static constexpr int registers = Columns / 2;  ///< registers of a thread for the sums

  __device__ __forceinline__ static void multiply(sum_type (&sums)[registers], matrix_descriptor a, matrix_descriptor b,
                                                  bool add) {
    detail::warpgroup_instruction<Columns>::template run<name>(sums, a.bits, b.bits, add ? 1 : 0);
  }
  /// Multiplies with a from registers: four bytes to a register, laid out as in mma.cuh for one warp, warp w holding
  /// rows 16 w to 16 w + 15. The registers must not change before the multiplication is done.
  __device__ __forceinline__ static void multiply(sum_type (&sums)[registers], std::uint32_t const (&a)[4],
                                                  matrix_descriptor b, bool add) {
    detail::warpgroup_instruction<Columns>::template run<name>(sums, a, b.bits, add ? 1 : 0);
  }

 private:
  using name = detail::warpgroup_mma_name<T, A, B>;
};

/// Keeps the compiler from moving reads and writes of these registers across this line: it does not know that wgmma
/// goes on using them.
template <class Word, int Count>
__device__ __forceinline__ void pin_registers(Word (&words)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    asm volatile("" : "+r"(detail::as_word(words[i]))::"memory");
  }
}

/// Keeps the compiler from moving what is made of a register out of a loop, to where it would take registers.
template <class Word>
__device__ __forceinline__ void pin_register(Word& word) {
  asm volatile("" : "+r"(detail::as_word(word)));
}

/// Makes registers and shared memory written so far visible to the multiplications that follow.
__device__ __forceinline__ void begin_multiply() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/// The same, and the compiler leaves earlier changes of `sums` before it.
template <class Sum, int Count>
__device__ __forceinline__ void begin_multiply(Sum (&sums)[Count]) {
  pin_registers(sums);
  begin_multiply();
}

/// Commits the multiplications since the last call as one group, to be awaited together.
__device__ __forceinline__ void commit_multiply() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// Waits until at most `Pending` groups are not done. The operands of the others may be overwritten after that; for the
/// sums, see the overload that takes them.
template <int Pending>
__device__ __forceinline__ void await_multiply() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
/// Waits until at most `Pending` groups are not done; if no group that uses `sums` is pending, they can be read after
/// this.
template <int Pending, class Sum, int Count>
__device__ __forceinline__ void await_multiply(Sum (&sums)[Count]) {
  await_multiply<Pending>();
  pin_registers(sums);
}

}  // namespace v0
}  // namespace tessera
