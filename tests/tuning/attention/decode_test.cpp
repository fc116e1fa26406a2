// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/testing/laws/tuning.hpp>
#include <tessera/tuning/attention/decode.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

template <int Channels>
struct within_decode_limits : dense_decode_tuning<Channels> {
  static constexpr bool is_valid(dense_decode_policy const& policy) {
    int const piece = policy.tokens * Channels * 2 * 2;  // keys and values of 16 bits
    return policy.tokens % 16 == 0 && policy.tokens > 0 && policy.warps > 0 && policy.stages % policy.warps == 0 &&
           policy.stages >= policy.warps && policy.blocks > 0 && policy.blocks * policy.stages * piece <= 227 * 1024;
  }
};

template <int Channels, int Bits>
struct within_page_limits : page_decode_tuning<Channels, Bits> {
  static constexpr bool is_valid(page_decode_policy const& policy) {
    int const codes = 64 * Channels * Bits / 8 * 2;  // keys and values of 64 tokens
    return policy.warps > 0 && policy.blocks > 0 && policy.stages % policy.warps == 0 &&
           policy.blocks * policy.stages * codes <= 227 * 1024;
  }
};

struct with_costs : decode_split_tuning {
  static constexpr bool is_valid(decode_split_policy const& policy) {
    return policy.step > 0 && policy.work > 0 && policy.merging > 0;
  }
};

}  // namespace

TEST_CASE("tunings of dense decode keep the laws, and their pieces fit a multiprocessor", "[host]") {
  CHECK(testing::check_laws<within_decode_limits<64>>().text().empty());
  CHECK(testing::check_laws<within_decode_limits<128>>().text().empty());
  CHECK(testing::check_laws<within_decode_limits<256>>().text().empty());
  CHECK(testing::check_laws<with_costs>().text().empty());
}

TEST_CASE("tunings of decode over pages keep the laws, and their pages fit a multiprocessor", "[host]") {
  CHECK(testing::check_laws<within_page_limits<64, 4>>().text().empty());
  CHECK(testing::check_laws<within_page_limits<128, 2>>().text().empty());
  CHECK(testing::check_laws<within_page_limits<128, 4>>().text().empty());
  CHECK(testing::check_laws<within_page_limits<256, 4>>().text().empty());
}
