// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/select/oracle.hpp>
#include <tessera/select/random.hpp>
#include <tessera/select/recent.hpp>
#include <tessera/shadow_kv.hpp>

#include "support/catch.hpp"
#include "support/offload_problem.hpp"
#include "support/real_tensor.hpp"

using namespace tessera;
using tessera_test::contains;
using tessera_test::dense_attention;
using tessera_test::dense_operands;
using tessera_test::host_cache;
using tessera_test::offload_heads;
using tessera_test::offload_sequence;
using tessera_test::real_tensor;

namespace {

constexpr char const* file = "smollm2_attention.safetensors";
constexpr offload_heads heads{9, 3, 64};
constexpr std::int64_t tokens = 512;
constexpr std::int64_t real_prompt = 448;

rotary_embedding embedding() {
  static rotary_tables const tables(rotary_frequencies(100000.0, 64), 1024);
  return tables.embedding(rotary_pairs::halves);
}

/// A layer of a real model, with queries for the tokens from `real_prompt` on, those of 9 heads or of 3.
offload_sequence<bfloat16> real_layer(std::string const& layer, std::int64_t query_heads = 9) {
  offload_sequence<bfloat16> s{tokens, std::vector<bfloat16>(static_cast<std::size_t>(query_heads * tokens * 64)),
                               real_tensor<bfloat16>(file, "layers." + layer + ".keys_pre_rope"),
                               real_tensor<bfloat16>(file, "layers." + layer + ".values")};
  auto const last = real_tensor<bfloat16>(file, "layers." + layer + ".queries_pre_rope.last_64");
  for (std::int64_t head = 0; head < query_heads; ++head) {
    std::copy_n(last.begin() + static_cast<std::ptrdiff_t>(head * 9 / query_heads * 64 * 64), 64 * 64,
                s.queries.begin() + static_cast<std::ptrdiff_t>((head * tokens + real_prompt) * 64));
  }
  return s;
}

/// The options of a run on a layer.
struct real_run {
  std::int64_t chunks = 64;
  std::int64_t prompt = real_prompt;
  offload_options options = {};
  std::int64_t query_heads = 9;  ///< or 3, each with its own key head
};

/// Relative error of the last 64 tokens of a real layer, generated like all after the prompt, against dense attention.
template <class Method>
double real_error(std::string const& layer, real_run const& run, double* hit_rate = nullptr) {
  static std::map<std::pair<std::string, std::int64_t>, std::vector<std::vector<double>>> known;
  offload_heads const own_heads{run.query_heads, 3, 64};
  auto const s = real_layer(layer, run.query_heads);
  std::vector<std::vector<double>>& dense = known[{layer, run.query_heads}];
  if (dense.empty()) {
    dense_operands<bfloat16> const operands(own_heads, s, tokens, embedding());
    for (std::int64_t position = real_prompt; position < tokens; ++position) {
      dense.push_back(dense_attention(own_heads, s, operands, position, embedding()));
    }
  }
  offload_options options = run.options;
  options.ring = 32;
  typename Method::selector_type selector;
  selector.chunks = run.chunks;
  cpu const exec{.threads = 2};
  host_cache<Method, bfloat16> cache(own_heads, {tokens}, embedding(), options, selector);
  cache.prefill(exec, 0, s, run.prompt);
  double error = 0;
  double whole = 0;
  for (std::int64_t position = run.prompt; position < real_prompt; ++position) {
    cache.decode(exec, {&s}, {position});
  }
  for (std::int64_t position = real_prompt; position < tokens; ++position) {
    auto const result = cache.decode(exec, {&s}, {position});
    auto const& expected = dense[static_cast<std::size_t>(position - real_prompt)];
    for (std::size_t i = 0; i < expected.size(); ++i) {
      error += (double{result[i]} - expected[i]) * (double{result[i]} - expected[i]);
      whole += expected[i] * expected[i];
    }
  }
  if (hit_rate != nullptr) {
    *hit_rate = Method::wait_for_statistics(exec, cache.cache()).hit_rate();
  }
  return std::sqrt(error / whole);
}

template <int Rank, class S = coded_landmark_selector<8>, class Codec = exact_values>
using with_rank = offloaded_cache<low_rank<Rank>, S, keep_outliers<4>, Codec>;

/// The part of keys, by length, that `rank` directions leave.
double left_by_directions(std::string const& tensor, std::int64_t rank) {
  auto const keys = real_tensor<bfloat16>(file, tensor);
  cpu const exec{.threads = 2};
  key_factorization const factorization(192, rank);
  workspace_plan plan("test");
  auto const regions = factorization.add_to(plan);
  buffer<std::byte> memory(plan.bytes());
  workspace const space(plan, memory.view());
  std::vector<float> sums(192 * 192, 0.0F);
  std::vector<float> directions(static_cast<std::size_t>(192 * rank));
  matrix_view<float> const gram(sums.data(), {192, 192});
  factorization.accumulate(exec, view<bfloat16 const, 3>(keys.data(), {3, tokens, 64}), gram);
  factorization.find(exec, matrix_view<float const>(gram), regions, space,
                     matrix_view<float>(directions.data(), {192, rank}));
  auto const measures = key_factorization::measures(regions, space)[0];
  return std::sqrt(1 - measures.held / measures.trace);
}

}  // namespace

TEST_CASE("keys before their rotation lie in fewer directions than after it", "[host][long][threads]") {
  struct one_rank {
    std::int64_t rank;
    double before;
  };
  for (std::string const layer : {"14", "16"}) {
    for (auto const& [rank, before] : {one_rank{32, 0.19}, one_rank{96, 0.062}}) {
      CAPTURE(layer, rank);
      double const left = left_by_directions("layers." + layer + ".keys_pre_rope", rank);
      CHECK(left < before);
      CHECK(left_by_directions("layers." + layer + ".keys_post_rope", rank) > 1.4 * left);
    }
  }
}

TEST_CASE("attention of a real model loses as much as the rank leaves out", "[host][long][threads]") {
  double const few = real_error<with_rank<32>>("15", {});
  double const more = real_error<with_rank<96>>("15", {});
  CHECK(few < 0.11);
  CHECK(more < 0.04);
  CHECK(more < 0.5 * few);
  CHECK(real_error<with_rank<192>>("15", {}) < 0.004);
}

TEST_CASE("directions of a real layer's keys get good after a short prompt by themselves", "[host][long][threads]") {
  offload_options fixed;
  fixed.renewal_until = 0.0F;
  // Directions are those of all keys, whatever the number of queries. The numbers beside are of 9 query heads.
  for (std::int64_t const begun : {0, 32}) {
    double const few = real_error<with_rank<96>>("15", {.prompt = begun, .query_heads = 3});
    CAPTURE(begun, few);
    CHECK(few < 0.048);                                                         // 0.033 if 448 tokens are the prompt
    CHECK(real_error<with_rank<96>>("15", {64, begun, fixed, 3}) > 2.5 * few);  // without renewal
  }
  double const more = real_error<with_rank<160>>("15", {.prompt = 0, .query_heads = 3});
  CHECK(more < 0.03);  // 0.013 if 448 tokens are the prompt
}

TEST_CASE("landmarks choose nearly as well as looking at all keys of a real model", "[host][long][threads]") {
  double hit_rate = 0;
  double const landmarks = real_error<with_rank<96>>("15", {16}, &hit_rate);
  CHECK(landmarks < 0.14);
  CHECK(landmarks < 1.35 * real_error<with_rank<96, oracle_selector<8>>>("15", {16}));
  CHECK(1.6 * landmarks < real_error<with_rank<96, recent_selector<8>>>("15", {16}));
  CHECK(2.0 * landmarks < real_error<with_rank<96, random_selector<8>>>("15", {16}));
  CHECK(hit_rate > 0.6);  // the paper's figure
}

TEST_CASE("landmarks in 8 bits lose no more of a real model's attention than those in bfloat16",
          "[host][long][threads]") {
  for (auto const& [layer, chunks] : {std::pair{"14", 8}, std::pair{"15", 16}}) {
    double const coded = real_error<with_rank<160>>(layer, {chunks});
    double const plain = real_error<with_rank<160, landmark_selector<8>>>(layer, {chunks});
    CAPTURE(layer, chunks, coded, plain);
    CHECK(coded != plain);  // now and then another chunk is selected
    CHECK(std::abs(coded - plain) < 0.01 * plain);
  }
}

TEST_CASE("coded values of a real model cost little", "[host][long][threads]") {
  double const exact = real_error<with_rank<96>>("15", {16});
  CHECK(real_error<with_rank<96, coded_landmark_selector<8>, float8_quantizer<float8_e4m3>>>("15", {16}) <
        exact + 0.005);
  CHECK(real_error<with_rank<96, coded_landmark_selector<8>, symmetric_quantizer<4, 64>>>("15", {16}) < exact + 0.015);
}

TEST_CASE("a plan says what goes where before anything is allocated", "[host]") {
  offload_shape const shape{32, 8, 128, {131072, 1000}};
  auto const plan = shadow_kv::plan<bfloat16>(cpu{}, {32, 8, 128, {131072}});
  std::int64_t const dense = std::int64_t{131072} * 8 * 128 * 2 * 2;
  CHECK(7 * plan.device.bytes() < dense);
  auto const paper = shadow_kv_paper::plan<bfloat16>(cpu{}, {32, 8, 128, {131072}});
  CHECK(6 * paper.device.bytes() < dense);
  // 256 - 132 bytes a chunk and head, except for padding.
  CHECK(paper.device.bytes() - plan.device.bytes() > std::int64_t{16377} * 8 * 123);
  CHECK(plan.host.bytes() == std::int64_t{16377} * 8 * 2048);
  CHECK(plan.step.bytes() < 4 << 20);  // 1.2 MB of it are for renewing directions
  CHECK(plan.prompt.bytes() < 8 << 20);
  CHECK_THAT(plan.describe(), contains("coefficients of keys"));
  CHECK_THAT(plan.describe(), contains("pinned memory of the host"));
  auto const two = shadow_kv::plan<bfloat16>(cpu{}, shape);
  CHECK(two.extents.rows == 16377 + 118);
  CHECK(two.extents.longest == 16377);
  CHECK(two.capacity(1) == 118);
  offload_options options;
  options.values = value_store::device;
  auto const resident = shadow_kv::plan<bfloat16>(cpu{}, {32, 8, 128, {131072}}, options);
  CHECK(resident.host.bytes() == 0);
  CHECK(resident.device.bytes() == plan.device.bytes() + plan.host.bytes());
  using small_values =
      offloaded_cache<low_rank<160>, coded_landmark_selector<8>, keep_outliers<48>, symmetric_quantizer<4, 64>>;
  CHECK(small_values::plan<bfloat16>(cpu{}, {32, 8, 128, {131072}}).host.bytes() == std::int64_t{16377} * 8 * 576);
  // The bytes for a context of a million tokens.
  auto const million = shadow_kv::plan<bfloat16>(cpu{}, {32, 8, 128, {1 << 20}});
  CHECK(7 * million.device.bytes() < (std::int64_t{1} << 20) * 8 * 128 * 2 * 2);
}

TEST_CASE("what does not fit together is refused with both numbers", "[host]") {
  CHECK_THROWS_WITH(shadow_kv::plan<bfloat16>(cpu{}, {6, 4, 128, {100}}),
                    contains("6 query heads, which are no whole number"));
  CHECK_THROWS_WITH(shadow_kv::plan<bfloat16>(cpu{}, {32, 1, 128, {100}}), contains("32 query heads share a key head"));
  CHECK_THROWS_WITH(shadow_kv::plan<bfloat16>(cpu{}, {4, 4, 72, {100}}), contains("heads have 72 channels"));
  CHECK_THROWS_WITH(shadow_kv::plan<bfloat16>(cpu{}, {4, 4, 64, {-1}}), contains("room for -1 tokens"));
  offload_options options;
  options.ring = 60;
  CHECK_THROWS_WITH(shadow_kv::plan<bfloat16>(cpu{}, {4, 4, 64, {100}}, options), contains("the ring has 60 tokens"));
  options = {};
  options.slots = 3;
  CHECK_THROWS_WITH(shadow_kv::plan<bfloat16>(cpu{}, {4, 4, 64, {1000}}, options),
                    contains("there are 3 slots but at least 118"));
  options = {};
  options.softmax_scale = NAN;
  CHECK_THROWS_WITH(shadow_kv::plan<bfloat16>(cpu{}, {4, 4, 64, {1000}}, options),
                    contains("the scale of the softmax is nan"));
  auto const plan = with_rank<32>::plan<bfloat16>(cpu{}, {9, 3, 64, {tokens}});
  std::vector<std::byte> none;
  CHECK_THROWS_WITH(with_rank<32>::open(cpu{}, plan, none, none, embedding()), contains("the workspace has 0 bytes"));
  buffer<std::byte> device(plan.device.bytes());
  buffer<std::byte> host(plan.host.bytes());
  rotary_tables const few(rotary_frequencies(10000.0, 64), 256);
  CHECK_THROWS_WITH(with_rank<32>::open(cpu{}, plan, device.view(), host.view(), few.embedding(rotary_pairs::halves)),
                    contains("the embedding has 256 positions but the longest sequence has room for 520"));
  rotary_tables const wide(rotary_frequencies(10000.0, 128), 1024);
  CHECK_THROWS_WITH(with_rank<32>::open(cpu{}, plan, device.view(), host.view(), wide.embedding(rotary_pairs::halves)),
                    contains("the embedding turns 128 channels but heads have 64"));
}

TEST_CASE("prompts and steps of another shape are refused with both numbers", "[host]") {
  auto const s = real_layer("15");
  cpu const exec{.threads = 1};
  using method = with_rank<32>;
  host_cache<method, bfloat16> cache(heads, {300}, embedding());
  side_queue<cpu> const side(exec, 1);
  auto const space = cache.prompt_space();
  view<bfloat16 const, 3> const keys(s.keys.data(), {3, 512, 64});
  auto const prefill = [&](view<bfloat16 const, 3> k, view<bfloat16 const, 3> v, std::int64_t sequence = 0) {
    method::prefill(exec, side, cache.cache(), sequence, k, v, space);
  };
  CHECK_THROWS_WITH(prefill(keys, keys), contains("the prompt has 512 tokens but sequence 0 has room for 303"));
  CHECK_THROWS_WITH(prefill(keys.slice(1, 0, 100), keys.slice(1, 0, 99)),
                    contains("dimension 1 of the values has 99 elements but needs 100"));
  CHECK_THROWS_WITH(prefill(keys.slice(2, 0, 32), keys),
                    contains("dimension 2 of the keys has 32 elements but needs 64"));
  CHECK_THROWS_WITH(prefill(keys.slice(1, 0, 100), keys.slice(1, 0, 100), 1),
                    contains("sequence 1 is asked for but there are 1"));
  auto begun = method::begin(exec, cache.cache(), 0, space);
  method::take(exec, side, cache.cache(), begun, keys.slice(1, 0, 7), keys.slice(1, 0, 7), space);
  CHECK_THROWS_WITH(method::take(exec, side, cache.cache(), begun, keys.slice(1, 7, 8), keys.slice(1, 7, 8), space),
                    contains("7 tokens came before, which are no whole chunks of 8"));
  CHECK_THROWS_WITH(cache.decode(exec, {&s, &s}, {0, 0}), contains("there are 2 steps but 1 sequences"));
}
