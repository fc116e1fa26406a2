// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include <tessera/program/paged_cache/page_arithmetic.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();

/// The range of some numbers, as fp16 where they are keys.
struct numbers_of_group {
  std::vector<float> values;
  interval<float> range{infinite, -infinite};

  numbers_of_group(int count, std::uint64_t seed, float mean, float deviation) {
    for (int i = 0; i < count; ++i) {
      auto const number = mean + deviation * testing::gauss{}.value(seed, static_cast<std::uint64_t>(i));
      values.push_back(load(store<float16>(number)));
      range.minimum = values.back() < range.minimum ? values.back() : range.minimum;
      range.maximum = values.back() > range.maximum ? values.back() : range.maximum;
    }
  }
};

}  // namespace

TEST_CASE("sums in pairs add neighbours first, for every count", "[host]") {
  for (int count = 1; count <= 32; ++count) {
    // Parts are single bits, so that nothing is added twice or left out.
    auto const all = pair_sum(
        count, std::uint32_t{0}, [](int i) { return std::uint32_t{1} << i; },
        [](std::uint32_t& sum, std::uint32_t other) { sum += other; });
    CHECK(all == (count == 32 ? ~std::uint32_t{0} : (std::uint32_t{1} << count) - 1));
  }
  float const four[] = {1.0F, 0x1p-24F, 0x1p-24F, 0x1p-24F};  // one after the other would give 1
  auto const add = [](float& sum, float other) { sum += other; };
  CHECK(pair_sum(
            4, 0.0F, [&](int i) { return four[i]; }, add) == (1.0F + 0x1p-24F) + 0x1p-23F);
}

TEST_CASE("the fours of a head's eights are all of its channels once", "[host]") {
  std::set<int> channels;
  for (int eight = 0; eight < 16; ++eight) {
    CHECK(first_of_four(eight, 1) - first_of_four(eight, 0) == 8);
    for (int four = 0; four < 2; ++four) {
      for (int i = 0; i < 4; ++i) {
        channels.insert(first_of_four(eight, four) + i);
      }
    }
  }
  CHECK(channels.size() == 128);
  CHECK(*channels.begin() == 0);
  CHECK(*channels.rbegin() == 127);
}

TEST_CASE("numbers saturate at the largest half and lose signs of zeros", "[host]") {
  CHECK(load(saturated_half(1e6F)) == 65504.0F);
  CHECK(load(saturated_half(-infinite)) == -65504.0F);
  CHECK(std::isnan(load(saturated_half(std::nanf("")))));
  CHECK(load(saturated_half(1.0F + 0x1p-11F)) == 1.0F);
  auto const range = without_signed_zeros({-0.0F, -0.0F});
  CHECK_FALSE(std::signbit(range.minimum));
  CHECK_FALSE(std::signbit(range.maximum));
}

TEST_CASE("codes are cut off at their ends and count from the origin", "[host]") {
  for (int const bits : {2, 4}) {
    float const origin = code_origin(bits);
    CHECK(origin == std::ldexp(1.0F, bits + 3));
    CHECK(highest_code(bits) == (1 << bits) - 1);
    for (int code = 0; code <= highest_code(bits); ++code) {
      CHECK(code_of(origin + static_cast<float>(code), bits) == static_cast<std::uint32_t>(code));
      CHECK(code_of(origin + static_cast<float>(code) + 0.99F, bits) == static_cast<std::uint32_t>(code));
    }
    CHECK(code_of(-infinite, bits) == 0);
    CHECK(code_of(infinite, bits) == static_cast<std::uint32_t>(highest_code(bits)));
    CHECK(code_of(std::nanf(""), bits) == 0);
  }
}

TEST_CASE("keys come back within half a code, and the ends of a channel nearly as they were", "[host]") {
  for (int const bits : {2, 4}) {
    for (float const mean : {0.0F, 30.0F, -700.0F}) {
      CAPTURE(bits, mean);
      numbers_of_group const group(64, 1, mean, 3.0F);
      key_channel const channel = key_channel::fit(group.range, bits);
      auto const scale = static_cast<double>(load(channel.scale));
      double const width = static_cast<double>(group.range.maximum) - static_cast<double>(group.range.minimum);
      CHECK(scale == Approx(width / highest_code(bits)).epsilon(1e-3));
      CHECK(load(channel.minimum) == group.range.minimum);
      int wrong = 0;
      for (float const value : group.values) {
        std::uint32_t const code = channel.encode(value, bits);
        double const exact = (static_cast<double>(value) - static_cast<double>(load(channel.minimum))) / scale;
        wrong += std::fabs(exact - static_cast<double>(code)) <= 0.51 ? 0 : 1;
        double const decoded = static_cast<double>(load(channel.minimum)) + scale * static_cast<double>(code);
        double const bound = 1e-6 * (std::fabs(decoded) + std::ldexp(scale, bits + 3));
        wrong += std::fabs(static_cast<double>(channel.decode(code)) - decoded) <= bound ? 0 : 1;
        auto const from_origin = static_cast<double>(channel.decode_from_origin(code, channel.base(bits), bits));
        wrong += std::fabs(from_origin - decoded) <= bound ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("a channel that is constant or has no token has no scale", "[host]") {
  key_channel const constant = key_channel::fit({2.5F, 2.5F}, 4);
  CHECK(load(constant.scale) == 0.0F);
  CHECK(constant.encode(2.5F, 4) == 0);
  CHECK(constant.decode(constant.encode(2.5F, 4)) == 2.5F);
  key_channel const none = key_channel::fit({infinite, -infinite}, 4);
  CHECK(none.scale.bits == 0);
  CHECK(none.minimum.bits == 0);
}

TEST_CASE("values come back within half a step, and steps are no finer than their magnitudes allow", "[host]") {
  for (int const bits : {2, 4}) {
    for (float const mean : {0.0F, 5.0F, -1000.0F}) {
      CAPTURE(bits, mean);
      numbers_of_group const numbers(32, 2, mean, 0.5F);
      value_group const group = value_group::fit(numbers.range, bits);
      auto const step = static_cast<double>(group.step);
      double const magnitude = std::fmax(std::fabs(static_cast<double>(numbers.range.minimum)),
                                         std::fabs(static_cast<double>(numbers.range.maximum)));
      CHECK(step >= magnitude * 0x1p-10 * 0.9999);
      CHECK(static_cast<double>(group.reciprocal) * step == Approx(1.0).epsilon(1e-6));
      CHECK(std::fabs(load(group.ratio)) <= 1024.0F);
      int sum = 0;
      int squares = 0;
      double decoded_square = 0;
      int wrong = 0;
      for (float const value : numbers.values) {
        auto const code = static_cast<int>(group.encode(value, bits));
        double const decoded = step * (code + static_cast<double>(load(group.ratio)));
        // The ratio is a half: beside numbers of up to 1024 steps it is off by up to half a step.
        wrong += std::fabs(decoded - static_cast<double>(value)) <= 1.01 * step ? 0 : 1;
        sum += code;
        squares += code * code;
        decoded_square += decoded * decoded;
      }
      CHECK(wrong == 0);
      CHECK(static_cast<double>(group.decoded_square(32, sum, squares)) == Approx(decoded_square).epsilon(1e-4));
    }
  }
  value_group const zeros = value_group::fit({0.0F, -0.0F}, 4);
  CHECK(zeros.step > 0.0F);
  CHECK(zeros.encode(0.0F, 4) == 0);
  CHECK(load(zeros.ratio) == 0.0F);
}

TEST_CASE("stored lengths restore keys and values", "[host]") {
  CHECK(length_factor(18.0F, 2.0F) == 3.0F);
  CHECK(length_factor(18.0F, 0.0F) == 0.0F);
  key_channel const channel = key_channel::fit({-3.0F, 12.0F}, 4);
  CHECK(restored_key(7, channel, store<float16>(0.5F)) == 0.5F * channel.decode(7));
  value_group const group = value_group::fit({-1.5F, 6.0F}, 4);
  float16 const scale = group.scale(2.0F, 4);
  CHECK(load(scale) == Approx(2.0F * group.step * 8.0F).epsilon(1e-3));
  double const expected = 2.0 * static_cast<double>(group.step) * (5.0 + static_cast<double>(load(group.ratio)));
  CHECK(static_cast<double>(restored_value(5, scale, group.ratio, 4)) == Approx(expected).epsilon(1e-3));
}
