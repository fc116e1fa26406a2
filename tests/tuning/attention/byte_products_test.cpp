// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/concepts/tuning.hpp>
#include <tessera/exec/policy_of.hpp>
#include <tessera/tuning/attention/byte_products.hpp>

#include "support/catch.hpp"

using namespace tessera;

static_assert(Tuning<byte_products_tuning<64>> && Tuning<byte_products_tuning<128>>);

namespace {

template <int Channels>
bool is_for(int architecture) {
  byte_products_policy const policy = policy_of<byte_products_tuning<Channels>>(architecture);
  return architecture >= policy.from && architecture < policy.before;
}

}  // namespace

TEST_CASE("products of e4m3 are for the architectures whose mma.sync multiplies it") {
  for (int const architecture : {890, 1200, 1210}) {
    CHECK(is_for<64>(architecture));
    CHECK(is_for<128>(architecture));
  }
  for (int const architecture : {0, 800, 860, 900, 1000, 1100}) {
    CHECK_FALSE(is_for<64>(architecture));
    CHECK_FALSE(is_for<128>(architecture));
  }
}

TEST_CASE("warps with products of e4m3 share the registers of a multiprocessor") {
  for (int const architecture : {890, 1200}) {
    CHECK(policy_of<byte_products_tuning<64>>(architecture).warps == 8);
    CHECK(policy_of<byte_products_tuning<64>>(architecture).blocks_per_multiprocessor == 2);
    CHECK(policy_of<byte_products_tuning<128>>(architecture).blocks_per_multiprocessor == 1);
  }
}
