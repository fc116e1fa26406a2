// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <type_traits>

#include <tessera/algorithm/weights/weight_coder.hpp>

#include "algorithm/weights/own_coders.hpp"
#include "support/catch.hpp"

using namespace tessera;
using tessera_test::six_bit_coder;

namespace {

/// A user's coder that takes a number of the library.
struct impostor : six_bit_coder {
  static constexpr std::uint8_t stream_id = 3;
};

static_assert(WeightCoder<rans_coder<12>>);
static_assert(WeightCoder<fixed_coder>);
static_assert(WeightCoder<tans_coder>);
static_assert(WeightCoder<six_bit_coder>);
static_assert(!WeightCoder<impostor>);
static_assert(!WeightCoder<rans_coder<11>>);  // streams have no number for it
static_assert(!WeightCoder<int>);

}  // namespace

TEST_CASE("every coder of weights has a number, a user's from 128 on", "[host]") {
  CHECK(weight_coder_of<rans_coder<12>> == weight_coder::rans_pairs);
  CHECK(weight_coder_of<fixed_coder> == weight_coder::fixed_codes);
  CHECK(weight_coder_of<tans_coder> == weight_coder::tans_exponents);
  CHECK(static_cast<int>(weight_coder_of<six_bit_coder>) == 200);
}

TEST_CASE("pairs of codes share the tables of rANS, other coders have their own", "[host]") {
  CHECK(std::is_same_v<table_coder<fixed_coder>, rans_coder<12>>);
  CHECK(std::is_same_v<table_coder<rans_coder<12>>, rans_coder<12>>);
  CHECK(std::is_same_v<table_coder<tans_coder>, tans_coder>);
  CHECK(std::is_same_v<table_coder<six_bit_coder>, six_bit_coder>);
}
