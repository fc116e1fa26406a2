// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tests sums of products that begin at the scores of mean queries, where these are near, far apart, and not finite,
/// against the portable program on the CPU, which adds them in fp32.
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/detail/correction_products.cuh>
#include <tessera/sage_attention2.hpp>

#include "support/attention_terms.cuh"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("scores of mean queries may be too far apart for sums to begin at them on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (float const mean : {100.0F, 600.0F, 3e4F}) {
    for (std::int64_t const channels : {64, 128}) {
      CAPTURE(mean, channels);
      auto p = make_attention_problem<bfloat16>({1, 2, 1, 200, 700, channels});
      for (std::size_t i = 3; i < p.queries.size(); i += static_cast<std::size_t>(channels)) {
        p.queries[i] = store<bfloat16>(load(p.queries[i]) + mean);
      }
      // Of every other tile sums begin at the scores whatever the mean is, since its keys hardly have that channel.
      for (std::size_t i = 3; i < p.keys.size(); i += static_cast<std::size_t>(channels)) {
        bool const is_small = i / static_cast<std::size_t>(128 * channels) % 2 == 1;
        p.keys[i] = store<bfloat16>(load(p.keys[i]) * (is_small ? 0.001F : 1.0F));
      }
      check_against_cpu<smoothed_queries>(p, no_bias{}, no_bias{});
      check_against_cpu<sage_attention2_int4>(p, no_bias{}, no_bias{});
      p.options = causal;
      check_against_cpu<smoothed_queries>(p, no_bias{}, no_bias{});
    }
  }
}

TEST_CASE("queries that are all their mean have the scores of it on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_attention_problem<bfloat16>({1, 1, 1, 200, 300, 128});
  for (std::size_t i = 128; i < p.queries.size(); ++i) {  // all queries are the first one
    p.queries[i] = p.queries[i - 128];
  }
  check_against_cpu<smoothed_queries>(p, no_bias{}, no_bias{});
  for (std::size_t i = 0; i < 130 * 128; ++i) {  // a tile of keys that are all the same
    p.keys[i] = p.keys[i % 128];
  }
  check_against_cpu<smoothed_queries>(p, no_bias{}, no_bias{});
}

TEST_CASE("keys that are infinite or NaN spoil the rows that see them, beside sums that begin at scores, on a GPU",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (float const odd : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), 3e37F}) {
    for (std::size_t const key : {std::size_t{5}, std::size_t{290}}) {
      CAPTURE(odd, key);
      auto p = make_attention_problem<bfloat16>({1, 1, 1, 300, 300, 128});
      p.options = causal;
      p.keys[key * 128 + 7] = store<bfloat16>(odd);
      check_against_cpu<smoothed_queries>(p, no_bias{}, no_bias{});
    }
  }
}
