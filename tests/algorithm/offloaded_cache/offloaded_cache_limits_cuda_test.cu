// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// An offloaded cache on a GPU at the limits of its arguments, compared with the host.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/offloaded_cache/low_rank_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.cuh>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/select/coded_landmark.hpp>
#include <tessera/select/keep_outliers.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/message_of.hpp"
#include "support/offload_on_device.cuh"
#include "support/offload_problem.hpp"
#include "support/vectors.hpp"

using namespace tessera;
using tessera_test::dense_attention;
using tessera_test::host_cache;
using tessera_test::make_sequence;
using tessera_test::message_of;
using tessera_test::offload_heads;
using tessera_test::offload_sequence;
using tessera_test::offloaded_on_device;
using tessera_test::relative_error;
using tessera_test::to_host;

namespace {

template <int Rank>
using method_of = offloaded_cache<low_rank<Rank>, coded_landmark_selector<8>, keep_outliers<4>>;
using method = method_of<64>;
using T = bfloat16;

constexpr offload_heads heads{8, 2, 64};

rotary_tables const& tables() {
  static rotary_tables const made(rotary_frequencies(500000.0, 64), 4096);
  return made;
}

/// The message without the name of the function that waited, which differs.
std::string verdict_of(std::string const& complaint) {
  return complaint.substr(std::min(complaint.find(": "), complaint.size()));
}

/// The mean error of the last `counted` steps from a prompt on.
template <class Cache>
double mean_error(Cache& cache, offload_heads const& n, offload_sequence<T> const& s, offload_sequence<T> const& usual,
                  std::int64_t prompt, std::int64_t counted) {
  double error = 0;
  auto const rotary = tables().embedding(rotary_pairs::halves);
  for (std::int64_t position = prompt; position < s.tokens; ++position) {
    auto const found = cache.decode({&s}, {position});
    if (position >= s.tokens - counted) {
      error += relative_error(found, dense_attention(n, usual, position, rotary)) / static_cast<double>(counted);
    }
  }
  return error;
}

}  // namespace

TEST_CASE("sequences that a step cannot be of are reported on a GPU as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const s = make_sequence<T>(heads, 300, 5);
  for (std::vector<std::int32_t> const& named :
       {std::vector<std::int32_t>{2, 0, 2, -1}, std::vector<std::int32_t>{2, 0, 1, 1},
        std::vector<std::int32_t>{-1, 0, -2, -1}, std::vector<std::int32_t>{1, 0, 4, 2},
        std::vector<std::int32_t>{1, 0, INT32_MAX, 2}, std::vector<std::int32_t>{1, 0, 3, 2},
        std::vector<std::int32_t>{2, -1, 1, 0}}) {
    CAPTURE(named);
    tessera::cuda const exec;
    cpu const there_not;
    offloaded_on_device<method, T> there(exec, heads, {300, 300, 300, 300}, tables(), {}, {.chunks = 8});
    host_cache<method, T> here(heads, {300, 300, 300, 300}, tables().embedding(rotary_pairs::halves), {},
                               {.chunks = 8});
    for (std::int64_t sequence = 0; sequence < 3; ++sequence) {  // the last one is never begun
      there.prefill(sequence, s, 119 + sequence);
      here.prefill(there_not, sequence, s, 119 + sequence);
    }
    std::vector<std::int64_t> positions;
    for (std::int32_t const sequence : named) {
      positions.push_back(sequence >= 0 && sequence < 3 ? 119 + sequence : 0);
    }
    auto const expected = here.decode(there_not, {&s, &s, &s, &s}, positions, named);
    std::string const verdict = message_of([&] { there_not.wait(); });
    std::string const found = message_of([&] { there.decode({&s, &s, &s, &s}, positions, named); });
    CHECK(verdict_of(found) == verdict_of(verdict));
    CHECK(verdict.empty() == (named[0] == 2 && named[1] == -1));
    for (std::int64_t sequence = 0; sequence < 3; ++sequence) {
      CHECK(there.sequence(sequence).tokens == here.memory().sequences[sequence].tokens);
    }
  }
}

TEST_CASE("a rank beyond the channels of keys is as many directions on a GPU, too", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  constexpr offload_heads one_head{4, 1, 64};
  auto const s = make_sequence<T>(one_head, 330, 6);
  offloaded_on_device<method_of<160>, T> beyond(exec, one_head, {330}, tables(), {}, {.chunks = 64});
  offloaded_on_device<method_of<64>, T> exact(exec, one_head, {330}, tables(), {}, {.chunks = 64});
  CHECK(beyond.plan().extents.rank == 64);
  beyond.prefill(0, s, 300);
  exact.prefill(0, s, 300);
  auto const rotary = tables().embedding(rotary_pairs::halves);
  for (std::int64_t position = 300; position < 330; ++position) {
    auto const found = beyond.decode({&s}, {position});
    REQUIRE(found == exact.decode({&s}, {position}));
    REQUIRE(relative_error(found, dense_attention(one_head, s, position, rotary)) < 0.015);
  }
}

TEST_CASE("directions get good on a GPU after a short prompt by themselves", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto const s = make_sequence<T>(heads, 900, 7);
  offload_options options;
  options.strays = 0;
  offload_options fixed = options;
  fixed.renewal_until = 0.0F;
  offloaded_on_device<method, T> whole(exec, heads, {900}, tables(), options, {.chunks = 200});
  whole.prefill(0, s, 850);
  double const usual = mean_error(whole, heads, s, s, 850, 50);
  for (std::int64_t const prompt : {0, 20, 100}) {
    offloaded_on_device<method, T> renewed(exec, heads, {900}, tables(), options, {.chunks = 200});
    offloaded_on_device<method, T> left(exec, heads, {900}, tables(), fixed, {.chunks = 200});
    renewed.prefill(0, s, prompt);
    left.prefill(0, s, prompt);
    double const found = mean_error(renewed, heads, s, s, prompt, 50);
    double const before = mean_error(left, heads, s, s, prompt, 50);
    CAPTURE(prompt, usual, found, before);
    CHECK(found < 1.45 * usual);
    CHECK(before > 1.3 * found);
    CHECK(renewed.sequence(0).fitted >= 64 * 8);
    CHECK(left.sequence(0).fitted == prompt);
    auto const stored = to_host(exec, renewed.memory().directions.data, 128 * 64);
    double most = 0;
    for (std::size_t a = 0; a < 64; ++a) {
      for (std::size_t b = 0; b <= a; ++b) {
        double product = 0;
        for (std::size_t i = 0; i < 128; ++i) {
          product += double{load(stored[i * 64 + a])} * double{load(stored[i * 64 + b])};
        }
        most = std::max(most, std::abs(product - (a == b ? 1.0 : 0.0)));
      }
    }
    CHECK(most < 0.02);  // 16-bit floats, rotated a dozen times
  }
}

TEST_CASE("keys of 1e25 are attended to on a GPU as if they were small", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto const s = make_sequence<T>(heads, 700, 8);
  auto large = s;
  for (T& key : large.keys) {
    key = store<T>(0x1p83F * load(key));
  }
  for (T& query : large.queries) {
    query = store<T>(0x1p-83F * load(query));
  }
  offload_options options;
  options.keeps_products = true;
  for (std::int64_t const prompt : {20, 650}) {
    offloaded_on_device<method, T> usual(exec, heads, {700}, tables(), options, {.chunks = 100});
    offloaded_on_device<method, T> huge(exec, heads, {700}, tables(), options, {.chunks = 100});
    usual.prefill(0, s, prompt);
    huge.prefill(0, large, prompt);
    CHECK(to_host(exec, huge.memory().exact_ids.data, 4) == to_host(exec, usual.memory().exact_ids.data, 4));
    double const expected = mean_error(usual, heads, s, s, prompt, 50);
    double const found = mean_error(huge, heads, large, s, prompt, 50);
    CAPTURE(prompt, expected, found);
    CHECK(expected > 0.005);
    CHECK(found == Approx(expected).epsilon(0.1));
    huge.refit(0);
    CHECK(std::isfinite(huge.sequence(0).residual));
    auto const directions = to_host(exec, huge.memory().directions.data, 128 * 64);
    CHECK(std::all_of(directions.begin(), directions.end(), [](T x) { return std::isfinite(load(x)); }));
  }
}
