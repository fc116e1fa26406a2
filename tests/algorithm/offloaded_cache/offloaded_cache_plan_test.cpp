// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/shadow_kv.hpp>

#include "support/catch.hpp"

using namespace tessera;
using tessera_test::contains;

namespace {

constexpr std::int64_t rank = 32;
constexpr std::int64_t chunk = 8;
constexpr std::int64_t ring = 64;

template <class Codec>
using method_with = offloaded_cache<low_rank<rank>, coded_landmark_selector<chunk>, keep_outliers<48>, Codec>;
using method = method_with<exact_values>;

offload_shape two_heads() {
  return {8, 2, 64, {1000, 0, 300}};
}

template <class Error>
std::string complaint(offload_shape const& asked, offload_options const& options = {}) {
  try {
    auto const plan = method::plan<bfloat16>(cpu{}, asked, options);
  } catch (Error const& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::int64_t bytes_of(workspace_plan const& plan, std::string const& name) {
  for (auto const& entry : plan.entries()) {
    if (entry.name == name) {
      return entry.bytes;
    }
  }
  return -1;
}

/// The number of steps of each part. The parts' steps must follow each other.
template <class Plan>
std::vector<std::int64_t> part_sizes(Plan const& plan, std::int64_t steps) {
  std::vector<std::int32_t> numbers;
  for (std::int64_t i = 0; i < steps; ++i) {
    numbers.push_back(static_cast<std::int32_t>(i));
  }
  std::vector<bfloat16> queries(static_cast<std::size_t>(steps * 8 * 64));
  offload_step<bfloat16> all;
  all.sequences = numbers;
  all.queries = {queries.data(), {steps, 8, 64}};
  std::vector<std::int64_t> sizes;
  std::int64_t next = 0;
  for (int which = 0; which < plan.parts_of(steps); ++which) {
    offload_step<bfloat16> const part = plan.part_of(all, which);
    sizes.push_back(part.steps());
    for (std::int64_t i = 0; i < part.steps(); ++i) {
      REQUIRE(part.named(i) == next++);
    }
  }
  REQUIRE(next == steps);
  return sizes;
}

}  // namespace

TEST_CASE("sequences have rows for what leaves the ring, one behind the other", "[host]") {
  auto const plan = method::plan<bfloat16>(cpu{}, two_heads());
  CHECK(plan.first_rows == std::vector<std::int64_t>{0, 118, 118, 148});  // (1000 - 56) / 8 and (300 - 56) / 8
  CHECK(plan.capacity(0) == 118);
  CHECK(plan.capacity(1) == 0);
  CHECK(plan.capacity(2) == 30);
  CHECK(plan.extents.longest == 118);
  for (auto [tokens, rows] : {std::pair<std::int64_t, std::int64_t>{0, 0},
                              {ring - chunk, 0},
                              {ring - 1, 0},
                              {ring, 1},
                              {ring + chunk - 1, 1},
                              {ring + chunk, 2}}) {
    CAPTURE(tokens);
    CHECK(method::plan<bfloat16>(cpu{}, {8, 2, 64, {tokens}}).extents.rows == rows);
  }
}

TEST_CASE("values are where the options say, and products are kept once", "[host]") {
  auto const there = method::plan<bfloat16>(cpu{}, two_heads());
  std::int64_t const of_values = 148 * 2 * there.record_bytes;
  CHECK(there.record_bytes >= chunk * 64 * 2);
  CHECK(bytes_of(there.host, "values") == of_values);
  CHECK(bytes_of(there.device, "values") == -1);
  CHECK(bytes_of(there.prompt, "products of channels") == 128 * 128 * 4);
  CHECK(bytes_of(there.device, "products of channels") == 0);
  offload_options options;
  options.values = value_store::device;
  options.keeps_products = true;
  auto const here = method::plan<bfloat16>(cpu{}, two_heads(), options);
  CHECK(here.host.bytes() == 0);
  CHECK(bytes_of(here.device, "values") == of_values);
  CHECK(bytes_of(here.prompt, "products of channels") == 0);
  CHECK(bytes_of(here.device, "products of channels") == 3 * 128 * 128 * 4);
  CHECK(bytes_of(here.device, "coefficients of keys") == 148 * chunk * rank * 2);
  CHECK_THAT(here.describe(), contains("pinned memory of the host") && contains("offloaded_cache.decode"));
}

TEST_CASE("parts of a step follow each other and leave none out", "[host]") {
  auto const over_bus = method::plan<bfloat16>(cpu{}, two_heads());
  CHECK(over_bus.parts_of(0) == 1);
  CHECK(part_sizes(over_bus, 0) == std::vector<std::int64_t>{0});
  CHECK(part_sizes(over_bus, 1) == std::vector<std::int64_t>{1});
  CHECK(part_sizes(over_bus, 3) == std::vector<std::int64_t>{1, 1, 1});
  CHECK(part_sizes(over_bus, 16) == std::vector<std::int64_t>{2, 4, 6, 4});
  for (std::int64_t steps = 2; steps < 40; ++steps) {
    CAPTURE(steps);
    CHECK(part_sizes(over_bus, steps).size() == static_cast<std::size_t>(min(steps, std::int64_t{4})));
  }
  offload_options options;
  options.values = value_store::device;
  auto const on_device = method::plan<bfloat16>(cpu{}, two_heads(), options);
  CHECK(part_sizes(on_device, 16) == std::vector<std::int64_t>{16});
  auto const coded = method_with<symmetric_quantizer<8, 64>>::plan<bfloat16>(cpu{}, two_heads());
  CHECK(part_sizes(coded, 16) == std::vector<std::int64_t>{4, 4, 4, 4});
}

TEST_CASE("what a cache cannot have room for is named", "[host]") {
  std::int64_t const huge = std::int64_t{1} << 62;
  auto const with_heads = [](std::int64_t key_heads) { return offload_shape{key_heads, key_heads, 64, {1000}}; };
  CHECK_THAT(complaint<shape_error>(with_heads(huge)), contains(std::to_string(huge)) && contains("31 bits"));
  CHECK_THAT(complaint<shape_error>(with_heads(std::int64_t{1} << 25)), contains("33554432") && contains("31 bits"));
  CHECK_THAT(complaint<shape_error>({8, 2, 64, {-1}}), contains("-1 tokens"));
  CHECK_THAT(complaint<shape_error>({8, 2, 64, {INT64_MAX, INT64_MAX}}), contains("chunks of 8"));
  CHECK_THAT(complaint<shape_error>({8, 2, 64, {huge}}), contains("chunks of 8"));
  CHECK_THAT(complaint<shape_error>({7, 2, 64, {1000}}), contains("7 query heads") && contains("2 key heads"));
  auto const with_ring = [](std::int64_t tokens) {
    offload_options options;
    options.ring = tokens;
    return complaint<value_error>(two_heads(), options);
  };
  for (std::int64_t const tokens : {std::int64_t{0}, chunk, 2 * chunk - 1, 2 * chunk + 1, -ring}) {
    CHECK_THAT(with_ring(tokens), contains("has " + std::to_string(tokens) + " tokens") && contains("chunk of 8"));
  }
  CHECK(with_ring(2 * chunk) == "nothing was thrown");
  CHECK_THAT(with_ring(huge), contains(std::to_string(huge)) && contains("31 bits"));
  offload_options options;
  options.strays = INT64_MAX;
  CHECK_THAT(complaint<value_error>(two_heads(), options), contains(std::to_string(INT64_MAX)) && contains("31 bits"));
  options.strays = -1;
  CHECK_THAT(complaint<value_error>(two_heads(), options), contains("-1 slots"));
  options = {};
  options.residual_limit = std::numeric_limits<float>::quiet_NaN();
  CHECK_THAT(complaint<value_error>(two_heads(), options),
             contains("chunks are strays above nan times the usual residual"));
  options = {};
  options.softmax_scale = std::numeric_limits<float>::quiet_NaN();
  CHECK_THAT(complaint<value_error>(two_heads(), options), contains("the scale of the softmax is nan"));
}

TEST_CASE("a plan whose sizes do not fit 63 bits is none", "[host]") {
  offload_options options;
  options.ring = std::int64_t{1} << 30;
  CHECK_THAT(complaint<shape_error>({33554431, 33554431, 64, std::vector<std::int64_t>(200, 0)}, options),
             contains("not a size"));
}
