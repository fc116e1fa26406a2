// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/algorithm/offloaded_cache/exact_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/quantize/symmetric.hpp>
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
using tessera_test::relative_error;

namespace {

constexpr auto heads = tessera_test::heads_of_steps;

template <class Keys, class Codec = exact_values>
using method_with = offloaded_cache<Keys, landmark_selector<8>, keep_outliers<3>, Codec>;

}  // namespace

TEST_CASE("exact keys give exact attention over the chunks that a step selects", "[host][threads][slow]") {
  auto const s = make_sequence<float>(heads, 480, 5, 0.8);
  for (auto const where : {value_store::host, value_store::device}) {
    host_cache<method_with<exact_keys>, float> cache(heads, {500}, embedding(), {.values = where}, {.chunks = 9});
    cache.prefill(cpu{.threads = 2}, 0, s, 395);
    CHECK(error_of_steps(cache, s, 395, s.keys) < 2e-6);
    cached_sequence const known = cache.memory().sequences[0];
    CHECK(known.tokens == 480);
    CHECK(known.chunks == (480 - 56) / 8);
    CHECK(known.residual == 0.0F);
    CHECK(known.streamed_residual == 0.0F);
    CHECK(known.energy == 0.0);
    for (std::int64_t head = 0; head < 2; ++head) {  // nothing is lost, so that no chunk is a stray
      for (std::int64_t slot = 3; slot < cache.plan().extents.exact(); ++slot) {
        CHECK(cache.memory().exact_ids(0, head, slot) == -1);
      }
    }
  }
}

TEST_CASE("exact keys are where values are, and nothing is kept of coefficients", "[host]") {
  using method = method_with<exact_keys>;
  using coded = method_with<exact_keys, symmetric_quantizer<8, 16>>;
  cpu const exec;
  offload_shape const shape{6, 2, 16, {500, 77}};
  auto const there = method::plan<float>(exec, shape);
  std::int64_t const keys = there.extents.rows * 2 * 8 * 16 * 4;
  CHECK(there.host.bytes() == 2 * keys);
  CHECK(there.extents.rank == 0);
  auto const here = method::plan<float>(exec, shape, {.values = value_store::device});
  CHECK(here.host.bytes() == 0);
  CHECK(here.device.bytes() == there.device.bytes() + 2 * keys);
  CHECK(coded::plan<float>(exec, shape).host.bytes() < 2 * keys);  // keys stay exact where values are codes
  CHECK(coded::plan<float>(exec, shape).host.bytes() > keys);
  CHECK_THAT(there.describe(), contains("keys of 32 channels of all heads as they are"));
  CHECK_THROWS_WITH(method::plan<float>(exec, shape, {.keeps_products = true}),
                    contains("offloaded_cache.plan: keeps_products is 1 but exact_keys have no directions"));
}

TEST_CASE("exact keys in pieces have the bits of all at once, and results do not depend on slots",
          "[host][threads][slow]") {
  auto const s = make_sequence<bfloat16>(heads, 460, 6, 0.8);
  cpu const exec{.threads = 2};
  host_cache<method_with<exact_keys>, bfloat16> whole(heads, {460}, embedding(), {}, {.chunks = 9});
  host_cache<method_with<exact_keys>, bfloat16> pieces(heads, {460}, embedding(), {.slots = 30}, {.chunks = 9});
  host_cache<method_with<exact_keys>, bfloat16> fresh(heads, {460}, embedding(), {.keeps_slots = false}, {.chunks = 9});
  whole.prefill(exec, 0, s, 403);
  pieces.prefill(exec, 0, s, 403, 40);
  fresh.prefill(exec, 0, s, 20);  // the rest is generated
  for (std::int64_t position = 20; position < 403; ++position) {
    fresh.decode(exec, {&s}, {position});
  }
  for (std::int64_t position = 403; position < 460; ++position) {
    auto const expected = whole.decode(exec, {&s}, {position});
    CHECK(pieces.decode(exec, {&s}, {position}) == expected);
    std::vector<double> const wide(expected.begin(), expected.end());  // exact chunks are in another order
    CHECK(relative_error(fresh.decode(exec, {&s}, {position}), wide) < 1e-6);
  }
}
