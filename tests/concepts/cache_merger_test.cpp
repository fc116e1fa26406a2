// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/concepts/cache_merger.hpp>
#include <tessera/merge/average.hpp>
#include <tessera/merge/no_merger.hpp>
#include <tessera/merge/slerp.hpp>
#include <tessera/program/paged_cache/measure_pages.hpp>

#include "support/cache_problem.hpp"
#include "support/catch.hpp"

using namespace tessera;
using namespace tessera_test;

namespace cache_merger_test {

/// A user's own CacheMerger, with a state: so much of the first direction and the rest of the second.
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

/// Measures something else than a cache does.
struct with_own_measure : part_of_both {
  struct measure_type : pair_products_reducer {};
  measure_type measure() const { return {}; }
};

static_assert(CacheMerger<part_of_both> && merges_pairs<part_of_both> && !keeps_single_vectors<part_of_both>);
static_assert(!CacheMerger<with_own_measure>);
static_assert(!CacheMerger<slerp_merger<float16>>);  // a page rounds factors itself
static_assert(CacheMerger<longer_vector_merger<float>> && !keeps_single_vectors<longer_vector_merger<float>>);
static_assert(keeps_single_vectors<slerp_merger<float>> && keeps_single_vectors<average_direction_merger<float>>);
static_assert(keeps_single_vectors<norm_weighted_slerp_merger<float>>);
static_assert(!keeps_single_vectors<slerp_merger<float, least_squares>> &&
              !keeps_single_vectors<average_merger<float>>);

}  // namespace cache_merger_test

using namespace cache_merger_test;

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
    return problem.pages;
  };
  auto const expected = pages_by(no_merger{});
  CHECK((pages_by(slerp_merger<float>{}) == expected));
  CHECK((pages_by(norm_weighted_slerp_merger<float>{}) == expected));
  CHECK((pages_by(average_direction_merger<float>{}) == expected));
}
