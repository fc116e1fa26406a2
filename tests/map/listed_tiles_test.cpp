// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/map/linear_bias.hpp>
#include <tessera/map/listed_tiles.hpp>

#include "support/attention_reference.hpp"
#include "support/attention_runs.hpp"
#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;

static_assert(is_listed<listed_tiles<>> && is_listed<listed_tiles<linear_bias>> && !is_listed<linear_bias>);
static_assert(std::is_same_v<bias_without_list<listed_tiles<linear_bias>>, linear_bias>);
static_assert(std::is_same_v<bias_without_list<linear_bias>, linear_bias>);

namespace {

/// Two heads of two blocks of queries, and four tiles of keys.
attention_problem<bfloat16> make_problem() {
  auto p = make_attention_problem<bfloat16>({1, 2, 1, 100, 500, 64});
  p.list_counts = {2, 0, 4, 3};
  p.list_tiles = {3, 1, 0, 0, 0, 0, 0, 0, 1, -1, 4, 2, 0, 0, 1, 2};
  return p;
}

/// Attention by sage_attention2, on the host, with this list in the inputs.
template <class Bias>
attention_results run(attention_problem<bfloat16> const& p, attention_block_list const& list, Bias const& bias) {
  attention_shape const& s = p.shape;
  std::vector<bfloat16> result(p.queries.size(), store<bfloat16>(-77.0F));
  std::vector<float> lse(as_size(s.query_heads * s.queries), -77.0F);
  auto const plan = sage_attention2::plan_forward(cpu{}, s);
  buffer<std::byte> memory(cpu{}, plan.bytes());
  attention_inputs<bfloat16> in = p.inputs();
  in.block_list = list;
  attention_outputs<bfloat16> const out{{result.data(), {1, s.query_heads, s.queries, s.channels}},
                                        {lse.data(), {1, s.query_heads, s.queries}}};
  sage_attention2::forward(cpu{}, in, p.options, out, workspace(plan, memory), attention_functions<Bias>{bias});
  return {as_doubles(result), std::vector<double>(lse.begin(), lse.end())};
}

}  // namespace

TEST_CASE("lists of the type mean what lists of the inputs mean, with a bias and without", "[map]") {
  auto const p = make_problem();
  auto const list = p.inputs().block_list;
  auto const without = run(p, {}, listed_tiles<>{list});
  CHECK(without.result == run_attention_problem<sage_attention2, bfloat16>(cpu{}, p).result);
  std::vector<float> const slopes{0.25F, 0.0625F};
  linear_bias const bias{slopes};
  auto const with = run(p, {}, listed_tiles<linear_bias>{list, bias});
  auto const expected = run_attention_problem<sage_attention2, bfloat16>(cpu{}, p, bias);
  CHECK(with.result == expected.result);
  CHECK(with.log_sum_exp == expected.log_sum_exp);
  CHECK(with.result != without.result);
}

TEST_CASE("null lists of the type are all tiles", "[map]") {
  auto p = make_problem();
  auto const found = run(p, {}, listed_tiles<>{});
  p.list_counts.clear();
  CHECK(found.result == run_attention_problem<sage_attention2, bfloat16>(cpu{}, p).result);
}

TEST_CASE("lists of the type are refused where extents do not fit, biases too, and two lists", "[map]") {
  auto const p = make_problem();
  auto const list = p.inputs().block_list;
  auto wrong = list;
  wrong.counts = {list.counts.data, {1, 2, 1}};
  CHECK(message_of([&] { run(p, {}, listed_tiles<>{wrong}); }) ==
        "attention.forward: dimension 2 of the counts of the block list has 1 elements but needs 2");
  wrong = list;
  wrong.tiles.data = nullptr;
  CHECK(message_of([&] { run(p, {}, listed_tiles<>{wrong}); }).find("tiles of the block list") != std::string::npos);
  std::vector<float> const three(3);
  CHECK(message_of([&] {
          run(p, {}, listed_tiles<linear_bias>{list, {three}});
        }) == "attention.forward: there are 3 slopes of biases for 2 query heads");
  CHECK(message_of([&] { run(p, list, listed_tiles<>{list}); }) ==
        "attention.forward: there are two block lists, one of listed_tiles and one of the inputs");
}
