// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/select/chunk_landmarks.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/key_codes.hpp>
#include <tessera/select/landmark.hpp>
#include <tessera/select/oracle.hpp>
#include <tessera/select/quest.hpp>
#include <tessera/select/random.hpp>
#include <tessera/select/recent.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/chunk_selector.hpp>
#include <tessera/testing/laws/selector.hpp>

#include "support/catch.hpp"

using namespace tessera;
using testing::check_chunk_laws;

namespace {

constexpr std::int64_t channels = 16;

std::vector<float> normal_rows(std::int64_t rows, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(rows * channels));
  testing::fill(testing::gauss(), seed, values.data(), values.size());
  return values;
}

/// With a chunk of zeros and a chunk of large values in front.
std::vector<float> keys_of_chunks() {
  auto keys = normal_rows(5 * 8, 3);
  std::fill_n(keys.begin(), 8 * channels, 0.0F);
  std::fill_n(keys.begin() + 8 * channels, 8 * channels, -3e4F);
  return keys;
}

double product(float const* a, float const* b) {
  double sum = 0;
  for (std::int64_t i = 0; i < channels; ++i) {
    sum += double{a[i]} * double{b[i]};
  }
  return sum;
}

/// Of one chunk of 8 keys.
template <class S>
float score_of(S const& selector, std::vector<float> const& keys, std::vector<float> const& query) {
  testing::detail::float_rows const rows{keys.data(), channels};
  auto const kept = testing::detail::kept_of(selector, rows, 0, false);
  testing::detail::float_rows const queries{query.data(), channels};
  return chunk_landmarks<S>::score(selector, queries, kept.data(), channels, {0, 0, 0});
}

}  // namespace

TEST_CASE("all selectors of chunks keep the laws", "[host]") {
  auto const keys = keys_of_chunks();
  auto const queries = normal_rows(3, 4);
  CHECK(check_chunk_laws<landmark_selector<8>>(keys, queries, channels).text().empty());
  CHECK(check_chunk_laws<landmark_selector<4, group_mean>>(keys, queries, channels).text().empty());
  CHECK(check_chunk_laws<quest_selector<8>>(keys, queries, channels).text().empty());
  CHECK(check_chunk_laws<key_code_selector<8>>(keys, queries, channels).text().empty());
  CHECK(check_chunk_laws<recent_selector<8>>(keys, queries, channels).text().empty());
  CHECK(check_chunk_laws<random_selector<8>>(keys, queries, channels, {16, 9}).text().empty());
  CHECK(check_chunk_laws<oracle_selector<8>>(keys, queries, channels, {-4}).text().empty());
}

TEST_CASE("Quest keeps the laws of a Selector, and no key scores above its box", "[host]") {
  auto const same = [](interval<float> const& a, interval<float> const& b) { return a == b; };
  CHECK(testing::check_laws<quest_selector<8>>({0.3F, -1.7F, 2.2F, 0.0F}, {-2.0F, 0.0F, 0.5F}, 1e-6, same)
            .text()
            .empty());
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto keys = normal_rows(8, seed);
    for (float& key : keys) {
      key = load(store<bfloat16>(key));
    }
    auto const query = normal_rows(1, seed + 100);
    float const bound = score_of(quest_selector<8>{}, keys, query);
    for (std::int64_t key = 0; key < 8; ++key) {
      CHECK(product(keys.data() + key * channels, query.data()) <= double{bound} + 1e-5);
    }
  }
}

TEST_CASE("landmarks score as the mean key, the oracle as all keys together", "[host]") {
  auto const keys = normal_rows(8, 1);
  auto const query = normal_rows(1, 2);
  double mean = 0;
  double sum = 0;
  for (std::int64_t key = 0; key < 8; ++key) {
    double const score = product(keys.data() + key * channels, query.data());
    mean += score / 8;
    sum += std::exp(score);
  }
  CHECK(score_of(landmark_selector<8>{}, keys, query) == Approx(mean).margin(0.02));
  CHECK(score_of(oracle_selector<8>{}, keys, query) == Approx(std::log(sum)).margin(0.05));
}

TEST_CASE("two bits a channel keep the order of scores better than means do", "[host]") {
  // One key of eight agrees with the query; how far above the other chunks is its chunk?
  int found_by_codes = 0;
  int found_by_mean = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    auto const query = normal_rows(1, seed + 1000);
    auto with_needle = normal_rows(8, 2 * seed);
    auto const without = normal_rows(8, 2 * seed + 1);
    for (std::size_t i = 0; i < static_cast<std::size_t>(channels); ++i) {
      with_needle[3 * static_cast<std::size_t>(channels) + i] = query[i];
    }
    found_by_codes +=
        score_of(key_code_selector<8>{}, with_needle, query) > score_of(key_code_selector<8>{}, without, query) ? 1 : 0;
    found_by_mean +=
        score_of(landmark_selector<8>{}, with_needle, query) > score_of(landmark_selector<8>{}, without, query) ? 1 : 0;
  }
  CHECK(found_by_codes >= 48);
  CHECK(found_by_codes > found_by_mean);
}

TEST_CASE("key codes take 288 bytes for a chunk of 8 keys of 128 channels", "[host]") {
  CHECK(key_code_selector<8>{}.elements(128) == 288);
}

TEST_CASE("lots are different for heads, positions and chunks, and the same each time", "[host]") {
  random_selector<8> const selector{.seed = 5};
  auto const lot = [&](std::int64_t chunk, std::int64_t head, std::int64_t position) {
    return selector.score(testing::detail::float_rows{nullptr, 0}, nullptr, 0, {chunk, head, position});
  };
  CHECK(lot(1, 2, 3) == lot(1, 2, 3));
  CHECK(lot(1, 2, 3) != lot(2, 2, 3));
  CHECK(lot(1, 2, 3) != lot(1, 3, 3));
  CHECK(lot(1, 2, 3) != lot(1, 2, 4));
  double sum = 0;
  for (std::int64_t chunk = 0; chunk < 10000; ++chunk) {
    sum += double{lot(chunk, 0, 0)};
  }
  CHECK(sum / 10000 == Approx(0.5).margin(0.01));
}

TEST_CASE("a group of queries agrees by the largest or by the mean share", "[host]") {
  float largest = group_max{}.identity();
  float mean = group_mean{}.identity();
  for (float share : {0.1F, 0.7F, 0.4F}) {
    group_max{}.push(largest, std::log(share));
    group_mean{}.push(mean, std::log(share));
  }
  CHECK(group_max{}.value(largest, 3) == std::log(0.7F));
  CHECK(group_mean{}.value(mean, 3) == Approx(0.4));
}

TEST_CASE("cosines of keys with their mean know zeros and what is not finite", "[host]") {
  keep_outliers<4> const outliers;
  CHECK(outliers.cosine(6.0F, 4.0F, 9.0F) == 1.0F);
  CHECK(outliers.cosine(-6.0F, 4.0F, 9.0F) == -1.0F);
  CHECK(outliers.cosine(0.0F, 0.0F, 0.0F) == 1.0F);
  CHECK(outliers.cosine(0.0F, 0.0F, 2.0F) == 0.0F);
  CHECK(outliers.cosine(NAN, 1.0F, 1.0F) == -INFINITY);
  CHECK(outliers.cosine(1.0F, INFINITY, 1.0F) == -INFINITY);
}
