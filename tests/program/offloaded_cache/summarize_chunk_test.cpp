// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include <tessera/program/offloaded_cache/summarize_chunk.hpp>
#include <tessera/select/coded_landmark.hpp>
#include <tessera/select/landmark.hpp>
#include <tessera/select/quest.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/serial/group.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// A chunk of 8 keys, summarised by a warp.
template <class Selector>
struct summary_of_chunk {
  using landmarks = chunk_landmarks<Selector>;
  std::int64_t channels;
  std::unique_ptr<staged_keys<bfloat16>> staged = std::make_unique<staged_keys<bfloat16>>();
  std::vector<typename landmarks::element_type> kept;
  float least = -9.0F;

  /// Keys are `scale` times a common direction and normal noise.
  summary_of_chunk(std::int64_t of_channels, float scale, float noise) : channels(of_channels) {
    for (std::int64_t i = 0; i < 8 * channels; ++i) {
      float const common = testing::gauss{}.value(1, static_cast<std::uint64_t>(i % channels));
      float const own = noise * testing::gauss{}.value(2, static_cast<std::uint64_t>(i));
      staged->keys[i] = store<bfloat16>(scale * (common + own));
    }
    summarize();
  }
  void summarize() {
    kept.resize(static_cast<std::size_t>(landmarks::elements(Selector{}, channels)));
    least = summarize_chunk(serial_group<32>{}, Selector{}, *staged, channels, kept.data());
  }
  [[nodiscard]] double key(std::int64_t token, std::int64_t channel) const {
    return static_cast<double>(load(staged->keys[token * channels + channel]));
  }
  [[nodiscard]] double mean(std::int64_t channel) const {
    double sum = 0;
    for (std::int64_t token = 0; token < 8; ++token) {
      sum += key(token, channel) / 8;
    }
    return sum;
  }
  [[nodiscard]] double expected_cosine() const {
    double smallest = 1.0;
    for (std::int64_t token = 0; token < 8; ++token) {
      double product = 0;
      double square = 0;
      double mean_square = 0;
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        product += key(token, channel) * mean(channel);
        square += key(token, channel) * key(token, channel);
        mean_square += mean(channel) * mean(channel);
      }
      smallest = std::fmin(smallest, product / std::sqrt(square) / std::sqrt(mean_square));
    }
    return smallest;
  }
};

}  // namespace

TEST_CASE("the least cosine between a key and the mean is that of a loop in double", "[host]") {
  for (std::int64_t const channels : {1, 7, 31, 32, 33, 128, 256}) {
    for (float const noise : {0.1F, 1.0F}) {
      CAPTURE(channels, noise);
      summary_of_chunk<landmark_selector<8>> const found(channels, 1.0F, noise);
      CHECK(static_cast<double>(found.least) == Approx(found.expected_cosine()).margin(2e-6));
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        CHECK(static_cast<double>(found.staged->mean[channel]) == Approx(found.mean(channel)).margin(1e-6));
      }
    }
  }
}

TEST_CASE("keys whose squares are infinite have a cosine, and those that are not finite have none", "[host]") {
  summary_of_chunk<landmark_selector<8>> large(64, 1e25F, 0.5F);
  CHECK(static_cast<double>(large.least) == Approx(large.expected_cosine()).margin(2e-6));
  large.staged->keys[100] = store<bfloat16>(std::numeric_limits<float>::infinity());
  large.summarize();
  CHECK(large.least == -infinity);
  summary_of_chunk<landmark_selector<8>> const zeros(16, 0.0F, 0.0F);
  CHECK(zeros.least == 1.0F);
}

TEST_CASE("a chunk's landmark is what its selector keeps", "[host]") {
  summary_of_chunk<landmark_selector<8>> const means(40, 2.0F, 0.3F);
  for (std::int64_t channel = 0; channel < 40; ++channel) {
    auto const found = static_cast<double>(load(means.kept[static_cast<std::size_t>(channel)]));
    CHECK(std::fabs(found - means.mean(channel)) <= std::fabs(means.mean(channel)) / 250 + 1e-6);
  }
  summary_of_chunk<quest_selector<8>> const ranges(40, 2.0F, 0.3F);
  for (std::int64_t token = 0; token < 8; ++token) {
    CHECK(static_cast<double>(load(ranges.kept[5])) <= ranges.key(token, 5));
    CHECK(static_cast<double>(load(ranges.kept[45])) >= ranges.key(token, 5));
  }
}

TEST_CASE("lanes keep the codes of a mean as the selector does by itself", "[host]") {
  using coded = coded_landmark_selector<8>;
  summary_of_chunk<coded> const found(64, 1.5F, 0.4F);
  staged_keys<bfloat16>::reader const keys{found.staged->keys, 64};
  auto expected = found.kept;
  for (auto& element : expected) {
    element = {};
  }
  for (std::int64_t piece = 0; piece < coded{}.pieces(64); ++piece) {
    coded{}.reduce(keys, piece, 64, expected.data());
  }
  CHECK(found.kept == expected);
}
