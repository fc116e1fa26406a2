// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/select/top_k.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/top_k.hpp>
#include <tessera/view/array_view.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

struct keys_of {
  array_view<float const> scores;
  array_view<std::uint8_t const> is_left_out;
  TESSERA_FN std::uint32_t operator()(std::int64_t i) const {
    return is_left_out.data != nullptr && is_left_out[i] != 0 ? 0U : ordered_key(scores[i]);
  }
};

struct into {
  array_view<std::int64_t> taken;
  TESSERA_FN void operator()(std::int64_t rank, std::int64_t i) const { taken[rank] = i; }
};

template <int Lanes>
struct find {
  static constexpr int lanes = Lanes;
  using scratch_type = top_k_scratch;
  keys_of keys;
  std::int64_t take;
  array_view<std::int64_t> taken;
  array_view<std::int64_t> count;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t, scratch_type& scratch) const {
    std::int64_t const found = top_k(group, keys, keys.scores.size(), take, scratch, into{taken});
    for (int lane : group) {
      if (is_first(lane)) {
        count[0] = found;
      }
    }
  }
};

template <int Lanes, class Executor>
std::vector<std::int64_t> best(Executor const& exec, std::vector<float> const& scores, std::int64_t take,
                               std::vector<std::uint8_t> const& left_out = {}) {
  std::vector<std::int64_t> taken(scores.size(), -7);
  std::vector<std::int64_t> count(1, -7);
  keys_of const keys{scores, left_out.empty() ? array_view<std::uint8_t const>{} : left_out};
  exec.run(find<Lanes>{keys, take, taken, count}, 1);
  for (std::size_t i = static_cast<std::size_t>(count[0]); i < taken.size(); ++i) {
    CHECK(taken[i] == -7);
  }
  taken.resize(static_cast<std::size_t>(count[0]));
  return taken;
}

std::vector<std::int64_t> expected(std::vector<float> const& scores, std::size_t take) {
  std::vector<std::int64_t> taken(take);
  top_k(scores.data(), static_cast<std::int64_t>(scores.size()), static_cast<std::int64_t>(take), taken.data());
  return taken;
}

std::vector<float> samples(std::size_t count, double sigma) {
  std::vector<float> scores(count);
  testing::fill(testing::gauss{sigma}, count, scores.data(), count);
  return scores;
}

}  // namespace

TEST_CASE("a group takes the scores that one thread takes", "[host]") {
  cpu const exec{.threads = 1};
  for (std::size_t const count : {1U, 2U, 31U, 32U, 33U, 500U, 3001U}) {
    for (double const sigma : {1e-30, 1.0}) {
      auto const scores = samples(count, sigma);
      for (std::size_t take = 0; take <= count; take += 1 + take) {
        CAPTURE(count, take, sigma);
        CHECK(best<32>(exec, scores, static_cast<std::int64_t>(take)) == expected(scores, take));
        CHECK(best<256>(exec, scores, static_cast<std::int64_t>(take)) == expected(scores, take));
      }
      CHECK(best<64>(exec, scores, static_cast<std::int64_t>(count)) == expected(scores, count));
    }
  }
}

TEST_CASE("of equal scores a group takes the first, NaN last", "[host]") {
  cpu const exec{.threads = 1};
  std::vector<float> few_values;
  for (std::uint64_t i = 0; i < 700; ++i) {
    few_values.push_back(static_cast<float>(testing::hash(5, i) % 4) - 1.0F);
  }
  for (std::size_t take : {1U, 100U, 130U, 250U, 699U}) {
    CHECK(best<64>(exec, few_values, static_cast<std::int64_t>(take)) == expected(few_values, take));
  }
  CHECK(best<32>(exec, {NAN, 1.0F, -INFINITY, NAN, INFINITY}, 3) == std::vector<std::int64_t>{1, 2, 4});
  CHECK(best<32>(exec, {NAN, 1.0F, NAN}, 2) == std::vector<std::int64_t>{0, 1});
  CHECK(best<32>(exec, {-0.0F, 0.0F, -0.0F}, 2) == std::vector<std::int64_t>{0, 1});
}

TEST_CASE("what has no key is never taken, even if nothing else is left", "[host]") {
  cpu const exec{.threads = 1};
  std::vector<float> const scores{5, 4, 3, 2, 1};
  CHECK(best<32>(exec, scores, 2, {1, 0, 1, 0, 0}) == std::vector<std::int64_t>{1, 3});
  CHECK(best<32>(exec, scores, 5, {1, 0, 1, 0, 0}) == std::vector<std::int64_t>{1, 3, 4});
  CHECK(best<32>(exec, scores, 5, {1, 1, 1, 1, 1}).empty());
  CHECK(best<32>(exec, scores, 0).empty());
  CHECK(best<32>(exec, scores, -3).empty());
  CHECK(best<32>(exec, {}, 3).empty());
}

TEST_CASE("a group's choice does not depend on the order of lanes", "[host]") {
  auto const scores = samples(200, 1.0);
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    CHECK(best<64>(testing::adversary{.seed = seed}, scores, 50) == expected(scores, 50));
  }
}
