// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/exec/policy_of.hpp>
#include <tessera/testing/laws/tuning.hpp>
#include <tessera/tuning/attention/attention.hpp>
#include <tessera/tuning/attention/decode.hpp>
#include <tessera/tuning/gemm/linear.hpp>
#include <tessera/tuning/loss/linear_loss.hpp>
#include <tessera/tuning/weights/neuzip.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace policy_of_test {

static_assert(policy_of<warpgroup_gemm_tuning>(900) == warpgroup_gemm_tuning{}(900));
static_assert(policy_of<neuzip_decode_tuning>(800).before == policy_of<neuzip_decode_tuning>(900).from);

/// Adds what a policy of warpgroup_gemm_policy must be to a Tuning.
template <Tuning Chosen>
struct checked_gemm : Chosen {
  static constexpr bool is_valid(warpgroup_gemm_policy const& policy) {
    constexpr int shared_memory = 227 * 1024;
    bool const has_columns = policy.columns % 64 == 0 && policy.columns > 0 && policy.columns <= 256;
    bool const fits = policy.stages * 128 * (128 + policy.columns) <= shared_memory;
    int const registers = policy.producer_registers + 2 * policy.consumer_registers;
    return has_columns && fits && (policy.blocks == 1 || policy.blocks == 2) && registers <= 3 * 168;
  }
};

template <int Channels>
struct checked_decode : dense_decode_tuning<Channels> {
  static constexpr bool is_valid(dense_decode_policy const& policy) {
    return policy.tokens % 16 == 0 && policy.warps > 0 && policy.stages % policy.warps == 0;
  }
};

}  // namespace policy_of_test

using namespace policy_of_test;

TEST_CASE("tunings of products keep the laws, and their stages and registers fit a multiprocessor", "[host]") {
  CHECK(testing::check_laws<checked_gemm<warpgroup_gemm_tuning>>().text().empty());
  CHECK(testing::check_laws<checked_gemm<small_warpgroup_gemm_tuning>>().text().empty());
  CHECK(testing::check_laws<checked_gemm<warpgroup_loss_tuning>>().text().empty());
  CHECK(testing::check_laws<checked_gemm<warpgroup_loss_gradient_tuning>>().text().empty());
  CHECK(testing::check_laws<checked_gemm<warpgroup_loss_product_tuning>>().text().empty());
}

TEST_CASE("tunings of attention keep the laws", "[host]") {
  CHECK(testing::check_laws<warpgroup_attention_tuning<64>>().text().empty());
  CHECK(testing::check_laws<warpgroup_attention_tuning<128>>().text().empty());
  CHECK(testing::check_laws<warpgroup_attention_tuning<256>>().text().empty());
  CHECK(testing::check_laws<attention_split_tuning>().text().empty());
  CHECK(testing::check_laws<few_queries_tuning<128>>().text().empty());
  CHECK(testing::check_laws<decode_split_tuning>().text().empty());
  CHECK(testing::check_laws<checked_decode<64>>().text().empty());
  CHECK(testing::check_laws<checked_decode<128>>().text().empty());
  CHECK(testing::check_laws<checked_decode<256>>().text().empty());
  CHECK(testing::check_laws<page_decode_tuning<128>>().text().empty());
}

TEST_CASE("tunings of compressed weights keep the laws", "[host]") {
  CHECK(testing::check_laws<neuzip_decode_tuning>().text().empty());
  CHECK(testing::check_laws<neuzip_encode_tuning>().text().empty());
}
