// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Codes that a lane makes of float scores in registers, against the softmax's line in double.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/core/bits.hpp>
#include <tessera/program/attention/detail/forward_float_softmax.cuh>
#include <tessera/reduce/piecewise_linear_softmax.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

namespace {

using tessera::float_attention_weights;
using tessera::key_limits;
using tessera::piecewise_linear_softmax;
using tessera::score_row_values;
using tessera::tile_mask;
using tessera::tile_scales;
using tessera::warpgroup_lane;

constexpr int tile_keys = 128;
constexpr int warp_rows_of_test = 16;

/// Float scores of a warp's rows and 128 keys, which have one scale. Row r sees keys from first_seen + r to seen_end +
/// r - 1.
struct tile_of_floats {
  std::vector<float> sums;
  float scale = 1.0F;
  std::int32_t first_seen = 0;
  std::int32_t seen_end = tile_keys;
  bool is_first = false;

  bool sees(int row, int key) const { return key >= first_seen + row && key < seen_end + row; }
  float sum(int row, int key) const { return sums[static_cast<std::size_t>(row * tile_keys + key)]; }
};

template <tile_mask Mask, tile_scales Scales>
__global__ void make_codes_of_floats(float const* sums, float scale, int first_seen, int seen_end, bool is_first,
                                     std::uint8_t* codes, float* references, float* factors) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  int const lane = static_cast<int>(threadIdx.x);
  float scores[64];
  for (int i = 0; i < 64; ++i) {
    scores[i] = sums[(lane / 4 + i / 2 % 2 * 8) * tile_keys + i / 4 * 8 + 2 * (lane % 4) + i % 2];
  }
  float_attention_weights<piecewise_linear_softmax> weights;
  key_limits const limits = key_limits::of(warpgroup_lane::in_warp(threadIdx.x), first_seen, seen_end, tile_keys, 0);
  score_row_values<float> factor;
  weights.template take<Mask, Scales, false>(scores, scale, limits, is_first, factor);
  float_attention_weights<piecewise_linear_softmax>::operands_type packed;
  float_attention_weights<piecewise_linear_softmax>::pack(scores, packed);
  for (int word = 0; word < 16; ++word) {
    for (int byte = 0; byte < 4; ++byte) {
      // pack() puts register 16 i + 8 (word / 2) + 2 (word % 2) + {0, 1, 4, 5} into a word.
      int const i = 16 * (word / 4) + 8 * (word % 4 / 2) + 2 * (word % 4 % 2) + byte / 2 * 4 + byte % 2;
      codes[(lane / 4 + i / 2 % 2 * 8) * tile_keys + i / 4 * 8 + 2 * (lane % 4) + i % 2] =
          static_cast<std::uint8_t>(packed.of_step[word / 4][word % 4] >> 8 * byte);
    }
  }
  for (int half = 0; half < 2; ++half) {
    references[lane / 4 + 8 * half] = weights.reference(half);
    factors[lane / 4 + 8 * half] = factor.values[0][half];
  }
#endif
}

struct made_of_floats {
  std::vector<std::uint8_t> codes;  ///< rows x keys
  std::vector<float> references;
  std::vector<float> factors;
};

template <tile_mask Mask, tile_scales Scales>
made_of_floats make_on_device(tile_of_floats const& tile) {
  tessera_test::device_values<float> const sums(tile.sums);
  tessera_test::device_values<std::uint8_t> const codes(
      std::vector<std::uint8_t>(warp_rows_of_test * tile_keys, std::uint8_t{0xa5}));
  tessera_test::device_values<float> const references(std::vector<float>(warp_rows_of_test, -77.0F));
  tessera_test::device_values<float> const factors(std::vector<float>(warp_rows_of_test, -77.0F));
  make_codes_of_floats<Mask, Scales><<<1, 32>>>(sums.data(), tile.scale, tile.first_seen, tile.seen_end, tile.is_first,
                                                codes.data(), references.data(), factors.data());
  return {codes.download(), references.download(), factors.download()};
}

/// The number of codes that are not next to the softmax's line, and of references that are not the largest logit.
template <tile_mask Mask, tile_scales Scales>
int count_wrong(tile_of_floats const& tile) {
  made_of_floats const found = make_on_device<Mask, Scales>(tile);
  int wrong = 0;
  for (int row = 0; row < warp_rows_of_test; ++row) {
    auto const is_seen = [&](int key) { return Mask == tile_mask::none || tile.sees(row, key); };
    float largest = -tessera::infinity;
    for (int key = 0; key < tile_keys; ++key) {
      largest = is_seen(key) ? std::max(largest, tile.scale * tile.sum(row, key)) : largest;
    }
    wrong += found.references[static_cast<std::size_t>(row)] == largest ? 0 : 1;
    for (int key = 0; key < tile_keys; ++key) {
      int const code = found.codes[static_cast<std::size_t>(row * tile_keys + key)];
      if (!is_seen(key)) {
        wrong += code == 0 ? 0 : 1;
        continue;
      }
      double const logit = static_cast<double>(tile.scale * tile.sum(row, key));
      double const line = 8 * (logit - static_cast<double>(largest)) + 126;
      double const low = tile.is_first ? std::max(line, line / 2 + 4) : line;
      wrong += std::fabs(std::max(low, 0.0) - code) < 0.65 ? 0 : 1;  // 0.15: logits of 131072 are rounded to 1/128
    }
  }
  return wrong;
}

/// Random scores up to `spread`; with `IsNegative` all of them are below zero in rows 0, 3, 6, ...
tile_of_floats random_floats(std::uint32_t seed, float spread, float scale, bool is_negative) {
  std::uint32_t state = seed;
  auto const next = [&] {
    state = state * 1664525U + 1013904223U;
    return static_cast<float>(state >> 8) * 0x1p-24F;
  };
  tile_of_floats tile;
  tile.scale = scale;
  tile.is_first = seed % 2 == 0;
  for (int i = 0; i < warp_rows_of_test * tile_keys; ++i) {
    float const sum = spread * (2 * next() - 1);
    bool const is_below = is_negative && i / tile_keys % 3 == 0;
    tile.sums.push_back(is_below ? -std::fabs(sum) - spread * 0x1p-10F : sum);
  }
  return tile;
}

}  // namespace

TEST_CASE("a lane's codes of weights of float scores are next to the softmax's line", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::is_hopper()) {
    TESSERA_SKIP("no device of sm_90");
  }
  std::uint32_t seed = 1;
  for (bool const is_negative : {false, true}) {
    for (float const spread : {0.0F, 1e-3F, 30.0F, 5000.0F, 5e7F}) {
      for (float const scale : {0.0F, 1e-30F, 1e-9F, 1e-5F, 1.3e-4F, 1.9e-3F}) {
        tile_of_floats tile = random_floats(++seed, spread, scale, is_negative);
        CAPTURE(is_negative, spread, scale);
        CHECK(count_wrong<tile_mask::none, tile_scales::small>(tile) == 0);
        tile.seen_end = 40;
        tile.first_seen = -warp_rows_of_test;  // no key is hidden for lying before those that a row sees
        CHECK(count_wrong<tile_mask::behind, tile_scales::small>(tile) == 0);
        tile.first_seen = 21;
        CHECK(count_wrong<tile_mask::both, tile_scales::any>(tile) == 0);
        tile.seen_end = -3;  // the first rows see nothing
        tile.first_seen = -40;
        CHECK(count_wrong<tile_mask::both, tile_scales::any>(tile) == 0);
      }
      for (float const scale : {0.05F, 31.0F, 1e6F, 1e25F}) {
        tile_of_floats tile = random_floats(++seed, spread, scale, is_negative);
        CAPTURE(is_negative, spread, scale);
        CHECK(count_wrong<tile_mask::none, tile_scales::any>(tile) == 0);
        tile.seen_end = 40;
        CHECK(count_wrong<tile_mask::both, tile_scales::any>(tile) == 0);
      }
    }
  }
}

TEST_CASE("zeros of either sign are the largest of float scores that are not positive", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::is_hopper()) {
    TESSERA_SKIP("no device of sm_90");
  }
  for (float const zero : {0.0F, -0.0F}) {
    tile_of_floats tile = random_floats(7, 100.0F, 1e-2F, false);
    for (std::size_t i = 0; i < tile.sums.size(); ++i) {
      tile.sums[i] = i % 5 == 0 ? zero : -std::fabs(tile.sums[i]);
    }
    CHECK(count_wrong<tile_mask::none, tile_scales::any>(tile) == 0);
    tile.scale = 1e-3F;
    CHECK(count_wrong<tile_mask::none, tile_scales::small>(tile) == 0);
    CHECK(count_wrong<tile_mask::both, tile_scales::any>(tile) == 0);
  }
}

TEST_CASE("a NaN among float scores, and an infinite logit, make factors of the rows that see them NaN", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::is_hopper()) {
    TESSERA_SKIP("no device of sm_90");
  }
  auto const count_nans = [](made_of_floats const& found, auto const& is_bad) {
    int wrong = 0;
    for (int row = 0; row < warp_rows_of_test; ++row) {
      wrong += std::isnan(found.factors[static_cast<std::size_t>(row)]) == is_bad(row) ? 0 : 1;
    }
    return wrong;
  };
  for (bool const is_negative : {false, true}) {
    tile_of_floats tile = random_floats(5, 100.0F, 1e-3F, is_negative);
    tile.sums[3 * tile_keys + 77] = tessera::bit_cast<float>(0x7fffffffU);  // as tensor cores make it
    CHECK(count_nans(make_on_device<tile_mask::none, tile_scales::small>(tile), [](int row) { return row == 3; }) == 0);
    CHECK(count_nans(make_on_device<tile_mask::both, tile_scales::any>(tile), [](int row) { return row == 3; }) == 0);
    tile.seen_end = 70;  // row 3 sees keys up to 72
    CHECK(count_nans(make_on_device<tile_mask::behind, tile_scales::small>(tile), [](int) { return false; }) == 0);
    CHECK(count_nans(make_on_device<tile_mask::both, tile_scales::any>(tile), [](int) { return false; }) == 0);
  }
  for (float const scale : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 3e38F}) {
    tile_of_floats tile = random_floats(6, 100.0F, scale, false);
    tile.first_seen = -warp_rows_of_test;
    tile.seen_end = 0;  // row 0 sees nothing
    auto const sees = [](int row) { return row > 0; };
    for (float& sum : tile.sums) {
      sum = std::fabs(sum) + 2.0F;
    }
    CHECK(count_nans(make_on_device<tile_mask::both, tile_scales::any>(tile), sees) == 0);
  }
}
