// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/offloaded_cache/prefill.hpp>
#include <tessera/project/rotary_tables.hpp>
#include <tessera/select/chunk_landmarks.hpp>
#include <tessera/select/coded_landmark.hpp>
#include <tessera/select/key_codes.hpp>
#include <tessera/select/landmark.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/chunk_selector.hpp>

#include "support/catch.hpp"
#include "support/real_tensor.hpp"

using namespace tessera;
using tessera_test::real_tensor;
using testing::detail::float_rows;
using testing::detail::kept_of;

namespace {

using coded = coded_landmark_selector<8>;
using kept_type = std::vector<std::int8_t>;

std::vector<float> normal_keys(std::int64_t rows, std::int64_t channels, std::uint64_t seed, double sigma = 1) {
  std::vector<float> values(static_cast<std::size_t>(rows * channels));
  testing::fill(testing::gauss{sigma}, seed, values.data(), values.size());
  return values;
}

kept_type kept(std::vector<float> const& keys, std::int64_t channels) {
  return kept_of(coded{}, float_rows{keys.data(), channels}, 0x5a, false);
}
float scale_in(kept_type const& line) {
  float scale;
  std::memcpy(&scale, line.data() + line.size() - 4, 4);
  return scale;
}
float score(kept_type const& line, std::vector<float> const& query) {
  auto const channels = static_cast<std::int64_t>(query.size());
  return chunk_landmarks<coded>::score({}, float_rows{query.data(), channels}, line.data(), channels, {0, 0, 0});
}

/// Of 8 keys, in double.
std::vector<double> mean_of(std::vector<float> const& keys, std::int64_t channels) {
  std::vector<double> mean(static_cast<std::size_t>(channels));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    mean[i % mean.size()] += double{keys[i]} / 8;
  }
  return mean;
}

/// The chunks with the highest scores.
template <class S>
std::vector<std::size_t> selected(std::vector<float> const& keys, std::int64_t channels, float const* query,
                                  std::size_t count) {
  std::vector<float> scores;
  for (std::int64_t first = 0; first < static_cast<std::int64_t>(keys.size()); first += 8 * channels) {
    auto const line = kept_of(S{}, float_rows{keys.data() + first, channels}, 0, false);
    scores.push_back(chunk_landmarks<S>::score({}, float_rows{query, channels}, line.data(), channels, {0, 0, 0}));
  }
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}
/// The part of the chunks that landmarks in bfloat16 choose which codes choose too, over many queries.
double same_choice(std::vector<float> const& keys, std::int64_t channels, std::vector<float> const& queries,
                   std::size_t count) {
  std::size_t same = 0;
  std::size_t all = 0;
  for (std::size_t first = 0; first < queries.size(); first += static_cast<std::size_t>(channels)) {
    auto const a = selected<coded>(keys, channels, &queries[first], count);
    auto const b = selected<landmark_selector<8>>(keys, channels, &queries[first], count);
    std::vector<std::size_t> both;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
    same += both.size();
    all += count;
  }
  return static_cast<double>(same) / static_cast<double>(all);
}

}  // namespace

TEST_CASE("coded landmarks keep the laws of a ChunkSelector", "[host]") {
  for (std::int64_t const channels : {16, 64, 128, 256}) {
    auto keys = normal_keys(5 * 8, channels, 3);
    std::fill_n(keys.begin(), 8 * channels, 0.0F);
    std::fill_n(keys.begin() + 8 * channels, 8 * channels, -3e4F);
    auto const queries = normal_keys(3, channels, 4);
    CHECK(testing::check_chunk_laws<coded>(keys, queries, channels).text().empty());
    CHECK(
        testing::check_chunk_laws<coded_landmark_selector<4, group_mean>>(keys, queries, channels, {7}).text().empty());
  }
}

TEST_CASE("a landmark's codes are its mean in steps of a 127th of the largest channel", "[host]") {
  for (std::int64_t const channels : {16, 64, 128}) {
    for (double const sigma : {1e-30, 1.0, 3e30}) {
      for (std::uint64_t seed = 0; seed < 20; ++seed) {
        CAPTURE(channels, sigma, seed);
        auto const keys = normal_keys(8, channels, seed, sigma);
        auto const mean = mean_of(keys, channels);
        auto const line = kept(keys, channels);
        REQUIRE(line.size() == static_cast<std::size_t>(channels + 4));
        double largest = 0;
        for (double const value : mean) {
          largest = std::max(largest, std::abs(value));
        }
        double const scale = double{scale_in(line)};
        CHECK(scale == Approx(largest / 127).epsilon(1e-6));
        int most = 0;
        for (std::size_t i = 0; i < mean.size(); ++i) {
          CHECK(std::abs(mean[i] - scale * line[i]) <= scale * (0.5 + 1e-4));
          most = std::max(most, std::abs(int{line[i]}));
        }
        CHECK(most == 127);
      }
    }
  }
}

TEST_CASE("scores of coded landmarks are those of what their codes stand for", "[host]") {
  for (std::int64_t const channels : {16, 128}) {
    auto const keys = normal_keys(8, channels, 21);
    auto const query = normal_keys(1, channels, 22);
    auto const mean = mean_of(keys, channels);
    auto const line = kept(keys, channels);
    double of_codes = 0;
    double of_mean = 0;
    double magnitudes = 0;
    for (std::size_t i = 0; i < mean.size(); ++i) {
      of_codes += double{query[i]} * double{scale_in(line)} * line[i];
      of_mean += double{query[i]} * mean[i];
      magnitudes += std::abs(double{query[i]});
    }
    CHECK(score(line, query) == Approx(of_codes).margin(1e-5));
    CHECK(std::abs(double{score(line, query)} - of_mean) <= 0.51 * double{scale_in(line)} * magnitudes);
  }
}

TEST_CASE("chunks of zeros and of keys that are not finite have landmarks of their own", "[host]") {
  constexpr std::int64_t channels = 32;
  auto const query = normal_keys(1, channels, 8);
  auto const zeros = kept(std::vector<float>(8 * channels, 0.0F), channels);
  CHECK(std::all_of(zeros.begin(), zeros.end(), [](std::int8_t byte) { return byte == 0; }));
  CHECK(score(zeros, query) == 0.0F);
  for (float const odd : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    auto keys = normal_keys(8, channels, 9);
    keys[5 * channels + 17] = odd;
    auto const line = kept(keys, channels);
    CHECK(std::isnan(scale_in(line)));
    CHECK(std::all_of(line.begin(), line.end() - 4, [](std::int8_t code) { return code == 0; }));
    CHECK(std::isnan(score(line, query)));
  }
  // The least scale is the smallest normal number: what is less than half of it is 0.
  auto const tiny = kept(std::vector<float>(8 * channels, 1e-40F), channels);
  CHECK(scale_in(tiny) == std::numeric_limits<float>::min());
  CHECK(tiny[0] == 0);
}

static_assert(codes_means<coded> && !codes_means<landmark_selector<8>> && !codes_means<key_code_selector<8>>);

TEST_CASE("lanes together keep the bytes that the selector keeps alone", "[host]") {
  constexpr std::int64_t channels = 80;
  constexpr std::int64_t chunks = 5;
  std::vector<bfloat16> keys(static_cast<std::size_t>(2 * chunks * 8 * channels));
  testing::fill(testing::gauss(), 31, keys.data(), keys.size());
  keys[8 * channels + 3] = store<bfloat16>(NAN);  // of head 0, chunk 1
  std::fill_n(keys.begin() + 2 * 8 * channels, 8 * channels, bfloat16{});
  std::vector<std::int8_t> made(static_cast<std::size_t>(chunks * 2 * (channels + 4)), std::int8_t{0x55});
  std::vector<float> cosines(2 * chunks);
  cpu const exec{.threads = 1};
  summarize_prompt<bfloat16, coded> const program{{keys.data(), {2, chunks * 8, channels}},
                                                  {},
                                                  {},
                                                  0,
                                                  0,
                                                  chunks,
                                                  {made.data(), {chunks, 2, channels + 4}},
                                                  {cosines.data(), {2, chunks}}};
  exec.run(program, program.groups());
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    for (std::int64_t head = 0; head < 2; ++head) {
      std::vector<float> own;
      for (std::int64_t i = 0; i < 8 * channels; ++i) {
        own.push_back(load(keys[static_cast<std::size_t>((head * chunks + chunk) * 8 * channels + i)]));
      }
      auto const expected = kept(own, channels);
      CHECK(std::equal(expected.begin(), expected.end(), made.begin() + (chunk * 2 + head) * (channels + 4)));
    }
  }
}

TEST_CASE("coded landmarks choose nearly the chunks that landmarks in bfloat16 choose", "[host][slow]") {
  auto const keys = normal_keys(300 * 8, 128, 41);
  auto const queries = normal_keys(20, 128, 42);
  double const random = same_choice(keys, 128, queries, 30);
  CHECK(random > 0.97);
  CHECK(random < 1);
  auto const stored = real_tensor<bfloat16>("smollm2_attention.safetensors", "layers.15.keys_post_rope");
  auto const asked = real_tensor<bfloat16>("smollm2_attention.safetensors", "layers.15.queries_post_rope");
  for (std::size_t head = 0; head < 3; ++head) {
    std::vector<float> real;
    std::vector<float> real_queries;  // of the first query head that has this key head; the last tokens
    for (std::size_t i = 0; i < 512 * 64; ++i) {
      real.push_back(load(stored[head * 512 * 64 + i]));
      if (i >= 448 * 64) {
        real_queries.push_back(load(asked[3 * head * 512 * 64 + i]));
      }
    }
    double const same = same_choice(real, 64, real_queries, 16);
    CAPTURE(head, same);
    CHECK(same > 0.96);
    CHECK(same < 1);
  }
}

TEST_CASE("a coded landmark takes a byte a channel and four", "[host]") {
  CHECK(coded{}.elements(128) == 132);
  CHECK(coded{}.pieces(128) == 1);
  CHECK(coded{16}.budget(100) == 16);
  CHECK(coded{16}.budget(7) == 7);
  CHECK(coded{-4}.budget(7) == 0);
}
