// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/algorithm/attention/float8_attention.hpp>

#include "algorithm/attention/attention_of_float8.cuh"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("codes in 8-bit floats of heads in fp16 are those of the host to the last bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {16, 64, 80, 128, 144, 256}) {
    for (head_layout const layout : {head_layout::heads_first, head_layout::shifted}) {
      check_codes_against_host<float8_attention, float16>({1, 2, 1, 300, 500, channels}, layout);
    }
  }
}

TEST_CASE("attention over 8-bit floats of heads in fp16, and with a scale a token, agrees with the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128, 256}) {
    check_float8_shape<float8_attention, float16>({1, 2, 1, 300, 500, channels});
  }
  check_float8_shape<float8_by_token>({1, 2, 1, 70, 300, 64});
}
