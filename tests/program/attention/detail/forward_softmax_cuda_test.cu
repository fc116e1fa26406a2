// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Codes that a lane makes of its scores in registers, against those of the softmax on the host: the same to the bit.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <tessera/core/bits.hpp>
#include <tessera/program/attention/detail/forward_softmax.cuh>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/reduce/piecewise_linear_softmax.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

namespace {

using tessera::attention_weights;
using tessera::key_limits;
using tessera::piecewise_linear_softmax;
using tessera::score_row_values;
using tessera::tile_mask;
using tessera::tile_scales;
using tessera::warpgroup_lane;
using quantizer = tessera::float8_quantizer<tessera::float8_e4m3>;

constexpr int keys = 128;
constexpr int rows = 16;  // rows of a warp

/// Scores of a warp's rows and 128 keys; scales of rows, two of which share one, and of four groups of keys.
struct tile_of_scores {
  std::vector<std::int32_t> sums;
  std::vector<float> row_scales;
  std::vector<float> key_scales;
  std::int32_t first_seen = 0;   ///< the first key that the first row sees; each further row begins one key later
  std::int32_t seen_end = keys;  ///< one past the first row's last key; each further row ends one key later
  bool is_first = false;
};

[[maybe_unused]] __device__ int key_of(int lane, int i) {
  return i / 4 * 8 + 2 * (lane % 4) + i % 2;
}

template <tile_mask Mask, tile_scales Scales, bool HasBegun>
__global__ void make_codes(std::int32_t const* sums, float const* row_scales, float const* key_scales, int first_seen,
                           int seen_end, bool is_first, std::uint32_t* codes, float* references, float* factors) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  int const lane = static_cast<int>(threadIdx.x);
  std::int32_t scores[64];
  for (int i = 0; i < 64; ++i) {
    std::int32_t const sum = sums[(lane / 4 + i / 2 % 2 * 8) * keys + key_of(lane, i)];
    scores[i] = HasBegun ? __float_as_int(piecewise_linear_softmax::integer_magic + static_cast<float>(sum)) : sum;
  }
  attention_weights<piecewise_linear_softmax> weights;
  key_limits const limits = key_limits::of(warpgroup_lane::in_warp(threadIdx.x), first_seen, seen_end, keys, 0);
  score_row_values<float> factor;
  weights.template take<Mask, Scales, HasBegun>(scores, row_scales[lane / 4] * key_scales[lane % 4], limits, is_first,
                                                factor);
  attention_weights<piecewise_linear_softmax>::operands_type packed;
  attention_weights<piecewise_linear_softmax>::pack(scores, packed);
  for (int i = 0; i < 16; ++i) {
    codes[lane * 16 + i] = packed.of_step[i / 4][i % 4];
  }
  for (int half = 0; half < 2; ++half) {
    references[lane / 4 + 8 * half] = weights.reference(half);
    factors[lane / 4 + 8 * half] = factor.values[0][half];
  }
#endif
}

bool same_bits(float a, float b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

struct made {
  std::vector<std::uint8_t> codes;  ///< rows x keys
  std::vector<float> references;
  std::vector<float> factors;
};

template <tile_mask Mask, tile_scales Scales, bool HasBegun>
made made_of(tile_of_scores const& tile) {
  tessera_test::device_values<std::int32_t> const sums(tile.sums);
  tessera_test::device_values<float> const row_scales(tile.row_scales);
  tessera_test::device_values<float> const key_scales(tile.key_scales);
  tessera_test::device_values<std::uint32_t> codes(32 * 16);
  tessera_test::device_values<float> references(rows);
  tessera_test::device_values<float> factors(rows);
  make_codes<Mask, Scales, HasBegun><<<1, 32>>>(sums.data(), row_scales.data(), key_scales.data(), tile.first_seen,
                                                tile.seen_end, tile.is_first, codes.data(), references.data(),
                                                factors.data());
  auto const words = codes.download();
  made result{std::vector<std::uint8_t>(rows * keys), references.download(), factors.download()};
  for (int lane = 0; lane < 32; ++lane) {
    for (int word = 0; word < 16; ++word) {
      for (int byte = 0; byte < 4; ++byte) {
        // pack() puts register 16 i + 8 (word / 2) + 2 (word % 2) + {0, 1, 4, 5} into a word.
        int const i = 16 * (word / 4) + 8 * (word % 4 / 2) + 2 * (word % 4 % 2) + byte / 2 * 4 + byte % 2;
        int const row = lane / 4 + i / 2 % 2 * 8;
        int const key = i / 4 * 8 + 2 * (lane % 4) + i % 2;
        result.codes[static_cast<std::size_t>(row * keys + key)] =
            static_cast<std::uint8_t>(words[static_cast<std::size_t>(lane * 16 + word)] >> 8 * byte);
      }
    }
  }
  return result;
}

/// What the lanes make of sums; the same is made of sums that began at integer_magic.
template <tile_mask Mask, tile_scales Scales>
made on_device(tile_of_scores const& tile) {
  made const result = made_of<Mask, Scales, false>(tile);
  made const begun = made_of<Mask, Scales, true>(tile);
  CHECK(begun.codes == result.codes);
  for (std::size_t row = 0; row < rows; ++row) {
    CAPTURE(row);
    CHECK(same_bits(begun.references[row], result.references[row]));
    CHECK(same_bits(begun.factors[row], result.factors[row]));
  }
  return result;
}

/// The factor of the scores of a row and a key: the scale of the lane that has them.
float scale_of(tile_of_scores const& tile, int row, int key) {
  return tile.row_scales[static_cast<std::size_t>(row % 8)] * tile.key_scales[static_cast<std::size_t>(key % 8 / 2)];
}

made on_host(tile_of_scores const& tile, bool is_masked) {
  piecewise_linear_softmax const softmax;
  made result{std::vector<std::uint8_t>(rows * keys), std::vector<float>(rows), {}};
  for (int row = 0; row < rows; ++row) {
    auto const is_seen = [&](int key) {
      return !is_masked || (key >= tile.first_seen + row && key < tile.seen_end + row);
    };
    auto const sum_of = [&](int key) {
      return is_seen(key) ? static_cast<float>(tile.sums[static_cast<std::size_t>(row * keys + key)])
                          : -tessera::infinity;
    };
    float largest = -tessera::infinity;
    for (int key = 0; key < keys; ++key) {
      largest = is_seen(key) ? tessera::max(largest, scale_of(tile, row, key) * sum_of(key)) : largest;
    }
    auto state = softmax.identity();
    if (largest != -tessera::infinity) {
      softmax.turn(state, largest);
    }
    result.references[static_cast<std::size_t>(row)] = state.reference;
    for (int key = 0; key < keys; ++key) {
      result.codes[static_cast<std::size_t>(row * keys + key)] =
          softmax.weigh<quantizer>(state, scale_of(tile, row, key), sum_of(key), tile.is_first).code.bits;
    }
  }
  return result;
}

tile_of_scores random_tile(std::uint32_t seed, std::int32_t spread, float scale) {
  std::uint32_t state = seed;
  auto const next = [&] { return state = state * 1664525U + 1013904223U; };
  tile_of_scores tile;
  tile.is_first = seed % 2 == 0;
  for (int i = 0; i < rows * keys; ++i) {
    tile.sums.push_back(static_cast<std::int32_t>(next() >> 4) % (spread + 1) * (next() >> 31 == 0 ? 1 : -1));
  }
  for (int i = 0; i < 8; ++i) {
    tile.row_scales.push_back(scale * (0.5F + static_cast<float>(next() >> 8) * 0x1p-24F));
  }
  for (int i = 0; i < 4; ++i) {
    tile.key_scales.push_back(0.25F + static_cast<float>(next() >> 8) * 0x1p-24F);
  }
  return tile;
}

int differences(made const& a, made const& b) {
  int count = 0;
  for (std::size_t i = 0; i < a.codes.size(); ++i) {
    count += a.codes[i] != b.codes[i] ? 1 : 0;
  }
  for (std::size_t i = 0; i < a.references.size(); ++i) {
    count += a.references[i] != b.references[i] ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("a lane's codes of weights are those of the host, to the bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::is_hopper()) {
    TESSERA_SKIP("no device of sm_90");
  }
  std::uint32_t seed = 1;
  for (std::int32_t const spread : {0, 1, 90, 16129, 120000, 4161600}) {
    for (float const scale : {0.0F, 1e-30F, 1e-9F, 1e-5F, 1.3e-4F, 4e-3F, 0.016F}) {  // with factors up to 1.875
      tile_of_scores tile = random_tile(++seed, spread, scale);
      CAPTURE(spread, scale);
      CHECK(differences(on_device<tile_mask::none, tile_scales::small>(tile), on_host(tile, false)) == 0);
      tile.seen_end = 40;
      tile.first_seen = -rows;  // no key is hidden for lying before those that a row sees
      CHECK(differences(on_device<tile_mask::behind, tile_scales::small>(tile), on_host(tile, true)) == 0);
      tile.first_seen = 21;
      CHECK(differences(on_device<tile_mask::both, tile_scales::any>(tile), on_host(tile, true)) == 0);
      tile.seen_end = -3;  // the first rows see nothing
      tile.first_seen = -40;
      CHECK(differences(on_device<tile_mask::both, tile_scales::any>(tile), on_host(tile, true)) == 0);
    }
    for (float const scale : {0.05F, 0.9F, 31.0F, 1e6F, 1e25F}) {
      tile_of_scores tile = random_tile(++seed, spread, scale);
      CAPTURE(spread, scale);
      CHECK(differences(on_device<tile_mask::none, tile_scales::any>(tile), on_host(tile, false)) == 0);
      tile.seen_end = 40;
      CHECK(differences(on_device<tile_mask::both, tile_scales::any>(tile), on_host(tile, true)) == 0);
    }
  }
}

TEST_CASE("a scale that is NaN and a score beyond 3e38 make factors of the rows that see them NaN", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::is_hopper()) {
    TESSERA_SKIP("no device of sm_90");
  }
  float const bad[] = {std::numeric_limits<float>::quiet_NaN(), 1e38F, std::numeric_limits<float>::infinity()};
  for (float const scale : bad) {
    tile_of_scores tile = random_tile(5, 100, 1e-3F);
    for (auto& sum : tile.sums) {
      sum = std::abs(sum) + 5000;
    }
    tile.key_scales[3] = scale * 1e3F;  // of keys 6 and 7 of each 8
    auto const all = on_device<tile_mask::both, tile_scales::any>(tile);
    for (int row = 0; row < rows; ++row) {
      CAPTURE(scale, row);
      CHECK(std::isnan(all.factors[static_cast<std::size_t>(row)]));
    }
    tile.seen_end = 4;  // a row sees four keys, from that of its own number on
    auto const few = on_device<tile_mask::both, tile_scales::any>(tile);
    for (int row = 0; row < rows; ++row) {
      CAPTURE(scale, row);
      bool const sees_bad_scale = row % 8 >= 3;  // keys 6 and 7 of 8 are among row to row + 3
      CHECK(std::isnan(few.factors[static_cast<std::size_t>(row)]) == sees_bad_scale);
    }
  }
}
