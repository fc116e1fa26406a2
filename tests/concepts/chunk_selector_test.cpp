// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <vector>

#include <tessera/config.hpp>
#include <tessera/select/query_group.hpp>
#include <tessera/testing/laws/chunk_selector.hpp>

#include "support/catch.hpp"

using namespace tessera;
using tessera::testing::check_chunk_laws;

namespace {

/// A reader's own ChunkSelector: it keeps the first key of a chunk, and its pieces are channels.
struct first_key {
  using group_type = group_max;
  using element_type = float;
  static constexpr int chunk = 2;

  std::int64_t elements(std::int64_t channels) const { return channels; }
  std::int64_t pieces(std::int64_t channels) const { return channels; }
  template <class Keys>
  void reduce(Keys const& keys, std::int64_t piece, std::int64_t, element_type* kept) const {
    kept[piece] = keys(0, piece);
  }
  template <class Query>
  float score(Query const& query, element_type const* kept, std::int64_t channels, scored_chunk const&) const {
    float sum = 0.0F;
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      sum += query(channel) * kept[channel];
    }
    return sum;
  }
  std::int64_t budget(std::int64_t candidates) const { return candidates / 3; }
};

/// Never writes the last of its elements.
struct one_too_many : first_key {
  std::int64_t elements(std::int64_t channels) const { return channels + 1; }
};

/// Adds to what its memory held before.
struct adding : first_key {
  template <class Keys>
  void reduce(Keys const& keys, std::int64_t piece, std::int64_t, element_type* kept) const {
    kept[piece] += keys(0, piece);
  }
};

/// All pieces write all elements, so that the last one stays.
struct overwriting : first_key {
  template <class Keys>
  void reduce(Keys const& keys, std::int64_t piece, std::int64_t channels, element_type* kept) const {
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      kept[channel] = keys(0, piece);
    }
  }
};

struct unbounded : first_key {
  template <class Query>
  float score(Query const& query, element_type const*, std::int64_t, scored_chunk const&) const {
    return 1.0F / (query(0) - query(0));
  }
};

/// Scores a chunk by how often it was asked.
struct counting : first_key {
  int* asked;
  template <class Query>
  float score(Query const&, element_type const*, std::int64_t, scored_chunk const&) const {
    return static_cast<float>(++*asked);
  }
};

struct negative : first_key {
  std::int64_t budget(std::int64_t candidates) const { return candidates - 5; }
};

struct greedy : first_key {
  std::int64_t budget(std::int64_t candidates) const { return candidates > 1000 ? candidates + 1 : candidates; }
};

struct shrinking : first_key {
  std::int64_t budget(std::int64_t candidates) const { return candidates < 1500 ? candidates : 1499; }
};

struct shrinking_late : first_key {
  std::int64_t budget(std::int64_t candidates) const { return candidates < 1999 ? candidates : 1997; }
};

/// Three chunks of two keys, and two queries.
constexpr std::int64_t channels = 3;
std::vector<float> const keys{1.0F, -2.0F, 0.5F,  3.0F, 3.0F, 3.0F, 0.0F, 0.0F, -0.25F,
                              8.0F, 8.0F,  -8.0F, 1e4F, -1.F, 2.0F, 5.0F, 6.0F, 7.0F};
std::vector<float> const queries{-1.0F, 0.0F, 3.0F, 0.5F, 1e3F, -2.0F};

template <class S>
auto report_of(S const& selector = {}) {
  return check_chunk_laws<S>(keys, queries, channels, selector);
}

}  // namespace

TEST_CASE("a reader's own ChunkSelector keeps the laws", "[host]") {
  CHECK(report_of<first_key>().text() == "");
}

TEST_CASE("a ChunkSelector that keeps something else than its keys is caught", "[host]") {
  constexpr char const* law = "what is kept depends on the keys alone";
  CHECK(report_of<one_too_many>().mentions(law));
  CHECK(report_of<adding>().mentions(law));
  CHECK(report_of<overwriting>().mentions(law));
}

TEST_CASE("a ChunkSelector with scores that are not finite or change is caught", "[host]") {
  CHECK(report_of<unbounded>().mentions("finite keys and queries have a finite score: chunk 0"));
  int asked = 0;
  counting selector;
  selector.asked = &asked;
  auto const report = report_of(selector);
  CHECK(report.mentions("the same keys and query have the same score"));
  CHECK_FALSE(report.mentions("finite score"));
}

TEST_CASE("a ChunkSelector whose budget is not that of a part of the chunks is caught", "[host]") {
  CHECK(report_of<negative>().mentions("budget(n) is between 0 and n: -5 of 0"));
  CHECK(report_of<greedy>().mentions("budget(n) is between 0 and n: 1002 of 1001"));
  CHECK(report_of<shrinking_late>().mentions("budget(n) never shrinks when n grows: 1997 of 1999"));
  CHECK(report_of<shrinking>().text() == "");  // 1499 of 1499 and of all more: a budget may stay
}
