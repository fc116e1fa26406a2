// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tessera/algorithm/attention/float8_attention.hpp>

#include "algorithm/attention/attention_of_float8.cuh"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("codes of 8-bit floats on a GPU are those of the host to the last bit, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {16, 64, 80, 128, 144, 256}) {
    for (std::int64_t const tokens : {1, 7, 16, 127, 128, 129, 1100}) {
      check_codes_against_host<float8_attention>({1, 2, 1, tokens, 200, channels});
      check_codes_against_host<float8_attention>({2, 2, 2, 50, tokens, channels}, head_layout::tokens_first);
    }
    for (head_layout const layout : {head_layout::heads_first, head_layout::shifted}) {
      check_codes_against_host<float8_exponentials>({2, 6, 2, 300, 500, channels}, layout);
      check_codes_against_host<float8_smoothed_queries>({2, 6, 2, 300, 500, channels}, layout);
    }
  }
}

TEST_CASE("attention over 8-bit floats on a GPU agrees with the host, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128, 256}) {
    for (std::int64_t const tokens : {0, 1, 7, 127, 128, 129, 193, 500}) {
      check_float8_shape({1, 2, 2, tokens, tokens, channels});
      check_float8_shape({1, 2, 1, tokens, tokens, channels}, {.is_causal = true});
    }
    check_float8_shape({1, 2, 1, 129, 0, channels});
    check_float8_shape({0, 2, 1, 10, 10, channels});
    check_float8_shape({2, 4, 2, 193, 300, channels}, {.is_causal = true}, head_layout::tokens_first);
    check_float8_shape({2, 4, 2, 193, 300, channels}, {}, head_layout::shifted);
    check_float8_shape<float8_exponentials>({1, 4, 2, 300, 500, channels}, {.is_causal = true});
  }
  check_float8_shape({1, 2, 1, 300, 500, 80});
}

TEST_CASE("windows, lengths and sinks are the same over 8-bit floats on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128, 256}) {
    for (std::int64_t const left : {0, 5, 200}) {
      for (std::int64_t const right : {-1, 0, 70}) {
        attention_options options;
        options.window_left = left;
        options.window_right = right;
        check_float8_shape({1, 2, 1, 500, 400, channels}, options);
      }
    }
    auto p = make_attention_problem<bfloat16>({4, 2, 2, 200, 300, channels});
    p.query_lengths = {200, 0, 77, 5};
    p.key_lengths = {300, 128, 0, 9};
    check_float8(p);
    p.options.is_causal = true;
    p.sinks = {0.5F, -1.0F};
    check_float8(p);
  }
}

TEST_CASE("infinities and NaNs reach the same results of 8-bit floats on a GPU as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128, 256}) {
    for (float const bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      for (int const where : {0, 1, 2}) {
        CAPTURE(channels, bad, where);
        auto p = make_attention_problem<bfloat16>({1, 2, 1, 400, 500, channels});
        p.options.is_causal = true;
        auto& of = where == 0 ? p.queries : where == 1 ? p.keys : p.values;
        of[as_size(333 * channels + 5)] = store<bfloat16>(bad);
        auto const found = run_on_device<float8_attention, bfloat16>(tessera::cuda{}, p, head_layout::heads_first);
        auto const itself =
            run_on_device<float8_attention, bfloat16>(tessera::cuda{}, p, head_layout::heads_first, false);
        check_codes<float8_attention>(found.bytes, p);
        auto const expected = run_attention_problem<float8_attention, bfloat16>(cpu{}, p);
        std::int64_t wrong = 0;
        std::int64_t nans = 0;
        double apart = 0;
        for (std::size_t i = 0; i < expected.result.size(); ++i) {
          nans += std::isnan(expected.result[i]) ? 1 : 0;
          wrong += std::isnan(found.found.result[i]) == std::isnan(expected.result[i]) ? 0 : 1;
          wrong += std::isnan(itself.found.result[i]) == std::isnan(expected.result[i]) ? 0 : 1;
          apart += std::isnan(expected.result[i]) ? 0 : std::fabs(found.found.result[i] - expected.result[i]);
        }
        CHECK(wrong == 0);
        CHECK(nans > 0);
        CHECK(apart < 0.02 * static_cast<double>(expected.result.size()));
      }
    }
  }
}
