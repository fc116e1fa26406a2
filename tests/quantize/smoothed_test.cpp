// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/quantize/granularity.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/testing/laws/quantizer.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using plain = symmetric_quantizer<4, per_thread>;
using of_keys = smoothed<plain>;
using of_queries = smoothed<plain, block_mean>;
using of_both = smoothed<of_keys, block_mean>;
using of_sample = smoothed<smoothed<plain, sampled_mean>, block_mean>;

}  // namespace

static_assert(!is_smoothed_by<token_mean, plain> && !is_smoothed_by<block_mean, plain>);
static_assert(is_smoothed_by<token_mean, of_keys> && !is_smoothed_by<block_mean, of_keys>);
static_assert(!is_smoothed_by<token_mean, of_queries> && is_smoothed_by<block_mean, of_queries>);
static_assert(is_smoothed_by<token_mean, of_both> && is_smoothed_by<block_mean, of_both>);
static_assert(has_mean_of_tokens<of_keys> && has_mean_of_tokens<of_sample> && !has_mean_of_tokens<of_queries>);
static_assert(!is_smoothed_by<token_mean, of_sample> && is_smoothed_by<sampled_mean, of_sample>);
static_assert(mean_sample<of_keys>.longest_step == 1 && mean_sample<of_sample>.longest_step == 16);
static_assert(of_both::bits == 4 && of_both::granularity_type::keys::tokens == 128);

TEST_CASE("a smoothed quantizer is a quantizer of what is left", "[host]") {
  CHECK(testing::check_laws<of_both>({0.5F, -1.0F, 3.0F}).text().empty());
  CHECK(testing::check_laws<smoothed<float8_quantizer<float8_e4m3>>>({0.5F, -1.0F, 3.0F}).text().empty());
}
