// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The program of GPUs without wgmma, on codes that the host made, against attention_tiles on the host: weights have the
// same codes, so that results differ by the order of sums alone, and, with products of e4m3, by the 13 bits that tensor
// cores of sm_89 keep of sums of a tile. These run where code for sm_89 or sm_120 does: compiled as PTX for sm_89, also
// on later GPUs.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>

#include <tessera/program/attention/forward_by_warps.cuh>

#include "program/attention/by_warps.cuh"
#include "support/guarded_memory.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

/// Whether thread blocks, of which each takes 1 KiB more than it asks for, fit the 100 KiB of a multiprocessor of sm_89
/// or sm_120, as many as the program asks for.
template <int Channels, int Architecture, class Attention = sage_attention2>
constexpr bool is_small() {
  using program = forward_by_warps<bytes_of<Attention, Channels, Architecture>, bfloat16>;
  return program::blocks_per_multiprocessor * (detail::launch_shape<program>::shared_bytes + 1024) <= 100 * 1024;
}
static_assert(is_small<64, 890>() && is_small<128, 890>() && is_small<64, 1200>() && is_small<128, 1200>());
static_assert(is_small<64, 890, sage_attention2_int4>() && is_small<128, 890, sage_attention2_int4>());

/// Swizzled rows fit the 99 KiB that a thread block has on sm_86, also beside scores of mean queries.
using smoothed_attention = attention<smoothed<smoothed<symmetric_quantizer<8, per_thread>, sampled_mean>, block_mean>,
                                     sampled_range<float8_quantizer<float8_e4m3>>, piecewise_linear_softmax>;
template <class Attention>
constexpr int swizzled_bytes =
    detail::launch_shape<forward_by_warps<swizzled_halves<Attention>, bfloat16>>::shared_bytes;
static_assert(swizzled_bytes<sage_attention2> <= 99 * 1024 && swizzled_bytes<smoothed_attention> <= 99 * 1024);
/// So do eight warps of 64 channels. Two thread blocks of four fit from where the tuning has these on.
template <class Products>
constexpr std::int64_t bytes_of_halves = detail::launch_shape<forward_by_warps<Products, bfloat16>>::shared_bytes;
static_assert(bytes_of_halves<eight_warps_of_halves<sage_attention2>> <= 99 * 1024);
static_assert(2 * (bytes_of_halves<halves<sage_attention2, 64, 1, float16>> + 1024) <=
              forward_by_warps_tuning::two_blocks_of_64);

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("attention by warps is the host's, whatever the lengths", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const tokens : {1, 7, 63, 64, 65, 127, 128, 129, 255, 257, 700}) {
    auto p = make_attention_problem<bfloat16>({1, 4, 2, tokens, tokens, 64});
    check_by_warps<sage_attention2, 64>(p);
    p.options.is_causal = true;
    check_by_warps<sage_attention2, 64>(p);
    auto wide = make_attention_problem<bfloat16>({2, 2, 1, tokens, 500, 128});
    check_by_warps<sage_attention2, 128>(wide);
    wide.options.is_causal = tokens <= 500;
    check_by_warps<sage_attention2, 128>(wide);
  }
}

TEST_CASE("attention by warps has fewer channels, codes of 4 bits and other channels of values", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {16, 48, 64}) {
    check_by_warps<sage_attention2, 64>(make_attention_problem<bfloat16>({1, 2, 1, 200, 400, channels}));
  }
  for (std::int64_t const channels : {80, 112, 128}) {
    check_by_warps<sage_attention2, 128>(make_attention_problem<bfloat16>({1, 2, 1, 200, 400, channels}));
  }
  check_by_warps<sage_attention2, 128>(make_attention_problem<bfloat16>({1, 2, 1, 200, 400, 64, 128}));
  check_by_warps<sage_attention2, 128>(make_attention_problem<bfloat16>({1, 2, 1, 200, 400, 128, 48}));
}

TEST_CASE("attention by warps sees windows, and keys of each sequence, in several splits", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_attention_problem<bfloat16>({2, 2, 1, 300, 900, 64});
  p.options.window_left = 130;
  p.options.window_right = 5;
  check_by_warps<sage_attention2, 64>(p);
  p.options = {};
  p.query_lengths = {300, 77};
  p.key_lengths = {900, 131};
  check_by_warps<sage_attention2, 64>(p);
  p.key_lengths = {0, 900};
  check_by_warps<sage_attention2, 64>(p);
  auto wide = make_attention_problem<bfloat16>({1, 2, 1, 140, 1100, 128});
  for (std::int64_t const splits : {2, 3, 5, 12}) {
    check_by_warps<sage_attention2, 128>(wide, {splits});
  }
}

TEST_CASE("attention by warps takes large scores, and NaN and infinity reach the rows that see them", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (float const size : {8.0F, 60.0F}) {  // scales from 1/32 on, and some of each
    auto p = make_attention_problem<bfloat16>({1, 2, 1, 200, 400, 64});
    for (auto& query : p.queries) {
      query = store<bfloat16>(size * load(query));
    }
    check_by_warps<sage_attention2, 64>(p);
  }
  for (float const value : {not_a_number, infinity}) {
    for (bool const is_causal : {false, true}) {
      for (bool const is_query : {false, true}) {
        CAPTURE(value, is_causal, is_query);
        auto p = make_attention_problem<bfloat16>({1, 2, 1, 300, 300, 128});
        p.options.is_causal = is_causal;
        (is_query ? p.queries : p.keys)[as_size(200 * 128 + 3)] = store<bfloat16>(value);
        auto const expected = run_attention_problem<sage_attention2, bfloat16>(cpu{}, p);
        CHECK(std::any_of(expected.result.begin(), expected.result.end(), [](double x) { return std::isnan(x); }));
        run_all<sage_attention2, 128>(p, [&](attention_results const& found, char const* program) {
          CAPTURE(program);
          CHECK(agree(found.result, expected.result, 0.05));
          CHECK(agree(found.log_sum_exp, expected.log_sum_exp, 1e-4));
        });
      }
    }
  }
}

TEST_CASE("attention by warps reads and writes nothing beside its memory", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (auto const edge : {guarded_edge::before, guarded_edge::behind}) {
    cuda exec;
    exec.memory = std::make_shared<guarded_resource>(edge);
    check_by_warps<sage_attention2, 64>(make_attention_problem<bfloat16>({1, 2, 1, 65, 129, 48}), {1, exec});
    check_by_warps<sage_attention2, 128>(make_attention_problem<bfloat16>({1, 2, 1, 200, 300, 112, 96}), {2, exec});
  }
}
