// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <set>
#include <vector>

#include <tessera/quantize/granularity.hpp>
#include <tessera/quantize/symmetric.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

template <class Groups>
std::vector<std::int64_t> members(std::int64_t group, std::int64_t tokens) {
  std::vector<std::int64_t> found;
  for (std::int64_t token = 0; token < tokens; ++token) {
    if (Groups::group_of(token) == group) {
      found.push_back(token);
    }
  }
  return found;
}

/// Every group below the count has as many members as any other.
template <class Groups>
void check_groups(std::int64_t tokens) {
  std::int64_t const count = Groups::count(tokens);
  for (std::int64_t group = 0; group < count; ++group) {
    CHECK(members<Groups>(group, tokens).size() == static_cast<std::size_t>(tokens / count));
  }
}

template <class Granularity>
void check_granularity(Granularity const&) {
  for (std::int64_t const tokens : {128, 256, 384}) {
    check_groups<typename Granularity::queries>(tokens);
    check_groups<typename Granularity::keys>(tokens);
  }
}

}  // namespace

TEST_CASE("every token belongs to one of as many groups as a granularity counts, all of one size", "[host]") {
  check_granularity(per_tensor);
  check_granularity(per_block);
  check_granularity(per_warp);
  check_granularity(per_thread);
  check_granularity(per_token);
}

TEST_CASE("the groups of a thread are those of the lanes of a tensor core's sums", "[host]") {
  using queries = decltype(per_thread)::queries;
  using keys = decltype(per_thread)::keys;
  CHECK(members<queries>(0, 128) == std::vector<std::int64_t>{0, 8});
  CHECK(members<queries>(13, 128) == std::vector<std::int64_t>{21, 29});
  CHECK(queries::count(128) == 64);
  auto const of_keys = members<keys>(5, 256);
  CHECK(of_keys.size() == 32);
  CHECK(std::vector<std::int64_t>(of_keys.begin(), of_keys.begin() + 4) ==
        std::vector<std::int64_t>{130, 131, 138, 139});
  CHECK(keys::count(256) == 8);
  static_assert(is_one_for_a_lane(per_block, 64, 128) && is_one_for_a_lane(per_tensor, 64, 256));
  static_assert(!is_one_for_a_lane(granularity<token_groups<32, 16>, token_groups<64, 4, 2>>{}, 32, 64));
  static_assert(is_one_for_a_lane(granularity<token_groups<32, 8>, token_groups<64, 4, 2>>{}, 32, 64));
}

TEST_CASE("a quantizer of tokens knows its granularity", "[host]") {
  using quantizer = symmetric_quantizer<8, per_thread>;
  static_assert(Quantizer<quantizer> && quantizer::group == whole_tensor && quantizer::highest == 127);
  static_assert(symmetric_quantizer<8, 64>::group == 64);
  CHECK(quantizer::granularity_type::keys::group_of(128) == 4);
}
