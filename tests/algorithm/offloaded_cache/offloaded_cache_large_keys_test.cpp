// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Keys whose squares do not fit in fp32: an offloaded cache treats them as it treats others.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/offloaded_cache/low_rank_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/select/coded_landmark.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/key_codes.hpp>
#include <tessera/select/landmark.hpp>

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
constexpr float huge = 0x1p83F;  // 9.7e24; a power of two, so that everything except sums has the same bits

template <class S, int Rank = 16>
using method_of = offloaded_cache<low_rank<Rank>, S, keep_outliers<3>>;

/// The sequence with keys times `by` and queries divided by it, for which attention is the same.
template <class T>
offload_sequence<T> scaled(offload_sequence<T> s, float by) {
  for (T& key : s.keys) {
    key = store<T>(by * static_cast<float>(load(key)));
  }
  for (T& query : s.queries) {
    query = store<T>(static_cast<float>(load(query)) / by);
  }
  return s;
}

/// The mean error of steps after a prompt, in which directions were renewed, and refitted at the end.
template <class Method, class T>
double mean_error(offload_sequence<T> const& s, offload_sequence<T> const& usual, std::int64_t prompt,
                  std::vector<std::int32_t>* exact = nullptr) {
  offload_options options;
  options.keeps_products = true;
  host_cache<Method, T> cache(heads, {s.tokens}, embedding(), options, {.chunks = 40});
  cache.prefill(cpu{}, 0, s, prompt);
  if (exact != nullptr) {
    exact->assign(cache.memory().exact_ids.data, cache.memory().exact_ids.data + 3);
  }
  double error = 0;
  for (std::int64_t position = prompt; position < s.tokens; ++position) {
    if (position == s.tokens - 10) {
      Method::refit(cpu{}, cache.cache(), 0, cache.prompt_space());
    }
    auto const found = cache.decode(cpu{}, {&s}, {position});
    error += relative_error(found, dense_attention(heads, usual, position, embedding()));
  }
  cached_sequence const known = cache.memory().sequences[0];
  CHECK(std::isfinite(known.residual));
  CHECK(std::isfinite(known.energy));
  return error / static_cast<double>(s.tokens - prompt);
}

template <class S, class T>
void check_scaled(std::int64_t prompt) {
  auto const s = make_sequence<T>(heads, 360, 3);
  auto const large = scaled(s, huge);
  std::vector<std::int32_t> exact;
  std::vector<std::int32_t> usual_exact;
  double const usual = mean_error<method_of<S>, T>(s, s, prompt, &usual_exact);
  double const found = mean_error<method_of<S>, T>(large, s, prompt, &exact);
  CAPTURE(prompt, usual, found);
  CHECK(usual > 0.01);
  CHECK(found == Approx(usual).epsilon(0.05));
  CHECK(exact == usual_exact);
}

}  // namespace

TEST_CASE("keys of 1e25 are attended to as if they were small", "[host][long]") {
  check_scaled<landmark_selector<8>, float>(250);
  check_scaled<coded_landmark_selector<8>, bfloat16>(250);
  check_scaled<key_code_selector<8>, float>(250);
  check_scaled<coded_landmark_selector<8>, float>(20);
}

TEST_CASE("one key of 1e25 among others is the one of its own directions", "[host][slow]") {
  // With all directions nothing is lost: queries that disagree with these keys attend to all others.
  auto s = make_sequence<float>(heads, 300, 4);
  for (std::int64_t const token : {37, 260}) {  // a token of the prompt, and a generated one
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t i = 0; i < 16; ++i) {
        s.keys[static_cast<std::size_t>((head * 300 + token) * 16 + i)] *= 1e25F;
      }
    }
  }
  using all_directions = method_of<landmark_selector<8>, 32>;
  host_cache<all_directions, float> cache(heads, {300}, embedding(), {}, {.chunks = 40});
  cache.prefill(cpu{}, 0, s, 250);
  for (std::int64_t position = 250; position < 300; ++position) {
    auto const found = cache.decode(cpu{}, {&s}, {position});
    REQUIRE(relative_error(found, dense_attention(heads, s, position, embedding())) < 1e-4);
  }
  // With fewer directions, other keys are not held beside these, but all results are numbers.
  offload_options options;
  options.keeps_products = true;
  for (std::int64_t const prompt : {20, 250}) {
    using few_directions = method_of<coded_landmark_selector<8>>;
    host_cache<few_directions, float> few(heads, {300}, embedding(), options, {.chunks = 40});
    few.prefill(cpu{}, 0, s, prompt);
    for (std::int64_t position = prompt; position < 300; ++position) {
      if (position % 50 == 49) {
        few_directions::refit(cpu{}, few.cache(), 0, few.prompt_space());
      }
      auto const found = few.decode(cpu{}, {&s}, {position});
      REQUIRE(std::all_of(found.begin(), found.end(), [](float x) { return std::isfinite(x); }));
    }
  }
}
