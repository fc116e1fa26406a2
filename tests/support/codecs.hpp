// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Coding on the CPU, compiled once for all tests (in codecs.cpp). Include it after the library's headers in tests that
/// encode or decode: they then compile in half the time and test the same code.
#pragma once

#include <tessera/exec/cpu.hpp>
#include <tessera/neuzip.hpp>

/// Both directions of one codec, after `template` or `extern template`.
#define TESSERA_TEST_CODEC(words, executor, type, kept)                                                              \
  words void tessera::run(executor const&, tessera::encode_weights_call<tessera::keep_mantissa<kept>, type> const&); \
  words void tessera::run(executor const&, tessera::decode_weights_call<tessera::keep_mantissa<kept>, type> const&)

/// The lossless codecs, by parts that take about as long to compile for CUDA devices.
#define TESSERA_TEST_BF16_CODECS(words, executor) TESSERA_TEST_CODEC(words, executor, tessera::bfloat16, 7)
#define TESSERA_TEST_WIDE_CODECS(words, executor)            \
  TESSERA_TEST_CODEC(words, executor, tessera::float16, 10); \
  TESSERA_TEST_CODEC(words, executor, float, 23)
#define TESSERA_TEST_FP8_CODECS(words, executor)                \
  TESSERA_TEST_CODEC(words, executor, tessera::float8_e4m3, 3); \
  TESSERA_TEST_CODEC(words, executor, tessera::float8_e5m2, 2)

#define TESSERA_TEST_LOSSLESS_CODECS(words, executor) \
  TESSERA_TEST_BF16_CODECS(words, executor);          \
  TESSERA_TEST_WIDE_CODECS(words, executor);          \
  TESSERA_TEST_FP8_CODECS(words, executor)

#define TESSERA_TEST_LOSSY_CODECS(words, executor)           \
  TESSERA_TEST_CODEC(words, executor, tessera::bfloat16, 0); \
  TESSERA_TEST_CODEC(words, executor, tessera::bfloat16, 3)

TESSERA_TEST_LOSSLESS_CODECS(extern template, tessera::cpu);
TESSERA_TEST_LOSSY_CODECS(extern template, tessera::cpu);
