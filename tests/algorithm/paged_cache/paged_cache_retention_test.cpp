// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <tessera/algorithm/paged_cache/paged_cache.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/reference.hpp>

#include "support/cache_problem.hpp"
#include "support/catch.hpp"
#include "support/vectors.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// The angle of keys or of values from which on tokens of a head are retained.
double threshold_of(retain_most_different const& rule, std::vector<double> angles) {
  std::sort(angles.begin(), angles.end());
  switch (rule.rule) {
    case retention_rule::angle:
      return 1.5;
    case retention_rule::range:
      return angles.back() - 0.3 * (angles.back() - angles.front());
    default:
      return angles[angles.size() - as_size(rule.most(std::ssize(angles)))];
  }
}

/// The number of elements of retained and of unsealed tokens that are not restored bit for bit.
template <class T>
int count_changed(cache_problem<T> const& cache, layer_pair<T> const& pair, std::int64_t tokens, std::int64_t sealed,
                  std::int64_t channels) {
  int wrong = 0;
  for (int layer = 0; layer < 2; ++layer) {
    for (int which = 0; which < 2; ++which) {
      auto const restored = cache.template restored<T>(layer, which, tokens);
      for (std::size_t i = 0; i < restored.size(); ++i) {
        std::int64_t const token = static_cast<std::int64_t>(i) / channels % tokens;
        std::int64_t const head = static_cast<std::int64_t>(i) / channels / tokens;
        bool const is_exact =
            token >= sealed || cache.page(head / 2, token / 64, head % 2).is_retained(static_cast<int>(token % 64));
        wrong += is_exact && restored[i] != pair.part[layer][which][i];
      }
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("the tokens with the largest angles are retained, bit for bit", "[host][slow]") {
  constexpr std::int64_t channels = 64;
  constexpr std::int64_t tokens = 640;
  auto const pair = make_layer_pair<bfloat16>(2, 2, tokens, channels);
  std::vector<float> originals[2][2];
  for (int layer = 0; layer < 2; ++layer) {
    for (int which = 0; which < 2; ++which) {
      originals[layer][which] = as_floats(pair.part[layer][which]);
    }
  }
  for (auto const rule : {retain_most_different::range(0.3F), retain_most_different::fraction(0.03F),
                          retain_most_different::angle(1.5F)}) {
    cache_problem<bfloat16> cache({channels, 4, 4, 1, 2}, 2, 2, tokens, 128, 40);
    cache.append(cpu{.threads = 1}, pair.inputs(), rule);
    std::int64_t const sealed = tokens - 128;
    std::int64_t retained = 0;
    for (std::int64_t slot = 0; slot < 2; ++slot) {
      for (std::int64_t head = 0; head < 2; ++head) {
        double threshold[2];
        std::vector<double> angles[2];
        for (int which = 0; which < 2; ++which) {
          for (std::int64_t token = 0; token < sealed; ++token) {
            std::int64_t const row = (slot * 2 + head) * tokens + token;
            angles[which].push_back(testing::reference_angle(row_of(originals[0][which], row, channels),
                                                             row_of(originals[1][which], row, channels)));
          }
          threshold[which] = threshold_of(rule, angles[which]);
        }
        std::uint32_t expected_rows = 0;
        for (std::int64_t token = 0; token < sealed; ++token) {
          auto const page = cache.page(slot, token / 64, head);
          bool const stays =
              angles[0][as_size(token)] > threshold[0] - 1e-6 || angles[1][as_size(token)] > threshold[1] - 1e-6;
          CHECK(page.is_retained(static_cast<int>(token % 64)) == stays);
          if (token % 64 == 0) {
            CHECK(page.header().rows == static_cast<std::uint32_t>(popcount(page.header().retained)));
            CHECK((page.header().rows == 0 || page.header().first_row == expected_rows));
          }
          expected_rows += stays ? 1 : 0;
        }
        CHECK(cache.row_counts[as_size(slot * 2 + head)] == expected_rows);
        CHECK(cache.refused[as_size(slot * 2 + head)] == 0);
        retained += expected_rows;
      }
    }
    CHECK(retained > 20);
    CHECK(count_changed(cache, pair, tokens, sealed, channels) == 0);
  }
}

TEST_CASE("where rows run out the rest is merged, and counted", "[host]") {
  auto const pair = make_layer_pair<bfloat16>(1, 1, 576, 64);
  cache_problem<bfloat16> cache({64, 4, 4, 1, 2}, 1, 1, 576, 64, 5);
  cache.append(cpu{.threads = 1}, pair.inputs(), retain_most_different::angle(1.5F));
  cache_problem<bfloat16> large({64, 4, 4, 1, 2}, 1, 1, 576, 64, 64);
  large.append(cpu{.threads = 1}, pair.inputs(), retain_most_different::angle(1.5F));
  CHECK(cache.row_counts[0] == 5);
  CHECK(cache.refused[0] + 5 == large.row_counts[0]);
  CHECK(cache.refused[0] > 0);
  for (float value : cache.restored<float>(0, 0, 576)) {
    CHECK(std::isfinite(value));
  }
}

TEST_CASE("a threshold that the first pages set holds for later ones", "[host]") {
  auto const pair = make_layer_pair<float16>(1, 1, 512, 64);
  cpu const exec{.threads = 1};
  cache_problem<float16> whole({64, 4, 4, 1, 2}, 1, 1, 512, 64);
  cache_problem<float16> pieced({64, 4, 4, 1, 2}, 1, 1, 512, 64);
  whole.append(exec, pair.inputs(0, 320), retain_most_different::range(0.2F));
  auto const known = whole.thresholds;
  CHECK(known[0] > 1.0F);
  whole.append(exec, pair.inputs(320, 192), retain_most_different::range(0.2F));
  CHECK(whole.thresholds == known);
  pieced.thresholds = known;
  pieced.append(exec, pair.inputs(), retain_most_different::range(0.2F));
  CHECK(whole.restored<float>(0, 0, 512) == pieced.restored<float>(0, 0, 512));
  CHECK(whole.page(0, 5, 0).header().key_threshold == known[0]);
}

TEST_CASE("how many tokens come first decides where a threshold lies, and nothing else does", "[host]") {
  auto const pair = make_layer_pair<bfloat16>(1, 1, 512, 64);
  cpu const exec{.threads = 1};
  for (auto const rule : {retain_most_different::range(0.2F), retain_most_different::fraction(0.1F)}) {
    auto const filled = [&](std::int64_t first, std::int64_t step) {
      auto made = std::make_unique<cache_problem<bfloat16>>(cache_page_format{64, 4, 4, 1, 2}, 1, 1, 512, 64);
      made->append(exec, pair.inputs(0, first), rule);
      for (std::int64_t token = first; token < 512; token += step) {
        made->append(exec, pair.inputs(token, std::min(step, 512 - token)), rule);
      }
      return made;
    };
    auto const is_same = [](cache_problem<bfloat16> const& a, cache_problem<bfloat16> const& b) {
      return a.thresholds == b.thresholds && a.row_counts == b.row_counts &&
             std::memcmp(a.memory.pages, b.memory.pages, as_size(a.memory.page_bytes(8))) == 0;
    };
    // Three pages are sealed first, and the others at once, after 100 tokens, or one by one.
    auto const three = filled(256, 256);
    CHECK(is_same(*filled(256, 100), *three));
    CHECK(is_same(*filled(256, 1), *three));
    CHECK(is_same(*filled(300, 212), *three));
    // One by one from the beginning: the first page alone decides.
    auto const single = filled(128, 384);
    CHECK(is_same(*filled(1, 1), *single));
    CHECK(is_same(*filled(100, 28), *single));
    CHECK_FALSE(single->thresholds == three->thresholds);
  }
}

TEST_CASE("degenerate vectors leave no NaN behind, and those that are not finite are retained", "[host]") {
  constexpr std::int64_t channels = 64;
  auto pair = make_layer_pair<bfloat16>(1, 1, 128, channels, 0.3);
  auto const set = [&](int layer, std::int64_t token, auto value) {
    for (int which = 0; which < 2; ++which) {
      for (std::int64_t c = 0; c < channels; ++c) {
        auto& element = pair.part[layer][which][as_size(token * channels + c)];
        element = store<bfloat16>(value(c, load(element)));
      }
    }
  };
  auto const other = [&](std::int64_t token) {
    return [&, token](std::int64_t c, float) { return load(pair.part[0][0][as_size(token * channels + c)]); };
  };
  auto const zero = [](std::int64_t, float) { return 0.0F; };
  set(0, 1, zero);                                                        // the vector of one layer is zero
  set(1, 2, zero);                                                        // that of the other layer is zero
  set(0, 3, zero), set(1, 3, zero);                                       // both are zero
  set(1, 4, other(4));                                                    // both are equal
  set(1, 5, [&](std::int64_t c, float) { return -3 * other(5)(c, 0); });  // they are opposite
  set(0, 6, [](std::int64_t, float) { return 0.5F; });                    // all channels are alike
  set(1, 6, [](std::int64_t, float) { return 0.25F; });
  set(0, 7, [](std::int64_t, float x) { return x * 1e30F; });  // far too long
  set(1, 8, [](std::int64_t c, float x) { return c == 5 ? INFINITY : x; });
  set(0, 9, [](std::int64_t c, float x) { return c == 9 ? NAN : x; });
  set(0, 10, [](std::int64_t c, float) { return c == 3 ? 1e-30F : 0.0F; });  // very short
  set(1, 11, [](std::int64_t c, float) { return c == 3 ? 2.0F : 0.0F; });    // one channel alone is not zero
  for (std::int64_t capacity : {16, 0}) {
    cache_problem<bfloat16> cache({channels, 4, 4, 1, 2}, 1, 1, 128, 64, capacity);
    cache.append(cpu{.threads = 1}, pair.inputs(), retain_most_different::angle(3.0F));
    auto const mask = cache.page(0, 0, 0).header().retained;
    std::uint64_t const forced = 1U << 5 | 1U << 7 | 1U << 8 | 1U << 9;
    CHECK(mask == (capacity > 0 ? forced : 0));
    for (int layer = 0; layer < 2; ++layer) {
      for (int which = 0; which < 2; ++which) {
        auto const restored = cache.restored<float>(layer, which, 128);
        for (std::int64_t token = 0; token < 64; ++token) {
          auto const found = row_of(restored, token, channels);
          auto const x = row_of(as_floats(pair.part[layer][which]), token, channels);
          bool const is_poisoned = token == 8 || token == 9;
          CAPTURE(capacity, layer, which, token);
          if (is_poisoned && capacity == 0) {
            CHECK(std::isnan(found[0]));  // the NaN is visible
          } else if ((mask >> token & 1U) != 0) {
            CHECK(farthest(found, x) == 0);
          } else if (token != 7) {
            CHECK(std::fabs(norm_of(found) - norm_of(x)) <= 0x1p-10 * norm_of(x) + 1e-6);
          }
          CHECK((is_poisoned || std::isfinite(found[0])));
        }
        for (std::int64_t token : {3, 10}) {
          CHECK(norm_of(row_of(restored, 3, channels)) == 0);
          CHECK((token == 3 || layer == 1 || norm_of(row_of(restored, token, channels)) == 0));
        }
      }
    }
  }
}
