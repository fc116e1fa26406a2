// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// An offloaded cache at the limits of its arguments: ranks, names of sequences, selectors with state.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tessera/algorithm/offloaded_cache/low_rank_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>
#include <tessera/shadow_kv.hpp>

#include "support/catch.hpp"
#include "support/offload_problem.hpp"
#include "support/vectors.hpp"

using namespace tessera;
using tessera_test::contains;
using tessera_test::dense_attention;
using tessera_test::embedding;
using tessera_test::host_cache;
using tessera_test::make_sequence;
using tessera_test::offload_heads;
using tessera_test::offload_sequence;
using tessera_test::relative_error;

namespace {

constexpr offload_heads heads{4, 2, 16};

template <int Rank>
using method_of = offloaded_cache<low_rank<Rank>, landmark_selector<8>, keep_outliers<3>>;

/// The results of steps after a prompt.
template <class Method, class T>
std::vector<float> generate(offload_heads const& n, offload_sequence<T> const& s, std::int64_t prompt,
                            rotary_embedding const& rotary) {
  host_cache<Method, T> cache(n, {s.tokens}, rotary);
  cache.prefill(cpu{}, 0, s, prompt);
  std::vector<float> results;
  for (std::int64_t position = prompt; position < s.tokens; ++position) {
    auto const found = cache.decode(cpu{}, {&s}, {position});
    results.insert(results.end(), found.begin(), found.end());
  }
  return results;
}

}  // namespace

TEST_CASE("a rank beyond the channels of keys is as many directions as there are channels", "[host][slow]") {
  auto const plan = shadow_kv::plan<bfloat16>(cpu{}, {1, 1, 128, {2000}});
  CHECK(plan.extents.rank == 128);
  CHECK_THAT(plan.describe(), contains("keys of 128 channels of all heads in 128 directions"));
  CHECK_THAT(shadow_kv::plan<bfloat16>(cpu{}, {4, 4, 128, {2000}}).describe(),
             contains("keys of 512 channels of all heads in 160 directions"));
  auto const exact = method_of<32>::plan<float>(cpu{}, {4, 2, 16, {500}});
  auto const beyond = method_of<40>::plan<float>(cpu{}, {4, 2, 16, {500}});
  CHECK(beyond.device.bytes() == exact.device.bytes());
  CHECK(beyond.prompt.bytes() == exact.prompt.bytes());
  CHECK(beyond.step.bytes() == exact.step.bytes());
  auto const s = make_sequence<float>(heads, 330, 3);
  CHECK(generate<method_of<40>>(heads, s, 250, embedding()) == generate<method_of<32>>(heads, s, 250, embedding()));
  // The paper's parameters, one key head: every direction is kept, and attention is exact but for 16-bit floats.
  constexpr offload_heads one_head{2, 1, 128};
  auto const wide = make_sequence<bfloat16>(one_head, 708, 4);
  auto const found = generate<shadow_kv>(one_head, wide, 700, embedding<128>());
  for (std::int64_t step = 0; step < 8; ++step) {
    auto const first = found.begin() + static_cast<std::ptrdiff_t>(step * 256);
    auto const expected = dense_attention(one_head, wide, 700 + step, embedding<128>());
    CHECK(relative_error({first, first + 256}, expected) < 0.01);
  }
}

TEST_CASE("sequences that a step cannot be of are reported and left as they are", "[host][threads]") {
  struct one_case {
    std::vector<std::int32_t> named;
    std::string complaint;
  };
  cpu const exec{.threads = 2};
  auto const s = make_sequence<float>(heads, 300, 5);
  for (auto const& [named, complaint] :
       {one_case{{2, 0, 2, -1}, "offloaded_cache.decode: step 0 is of sequence 2, and so is step 2"},
        one_case{{2, 0, 1, 1}, "step 2 is of sequence 1, and so is step 3"}, one_case{{-1, 0, -1, -1}, ""},
        one_case{{-1, 0, -2, -1}, "step 2 is of sequence -2, which is none of 4"},
        one_case{{INT32_MIN, 0, 1, -1}, "step 0 is of sequence -2147483648, which is none of 4"},
        one_case{{1, 0, 4, 2}, "step 2 is of sequence 4, which is none of 4"},
        one_case{{1, 0, INT32_MAX, 2}, "step 2 is of sequence 2147483647, which is none of 4"},
        one_case{{1, 0, 3, 2}, "step 2 is of sequence 3 of 4, which was never begun in this cache"}}) {
    CAPTURE(named);
    host_cache<method_of<32>, float> cache(heads, {300, 300, 300, 300}, embedding());
    for (std::int64_t sequence = 0; sequence < 3; ++sequence) {  // the last one is never begun
      cache.prefill(exec, sequence, s, 119 + sequence);
    }
    auto const device = cache.device_bytes();
    std::vector<std::int64_t> positions;
    std::vector<bool> is_taken;
    for (std::int32_t const sequence : named) {
      bool const is_there = sequence >= 0 && sequence < 3;
      positions.push_back(is_there ? 119 + sequence : 0);
      is_taken.push_back(is_there && std::count(named.begin(), named.end(), sequence) == 1);
    }
    auto const found = cache.decode(exec, {&s, &s, &s, &s}, positions, named);
    if (complaint.empty()) {
      CHECK_NOTHROW(exec.wait());
    } else {
      CHECK_THROWS_WITH(exec.wait(), contains(complaint));
    }
    for (std::size_t i = 0; i < named.size(); ++i) {
      CAPTURE(i);
      auto const first = found.begin() + static_cast<std::ptrdiff_t>(64 * i);
      std::vector<float> const own(first, first + 64);
      if (is_taken[i]) {
        CHECK(cache.memory().sequences[named[i]].tokens == positions[i] + 1);
        CHECK(relative_error(own, dense_attention(heads, s, positions[i], embedding())) < 3e-5);
      } else {
        CHECK(own == std::vector<float>(64, 0.0F));
      }
    }
    if (std::count(is_taken.begin(), is_taken.end(), true) == 1) {
      // The other sequences are unchanged: restore what the one step wrote, by taking it in a cache with the same past.
      cache.set_device_bytes(device);
      cache.decode(exec, {&s}, {119}, {0});
      auto const alone = cache.device_bytes();
      cache.set_device_bytes(device);
      cache.decode(exec, {&s, &s, &s, &s}, positions, named);
      CHECK((cache.device_bytes() == alone));
      if (!complaint.empty()) {
        CHECK_THROWS(exec.wait());
      }
    }
  }
}

TEST_CASE("lengths that are of another cache are reported before anything is read by them", "[host]") {
  cpu const exec{.threads = 1};
  auto const s = make_sequence<float>(heads, 300, 5);
  auto const rows = static_cast<std::int32_t>(method_of<32>::plan<float>(cpu{}, {4, 2, 16, {300, 300}}).extents.rows);
  for (cached_sequence const& forged :
       {cached_sequence{rows - 3, 4, 42, 2, 1.0, 0.0F, 0, 0.0F}, cached_sequence{-1, 4, 42, 2, 1.0, 0.0F, 0, 0.0F},
        cached_sequence{0, 1, 42, 2, 1.0, 0.0F, 0, 0.0F}, cached_sequence{0, 4, -24, -3, 1.0, 0.0F, 0, 0.0F},
        cached_sequence{0, 4, 15, 2, 1.0, 0.0F, 0, 0.0F}, cached_sequence{0, 40, 81, 2, 1.0, 0.0F, 0, 0.0F}}) {
    CAPTURE(forged.first, forged.capacity, forged.tokens, forged.chunks);
    host_cache<method_of<32>, float> cache(heads, {300, 300}, embedding());
    cache.prefill(exec, 0, s, 119);
    cache.memory().sequences[1] = forged;
    for (std::int64_t step = 0; step < 2; ++step) {
      auto const found = cache.decode(exec, {&s, &s}, {119 + step, 42});  // no list: step i is of sequence i
      CHECK_THROWS_WITH(exec.wait(), contains("step 1 is of sequence 1 of 2, which was never begun in this cache"));
      CHECK(std::vector<float>(found.begin() + 64, found.end()) == std::vector<float>(64, 0.0F));
      CHECK(cache.memory().sequences[0].tokens == 120 + step);
      std::vector<float> const own(found.begin(), found.begin() + 64);
      CHECK(relative_error(own, dense_attention(heads, s, 119 + step, embedding())) < 3e-5);
    }
  }
}

TEST_CASE("prompts that say of themselves what cannot be are refused", "[host]") {
  using method = method_of<32>;
  cpu const exec;
  side_queue<cpu> const side(exec, 1);
  auto const s = make_sequence<float>(heads, 4096, 5);
  host_cache<method, float> cache(heads, {300, 300}, embedding());
  view<float const, 3> const keys(s.keys.data(), {2, 4096, 16});
  CHECK_THROWS_WITH(method::finish(exec, side, cache.cache(), {0, 4096}, keys, keys, cache.prompt_space()),
                    contains("the prompt has 4096 tokens but sequence 0 has room for 303"));
  offload_prompt before{0, -8};
  CHECK_THROWS_WITH(
      method::take(exec, side, cache.cache(), before, keys.slice(1, 0, 16), keys.slice(1, 0, 16), cache.prompt_space()),
      contains("-8 tokens came before"));
}

namespace {

/// A selector that keeps the means of so many channels alone: the user chooses how much is kept of a chunk.
struct few_channels_selector {
  static constexpr int chunk = 8;
  using group_type = group_max;
  using element_type = float;

  std::int64_t kept_channels = 1;
  std::int64_t chunks = 4;

  TESSERA_FN std::int64_t elements(std::int64_t channels) const { return min(kept_channels, channels); }
  TESSERA_FN std::int64_t pieces(std::int64_t channels) const { return min(kept_channels, channels); }
  template <class Keys>
  TESSERA_FN void reduce(Keys const& keys, std::int64_t piece, std::int64_t, float* kept) const {
    float sum = 0.0F;
    for (int token = 0; token < chunk; ++token) {
      sum += keys(token, piece);
    }
    kept[piece] = sum / static_cast<float>(chunk);
  }
  template <class Query>
  TESSERA_FN float score(Query const& query, float const* kept, std::int64_t channels, scored_chunk const&) const {
    float sum = 0.0F;
    for (std::int64_t channel = 0; channel < min(kept_channels, channels); ++channel) {
      sum += query(channel) * kept[channel];
    }
    return sum;
  }
  TESSERA_FN std::int64_t budget(std::int64_t candidates) const { return min(chunks, candidates); }
};

}  // namespace

TEST_CASE("a selector's own state says how much is kept of a chunk", "[host]") {
  using method = offloaded_cache<low_rank<32>, few_channels_selector, keep_outliers<3>>;
  cpu const exec;
  auto const s = make_sequence<float>(heads, 330, 6);
  few_channels_selector const twelve{.kept_channels = 12};
  host_cache<method, float> cache(heads, {330}, embedding(), {}, twelve);
  CHECK(cache.plan().elements == 12);
  cache.prefill(exec, 0, s, 300);
  for (std::int64_t position = 300; position < 330; ++position) {
    cache.decode(exec, {&s}, {position});
  }
  auto const& memory = cache.memory();
  std::int64_t const chunks = memory.sequences[0].chunks;
  REQUIRE(chunks == 34);
  std::int64_t differing = 0;
  for (std::int64_t at = 0; at < chunks * 2 * 12; ++at) {
    std::int64_t const chunk = at / 24;
    std::int64_t const head = at / 12 % 2;
    view<float const, 2> const rows(s.keys.data() + head * s.tokens * 16, {s.tokens, 16});
    float sum = 0.0F;
    for (std::int64_t token = 8 * chunk; token < 8 * chunk + 8; ++token) {
      sum += rotated<float>(embedding(), token, at % 12, plain_keys<float>{rows}.at(token));
    }
    differing += memory.landmarks(chunk, head, at % 12) == sum / 8.0F ? 0 : 1;
  }
  CHECK(differing == 0);
  auto const plan = method::plan<float>(cpu{}, {4, 2, 16, {330}});
  buffer<std::byte> device(plan.device.bytes());
  buffer<std::byte> host(plan.host.bytes());
  CHECK_THROWS_WITH(method::open(cpu{}, plan, device.view(), host.view(), embedding(), twelve),
                    contains("the selector keeps 12 elements of a chunk but the plan has room for 1"));
}

TEST_CASE("an embedding whose tables are null is refused where a cache is opened", "[host]") {
  using method = method_of<32>;
  auto const plan = method::plan<float>(cpu{}, {4, 2, 16, {300}});
  buffer<std::byte> device(plan.device.bytes());
  buffer<std::byte> host(plan.host.bytes());
  rotary_embedding rotary = embedding();
  rotary.within.data = nullptr;
  CHECK_THROWS_WITH(method::open(cpu{}, plan, device.view(), host.view(), rotary),
                    contains("offloaded_cache.open: the angles of positions have no memory"));
  rotary = embedding();
  rotary.blocks.data = nullptr;
  CHECK_THROWS_WITH(method::open(cpu{}, plan, device.view(), host.view(), rotary),
                    contains("offloaded_cache.open: the angles of blocks have no memory"));
}
