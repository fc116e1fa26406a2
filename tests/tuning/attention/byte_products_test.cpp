// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <random>

#include <tessera/concepts/tuning.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/policy_of.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/reduce/piecewise_linear_softmax.hpp>
#include <tessera/tuning/attention/byte_products.hpp>

#include "support/catch.hpp"

using namespace tessera;

static_assert(Tuning<byte_products_tuning<64>> && Tuning<byte_products_tuning<128>>);

namespace {

template <int Channels>
bool is_for(int architecture) {
  byte_products_policy const policy = policy_of<byte_products_tuning<Channels>>(architecture);
  return architecture >= policy.from && architecture < policy.before;
}

/// A tile of keys of a row: numbers of the codes of weights and of a channel's values, and the factor of earlier tiles.
struct key_tile {
  float weights[128];
  float values[128];
  float factor;
};

/// Drops what lies 13 bits below the first one of `most`.
double keep_13_bits(double value, double most) {
  double const unit = std::ldexp(1.0, std::ilogb(most) - 13);
  return std::trunc(value / unit) * unit;
}

/// A sum and 32 products as tensor cores that keep 13 bits may add them: all are aligned to the largest.
float add_products(float sum, float const* weights, float const* values) {
  double most = std::fabs(sum);
  for (int i = 0; i < 32; ++i) {
    most = std::max(most, std::fabs(static_cast<double>(weights[i]) * values[i]));
  }
  if (most == 0) {
    return 0.0F;
  }
  double all = keep_13_bits(sum, most);
  for (int i = 0; i < 32; ++i) {
    all += keep_13_bits(static_cast<double>(weights[i]) * values[i], most);
  }
  return all == 0 ? 0.0F : static_cast<float>(keep_13_bits(all, all));
}

/// The weighted sum of a channel so far.
struct channel_sums {
  double exact = 0;
  float two_levels = 0;
  float one_level = 0;

  void add(key_tile const& tile) {
    float of_tile = 0;
    double products = 0;
    one_level *= tile.factor;
    for (int i = 0; i < 128; i += 32) {
      of_tile = add_products(of_tile, tile.weights + i, tile.values + i);
      one_level = add_products(one_level, tile.weights + i, tile.values + i);
    }
    for (int i = 0; i < 128; ++i) {
      products += static_cast<double>(tile.weights[i]) * tile.values[i];
    }
    exact = exact * tile.factor + products;
    two_levels = two_levels * tile.factor + of_tile;
  }
};

/// Relative L1 errors of results with sums of two levels and of one.
struct level_errors {
  double two_levels = 0;
  double one_level = 0;
};

/// Those of rows of so many keys, whose values have a mean of `offset` standard deviations.
level_errors errors_of(int keys, float offset) {
  using weigher = piecewise_linear_softmax;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  level_errors errors;
  double magnitude = 0;
  for (int row = 0; row < 16; ++row) {
    channel_sums results;
    channel_sums weights;
    auto state = weigher{}.identity();
    for (int first = 0; first < keys; first += 128) {
      float scores[128];
      std::generate(scores, scores + 128, [&] { return 1.4F * normal(random); });
      key_tile tile;
      tile.factor = weigher{}.turn(state, *std::max_element(scores, scores + 128));
      for (int i = 0; i < 128; ++i) {
        tile.weights[i] = load(weigher{}.weigh<float8_quantizer<float8_e4m3>>(state, 1.0F, scores[i], first == 0).code);
        tile.values[i] = load(store<float8_e4m3>(100.0F / (4.0F + offset) * (offset + normal(random))));
      }
      results.add(tile);
      std::fill(tile.values, tile.values + 128, 1.0F);
      weights.add(tile);
    }
    double const exact = results.exact / weights.exact;
    errors.two_levels += std::fabs(results.two_levels / weights.two_levels - exact);
    errors.one_level += std::fabs(results.one_level / weights.one_level - exact);
    magnitude += std::fabs(exact);
  }
  return {errors.two_levels / magnitude, errors.one_level / magnitude};
}

}  // namespace

TEST_CASE("products of e4m3 are for the architectures whose mma.sync multiplies it") {
  for (int const architecture : {890, 1200, 1210}) {
    CHECK(is_for<64>(architecture));
    CHECK(is_for<128>(architecture));
  }
  for (int const architecture : {0, 800, 860, 900, 1000, 1100}) {
    CHECK_FALSE(is_for<64>(architecture));
    CHECK_FALSE(is_for<128>(architecture));
  }
}

TEST_CASE("warps with products of e4m3 share the registers of a multiprocessor") {
  for (int const architecture : {890, 1200}) {
    CHECK(policy_of<byte_products_tuning<64>>(architecture).warps == 8);
    CHECK(policy_of<byte_products_tuning<64>>(architecture).blocks_per_multiprocessor == 2);
    CHECK(policy_of<byte_products_tuning<128>>(architecture).blocks_per_multiprocessor == 1);
  }
}

TEST_CASE("sums of two levels lose little where tensor cores keep 13 bits of sums, those of one level much") {
  for (int const keys : {1024, 8192}) {
    for (float const offset : {0.0F, 2.0F}) {
      level_errors const errors = errors_of(keys, offset);
      CAPTURE(keys, offset, errors.two_levels, errors.one_level);
      CHECK(errors.two_levels < 6e-4);
      CHECK(errors.one_level > 5 * errors.two_levels);
    }
  }
}
