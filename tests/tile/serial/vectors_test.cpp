// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/core/cpu_features.hpp>
#include <tessera/tile/serial/vectors.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("functions with vectors are called only where the processor has AVX2", "[host]") {
  CHECK((!detail::has_vectors() || supported_simd_level() >= simd_level::avx2));
  CHECK(detail::has_vectors() == detail::has_vectors());
}

#if defined(TESSERA_HAS_VECTORS)

namespace {

[[gnu::target("avx2")]] void transpose(std::int32_t (&words)[8][8]) {
  detail::eight_words rows[8];
  for (int i = 0; i < 8; ++i) {
    rows[i] = detail::vector_at<detail::eight_words>(words[i]).value;
  }
  detail::transpose_eight(rows);
  for (int i = 0; i < 8; ++i) {
    detail::vector_at<detail::eight_words>(words[i]).value = rows[i];
  }
}

}  // namespace

TEST_CASE("rows and columns of eight vectors are exchanged", "[host]") {
  if (!detail::has_vectors()) {
    return;
  }
  std::int32_t words[8][8];
  for (int i = 0; i < 64; ++i) {
    words[i / 8][i % 8] = i;
  }
  transpose(words);
  for (int i = 0; i < 64; ++i) {
    CHECK(words[i / 8][i % 8] == i % 8 * 8 + i / 8);
  }
}

#endif
