// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <tessera/merge/average.hpp>
#include <tessera/minicache.hpp>

#include "support/cache_quality.hpp"
#include "support/catch.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// Whether to print the tables of docs/papers/minicache.md, with longer data.
bool makes_tables() {
  return environment_asks_for("TESSERA_PRINT_TABLES");
}

/// Prints a line of the tables, and returns its numbers.
quality const& shown(std::string const& data, std::string const& name, quality const& q) {
  if (makes_tables()) {
    std::printf("%-14s %-28s ratio %5.2f retained %.3f cosine k %.4f v %.4f  error %.3f %.3f mean %.3f\n", data.c_str(),
                name.c_str(), q.ratio, q.retained, q.key_cosine, q.value_cosine, q.error[0], q.error[1], q.mean());
  }
  return q;
}

struct comparison {
  quality slerp;
  quality slerp_retained;
  quality norm_weighted;
  quality directions;
  quality average;
  quality longer;
  quality bits[5];  ///< unmerged layers with codes of 2 to 4 bits

  explicit comparison(quality_data const& data) {
    auto const none = retain_most_different::none();
    auto const paper = retain_most_different::range(0.05F);
    auto const merged = [&](char const* name, auto const& merger, retain_most_different rule) {
      return shown(data.name, name, quality_of(data, 4, 2, rule, merger));
    };
    slerp = merged("slerp 0.6", slerp_merger<float>{}, none);
    slerp_retained = merged("slerp 0.6, range 0.05", slerp_merger<float>{}, paper);
    norm_weighted = merged("slerp, by norms", norm_weighted_slerp_merger<float>{}, none);
    directions = merged("average of directions", average_direction_merger<float>{}, none);
    average = merged("average", average_merger<float>{}, none);
    longer = merged("longer vector", longer_vector_merger<float>{}, none);
    for (int b : {2, 3, 4}) {
      bits[b] =
          shown(data.name, std::to_string(b) + " bits, unmerged", quality_of(data, b, 1, none, slerp_merger<float>{}));
    }
    if (makes_tables()) {
      merged("slerp, least squares", slerp_merger<float, least_squares>{}, none);
      merged("slerp 0.6, fraction 0.02", slerp_merger<float>{}, retain_most_different::fraction(0.02F));
      shown(data.name, "4 bits, unmerged, group 128", quality_of(data, 4, 1, none, slerp_merger<float>{}, 128));
    }
  }
};

/// The cosines in the table of docs/papers/minicache.md, of restored keys and values to the original ones.
struct cosines {
  double bits[5];  ///< unmerged layers with codes of 2 to 4 bits
  double slerp_retained;
  double slerp;
  double directions;
  double average;
  double longer;
};

void check_cosines(comparison const& found, cosines const& expected) {
  auto const is_near = [](quality const& of, double table) {
    CAPTURE(of.key_cosine, of.value_cosine, table);
    CHECK(std::fabs(of.cosine() - table) < 0.006);  // the table is of more tokens
  };
  for (int b : {2, 3, 4}) {
    is_near(found.bits[b], expected.bits[b]);
  }
  is_near(found.slerp_retained, expected.slerp_retained);
  is_near(found.slerp, expected.slerp);
  is_near(found.directions, expected.directions);
  is_near(found.average, expected.average);
  is_near(found.longer, expected.longer);
  CHECK(found.slerp.cosine() < found.slerp_retained.cosine());
}

}  // namespace

TEST_CASE("merging by slerp is better than averages of vectors and hardly than those of directions", "[host][long]") {
  std::pair<double, cosines> const table[] = {{0.65, {{0, 0, .923, .984, .997}, .904, .897, .901, .899, .815}},
                                              {0.85, {{0, 0, .925, .985, .997}, .958, .952, .954, .952, .914}},
                                              {0.95, {{0, 0, .926, .985, .997}, .984, .978, .979, .978, .963}},
                                              {0.99, {{0, 0, .927, .985, .997}, .994, .989, .989, .988, .983}}};
  for (auto const& row : table) {
    double const cosine = row.first;
    comparison const found(with_exact(data_at(cosine, makes_tables() ? 1024 : 512)));
    CAPTURE(cosine);
    CHECK(found.slerp.mean() < 0.92 * found.average.mean());
    CHECK(found.slerp.mean() < found.longer.mean());
    CHECK(found.slerp.mean() < 1.05 * found.directions.mean());
    CHECK(found.directions.mean() < 1.1 * found.slerp.mean());
    CHECK(found.bits[4].mean() < found.slerp.mean());
    // What docs/papers/minicache.md says that merging is worth.
    CHECK((found.slerp_retained.mean() < found.bits[3].mean() || cosine < 0.97));
    CHECK((found.slerp_retained.mean() > found.bits[3].mean() || cosine > 0.9));
    CHECK((found.slerp.mean() < found.bits[2].mean()) == (cosine > 0.8));
    CHECK(found.slerp.ratio > 6.6);
    CHECK(found.slerp_retained.ratio < found.slerp.ratio);
    check_cosines(found, row.second);
  }
}

TEST_CASE("on a real model's layers identities hold, and the bytes are those of the pages", "[host][long]") {
  for (int layer : {14, 15}) {
    comparison const found(with_exact(real_data(layer)));
    CHECK(found.bits[4].key_cosine > 0.99);
    CHECK(found.slerp.ratio == Approx(2 * 256.0 / ((64 * 64 + 4 * 64 + 32 + 128.0 + 2 * 256) / 64)).epsilon(1e-6));
    CHECK(found.bits[2].mean() < found.slerp.mean());  // merging is not worth its bytes here
    check_cosines(found, layer == 14 ? cosines{{0, 0, .938, .987, .997}, .687, .685, .694, .691, .484}
                                     : cosines{{0, 0, .937, .987, .997}, .694, .691, .700, .695, .493});
  }
}
