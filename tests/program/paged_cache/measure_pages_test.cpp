// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/merge/retain_most_different.hpp>
#include <tessera/merge/two_lengths.hpp>
#include <tessera/program/paged_cache/measure_pages.hpp>
#include <tessera/reduce/pair_products.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "program/paged_cache/small_cache.hpp"
#include "support/catch.hpp"

using namespace tessera;

namespace {

constexpr float no_number = std::numeric_limits<float>::quiet_NaN();
constexpr int tokens = 128;  // of the two pages that are sealed

/// A reader's own Merger: a quarter of the first vector and half of the second.
struct quarter_and_half {
  mix_weights mix(pair_products const&) const { return {0.25F, 0.5F}; }
  two_lengths<float> keep(pair_products const& measured) const {
    return {length_of(measured.first), length_of(measured.second)};
  }
};
static_assert(Merger<quarter_and_half>);

/// The small cache, the pages of whose last sequence are measured into rows that were full of garbage.
struct measured_cache : tessera_test::sealing_cache {
  std::vector<merged_row> rows = std::vector<merged_row>(3 * 2 * heads * tokens, {{-7, -7}, {-7, -7}, -7, -7});

  [[nodiscard]] view<merged_row, 5> places() { return {rows.data(), {3, 2, heads, 2, 64}}; }
  template <class Executor>
  void measure(Executor const& exec, bool whole_tokens = false) {
    auto from = source();
    from.status = exec.status();
    measure_pages<quarter_and_half, bfloat16> const program{{}, from, places(), whole_tokens};
    exec.run(program, program.groups());
  }
  merged_row const& row(int token, std::int64_t head, int which) {
    return places()(2, token / 64, head, which, token % 64);
  }

  /// Products of both layers' vectors of some heads, in double.
  struct products {
    double first = 0;
    double second = 0;
    double cross = 0;
    double mixed = 0;
  };
  [[nodiscard]] products products_of(int of, std::int64_t first_head, std::int64_t end_head, int which) {
    products sums;
    for (std::int64_t head = first_head; head < end_head; ++head) {
      for (int channel = 0; channel < channels; ++channel) {
        double const a = double{load(token(of, 0, which, head, channel))};
        double const b = memory.format.layers == 2 ? double{load(token(of, 1, which, head, channel))} : 0.0;
        sums.first += a * a;
        sums.second += b * b;
        sums.cross += a * b;
        sums.mixed += std::pow(0.25 * a + 0.5 * b, 2);
      }
    }
    return sums;
  }
  /// The largest relative error of what was measured.
  double error(bool whole_tokens = false) {
    double worst = 0;
    auto const compare = [&](float found, double expected) {
      worst = std::max(worst, std::fabs(double{found} - expected) / (1 + std::fabs(expected)));
    };
    for (int of = 0; of < tokens; ++of) {
      for (std::int64_t head = 0; head < heads; ++head) {
        for (int const which : {key_part, value_part}) {
          auto const own = products_of(of, head, head + 1, which);
          auto const all = whole_tokens ? products_of(of, 0, heads, which) : own;
          merged_row const& found = row(of, head, which);
          compare(found.weights.first, 0.25);
          compare(found.weights.second, 0.5);
          compare(found.lengths.first, std::sqrt(all.first));
          compare(found.lengths.second, std::sqrt(all.second));
          compare(found.square, own.mixed);
          if (memory.format.layers == 2) {
            compare(found.angle, std::acos(all.cross / std::sqrt(all.first * all.second)));
          }
        }
      }
    }
    return worst;
  }
  /// Whether no other sequence has rows.
  [[nodiscard]] bool leaves_others() const {
    return std::all_of(rows.begin(), rows.begin() + 2 * 2 * heads * tokens,
                       [](merged_row const& row) { return row.angle == -7 && row.square == -7; });
  }
};

}  // namespace

TEST_CASE("pairs of vectors are measured as in double, of heads and of whole tokens", "[host][threads]") {
  for (bool const whole_tokens : {false, true}) {
    measured_cache cache;
    cache.measure(cpu{.threads = 2}, whole_tokens);
    CHECK(cache.error(whole_tokens) < 1e-5);
    CHECK(cache.leaves_others());
  }
}

TEST_CASE("measuring pages keeps the rules for programs", "[host]") {
  for (bool const whole_tokens : {false, true}) {
    measured_cache cache;
    cache.measure(testing::adversary{.seed = 21}, whole_tokens);
    CHECK(cache.error(whole_tokens) < 1e-5);
  }
}

TEST_CASE("the vector of a single layer is measured with zeros", "[host]") {
  measured_cache cache;
  cache.memory.format.layers = 1;
  cache.measure(cpu{.threads = 1});
  CHECK(cache.error() < 1e-5);
  CHECK(cache.row(70, 1, value_part).lengths.second == 0.0F);
}

TEST_CASE("a vector that is not finite has no weight and lengths that are NaN, and no other row is like it", "[host]") {
  measured_cache cache;
  cache.token(5, 1, key_part, 0, 31) = store<bfloat16>(std::numeric_limits<float>::infinity());
  cache.token(120, 0, value_part, 1, 0) = store<bfloat16>(no_number);
  cache.measure(cpu{.threads = 1});
  int odd = 0;
  for (int of = 0; of < tokens; ++of) {
    for (std::int64_t head = 0; head < 2; ++head) {
      for (int const which : {key_part, value_part}) {
        merged_row const& row = cache.row(of, head, which);
        bool const is_odd = std::isnan(row.lengths.first) && std::isnan(row.lengths.second) && std::isnan(row.angle) &&
                            row.weights.first == 0 && row.weights.second == 0 && row.square == 0;
        bool const expected =
            (of == 5 && head == 0 && which == key_part) || (of == 120 && head == 1 && which == value_part);
        CHECK((is_odd || !std::isnan(row.angle)));
        CHECK(is_odd == expected);
        odd += is_odd ? 1 : 0;
      }
    }
  }
  CHECK(odd == 2);
}

TEST_CASE("vectors whose squares no float holds are measured, and are too long to be merged", "[host]") {
  measured_cache cache;
  for (int channel = 0; channel < 32; ++channel) {
    cache.token(9, 0, key_part, 1, channel) = store<bfloat16>(channel % 2 == 0 ? 0x1p100F : -0x1p100F);
    cache.token(110, 1, key_part, 0, channel) = store<bfloat16>(0x1p14F);  // a length of 2^16.5 is more than 2^15
  }
  cache.measure(cpu{.threads = 1});
  merged_row const& far = cache.row(9, 1, key_part);
  CHECK(far.lengths.first == Approx(std::sqrt(32.0) * 0x1p100));
  CHECK(std::isnan(far.angle));
  CHECK(far.square == std::numeric_limits<float>::max());
  CHECK(std::isnan(cache.row(110, 0, key_part).angle));
  CHECK(cache.row(110, 0, key_part).lengths.second == Approx(std::sqrt(32.0) * 0x1p14));
}

TEST_CASE("a sequence that contradicts its cache is reported and has no rows", "[host]") {
  cpu const exec{.threads = 1};
  measured_cache cache;
  cache.slots[2] = 3;
  cache.measure(exec);
  CHECK_THROWS_AS(exec.wait(), value_error);
  CHECK(cache.leaves_others());
  CHECK(cache.row(0, 0, key_part).angle == -7);
}

namespace {

/// Thresholds of the small cache after fitting them to angles, some of which are NaN, some 0.
struct fitted_cache : tessera_test::sealing_cache {
  std::vector<float> angles = std::vector<float>(3 * 2 * heads * tokens);

  fitted_cache() {
    for (std::size_t i = 0; i < angles.size(); ++i) {
      angles[i] = i % 11 == 3 ? no_number : i % 7 == 2 ? 0.0F : 0.2F + 2.5F * testing::uniform{0, 1}.value(6, i);
    }
    std::fill(thresholds.begin(), thresholds.end(), no_number);
  }
  template <class Executor>
  void fit(Executor const& exec, retain_most_different rule) {
    fit_thresholds<bfloat16, float> const program{rule, source(), {angles.data(), {3, 2, heads, 2, 64}}};
    exec.run(program, program.groups());
  }
  /// The last sequence's angles of a head; those that count are above 0.
  [[nodiscard]] std::vector<float> counted(std::int64_t head, int which) const {
    view<float const, 5> const all(angles.data(), {3, 2, heads, 2, 64});
    std::vector<float> found;
    for (int of = 0; of < tokens; ++of) {
      float const angle = all(2, of / 64, head, which, of % 64);
      if (angle > 0) {
        found.push_back(angle);
      }
    }
    return found;
  }
  /// That of the last sequence, which is in slot 0.
  [[nodiscard]] float threshold(std::int64_t head, int which) const {
    return thresholds[static_cast<std::size_t>(2 * head + which)];
  }
};

template <class Executor>
void check_fits(Executor const& exec) {
  fitted_cache of_range;
  of_range.fit(exec, retain_most_different::range(0.25F));
  fitted_cache of_part;
  of_part.fit(exec, retain_most_different::fraction(0.1F));
  for (std::int64_t head = 0; head < 2; ++head) {
    for (int const which : {key_part, value_part}) {
      auto const angles = of_range.counted(head, which);
      auto const [least, largest] = std::minmax_element(angles.begin(), angles.end());
      CHECK(of_range.threshold(head, which) == Approx(*largest - 0.25F * (*largest - *least)));
      auto const most = static_cast<std::ptrdiff_t>(0.1F * static_cast<float>(angles.size()));
      auto const reach = [&](float threshold) {
        return std::count_if(angles.begin(), angles.end(), [&](float angle) { return angle >= threshold; });
      };
      float const found = of_part.threshold(head, which);
      CHECK(reach(found) <= most);
      CHECK(reach(std::nextafter(found, 0.0F)) > most);
    }
  }
}

}  // namespace

TEST_CASE("thresholds follow from the range of angles, or are reached by a part of them", "[host][threads]") {
  check_fits(cpu{.threads = 2});
}

TEST_CASE("fitting thresholds keeps the rules for programs", "[host]") {
  check_fits(testing::adversary{.seed = 22});
}

TEST_CASE("a threshold is fitted once, where angles tell tokens apart, and where pages are sealed", "[host]") {
  cpu const exec{.threads = 1};
  fitted_cache cache;
  cache.thresholds[1] = 1.75F;  // the values of head 0 have one
  view<float, 5> const all(cache.angles.data(), {3, 2, 2, 2, 64});
  for (int of = 0; of < tokens; ++of) {  // keys of head 1 have angles that are equal but for rounding
    all(2, of / 64, 1, key_part, of % 64) = of == 17 ? 0.5F + 0x1p-7F : 0.5F;
  }
  cache.fit(exec, retain_most_different::range(0.05F));
  CHECK(cache.threshold(0, key_part) > 0);
  CHECK(cache.threshold(0, value_part) == 1.75F);
  CHECK(std::isnan(cache.threshold(1, key_part)));
  CHECK(cache.threshold(1, value_part) > 0);
  CHECK(std::all_of(cache.thresholds.begin() + 4, cache.thresholds.end(), [](float of) { return std::isnan(of); }));
}

TEST_CASE("a rule that needs no angles gives its own threshold", "[host]") {
  fitted_cache cache;
  std::fill(cache.angles.begin(), cache.angles.end(), no_number);
  cache.fit(cpu{.threads = 1}, retain_most_different::angle(0.75F));
  CHECK(cache.threshold(0, key_part) == 0.75F);
  CHECK(cache.threshold(1, value_part) == 0.75F);
  fitted_cache none;
  none.fit(cpu{.threads = 1}, retain_most_different::none());
  CHECK(none.threshold(1, key_part) == no_threshold);
}
