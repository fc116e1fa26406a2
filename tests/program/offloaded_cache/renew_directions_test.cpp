// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/offloaded_cache/renew_directions.hpp>
#include <tessera/project/low_rank.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "support/offload_problem.hpp"
#include "support/vectors.hpp"

using namespace tessera;
using tessera_test::dense_attention;
using tessera_test::embedding;
using tessera_test::host_cache;
using tessera_test::make_sequence;
using tessera_test::offload_heads;
using tessera_test::offload_sequence;
using tessera_test::relative_error;

namespace {

constexpr offload_heads heads{4, 2, 16};
constexpr std::int64_t width = 32;

template <int Rank>
using method_of = offloaded_cache<low_rank<Rank>, landmark_selector<8>, keep_outliers<0>>;

/// Options with which all chunks are read and none is exact.
offload_options all_by_coefficients(bool renews = true) {
  offload_options options;
  options.ring = 16;
  options.strays = 0;
  options.renewal_until = renews ? options.renewal_until : 0.0F;
  return options;
}

std::vector<float> keys_of(offload_sequence<float> const& s, std::int64_t count) {
  std::vector<float> rows;
  for (std::int64_t token = 0; token < count; ++token) {
    for (std::int64_t i = 0; i < width; ++i) {
      rows.push_back(s.keys[static_cast<std::size_t>((i / 16 * s.tokens + token) * 16 + i % 16)]);
    }
  }
  return rows;
}

/// The part of rows that orthonormal directions leave, in double. at(channel, k): an element of direction k.
template <class At>
double left_of(std::vector<float> const& rows, std::int64_t rank, At const& at) {
  double held = 0;
  double whole = 0;
  for (std::size_t first = 0; first < rows.size(); first += width) {
    for (std::int64_t k = 0; k < rank; ++k) {
      double along = 0;
      for (std::int64_t i = 0; i < width; ++i) {
        double const key = double{rows[first + static_cast<std::size_t>(i)]};
        along += key * double{at(i, k)};
        whole += k == 0 ? key * key : 0;
      }
      held += along * along;
    }
  }
  return 1 - held / whole;
}

double most_apart(matrix_view<float const> directions) {
  double most = 0;
  for (std::int64_t a = 0; a < directions.extent(1); ++a) {
    for (std::int64_t b = 0; b <= a; ++b) {
      double product = 0;
      for (std::int64_t i = 0; i < width; ++i) {
        product += double{directions(i, a)} * double{directions(i, b)};
      }
      most = std::max(most, std::abs(product - (a == b ? 1.0 : 0.0)));
    }
  }
  return most;
}

/// The largest error of the steps after a prompt.
template <class Cache>
double worst_step(Cache& cache, offload_sequence<float> const& s, std::int64_t prompt, std::int64_t end) {
  tessera_test::dense_operands<float> const operands(heads, s, end, embedding());
  cpu const exec{.threads = 1};
  double worst = 0;
  cache.prefill(exec, 0, s, prompt);
  for (std::int64_t position = prompt; position < end; ++position) {
    auto const found = cache.decode(exec, {&s}, {position});
    worst = std::max(worst, relative_error(found, dense_attention(heads, s, operands, position, embedding())));
  }
  return worst;
}

}  // namespace

TEST_CASE("directions are renewed before a chunk goes that they were not fitted to, until they had keys enough",
          "[host]") {
  auto const n = method_of<16>::plan<float>(cpu{}, {4, 2, 16, {1000}}).extents;  // a ring of 64
  renewal_rule const rule{1.25F, 8.0F};
  auto const is_due = [&](std::int32_t tokens, std::int32_t chunks, std::int32_t fitted) {
    cached_sequence known{0, 118, tokens, chunks, 1.0F, 0.0F, 0, 0.0F, fitted};
    return rule.is_due(n, known);
  };
  CHECK(is_due(63, 0, 0));          // the next token fills the ring
  CHECK_FALSE(is_due(62, 0, 0));    // not yet
  CHECK(is_due(63, 0, 7));          // directions were fitted to 7 of its 8 tokens
  CHECK_FALSE(is_due(63, 0, 8));    // directions were fitted to all of its tokens
  CHECK(is_due(119, 7, 63));        // 1.9 times the tokens of the last fit
  CHECK(is_due(143, 10, 85));       // 1.7
  CHECK(is_due(135, 9, 79));        // 1.7
  CHECK_FALSE(is_due(135, 9, 80));  // directions were fitted to its tokens, 72 to 79
  CHECK(is_due(159, 12, 103));
  CHECK_FALSE(is_due(303, 30, 247));  // 247 is more than 8 for each of 16
  CHECK(is_due(303, 30, 127));
  CHECK_FALSE(is_due(303, 30, 128));
  CHECK_FALSE(is_due(1007, 118, 100));  // there is no room for another chunk
  auto const slow = renewal_rule{3.0F, 8.0F};
  CHECK_FALSE(slow.is_due(n, {0, 118, 119, 7, 1.0F, 0.0F, 0, 0.0F, 40}));
  CHECK(slow.is_due(n, {0, 118, 119, 7, 1.0F, 0.0F, 0, 0.0F, 39}));
  CHECK_FALSE((renewal_rule{1.25F, 0.0F}.can_be(n)));
  CHECK_FALSE(rule.can_be(method_of<32>::plan<float>(cpu{}, {4, 2, 16, {1000}}).extents));  // all directions are kept
}

TEST_CASE("steps lose nothing as long as there are no more tokens than directions", "[host]") {
  auto const s = make_sequence<float>(heads, 100, 3);
  for (std::int64_t const prompt : {0, 5, 15}) {
    CAPTURE(prompt);
    host_cache<method_of<24>, float> with(heads, {100}, embedding(), all_by_coefficients());
    host_cache<method_of<24>, float> without(heads, {100}, embedding(), all_by_coefficients(false));
    CHECK(worst_step(with, s, prompt, 30) < 1e-4);
    CHECK(worst_step(without, s, prompt, 30) > 0.02);
    CHECK(with.memory().sequences[0].fitted == 23);  // 8 archived tokens and 15 in the ring
    CHECK(without.memory().sequences[0].fitted == prompt);
  }
}

TEST_CASE("after a short prompt and many steps directions hold nearly what the best ones hold", "[host][long]") {
  auto const s = make_sequence<float>(heads, 700, 4);
  auto const rows = keys_of(s, 700);
  low_rank_projector<16> const reference;
  auto const best = reference.fit(rows.data(), 700, static_cast<int>(width));
  double const least = left_of(rows, 16, [&](std::int64_t channel, std::int64_t k) {
    return best.directions[static_cast<std::size_t>(k * width + channel)];
  });
  host_cache<method_of<16>, float> whole(heads, {700}, embedding(), all_by_coefficients());
  whole.prefill(cpu{}, 0, s, 699);
  double const whole_error =
      relative_error(whole.decode(cpu{}, {&s}, {699}), dense_attention(heads, s, 699, embedding()));
  cpu const exec{.threads = 1};
  for (std::int64_t const prompt : {0, 8, 40}) {
    CAPTURE(prompt);
    host_cache<method_of<16>, float> cache(heads, {700}, embedding(), all_by_coefficients());
    host_cache<method_of<16>, float> before(heads, {700}, embedding(), all_by_coefficients(false));
    cache.prefill(exec, 0, s, prompt);
    before.prefill(exec, 0, s, prompt);
    for (std::int64_t position = prompt; position < 699; ++position) {
      cache.decode(exec, {&s}, {position});
      before.decode(exec, {&s}, {position});
    }
    matrix_view<float const> const found = cache.memory().directions[0];
    matrix_view<float const> const usual = before.memory().directions[0];
    CHECK(cache.memory().sequences[0].fitted >= 16 * 8);
    CHECK(cache.memory().sequences[0].fitted < 16 * 8 * 2);
    CHECK(most_apart(found) < 1e-5);
    CHECK(left_of(rows, 16, found) < 1.35 * least);
    CHECK(left_of(rows, 16, usual) > 2.0 * least);
    // The coefficients of the first chunks were turned with the directions: attention is nearly as good as if all
    // tokens had been a prompt.
    auto const expected = dense_attention(heads, s, 699, embedding());
    double const error = relative_error(cache.decode(cpu{}, {&s}, {699}), expected);
    double const usual_error = relative_error(before.decode(cpu{}, {&s}, {699}), expected);
    CAPTURE(error, usual_error, whole_error);
    CHECK(error < 1.3 * whole_error);
    CHECK(usual_error > 1.3 * whole_error);
  }
}

TEST_CASE("renewed directions give the same bits whatever lies in slots, beside other sequences, by all executors",
          "[host][threads][slow]") {
  auto const s = make_sequence<bfloat16>(heads, 260, 5);
  auto const other = make_sequence<bfloat16>(heads, 260, 6);
  auto options = all_by_coefficients();
  auto const steps_of = [&](auto const& exec, offload_options const& chosen, bool is_beside) {
    host_cache<method_of<16>, bfloat16> cache(heads, {260, 260}, embedding(), chosen, {.chunks = 6});
    cache.prefill(cpu{}, 0, s, 20);
    cache.prefill(cpu{}, 1, other, 33);
    std::vector<float> results;
    for (std::int64_t k = 0; k < 200; ++k) {
      auto const found = is_beside ? cache.decode(exec, {&other, &s}, {33 + k, 20 + k}, {1, 0})
                                   : cache.decode(exec, {&s}, {20 + k}, {0});
      results.insert(results.end(), found.end() - 64, found.end());
    }
    CHECK(cache.memory().sequences[0].fitted >= 128);
    return results;
  };
  auto const expected = steps_of(cpu{.threads = 1}, options, false);
  CHECK((steps_of(cpu{.threads = 2}, options, true) == expected));
  options.keeps_slots = false;
  CHECK((steps_of(cpu{.threads = 2}, options, false) == expected));
  options.keeps_slots = true;
  options.slots = 11;
  CHECK((steps_of(cpu{.threads = 2}, options, false) == expected));
}

TEST_CASE("a renewal of directions keeps the rules for programs", "[host][slow]") {
  auto const s = make_sequence<float>(heads, 60, 7);
  auto const generate = [&](auto const& exec) {
    host_cache<method_of<16>, float> cache(heads, {60}, embedding(), all_by_coefficients(), {.chunks = 2});
    cache.prefill(cpu{}, 0, s, 14);
    std::vector<float> results;
    for (std::int64_t position = 14; position < 34; ++position) {
      auto const found = cache.decode(exec, {&s}, {position});
      results.insert(results.end(), found.begin(), found.end());
    }
    CHECK(cache.memory().sequences[0].fitted == 31);
    return results;
  };
  CHECK((generate(cpu{.threads = 1}) == generate(testing::adversary{.seed = 3})));
}

TEST_CASE("keys that are equal, zeros or not numbers leave directions as good as they were", "[host]") {
  for (float const value : {0.0F, 1.5F, NAN}) {
    CAPTURE(value);
    auto s = make_sequence<float>(heads, 120, 8);
    std::fill(s.keys.begin(), s.keys.end(), value);
    host_cache<method_of<16>, float> cache(heads, {120}, embedding(), all_by_coefficients());
    cpu const exec{.threads = 1};
    cache.prefill(exec, 0, s, 4);
    std::vector<float> found;
    for (std::int64_t position = 4; position < 100; ++position) {
      found = cache.decode(exec, {&s}, {position});
    }
    CHECK(cache.memory().sequences[0].fitted > 60);
    if (std::isnan(value)) {
      CHECK(std::all_of(found.begin(), found.end(), [](float x) { return std::isnan(x); }));
    } else {
      CHECK(most_apart(cache.memory().directions[0]) < 1e-4);
      CHECK(relative_error(found, dense_attention(heads, s, 99, embedding())) < 1e-4);
    }
  }
}

TEST_CASE("when directions are renewed is refused where it means nothing", "[host]") {
  auto const complaint = [](float growth, float until) {
    offload_options options;
    options.renewal_growth = growth;
    options.renewal_until = until;
    method_of<16>::plan<float>(cpu{}, {4, 2, 16, {1000}}, options);
  };
  CHECK_THROWS_WITH(complaint(0.9F, 8.0F), tessera_test::contains("renewed at 0.9"));
  CHECK_THROWS_WITH(complaint(NAN, 8.0F), tessera_test::contains("renewed at nan times"));
  CHECK_THROWS_WITH(complaint(2.0F, -1.0F), tessera_test::contains("renewed up to -1.0"));
  CHECK_THROWS_WITH(complaint(2.0F, NAN), tessera_test::contains("renewed up to nan tokens"));
  CHECK_NOTHROW(complaint(INFINITY, INFINITY));
}
