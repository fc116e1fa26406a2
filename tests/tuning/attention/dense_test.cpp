// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/core/bits.hpp>
#include <tessera/testing/laws/tuning.hpp>
#include <tessera/tuning/attention/dense.hpp>
#include <tessera/view/attention_block_list.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// What a policy of attention over operands of 16 bits must be by the limits of a multiprocessor.
template <int Channels>
struct within_dense_limits : dense_attention_tuning<Channels> {
  static constexpr bool is_valid(dense_attention_policy const& policy) {
    constexpr int shared_memory = 227 * 1024 - 1024;  // barriers take less than 1024 bytes
    int const registers_at_entry = 65536 / (128 * (1 + policy.consumers)) / 8 * 8;
    int const registers = policy.producer_registers + policy.consumers * policy.consumer_registers;
    int const rows = policy.query_stages * 64 * policy.consumers + 2 * policy.stages * policy.keys;
    bool const are_budgets = policy.producer_registers % 8 == 0 && policy.consumer_registers % 8 == 0 &&
                             policy.producer_registers >= 24 && policy.consumer_registers <= 256;
    return policy.consumers >= 1 && policy.stages >= 2 && policy.query_stages >= 1 && policy.keys % 16 == 0 &&
           policy.keys <= 256 && 2 * Channels * rows <= shared_memory && are_budgets &&
           registers <= (1 + policy.consumers) * registers_at_entry;
  }
};

/// What a policy of attention by mma.sync must be by the limits of a multiprocessor of sm_80, and of those with 99 KiB
/// of shared memory, where it may have fewer thread blocks.
template <class Tuning, int Channels>
struct within_warps_limits : Tuning {
  static constexpr bool is_valid(dense_warps_policy const& policy) {
    int const of_queries = 16 * policy.tiles * policy.warps;
    int const of_keys = 2 * policy.stages * policy.keys;
    int const rows = policy.keeps_queries ? max(of_queries, of_keys) : of_queries + of_keys;
    int const shared_memory = 2 * (Channels + 8) * rows + 32 * policy.warps;  // 32 bytes of a warp for exchanges
    int const sums = policy.tiles * (Channels / 2 + policy.keys / 2);         // in registers of a thread
    int const queries = policy.keeps_queries ? policy.tiles * Channels / 4 : 0;
    return policy.keys % 16 == 0 && policy.stages >= 1 && policy.stages <= 2 && policy.blocks >= 1 &&
           shared_memory <= 99 * 1024 && shared_memory * policy.blocks <= (policy.walks_lists ? 227 : 163) * 1024 &&
           sums + queries < 65536 / (32 * policy.warps * policy.blocks) && sums + queries < 255;
  }
};

/// The same with lists of tiles: a thread block has the queries of a list, and its tiles divide those of lists.
template <int Channels>
struct of_lists : within_warps_limits<dense_listed_tuning<Channels>, Channels> {
  static constexpr bool is_valid(dense_warps_policy const& policy) {
    return within_warps_limits<dense_listed_tuning<Channels>, Channels>::is_valid(policy) && policy.walks_lists &&
           16 * policy.tiles * policy.warps == attention_block_list::queries && 128 % policy.keys == 0;
  }
};

/// Costs are positive, and do not fall with the number of warpgroups.
struct with_dense_costs : dense_split_tuning {
  static constexpr bool is_valid(attention_split_policy const& policy) {
    return policy.tile[0] > 0 && policy.tile[0] <= policy.tile[1] && policy.tile[1] <= policy.tile[2] &&
           policy.tile[2] <= policy.tile[3] && policy.ranges > 0 && policy.least > policy.split && policy.split > 0 &&
           policy.merging > 0 && policy.least_gain > 0;
  }
};

}  // namespace

TEST_CASE("tunings of dense attention keep the laws, and their tiles and registers fit a multiprocessor", "[host]") {
  CHECK(testing::check_laws<within_dense_limits<64>>().text().empty());
  CHECK(testing::check_laws<within_dense_limits<128>>().text().empty());
  CHECK(testing::check_laws<within_dense_limits<256>>().text().empty());
  CHECK(testing::check_laws<with_dense_costs>().text().empty());
  CHECK(testing::check_laws<within_warps_limits<dense_warps_tuning<64>, 64>>().text().empty());
  CHECK(testing::check_laws<of_lists<64>>().text().empty());
  CHECK(testing::check_laws<within_warps_limits<dense_warps_tuning<128>, 128>>().text().empty());
  CHECK(testing::check_laws<of_lists<128>>().text().empty());
  CHECK(testing::check_laws<within_warps_limits<dense_warps_tuning<256>, 256>>().text().empty());
  CHECK(testing::check_laws<of_lists<256>>().text().empty());
  CHECK(testing::check_laws<dense_warps_choice_tuning>().text().empty());
}
