// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// NeuZip's codecs on the CPU, compiled once for all CUDA benchmarks (in codecs.cpp); see codecs.cuh.
#pragma once

#include <tessera/exec/cpu.hpp>
#include <tessera/neuzip.hpp>

/// One direction of a codec, after `template` or `extern template`.
#define TESSERA_BENCH_ENCODER(words, executor, type, kept) \
  words void tessera::run(executor const&, tessera::encode_weights_call<tessera::keep_mantissa<kept>, type> const&)
#define TESSERA_BENCH_DECODER(words, executor, type, kept) \
  words void tessera::run(executor const&, tessera::decode_weights_call<tessera::keep_mantissa<kept>, type> const&)
#define TESSERA_BENCH_CODEC(words, executor, type, kept) \
  TESSERA_BENCH_ENCODER(words, executor, type, kept);    \
  TESSERA_BENCH_DECODER(words, executor, type, kept)

/// The lossless codecs, by parts that take about as long to compile. A codec with codes of fixed length has the same
/// programs.
#define TESSERA_BENCH_BF16_CODECS(words, executor) TESSERA_BENCH_CODEC(words, executor, tessera::bfloat16, 7)
#define TESSERA_BENCH_WIDE_CODECS(words, executor)            \
  TESSERA_BENCH_CODEC(words, executor, tessera::float16, 10); \
  TESSERA_BENCH_CODEC(words, executor, float, 23)
#define TESSERA_BENCH_FP8_CODECS(words, executor)                \
  TESSERA_BENCH_CODEC(words, executor, tessera::float8_e4m3, 3); \
  TESSERA_BENCH_CODEC(words, executor, tessera::float8_e5m2, 2)
#define TESSERA_BENCH_LOSSLESS_CODECS(words, executor) \
  TESSERA_BENCH_BF16_CODECS(words, executor);          \
  TESSERA_BENCH_WIDE_CODECS(words, executor);          \
  TESSERA_BENCH_FP8_CODECS(words, executor)

/// The lossy codecs.
#define TESSERA_BENCH_LOSSY_ENCODERS(words, executor)           \
  TESSERA_BENCH_ENCODER(words, executor, tessera::bfloat16, 0); \
  TESSERA_BENCH_ENCODER(words, executor, tessera::bfloat16, 3)
#define TESSERA_BENCH_LOSSY_DECODERS(words, executor)           \
  TESSERA_BENCH_DECODER(words, executor, tessera::bfloat16, 0); \
  TESSERA_BENCH_DECODER(words, executor, tessera::bfloat16, 3)

TESSERA_BENCH_LOSSLESS_CODECS(extern template, tessera::cpu);
TESSERA_BENCH_LOSSY_ENCODERS(extern template, tessera::cpu);
TESSERA_BENCH_LOSSY_DECODERS(extern template, tessera::cpu);
