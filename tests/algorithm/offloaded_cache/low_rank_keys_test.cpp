// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/algorithm/offloaded_cache/low_rank_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/concepts/projector.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/project/low_rank.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>

#include "support/catch.hpp"
#include "support/offload_problem.hpp"
#include "support/step_errors.hpp"
#include "support/vectors.hpp"

using namespace tessera;
using tessera_test::contains;
using tessera_test::embedding;
using tessera_test::error_of_steps;
using tessera_test::host_cache;
using tessera_test::make_sequence;
using tessera_test::offload_sequence;
using tessera_test::relative_error;

namespace {

constexpr auto heads = tessera_test::heads_of_steps;
constexpr int width = 32;

/// A reader's own Projector: it keeps every channel from `first` on, `Rank` of them, times `gain`, and counts the rows
/// that it is fitted to.
template <int Rank>
struct some_channels {
  struct basis_type {
    int first;
    int width;
    std::int64_t rows;
  };
  static constexpr int rank = Rank;

  int first = 0;
  float gain = 1.0F;
  std::shared_ptr<std::vector<std::int64_t>> fitted = std::make_shared<std::vector<std::int64_t>>();

  basis_type fit(float const* rows, std::int64_t count, int columns) const {
    REQUIRE(rows != nullptr);
    fitted->push_back(count);
    return {first, columns, count};
  }
  void project(basis_type const& basis, float const* row, float* coefficients) const {
    for (int k = 0; k < Rank; ++k) {
      coefficients[k] = gain * row[(basis.first + k) % basis.width];
    }
  }
  void reconstruct(basis_type const& basis, float const* coefficients, float* row) const {
    std::fill(row, row + basis.width, 0.0F);
    for (int k = 0; k < Rank; ++k) {
      row[(basis.first + k) % basis.width] = coefficients[k] / gain;
    }
  }
};
static_assert(Projector<some_channels<8>>);

/// low_rank_projector under another name, which the cache cannot replace by key_factorization.
template <int Rank>
struct renamed_projector : low_rank_projector<Rank> {};

/// Replaces keys of a row by what a Projector makes of them.
template <class P>
std::vector<float> rebuilt_keys(P const& projector, offload_sequence<float> const& s, std::int64_t prompt) {
  std::vector<float> rows(static_cast<std::size_t>(s.tokens * width));
  auto const at = [&](std::int64_t token, std::int64_t i) {
    return static_cast<std::size_t>((i / 16 * s.tokens + token) * 16 + i % 16);
  };
  for (std::int64_t token = 0; token < s.tokens; ++token) {
    for (std::int64_t i = 0; i < width; ++i) {
      rows[static_cast<std::size_t>(token * width + i)] = s.keys[at(token, i)];
    }
  }
  auto const basis = projector.fit(rows.data(), prompt, width);
  std::vector<float> made(s.keys.size());
  for (std::int64_t token = 0; token < s.tokens; ++token) {
    std::vector<float> coefficients(P::rank);
    std::vector<float> row(width);
    projector.project(basis, rows.data() + token * width, coefficients.data());
    projector.reconstruct(basis, coefficients.data(), row.data());
    for (std::int64_t i = 0; i < width; ++i) {
      made[at(token, i)] = row[static_cast<std::size_t>(i)];
    }
  }
  return made;
}

template <class Keys>
using method_with = offloaded_cache<Keys, landmark_selector<8>, keep_outliers<3>>;

}  // namespace

TEST_CASE("keys are those that the cache's own Projector reconstructs", "[host][threads]") {
  auto const s = make_sequence<float>(heads, 470, 7, 0.8);
  some_channels<24> const projector{.first = 5, .gain = 2.0F};
  using method = method_with<low_rank_keys<some_channels<24>>>;
  host_cache<method, float> cache(heads, {500}, embedding(), {.strays = 0}, {.chunks = 9}, {.projector = projector});
  cache.prefill(cpu{.threads = 2}, 0, s, 395);
  CHECK(*projector.fitted == std::vector<std::int64_t>{395});
  auto const rebuilt = rebuilt_keys(projector, s, 395);
  CHECK(error_of_steps(cache, s, 395, rebuilt) < 2e-6);
  CHECK(relative_error(s.keys, std::vector<double>(rebuilt.begin(), rebuilt.end())) > 0.1);
  double lost = 0;
  double whole = 0;
  for (std::int64_t head = 0; head < 2; ++head) {
    for (std::int64_t i = 0; i < 336 * 16; ++i) {  // the prompt's archived tokens
      auto const at = static_cast<std::size_t>(head * s.tokens * 16 + i);
      lost += std::pow(double{s.keys[at]} - double{rebuilt[at]}, 2);
      whole += std::pow(double{s.keys[at]}, 2);
    }
  }
  cached_sequence const known = cache.memory().sequences[0];
  CHECK(double{known.residual} == Approx(lost / whole).epsilon(1e-5));
  CHECK(known.energy == Approx(whole / 336).epsilon(1e-5));
}

TEST_CASE("a Projector's state travels to the cache, and its losses make strays", "[host]") {
  auto s = make_sequence<float>(heads, 470, 8, 0.8);
  using method = method_with<low_rank_keys<some_channels<24>>>;
  std::vector<std::vector<float>> results;
  for (int const first : {0, 8, 0}) {
    host_cache<method, float> cache(heads, {500}, embedding(), {}, {.chunks = 9}, {.projector = {.first = first}});
    cache.prefill(cpu{}, 0, s, 395);
    results.push_back(cache.decode(cpu{}, {&s}, {395}));
  }
  CHECK(results[0] != results[1]);
  CHECK(results[0] == results[2]);

  for (std::int64_t head = 0; head < 2; ++head) {  // a chunk of which the channels kept have nothing
    for (std::int64_t token = 400; token < 408; ++token) {
      for (std::int64_t channel = 0; channel < 16; ++channel) {
        float& key = s.keys[static_cast<std::size_t>((head * s.tokens + token) * 16 + channel)];
        key = head == 1 && channel >= 8 ? 40.0F : 0.0F;
      }
    }
  }
  host_cache<method, float> cache(heads, {500}, embedding(), {}, {.chunks = 9}, {.projector = {.first = 0}});
  cache.prefill(cpu{}, 0, s, 395);
  for (std::int64_t position = 395; position < 470; ++position) {
    cache.decode(cpu{}, {&s}, {position});
  }
  CHECK(cache.memory().exact_ids(0, 1, 3) == 50);
}

TEST_CASE("an empty prompt is fitted when its first chunk leaves the ring", "[host]") {
  auto const s = make_sequence<float>(heads, 200, 9, 0.8);
  some_channels<32> const projector;  // keeps all channels
  using method = method_with<low_rank_keys<some_channels<32>>>;
  host_cache<method, float> cache(heads, {200, 200}, embedding(), {}, {.chunks = 9}, {.projector = projector});
  cache.prefill(cpu{}, 0, s, 0);
  CHECK(projector.fitted->empty());
  CHECK(error_of_steps(cache, s, 0, s.keys) < 2e-6);
  CHECK(*projector.fitted == std::vector<std::int64_t>{64});
}

TEST_CASE("low_rank and its Projector called through the concept keep the same of keys", "[host]") {
  auto const s = make_sequence<float>(heads, 470, 10, 0.8);
  offload_options options;
  options.strays = 0;
  options.renewal_until = 0;
  options.search.iterations = 12;
  host_cache<method_with<low_rank<20>>, float> fast(heads, {500}, embedding(), options, {.chunks = 9});
  host_cache<method_with<low_rank_keys<renamed_projector<20>>>, float> plain(heads, {500}, embedding(), options,
                                                                             {.chunks = 9});
  fast.prefill(cpu{}, 0, s, 395);
  plain.prefill(cpu{}, 0, s, 395);
  CHECK(double{fast.memory().sequences[0].residual} ==
        Approx(double{plain.memory().sequences[0].residual}).epsilon(0.1));
  for (std::int64_t position = 395; position < 470; ++position) {
    auto const expected = plain.decode(cpu{}, {&s}, {position});
    REQUIRE(relative_error(fast.decode(cpu{}, {&s}, {position}),
                           std::vector<double>(expected.begin(), expected.end())) < 1e-3);
  }
}

TEST_CASE("a Projector that does not fit its keys is refused", "[host]") {
  using wide = method_with<low_rank_keys<some_channels<33>>>;
  cpu const exec;
  CHECK_THROWS_WITH(wide::plan<float>(exec, {6, 2, 16, {500}}),
                    contains("offloaded_cache.plan: the Projector has 33 coefficients but rows have 32 channels"));
  using method = method_with<low_rank_keys<some_channels<8>>>;
  CHECK_THROWS_WITH(method::plan<float>(exec, {6, 2, 16, {500}}, {.keeps_products = true}),
                    contains("keeps_products is 1 but only low_rank<rank>"));
}
