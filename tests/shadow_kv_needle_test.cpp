// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <map>
#include <tuple>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/offloaded_cache/low_rank_keys.hpp>
#include <tessera/select/coded_landmark.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/key_codes.hpp>
#include <tessera/select/landmark.hpp>
#include <tessera/select/oracle.hpp>
#include <tessera/select/quest.hpp>
#include <tessera/select/random.hpp>
#include <tessera/select/recent.hpp>

#include "support/catch.hpp"
#include "support/needle.hpp"

using namespace tessera;
using tessera_test::heads_that_read;
using tessera_test::make_needle;
using tessera_test::needle_problem;
using tessera_test::offload_sequence;

namespace {

constexpr double smooth = 0.9;  ///< the keys of neighbouring tokens are alike
constexpr double rough = 0.4;   ///< the keys of neighbouring tokens are not alike
constexpr int heads = 12;

/// The sequence with a needle for a seed, made once for all selectors of a test.
offload_sequence<bfloat16> const& sequence_of(needle_problem const& p, std::vector<double> const& frequencies,
                                              std::uint64_t seed) {
  static std::map<std::tuple<std::int64_t, double, std::uint64_t>, offload_sequence<bfloat16>> made;
  auto const key = std::tuple(p.length, p.persistence, seed);
  auto const found = made.find(key);
  return found != made.end() ? found->second : made.emplace(key, make_needle(p, frequencies, seed)).first->second;
}

/// How many of 12 heads found the needle, reading 16 of 130 chunks, exact ones included.
template <class S, int Outliers = 0>
int found_by(std::int64_t length, double persistence) {
  using method = offloaded_cache<low_rank<24>, S, keep_outliers<Outliers>>;
  constexpr std::int64_t chunks = 16;
  needle_problem const p{{8, 4, 32}, 1100, 8 * 61, length, persistence};
  std::vector<double> const frequencies = rotary_frequencies(500000.0, 32);
  int found = 0;
  for (std::uint64_t seed = 1; seed <= heads / 4; ++seed) {
    S selector;
    selector.chunks = chunks - Outliers;
    if constexpr (std::is_same_v<S, random_selector<8>>) {
      selector.seed = seed;
    }
    found += heads_that_read<method>(p, frequencies, sequence_of(p, frequencies, seed), selector);
  }
  return found;
}

}  // namespace

TEST_CASE("needles of whole chunks are found by their means as by looking at all keys", "[host][long]") {
  for (double const background : {smooth, rough}) {
    CAPTURE(background);
    int const oracle = found_by<oracle_selector<8>>(8, background);
    CHECK(oracle == heads);
    CHECK(100 * found_by<landmark_selector<8>, 4>(8, background) >= 95 * oracle);
    CHECK(100 * found_by<coded_landmark_selector<8>, 4>(8, background) >= 95 * oracle);
    CHECK(100 * found_by<key_code_selector<8>>(8, background) >= 95 * oracle);
  }
  CHECK(found_by<quest_selector<8>>(8, smooth) == heads);  // every chunk's box is narrow
}

TEST_CASE("a needle of one token among others like it is found because its chunk is exact", "[host][long]") {
  CHECK(found_by<landmark_selector<8>, 4>(1, smooth) >= heads - 2);
  CHECK(found_by<coded_landmark_selector<8>, 4>(1, smooth) >= heads - 2);
  CHECK(found_by<landmark_selector<8>, 0>(1, smooth) <= heads / 2 + 2);  // the mean of its chunk does not stand for it
  CHECK(found_by<quest_selector<8>>(1, smooth) >= heads - 1);
  CHECK(found_by<key_code_selector<8>>(1, smooth) == heads);
  CHECK(found_by<oracle_selector<8>>(1, smooth) == heads);
}

TEST_CASE("among keys of all directions means miss needles of one token, two bits a channel do not", "[host][long]") {
  CHECK(found_by<landmark_selector<8>, 4>(1, rough) <= heads - 4);
  for (std::int64_t const length : {1, 8}) {
    CHECK(found_by<quest_selector<8>>(length, rough) <= heads / 2);  // every chunk's box is wide
  }
  CHECK(found_by<key_code_selector<8>>(1, rough) == heads);
  CHECK(found_by<oracle_selector<8>>(1, rough) == heads);
}

TEST_CASE("needles are found neither by age nor but by chance by lot", "[host][long]") {
  int by_lot = 0;
  for (double const background : {smooth, rough}) {
    for (std::int64_t const length : {1, 8}) {
      CAPTURE(background, length);
      CHECK(found_by<recent_selector<8>>(length, background) == 0);
      int const found = found_by<random_selector<8>>(length, background);
      CHECK(found <= heads / 2);
      by_lot += found;
    }
  }
  CHECK(by_lot > 0);  // 16 of 130 chunks are drawn
}
