// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/select/landmark.hpp>
#include <tessera/testing/laws/selector.hpp>

#include "select/chunk_samples.hpp"
#include "support/catch.hpp"

using tessera::counted_sum;
using tessera::landmark_selector;

TEST_CASE("the landmark selector keeps the laws", "[host]") {
  auto const same = [](counted_sum<float> const& a, counted_sum<float> const& b) {
    return a.count == b.count && tessera::testing::is_close(a.sum, b.sum, 1e-6);
  };
  std::vector<float> const keys{0.3F, -1.7F, 2.2F, 0.0F, 5.0F, -0.1F, 0.2F, 0.9F};
  for (std::int64_t chunks : {0, 1, 256, 5000, -3}) {
    auto const report = tessera::testing::check_laws<landmark_selector<8>>(keys, {-2.0F, 0.0F, 0.5F}, 1e-5, same,
                                                                           landmark_selector<8>{chunks});
    CHECK(report.text().empty());
  }
}

TEST_CASE("a chunk of equal keys scores as the key does", "[host]") {
  landmark_selector<4> const selector;
  auto summary = selector.summary().identity();
  for (int i = 0; i < 4; ++i) {
    selector.summary().push(summary, 1.5F);
  }
  CHECK(selector.score(-2.0F, selector.landmark(summary)) == -3.0F);
}

TEST_CASE("the budget is the number of chunks, or all that there are", "[host]") {
  landmark_selector<8> const selector{16};
  CHECK(selector.budget(100) == 16);
  CHECK(selector.budget(7) == 7);
}

TEST_CASE("landmarks keep the laws of a ChunkSelector, with either agreement of queries", "[host]") {
  CHECK(tessera_test::broken_chunk_laws<landmark_selector<8>>().empty());
  CHECK(tessera_test::broken_chunk_laws<landmark_selector<4, tessera::group_mean>>().empty());
}

TEST_CASE("a landmark scores as the mean key", "[host]") {
  auto const keys = tessera_test::normal_rows(8, 1);
  auto const query = tessera_test::normal_rows(1, 2);
  double mean = 0;
  for (std::int64_t key = 0; key < 8; ++key) {
    mean += tessera_test::product(keys.data() + key * tessera_test::selector_channels, query.data()) / 8;
  }
  CHECK(tessera_test::score_of(landmark_selector<8>{}, keys, query) == Approx(mean).margin(0.02));
}
