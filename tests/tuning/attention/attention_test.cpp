// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/testing/laws/tuning.hpp>
#include <tessera/tuning/attention/attention.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// What a policy of attention must be by the limits of a multiprocessor, for codes of a byte and values of a byte.
template <int Channels>
struct within_attention_limits : warpgroup_attention_tuning<Channels> {
  static constexpr bool is_valid(warpgroup_attention_policy const& policy) {
    constexpr int shared_memory = 227 * 1024;
    int const registers_at_entry = 65536 / (128 * (1 + policy.consumers)) / 8 * 8;
    int const registers = policy.producer_registers + policy.consumers * policy.consumer_registers;
    bool const fits = 2 * policy.stages * 128 * Channels <= shared_memory;
    bool const are_budgets = policy.producer_registers % 8 == 0 && policy.consumer_registers % 8 == 0 &&
                             policy.producer_registers >= 24 && policy.consumer_registers <= 256;
    return policy.consumers >= 1 && policy.consumers <= 4 && policy.stages >= 2 && fits && are_budgets &&
           Channels % policy.value_channels == 0 && registers <= (1 + policy.consumers) * registers_at_entry;
  }
};

template <int Channels>
struct within_few_queries_limits : few_queries_tuning<Channels> {
  static constexpr bool is_valid(few_queries_policy const& policy) {
    int const bytes = 2 * policy.stages * policy.tiles * 128 * Channels;  // of keys and values
    int const room = policy.has_boxes ? 227 * 1024 : 80 * 1024;           // without TMA 19 of 99 KiB are for the rest
    return policy.blocks >= 1 && policy.stages >= 1 && bytes <= room && policy.blocks * bytes <= 227 * 1024 &&
           (policy.has_boxes ? policy.stages >= 2 && policy.tiles == 1 : policy.tiles >= 1);
  }
};

/// Costs are positive, and do not fall with the number of warpgroups.
struct with_costs : attention_split_tuning {
  static constexpr bool is_valid(attention_split_policy const& policy) {
    return policy.tile[0] > 0 && policy.tile[0] <= policy.tile[1] && policy.tile[1] <= policy.tile[2] &&
           policy.tile[2] <= policy.tile[3] && policy.ranges > 0 && policy.least > policy.split && policy.split > 0 &&
           policy.merging > 0 && policy.least_gain > 0;
  }
};

}  // namespace

TEST_CASE("tunings of attention keep the laws, and their stages and registers fit a multiprocessor", "[host]") {
  CHECK(testing::check_laws<within_attention_limits<64>>().text().empty());
  CHECK(testing::check_laws<within_attention_limits<128>>().text().empty());
  CHECK(testing::check_laws<within_attention_limits<192>>().text().empty());
  CHECK(testing::check_laws<within_attention_limits<256>>().text().empty());
}

TEST_CASE("tunings of attention for few queries and of its splits keep the laws", "[host]") {
  CHECK(testing::check_laws<within_few_queries_limits<64>>().text().empty());
  CHECK(testing::check_laws<within_few_queries_limits<128>>().text().empty());
  CHECK(testing::check_laws<within_few_queries_limits<256>>().text().empty());
  CHECK(testing::check_laws<with_costs>().text().empty());
}
