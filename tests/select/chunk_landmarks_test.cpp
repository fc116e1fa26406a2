// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/select/chunk_landmarks.hpp>
#include <tessera/select/coded_landmark.hpp>
#include <tessera/select/landmark.hpp>
#include <tessera/select/quest.hpp>

#include "select/chunk_samples.hpp"
#include "support/catch.hpp"

using namespace tessera;

namespace {

constexpr std::int64_t channels = tessera_test::selector_channels;
using of_means = chunk_landmarks<landmark_selector<8>>;
using of_ranges = chunk_landmarks<quest_selector<8>>;

struct float_query {
  float const* data;
  float operator()(std::int64_t channel) const { return data[channel]; }
};

/// The keys of a chunk, and what is kept of them.
template <class Selector>
struct kept_chunk {
  using landmarks = chunk_landmarks<Selector>;
  std::vector<float> keys = tessera_test::normal_rows(8, 5);
  std::vector<typename landmarks::element_type> kept;

  kept_chunk() : kept(static_cast<std::size_t>(landmarks::elements(Selector{}, channels))) {
    auto const key = [this](std::int64_t token, std::int64_t channel) {
      return keys[static_cast<std::size_t>(token * channels + channel)];
    };
    for (std::int64_t piece = landmarks::pieces(Selector{}, channels) - 1; piece >= 0; --piece) {
      landmarks::reduce(Selector{}, key, piece, channels, kept.data());
    }
  }
};

}  // namespace

TEST_CASE("floats of landmarks are kept as bfloat16, each part for all channels", "[host]") {
  STATIC_REQUIRE(std::is_same_v<of_means::element_type, bfloat16>);
  CHECK(of_means::elements({}, 40) == 40);
  CHECK(of_ranges::elements({}, 40) == 80);
  CHECK(of_ranges::pieces({}, 40) == 40);
  kept_chunk<quest_selector<8>> const chunk;
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    auto const at = static_cast<std::size_t>(channel);
    float smallest = chunk.keys[at];
    float largest = chunk.keys[at];
    for (std::size_t token = 1; token < 8; ++token) {
      float const key = chunk.keys[token * static_cast<std::size_t>(channels) + at];
      smallest = key < smallest ? key : smallest;
      largest = key > largest ? key : largest;
    }
    CHECK(chunk.kept[at] == store<bfloat16>(smallest));
    CHECK(chunk.kept[at + static_cast<std::size_t>(channels)] == store<bfloat16>(largest));
  }
}

TEST_CASE("a score adds up what the selector says of each channel's landmark", "[host]") {
  kept_chunk<quest_selector<8>> const chunk;
  auto const query = tessera_test::normal_rows(1, 6);
  double expected = 0;
  for (std::size_t channel = 0; channel < static_cast<std::size_t>(channels); ++channel) {
    double const q = static_cast<double>(query[channel]);
    double const low = q * static_cast<double>(load(chunk.kept[channel]));
    double const high = q * static_cast<double>(load(chunk.kept[channel + static_cast<std::size_t>(channels)]));
    expected += low > high ? low : high;
  }
  float const found = of_ranges::score({}, float_query{query.data()}, chunk.kept.data(), channels, {3, 1, 99});
  CHECK(static_cast<double>(found) == Approx(expected).epsilon(1e-5));
  CHECK(of_ranges::score({}, float_query{query.data()}, chunk.kept.data(), 0, {3, 1, 99}) == 0.0F);
}

TEST_CASE("a selector that says itself what it keeps is asked for all of it", "[host]") {
  using coded = coded_landmark_selector<8>;
  using of_codes = chunk_landmarks<coded>;
  STATIC_REQUIRE(std::is_same_v<of_codes::element_type, coded::element_type>);
  CHECK(of_codes::elements({}, 64) == coded{}.elements(64));
  CHECK(of_codes::pieces({}, 64) == coded{}.pieces(64));
  kept_chunk<coded> const chunk;
  auto const query = tessera_test::normal_rows(1, 6);
  float_query const asks{query.data()};
  CHECK(of_codes::score({}, asks, chunk.kept.data(), channels, {0, 0, 0}) ==
        coded{}.score(asks, chunk.kept.data(), channels, {0, 0, 0}));
}
