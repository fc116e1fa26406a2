// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The asm text of wgmma for each number of columns: one statement for an operand a in shared memory, one for a in
/// registers. Programs use warpgroup_mma.cuh.
///
/// A statement has to list its registers one by one, 4 to 128 sums; a macro does so and is undefined at the end of the
/// file.
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {
namespace detail {

/// A sum as a word: the statements see words, so that one text serves floats and integers.
template <class Sum>
__device__ __forceinline__ std::uint32_t& as_word(Sum& sum) {
  static_assert(sizeof(Sum) == sizeof(std::uint32_t));
  return reinterpret_cast<std::uint32_t&>(sum);
}

/// Eight sums from number i on, as operands of the statements below.
// clang-format off
#define TESSERA_SUMS_8(d, i)                                                                                   \
  "+r"(as_word(d[i])), "+r"(as_word(d[i + 1])), "+r"(as_word(d[i + 2])), "+r"(as_word(d[i + 3])),              \
  "+r"(as_word(d[i + 4])), "+r"(as_word(d[i + 5])), "+r"(as_word(d[i + 6])), "+r"(as_word(d[i + 7]))

/// The statement as run<Name>(d, a, b, add), which computes d = a * b + (add ? d : 0). Name: the texts of the kind of
/// instruction and of its last arguments.
template <int Columns>
struct warpgroup_instruction;
template <>
struct warpgroup_instruction<8> {
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[4], std::uint64_t a, std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %6, 0; wgmma.mma_async.sync.aligned.m64n8%7 {"
        "%0, %1, %2, %3"
        "}, %4, %5, p%8; }"
        : "+r"(as_word(d[0])), "+r"(as_word(d[1])), "+r"(as_word(d[2])), "+r"(as_word(d[3]))
        : "l"(a), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::tail));
  }
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[4], std::uint32_t const (&a)[4], std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %9, 0; wgmma.mma_async.sync.aligned.m64n8%10 {"
        "%0, %1, %2, %3"
        "}, {%4, %5, %6, %7}, %8, p%11; }"
        : "+r"(as_word(d[0])), "+r"(as_word(d[1])), "+r"(as_word(d[2])), "+r"(as_word(d[3]))
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::register_tail));
  }
};
template <>
struct warpgroup_instruction<16> {
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[8], std::uint64_t a, std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %10, 0; wgmma.mma_async.sync.aligned.m64n16%11 {"
        "%0, %1, %2, %3, %4, %5, %6, %7"
        "}, %8, %9, p%12; }"
        : TESSERA_SUMS_8(d, 0)
        : "l"(a), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::tail));
  }
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[8], std::uint32_t const (&a)[4], std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %13, 0; wgmma.mma_async.sync.aligned.m64n16%14 {"
        "%0, %1, %2, %3, %4, %5, %6, %7"
        "}, {%8, %9, %10, %11}, %12, p%15; }"
        : TESSERA_SUMS_8(d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::register_tail));
  }
};
template <>
struct warpgroup_instruction<32> {
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[16], std::uint64_t a, std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %18, 0; wgmma.mma_async.sync.aligned.m64n32%19 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
        "}, %16, %17, p%20; }"
        : TESSERA_SUMS_8(d, 0), TESSERA_SUMS_8(d, 8)
        : "l"(a), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::tail));
  }
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[16], std::uint32_t const (&a)[4], std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %21, 0; wgmma.mma_async.sync.aligned.m64n32%22 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
        "}, {%16, %17, %18, %19}, %20, p%23; }"
        : TESSERA_SUMS_8(d, 0), TESSERA_SUMS_8(d, 8)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::register_tail));
  }
};
template <>
struct warpgroup_instruction<64> {
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[32], std::uint64_t a, std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64%35 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, %32, %33, p%36; }"
        : TESSERA_SUMS_8(d, 0), TESSERA_SUMS_8(d, 8), TESSERA_SUMS_8(d, 16), TESSERA_SUMS_8(d, 24)
        : "l"(a), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::tail));
  }
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[32], std::uint32_t const (&a)[4], std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64%38 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, {%32, %33, %34, %35}, %36, p%39; }"
        : TESSERA_SUMS_8(d, 0), TESSERA_SUMS_8(d, 8), TESSERA_SUMS_8(d, 16), TESSERA_SUMS_8(d, 24)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::register_tail));
  }
};
template <>
struct warpgroup_instruction<72> {
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[36], std::uint64_t a, std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %38, 0; wgmma.mma_async.sync.aligned.m64n72%39 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35"
        "}, %36, %37, p%40; }"
        : TESSERA_SUMS_8(d, 0), TESSERA_SUMS_8(d, 8), TESSERA_SUMS_8(d, 16), TESSERA_SUMS_8(d, 24),
          "+r"(as_word(d[32])), "+r"(as_word(d[33])), "+r"(as_word(d[34])), "+r"(as_word(d[35]))
        : "l"(a), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::tail));
  }
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[36], std::uint32_t const (&a)[4], std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %41, 0; wgmma.mma_async.sync.aligned.m64n72%42 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35"
        "}, {%36, %37, %38, %39}, %40, p%43; }"
        : TESSERA_SUMS_8(d, 0), TESSERA_SUMS_8(d, 8), TESSERA_SUMS_8(d, 16), TESSERA_SUMS_8(d, 24),
          "+r"(as_word(d[32])), "+r"(as_word(d[33])), "+r"(as_word(d[34])), "+r"(as_word(d[35]))
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::register_tail));
  }
};
template <>
struct warpgroup_instruction<80> {
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[40], std::uint64_t a, std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %42, 0; wgmma.mma_async.sync.aligned.m64n80%43 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39"
        "}, %40, %41, p%44; }"
        : TESSERA_SUMS_8(d, 0), TESSERA_SUMS_8(d, 8), TESSERA_SUMS_8(d, 16), TESSERA_SUMS_8(d, 24),
          TESSERA_SUMS_8(d, 32)
        : "l"(a), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::tail));
  }
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[40], std::uint32_t const (&a)[4], std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %45, 0; wgmma.mma_async.sync.aligned.m64n80%46 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39"
        "}, {%40, %41, %42, %43}, %44, p%47; }"
        : TESSERA_SUMS_8(d, 0), TESSERA_SUMS_8(d, 8), TESSERA_SUMS_8(d, 16), TESSERA_SUMS_8(d, 24),
          TESSERA_SUMS_8(d, 32)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::register_tail));
  }
};
template <>
struct warpgroup_instruction<96> {
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[48], std::uint64_t a, std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %50, 0; wgmma.mma_async.sync.aligned.m64n96%51 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47"
        "}, %48, %49, p%52; }"
        : TESSERA_SUMS_8(d, 0), TESSERA_SUMS_8(d, 8), TESSERA_SUMS_8(d, 16), TESSERA_SUMS_8(d, 24),
          TESSERA_SUMS_8(d, 32), TESSERA_SUMS_8(d, 40)
        : "l"(a), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::tail));
  }
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[48], std::uint32_t const (&a)[4], std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %53, 0; wgmma.mma_async.sync.aligned.m64n96%54 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47"
        "}, {%48, %49, %50, %51}, %52, p%55; }"
        : TESSERA_SUMS_8(d, 0), TESSERA_SUMS_8(d, 8), TESSERA_SUMS_8(d, 16), TESSERA_SUMS_8(d, 24),
          TESSERA_SUMS_8(d, 32), TESSERA_SUMS_8(d, 40)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::register_tail));
  }
};
template <>
struct warpgroup_instruction<128> {
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[64], std::uint64_t a, std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128%67 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
        "%59, %60, %61, %62, %63"
        "}, %64, %65, p%68; }"
        : TESSERA_SUMS_8(d, 0), TESSERA_SUMS_8(d, 8), TESSERA_SUMS_8(d, 16), TESSERA_SUMS_8(d, 24),
          TESSERA_SUMS_8(d, 32), TESSERA_SUMS_8(d, 40), TESSERA_SUMS_8(d, 48), TESSERA_SUMS_8(d, 56)
        : "l"(a), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::tail));
  }
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[64], std::uint32_t const (&a)[4], std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128%70 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
        "%59, %60, %61, %62, %63"
        "}, {%64, %65, %66, %67}, %68, p%71; }"
        : TESSERA_SUMS_8(d, 0), TESSERA_SUMS_8(d, 8), TESSERA_SUMS_8(d, 16), TESSERA_SUMS_8(d, 24),
          TESSERA_SUMS_8(d, 32), TESSERA_SUMS_8(d, 40), TESSERA_SUMS_8(d, 48), TESSERA_SUMS_8(d, 56)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::register_tail));
  }
};
template <>
struct warpgroup_instruction<136> {
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[68], std::uint64_t a, std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %70, 0; wgmma.mma_async.sync.aligned.m64n136%71 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
        "%59, %60, %61, %62, %63, %64, %65, %66, %67"
        "}, %68, %69, p%72; }"
        : TESSERA_SUMS_8(d, 0), TESSERA_SUMS_8(d, 8), TESSERA_SUMS_8(d, 16), TESSERA_SUMS_8(d, 24),
          TESSERA_SUMS_8(d, 32), TESSERA_SUMS_8(d, 40), TESSERA_SUMS_8(d, 48), TESSERA_SUMS_8(d, 56),
          "+r"(as_word(d[64])), "+r"(as_word(d[65])), "+r"(as_word(d[66])), "+r"(as_word(d[67]))
        : "l"(a), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::tail));
  }
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[68], std::uint32_t const (&a)[4], std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %73, 0; wgmma.mma_async.sync.aligned.m64n136%74 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
        "%59, %60, %61, %62, %63, %64, %65, %66, %67"
        "}, {%68, %69, %70, %71}, %72, p%75; }"
        : TESSERA_SUMS_8(d, 0), TESSERA_SUMS_8(d, 8), TESSERA_SUMS_8(d, 16), TESSERA_SUMS_8(d, 24),
          TESSERA_SUMS_8(d, 32), TESSERA_SUMS_8(d, 40), TESSERA_SUMS_8(d, 48), TESSERA_SUMS_8(d, 56),
          "+r"(as_word(d[64])), "+r"(as_word(d[65])), "+r"(as_word(d[66])), "+r"(as_word(d[67]))
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::register_tail));
  }
};
template <>
struct warpgroup_instruction<160> {
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[80], std::uint64_t a, std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %82, 0; wgmma.mma_async.sync.aligned.m64n160%83 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
        "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "
        "%78, %79"
        "}, %80, %81, p%84; }"
        : TESSERA_SUMS_8(d, 0), TESSERA_SUMS_8(d, 8), TESSERA_SUMS_8(d, 16), TESSERA_SUMS_8(d, 24),
          TESSERA_SUMS_8(d, 32), TESSERA_SUMS_8(d, 40), TESSERA_SUMS_8(d, 48), TESSERA_SUMS_8(d, 56),
          TESSERA_SUMS_8(d, 64), TESSERA_SUMS_8(d, 72)
        : "l"(a), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::tail));
  }
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[80], std::uint32_t const (&a)[4], std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %85, 0; wgmma.mma_async.sync.aligned.m64n160%86 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
        "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "
        "%78, %79"
        "}, {%80, %81, %82, %83}, %84, p%87; }"
        : TESSERA_SUMS_8(d, 0), TESSERA_SUMS_8(d, 8), TESSERA_SUMS_8(d, 16), TESSERA_SUMS_8(d, 24),
          TESSERA_SUMS_8(d, 32), TESSERA_SUMS_8(d, 40), TESSERA_SUMS_8(d, 48), TESSERA_SUMS_8(d, 56),
          TESSERA_SUMS_8(d, 64), TESSERA_SUMS_8(d, 72)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::register_tail));
  }
};
template <>
struct warpgroup_instruction<192> {
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[96], std::uint64_t a, std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %98, 0; wgmma.mma_async.sync.aligned.m64n192%99 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
        "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "
        "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
        "}, %96, %97, p%100; }"
        : TESSERA_SUMS_8(d, 0), TESSERA_SUMS_8(d, 8), TESSERA_SUMS_8(d, 16), TESSERA_SUMS_8(d, 24),
          TESSERA_SUMS_8(d, 32), TESSERA_SUMS_8(d, 40), TESSERA_SUMS_8(d, 48), TESSERA_SUMS_8(d, 56),
          TESSERA_SUMS_8(d, 64), TESSERA_SUMS_8(d, 72), TESSERA_SUMS_8(d, 80), TESSERA_SUMS_8(d, 88)
        : "l"(a), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::tail));
  }
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[96], std::uint32_t const (&a)[4], std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %101, 0; wgmma.mma_async.sync.aligned.m64n192%102 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
        "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "
        "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
        "}, {%96, %97, %98, %99}, %100, p%103; }"
        : TESSERA_SUMS_8(d, 0), TESSERA_SUMS_8(d, 8), TESSERA_SUMS_8(d, 16), TESSERA_SUMS_8(d, 24),
          TESSERA_SUMS_8(d, 32), TESSERA_SUMS_8(d, 40), TESSERA_SUMS_8(d, 48), TESSERA_SUMS_8(d, 56),
          TESSERA_SUMS_8(d, 64), TESSERA_SUMS_8(d, 72), TESSERA_SUMS_8(d, 80), TESSERA_SUMS_8(d, 88)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::register_tail));
  }
};
template <>
struct warpgroup_instruction<256> {
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[128], std::uint64_t a, std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %130, 0; wgmma.mma_async.sync.aligned.m64n256%131 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
        "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "
        "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, "
        "%97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, "
        "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
        "}, %128, %129, p%132; }"
        : TESSERA_SUMS_8(d, 0), TESSERA_SUMS_8(d, 8), TESSERA_SUMS_8(d, 16), TESSERA_SUMS_8(d, 24),
          TESSERA_SUMS_8(d, 32), TESSERA_SUMS_8(d, 40), TESSERA_SUMS_8(d, 48), TESSERA_SUMS_8(d, 56),
          TESSERA_SUMS_8(d, 64), TESSERA_SUMS_8(d, 72), TESSERA_SUMS_8(d, 80), TESSERA_SUMS_8(d, 88),
          TESSERA_SUMS_8(d, 96), TESSERA_SUMS_8(d, 104), TESSERA_SUMS_8(d, 112), TESSERA_SUMS_8(d, 120)
        : "l"(a), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::tail));
  }
  template <class Name, class Sum>
  __device__ __forceinline__ static void run(Sum (&d)[128], std::uint32_t const (&a)[4], std::uint64_t b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %133, 0; wgmma.mma_async.sync.aligned.m64n256%134 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
        "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "
        "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, "
        "%97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, "
        "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
        "}, {%128, %129, %130, %131}, %132, p%135; }"
        : TESSERA_SUMS_8(d, 0), TESSERA_SUMS_8(d, 8), TESSERA_SUMS_8(d, 16), TESSERA_SUMS_8(d, 24),
          TESSERA_SUMS_8(d, 32), TESSERA_SUMS_8(d, 40), TESSERA_SUMS_8(d, 48), TESSERA_SUMS_8(d, 56),
          TESSERA_SUMS_8(d, 64), TESSERA_SUMS_8(d, 72), TESSERA_SUMS_8(d, 80), TESSERA_SUMS_8(d, 88),
          TESSERA_SUMS_8(d, 96), TESSERA_SUMS_8(d, 104), TESSERA_SUMS_8(d, 112), TESSERA_SUMS_8(d, 120)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "C"(Name::kind), "C"(Name::register_tail));
  }
};
#undef TESSERA_SUMS_8
// clang-format on

}  // namespace detail
}  // namespace v0
}  // namespace tessera
