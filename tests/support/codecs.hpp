// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Coding on the CPU, compiled once for all tests (in codecs.cpp). Include it after the library's headers in tests that
/// encode or decode: they then compile in half the time and test the same code.
#pragma once

#include <tessera/exec/cpu.hpp>
#include <tessera/neuzip.hpp>

/// Both directions of one codec, after `template` or `extern template`. last: run_encode's last template argument,
/// which is the executor or, for executors with their own programs, their parameter.
#define TESSERA_TEST_CODEC(words, executor, last, type, kept)                      \
  words void tessera::run_encode<tessera::keep_mantissa<kept>, type, last>(        \
      executor const&, tessera::array_view<tessera::weight_encoding<type> const>); \
  words void tessera::run_decode<tessera::keep_mantissa<kept>, type, last>(        \
      executor const&, tessera::array_view<tessera::weight_decoding<type> const>)

#define TESSERA_TEST_LOSSLESS_CODECS(words, executor, last)           \
  TESSERA_TEST_CODEC(words, executor, last, tessera::bfloat16, 7);    \
  TESSERA_TEST_CODEC(words, executor, last, tessera::float16, 10);    \
  TESSERA_TEST_CODEC(words, executor, last, float, 23);               \
  TESSERA_TEST_CODEC(words, executor, last, tessera::float8_e4m3, 3); \
  TESSERA_TEST_CODEC(words, executor, last, tessera::float8_e5m2, 2)

#define TESSERA_TEST_LOSSY_CODECS(words, executor)                     \
  TESSERA_TEST_CODEC(words, executor, executor, tessera::bfloat16, 0); \
  TESSERA_TEST_CODEC(words, executor, executor, tessera::bfloat16, 3)

TESSERA_TEST_LOSSLESS_CODECS(extern template, tessera::cpu, tessera::cpu);
TESSERA_TEST_LOSSY_CODECS(extern template, tessera::cpu);
