// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <vector>

#include <tessera/concepts/merger.hpp>
#include <tessera/merge/average.hpp>
#include <tessera/merge/no_merger.hpp>
#include <tessera/merge/slerp.hpp>
#include <tessera/reduce/pair_products.hpp>
#include <tessera/testing/laws/merger.hpp>

#include "support/cache_problem.hpp"
#include "support/catch.hpp"

using namespace tessera;
using namespace tessera_test;
using tessera::testing::check_laws;
using tessera::testing::vector_pair;

namespace merger_test {

/// A user's own Merger, with factors of its own type: keeps the longer vector alone, and the ratio of lengths.
struct longer_one {
  struct ratios {
    float ratio[2];
    TESSERA_FN constexpr float of_side(side which) const { return ratio[which == side::first ? 0 : 1]; }
  };
  TESSERA_FN constexpr mix_weights mix(pair_products const& measured) const {
    return measured.first < measured.second ? mix_weights{0, 1} : mix_weights{1, 0};
  }
  TESSERA_FN ratios keep(pair_products const& measured) const {
    float const longer = length_of(measured.first < measured.second ? measured.second : measured.first);
    if (longer == 0.0F) {
      return {{0.0F, 0.0F}};
    }
    return {{length_of(measured.first) / longer, length_of(measured.second) / longer}};
  }
};

/// The mean, without lengths.
struct mean_of_both {
  TESSERA_FN constexpr mix_weights mix(pair_products const&) const { return {0.5F, 0.5F}; }
  TESSERA_FN constexpr two_lengths<float> keep(pair_products const&) const { return {1.0F, 1.0F}; }
};

struct half_of_it : longer_one {
  constexpr mix_weights mix(pair_products const&) const { return {0.5F, 0.0F}; }
};

struct dividing_by_the_length : longer_one {
  mix_weights mix(pair_products const& measured) const { return {1.0F / static_cast<float>(measured.first), 0.0F}; }
};

/// Promises the direction of a vector that is merged with zeros, and keeps the vector.
struct longer_one_as_direction : longer_one {
  static constexpr bool keeps_single_vectors = true;
};

/// Restores neither vector of a pair, but single ones as no_merger does.
struct no_merger_of_pairs : no_merger {
  static constexpr bool merges_pairs = true;
};

/// A user's own Merger, with a state: so much of the first direction and the rest of the second.
struct part_of_both {
  float part = 0.5F;
  TESSERA_FN mix_weights mix(pair_products const& measured) const {
    float const first = length_of(measured.first);
    float const second = length_of(measured.second);
    return {first == 0.0F ? 0.0F : part / first, second == 0.0F ? 0.0F : (1.0F - part) / second};
  }
  TESSERA_FN two_lengths<float> keep(pair_products const& measured) const {
    return {length_of(measured.first), length_of(measured.second)};
  }
};

/// A merger with a vector, which cannot be copied to a device with a program.
struct that_cannot_travel : part_of_both {
  std::vector<float> parts;
};

static_assert(Merger<part_of_both> && merges_pairs<part_of_both> && !keeps_single_vectors<part_of_both>);
static_assert(Merger<longer_one> && !Merger<pair_products_reducer> && !Merger<that_cannot_travel>);
static_assert(Merger<slerp_merger<float16>>);
static_assert(Merger<longer_vector_merger<float>> && !keeps_single_vectors<longer_vector_merger<float>>);
static_assert(!merges_pairs<no_merger> && keeps_single_vectors<no_merger>);
static_assert(keeps_single_vectors<slerp_merger<float>> && keeps_single_vectors<average_direction_merger<float>>);
static_assert(keeps_single_vectors<norm_weighted_slerp_merger<float>>);
static_assert(!keeps_single_vectors<slerp_merger<float, least_squares>> &&
              !keeps_single_vectors<average_merger<float>>);

std::vector<vector_pair> const pairs{{{1, 2, 3}, {3, 2, -1}}, {{0, 1, 0}, {100, 0, 0}}};

}  // namespace merger_test

using namespace merger_test;

TEST_CASE("users' own mergers keep the laws", "[host]") {
  CHECK(check_laws<longer_one>(pairs, 1e-6).text().empty());
  CHECK(check_laws(pairs, 1e-6, no_merger{}).text().empty());
}

TEST_CASE("a merger that does not restore a vector of zeros is caught", "[host]") {
  CHECK(check_laws<mean_of_both>(pairs, 1e-6).mentions("zeros restore to zeros"));
}

TEST_CASE("a merger that does not restore equal vectors is caught", "[host]") {
  CHECK(check_laws<half_of_it>(pairs, 1e-6).mentions("two equal vectors restore to themselves"));
  CHECK(check_laws<no_merger_of_pairs>(pairs, 1e-6).mentions("two equal vectors restore to themselves"));
}

TEST_CASE("a merger that divides by the length of a vector of zeros is caught", "[host]") {
  CHECK(check_laws<dividing_by_the_length>(pairs, 1e-6).mentions("finite vectors restore to finite ones"));
}

TEST_CASE("a merger that promises the direction of a single vector and keeps another is caught", "[host]") {
  CHECK(
      check_laws<longer_one_as_direction>(pairs, 1e-6).mentions("a single vector keeps its direction and its length"));
}

TEST_CASE("a cache asks a user's own merger, with the state that it has", "[host]") {
  cpu const exec{.threads = 1};
  auto const data = make_layer_pair<bfloat16>(1, 1, 128, 64);
  for (float part : {0.0F, 0.5F, 1.0F}) {
    cache_problem<bfloat16> problem({64, 8, 8, 1, 2}, 1, 1, 128);
    problem.append(exec, data.inputs(), retain_most_different::none(), part_of_both{part});
    for (int layer = 0; layer < 2; ++layer) {
      auto const found = problem.restored<float>(layer, key_part, 128);
      double error = 0;
      double all = 0;
      for (std::size_t i = 0; i < 64 * 64; ++i) {  // the sealed page
        double const given = load(data.part[layer][key_part][i]);
        error += (found[i] - given) * (found[i] - given);
        all += given * given;
      }
      bool const is_own_direction = part == (layer == 0 ? 1.0F : 0.0F);
      CAPTURE(part, layer, std::sqrt(error / all));
      CHECK((std::sqrt(error / all) < 0.02) == is_own_direction);
    }
  }
}

TEST_CASE("a layer by itself has the same bytes by all mergers that keep single vectors", "[host]") {
  cpu const exec{.threads = 1};
  auto const data = make_layer_pair<bfloat16>(1, 2, 192, 64);
  auto const pages_by = [&](auto const& merger) {
    cache_problem<bfloat16> problem({64, 4, 4, 1, 1}, 2, 1, 192);
    problem.append(exec, data.inputs(), retain_most_different::none(), merger);
    return problem.page_bytes();
  };
  auto const expected = pages_by(no_merger{});
  CHECK((pages_by(slerp_merger<float>{}) == expected));
  CHECK((pages_by(norm_weighted_slerp_merger<float>{}) == expected));
  CHECK((pages_by(average_direction_merger<float>{}) == expected));
}

TEST_CASE("a cache stores the factors of a merger as the merger rounds them", "[host]") {
  auto const measured_by = [](auto const& merger) {
    pair_products const measured{9.0 + 0x1p-7, 4.0, 5.0};
    return tessera::detail::merge_row(merger, measured).lengths;
  };
  CHECK(measured_by(slerp_merger<float>{}).first == length_of(9.0 + 0x1p-7));
  CHECK(measured_by(slerp_merger<bfloat16>{}).first == 3.0F);
  CHECK(measured_by(longer_one{}).second == 2.0F / length_of(9.0 + 0x1p-7));
}
