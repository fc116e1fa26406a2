// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <tessera/algorithm/offloaded_cache/exact_keys.hpp>
#include <tessera/algorithm/offloaded_cache/low_rank_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/select/coded_landmark.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"
#include "support/offload_problem.hpp"
#include "support/vectors.hpp"

using namespace tessera;
using tessera_test::dense_attention;
using tessera_test::embedding;
using tessera_test::host_cache;
using tessera_test::make_sequence;
using tessera_test::offload_heads;
using tessera_test::offload_sequence;
using tessera_test::relative_error;

namespace {

using full_rank = offloaded_cache<low_rank<32>, landmark_selector<8>, keep_outliers<3>>;
using few_directions = offloaded_cache<low_rank<16>, landmark_selector<8>, keep_outliers<3>>;
using with_codes = offloaded_cache<low_rank<16>, coded_landmark_selector<8>, keep_outliers<3>>;
using with_exact_keys = offloaded_cache<exact_keys, coded_landmark_selector<8>, keep_outliers<3>>;

constexpr offload_heads small_heads{4, 2, 16};

/// Results of steps at all positions from `prompt` on.
template <class Method, class T, class Executor>
std::vector<std::vector<float>> generate(Executor const& exec, host_cache<Method, T>& cache,
                                         offload_sequence<T> const& s, std::int64_t prompt) {
  std::vector<std::vector<float>> results;
  cache.prefill(exec, 0, s, prompt);
  for (std::int64_t position = prompt; position < s.tokens; ++position) {
    results.push_back(cache.decode(exec, {&s}, {position}));
  }
  exec.wait();
  return results;
}

}  // namespace

TEST_CASE("all directions and all chunks are dense attention", "[host][threads][slow]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const prompt : {0, 1, 7, 56, 64, 71, 203}) {
    CAPTURE(prompt);
    auto const s = make_sequence<float>(small_heads, prompt + 90, 5);
    host_cache<full_rank, float> cache(small_heads, {s.tokens}, embedding());
    cache.prefill(exec, 0, s, prompt);
    for (std::int64_t position = prompt; position < s.tokens; ++position) {
      std::vector<float> log_sum_exp;
      std::vector<double> expected;
      auto const found = cache.decode(exec, {&s}, {position}, {}, &log_sum_exp);
      auto const result = dense_attention(small_heads, s, position, embedding(), 0, &expected);
      REQUIRE(relative_error(found, result) < 2e-5);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        REQUIRE(log_sum_exp[i] == Approx(expected[i]).margin(2e-5));
      }
    }
    exec.wait();
    CHECK(cache.memory().sequences[0].tokens == s.tokens);
    CHECK(cache.memory().sequences[0].chunks == cache.plan().extents.archived(s.tokens));
  }
}

TEST_CASE("a step attends to the ring, the exact and the selected chunks and to nothing else", "[host][threads]") {
  cpu const exec{.threads = 2};
  std::int64_t const prompt = 403;
  auto const s = make_sequence<float>(small_heads, prompt + 70, 6);
  host_cache<full_rank, float> cache(small_heads, {s.tokens}, embedding(), {}, {.chunks = 5});
  cache.prefill(exec, 0, s, prompt);
  auto const& n = cache.plan().extents;
  CHECK(n.budget == 5);
  for (std::int64_t position = prompt; position < s.tokens; ++position) {
    std::int64_t const chunks = cache.memory().sequences[0].chunks;
    std::vector<std::set<std::int64_t>> exact(2);
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t index = 0; index < n.exact(); ++index) {
        if (cache.memory().exact_ids(0, head, index) >= 0) {
          exact[static_cast<std::size_t>(head)].insert(cache.memory().exact_ids(0, head, index));
        }
      }
      CHECK(exact[static_cast<std::size_t>(head)].size() >= 3);
    }
    auto const found = cache.decode(exec, {&s}, {position});
    auto const step = cache.step(1);
    auto attended = [&](std::int64_t head, std::int64_t token) {
      if (token >= chunks * 8 || exact[static_cast<std::size_t>(head)].count(token / 8) > 0) {
        return true;
      }
      for (std::int64_t rank = 0; rank < step.selected_counts(0, head); ++rank) {
        if (step.selected(0, head, rank) == token / 8) {
          return true;
        }
      }
      return false;
    };
    for (std::int64_t head = 0; head < 2; ++head) {
      CHECK(step.selected_counts(0, head) == 5);
      std::int32_t before = -1;
      for (std::int64_t rank = 0; rank < 5; ++rank) {
        std::int32_t const chunk = step.selected(0, head, rank);
        CHECK(chunk > before);
        CHECK(chunk < chunks);
        CHECK(exact[static_cast<std::size_t>(head)].count(chunk) == 0);
        std::int32_t const slot = step.selected_slots(0, head, rank);
        CHECK(cache.memory().slot_ids(0, head, slot) == chunk);
        before = chunk;
      }
    }
    REQUIRE(relative_error(found, dense_attention(small_heads, s, position, embedding(), 0, nullptr, attended)) < 3e-5);
  }
}

TEST_CASE("what lies in slots changes no bit of the results", "[host][threads][slow]") {
  cpu const exec{.threads = 2};
  auto const s = make_sequence<bfloat16>(small_heads, 500, 7);
  host_cache<few_directions, bfloat16> one(small_heads, {500}, embedding(), {}, {.chunks = 6});
  auto const with = generate(exec, one, s, 390);
  offload_options options;
  options.keeps_slots = false;
  host_cache<few_directions, bfloat16> two(small_heads, {500}, embedding(), options, {.chunks = 6});
  CHECK(with == generate(exec, two, s, 390));
  options.keeps_slots = true;
  options.slots = 17;
  host_cache<few_directions, bfloat16> three(small_heads, {500}, embedding(), options, {.chunks = 6});
  CHECK(with == generate(exec, three, s, 390));
  options.values = value_store::device;
  host_cache<few_directions, bfloat16> four(small_heads, {500}, embedding(), options, {.chunks = 6});
  CHECK(four.plan().host.bytes() == 0);
  CHECK(with == generate(exec, four, s, 390));
  // The same queries find their chunks in slots, and more slots keep more of them.
  auto const share = [](auto const& cache) {
    chunk_usage const usage = cache.memory().usage(0, 0);
    CHECK(usage.selected == 110 * 6);
    return static_cast<double>(usage.resident) / static_cast<double>(usage.selected);
  };
  CHECK(share(one) > 0.3);
  CHECK(share(three) > share(one));
}

TEST_CASE("a ragged batch has the bits that its sequences have alone", "[host][threads][slow]") {
  cpu const exec{.threads = 2};
  std::vector<std::int64_t> const prompts{3, 330, 64, 131};
  std::vector<offload_sequence<bfloat16>> all;
  std::vector<std::int64_t> room;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    all.push_back(make_sequence<bfloat16>(small_heads, prompts[i] + 80, 50 + i));
    room.push_back(all.back().tokens);
  }
  host_cache<few_directions, bfloat16> batch(small_heads, room, embedding(), {}, {.chunks = 4});
  for (std::size_t i = prompts.size(); i-- > 0;) {
    batch.prefill(exec, static_cast<std::int64_t>(i), all[i], prompts[i]);
  }
  std::vector<std::vector<std::vector<float>>> alone;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    host_cache<few_directions, bfloat16> single(small_heads, {room[i]}, embedding(), {}, {.chunks = 4});
    alone.push_back(generate(exec, single, all[i], prompts[i]));
  }
  std::size_t const size = 4 * 16;
  for (std::int64_t k = 0; k < 80; ++k) {
    // In every third step the second sequence rests, and the others are in another order.
    bool const is_third = k % 3 == 2;
    std::vector<std::int32_t> const named =
        is_third ? std::vector<std::int32_t>{3, -1, 0, 2} : std::vector<std::int32_t>{};
    std::vector<offload_sequence<bfloat16> const*> tokens;
    std::vector<std::int64_t> positions;
    for (std::size_t i = 0; i < 4; ++i) {
      std::size_t const of = named.empty() ? i : static_cast<std::size_t>(named[i] < 0 ? 1 : named[i]);
      tokens.push_back(&all[of]);
      std::int64_t const rests = of == 1 ? k / 3 : 0;
      positions.push_back(prompts[of] + k - rests);
    }
    auto const found = batch.decode(exec, tokens, positions, named);
    for (std::size_t i = 0; i < 4; ++i) {
      std::vector<float> const own(found.begin() + static_cast<std::ptrdiff_t>(i * size),
                                   found.begin() + static_cast<std::ptrdiff_t>((i + 1) * size));
      if (is_third && i == 1) {
        CHECK(own == std::vector<float>(size, 0.0F));
        continue;
      }
      std::size_t const of = named.empty() ? i : static_cast<std::size_t>(named[i]);
      REQUIRE(own == alone[of][static_cast<std::size_t>(positions[i] - prompts[of])]);
    }
  }
  exec.wait();
}

TEMPLATE_TEST_CASE("a prompt in pieces has the bits of a prompt at once", "[host][threads]", few_directions, with_codes,
                   with_exact_keys) {
  cpu const exec{.threads = 2};
  auto const s = make_sequence<bfloat16>(small_heads, 330, 8);
  host_cache<TestType, bfloat16> whole(small_heads, {330}, embedding(), {}, {.chunks = 4});
  host_cache<TestType, bfloat16> pieces(small_heads, {330}, embedding(), {}, {.chunks = 4});
  whole.prefill(exec, 0, s, 309);
  pieces.prefill(exec, 0, s, 309, 2048);
  CHECK(whole.decode(exec, {&s}, {309}) == pieces.decode(exec, {&s}, {309}));
  // Shorter pieces add up products in another order, but chunks and outliers have the same bits.
  pieces.prefill(exec, 0, s, 309, 40);
  whole.prefill(exec, 0, s, 309);
  auto const& a = whole.memory();
  auto const& b = pieces.memory();
  auto const& n = whole.plan().extents;
  std::int64_t const chunks = n.archived(309);
  CHECK(std::equal(a.landmarks.data, &a.landmarks(chunks, 0, 0), b.landmarks.data));
  CHECK(std::equal(a.chunk_slots.data, &a.chunk_slots(chunks, 0), b.chunk_slots.data));
  CHECK(std::equal(a.exact_keys.data, a.exact_keys.data + 3 * 8 * 16, b.exact_keys.data));
  CHECK(std::equal(a.values.data, &a.values(chunks, 0, 0), b.values.data));
  CHECK(std::equal(a.ring_keys.data, a.ring_keys.data + 2 * 53 * 16, b.ring_keys.data));
}

TEMPLATE_TEST_CASE("a sequence that was generated is kept as one that was a prompt", "[host][threads][slow]",
                   few_directions, with_codes, with_exact_keys) {
  cpu const exec{.threads = 2};
  auto const s = make_sequence<bfloat16>(small_heads, 480, 9);
  offload_options options;
  options.residual_limit = INFINITY;
  host_cache<TestType, bfloat16> streamed(small_heads, {480}, embedding(), options, {.chunks = 4});
  host_cache<TestType, bfloat16> prompt(small_heads, {480}, embedding(), options, {.chunks = 4});
  generate(exec, streamed, s, 150);  // 330 tokens more, five times the ring
  prompt.prefill(exec, 0, s, 480);
  auto const& a = streamed.memory();
  auto const& b = prompt.memory();
  std::int64_t const chunks = prompt.plan().extents.archived(480);
  REQUIRE(a.sequences[0].chunks == chunks);
  CHECK(std::equal(a.landmarks.data, a.landmarks.data + a.landmarks.offset(chunks, 0, 0), b.landmarks.data));
  CHECK(std::equal(a.values.data, a.values.data + a.values.offset(chunks, 0, 0), b.values.data));
  for (std::int64_t head = 0; head < 2; ++head) {
    std::set<std::pair<std::int32_t, float>> exact_a;
    std::set<std::pair<std::int32_t, float>> exact_b;
    for (std::int64_t index = 0; index < 3; ++index) {
      exact_a.insert({a.exact_ids(0, head, index), a.exact_measures(0, head, index)});
      exact_b.insert({b.exact_ids(0, head, index), b.exact_measures(0, head, index)});
    }
    CHECK(exact_a == exact_b);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      CHECK((a.chunk_slots(chunk, head) == -2) == (b.chunk_slots(chunk, head) == -2));
    }
    for (std::int64_t token = 480 - 56; token < 480; ++token) {
      CHECK(a.ring_keys(0, head, token % 64, 3) == b.ring_keys(0, head, token % 64, 3));
    }
  }
}

TEMPLATE_TEST_CASE("a NaN among keys makes its sequence's results NaN and no other's", "[host][threads]",
                   few_directions, with_codes, with_exact_keys) {
  cpu const exec{.threads = 2};
  auto broken = make_sequence<bfloat16>(small_heads, 420, 11);
  auto const whole = make_sequence<bfloat16>(small_heads, 420, 12);
  for (std::size_t token = 10; token < 400; token += 40) {
    broken.keys[token * 16 + 5] = store<bfloat16>(NAN);  // tokens of the first head, in more chunks than can be exact
  }
  host_cache<TestType, bfloat16> cache(small_heads, {420, 420}, embedding(), {}, {.chunks = 4});
  cache.prefill(exec, 0, broken, 300);
  cache.prefill(exec, 1, whole, 300);
  for (std::int64_t position = 300; position < 320; ++position) {
    auto const results = cache.decode(exec, {&broken, &whole}, {position, position});
    auto const middle = results.begin() + static_cast<std::ptrdiff_t>(results.size() / 2);
    auto const is_nan_there = [](float value) { return std::isnan(value); };
    CHECK(std::all_of(results.begin(), results.begin() + 2 * 16, is_nan_there));
    CHECK(std::none_of(middle, results.end(), is_nan_there));
  }
}

TEST_CASE("heads of every number and width, and other embeddings, are attended to", "[host][threads]") {
  cpu const exec{.threads = 2};
  struct one_case {
    offload_heads heads;
    int turning;
    rotary_pairs pairs;
  };
  for (auto const& [heads, turning, pairs] :
       {one_case{{2, 2, 16}, 8, rotary_pairs::neighbours}, one_case{{4, 2, 16}, 0, rotary_pairs::halves},
        one_case{{8, 1, 32}, 32, rotary_pairs::halves}, one_case{{16, 1, 32}, 16, rotary_pairs::halves}}) {
    CAPTURE(heads.query_heads, heads.key_heads, heads.channels, turning);
    rotary_tables const made(rotary_frequencies(500000.0, turning), 4096);
    auto const rotary = turning == 0 ? rotary_embedding{} : made.embedding(pairs);
    auto const s = make_sequence<float>(heads, 290, 10);
    host_cache<full_rank, float> cache(heads, {s.tokens}, rotary);
    cache.prefill(exec, 0, s, 275);
    for (std::int64_t position = 275; position < s.tokens; ++position) {
      auto const found = cache.decode(exec, {&s}, {position});
      REQUIRE(relative_error(found, dense_attention(heads, s, position, rotary)) < 3e-5);
    }
  }
}

TEST_CASE("a full sequence is reported and left as it is, and the others go on", "[host]") {
  cpu const exec{.threads = 1};
  auto const s = make_sequence<float>(small_heads, 200, 11);
  host_cache<full_rank, float> cache(small_heads, {120, 200}, embedding());
  cache.prefill(exec, 0, s, 119);
  cache.prefill(exec, 1, s, 119);
  // Room for 120 tokens is room for 8 chunks and a ring.
  std::int64_t position = 119;
  for (; position < 128; ++position) {
    cache.decode(exec, {&s, &s}, {position, position});
    exec.wait();
  }
  auto const found = cache.decode(exec, {&s, &s}, {position, position});
  std::string const complaint = tessera_test::message_of([&] { exec.wait(); });
  CHECK(complaint == "offloaded_cache.decode: the sequence of step 0 has 128 tokens and room for no more than 128");
  CHECK(cache.memory().sequences[0].tokens == 128);
  CHECK(cache.memory().sequences[1].tokens == 129);
  CHECK(std::vector<float>(found.begin(), found.begin() + 64) == std::vector<float>(64, 0.0F));
  std::vector<float> const other(found.begin() + 64, found.end());
  CHECK(relative_error(other, dense_attention(small_heads, s, position, embedding())) < 3e-5);
  cache.decode(exec, {&s}, {position}, {7});
  CHECK_THROWS_WITH(exec.wait(), tessera_test::contains("step 0 is of sequence 7, which is none of 2"));
}

TEST_CASE("workspaces of other plans and views without memory are refused by the call's name", "[host]") {
  cpu const exec{.threads = 1};
  host_cache<full_rank, float> cache(small_heads, {120, 200}, embedding());
  workspace_plan const empty("none");
  workspace const nothing(empty, array_view<std::byte>());
  CHECK_THROWS_WITH(full_rank::begin(exec, cache.cache(), 0, nothing),
                    "offloaded_cache.begin: the workspace is of a plan of 0 bytes but prompts of up to " +
                        std::to_string(cache.plan().extents.longest) + " chunks need " +
                        std::to_string(cache.plan().prompt.bytes()));
  side_queue<cpu> const side(exec, 1);
  std::vector<float> values(static_cast<std::size_t>(2 * small_heads.query_heads * small_heads.channels));
  view<float, 3> const queries(values.data(), {2, small_heads.query_heads, small_heads.channels});
  view<float, 3> const keys(values.data(), {2, small_heads.key_heads, small_heads.channels});
  offload_tokens<float> in{queries, keys, keys};
  offload_outputs<float> const out{queries};
  CHECK_THROWS_WITH(full_rank::decode(exec, side, cache.cache(), in, out, nothing),
                    "offloaded_cache.decode: the workspace is of a plan of 0 bytes but steps of 2 sequences need " +
                        std::to_string(cache.plan().step.bytes()));
  in.sequences = {nullptr, 2};
  CHECK_THROWS_WITH(full_rank::decode(exec, side, cache.cache(), in, out, nothing),
                    "offloaded_cache.decode: the numbers of sequences have no memory but 2 elements");
}

TEST_CASE("a prompt that is refused leaves the sequence as it was", "[host]") {
  cpu const exec{.threads = 1};
  auto const s = make_sequence<float>(small_heads, 200, 11);
  host_cache<full_rank, float> cache(small_heads, {120, 200}, embedding());
  cache.prefill(exec, 0, s, 119);
  exec.wait();
  side_queue<cpu> const side(exec, full_rank::side_marks);
  workspace_plan const planned = full_rank::plan_prefill(exec, cache.plan());
  buffer<std::byte> room(planned.bytes());
  std::vector<float> const numbers(static_cast<std::size_t>(small_heads.key_heads * 1000 * small_heads.channels));
  auto const message = [&](std::int64_t tokens, std::int64_t channels) {
    view<float const, 3> const given(numbers.data(), {small_heads.key_heads, tokens, channels});
    return tessera_test::message_of(
        [&] { full_rank::prefill(exec, side, cache.cache(), 0, given, given, workspace(planned, room.view())); });
  };
  CHECK(message(64, small_heads.channels - 1).find("offloaded_cache.prefill: dimension 2 of the keys has ") == 0);
  CHECK(message(1000, small_heads.channels).find("offloaded_cache.prefill: the prompt has 1000 tokens but ") == 0);
  exec.wait();
  CHECK(cache.memory().sequences[0].tokens == 119);
}

TEST_CASE("parts of a step are all of its sequences, one after the other", "[host]") {
  for (value_store const store : {value_store::host, value_store::device}) {
    for (std::int64_t steps = 0; steps < 70; ++steps) {
      offload_options options;
      options.values = store;
      offload_shape const shape{4, 2, 16, std::vector<std::int64_t>(static_cast<std::size_t>(steps), 100)};
      auto const plan = few_directions::plan<float>(cpu{}, shape, options);
      buffer<std::byte> room(plan.step.bytes());
      auto const step = plan.step_of(workspace(plan.step, room.view()), steps, {});
      int const parts = plan.parts_of(steps);
      REQUIRE(parts >= 1);
      REQUIRE(parts <= few_directions::side_marks);
      std::int64_t next = 0;
      for (int i = 0; i < parts; ++i) {
        auto const part = plan.part_of(step, i);
        REQUIRE(part.first == next);
        REQUIRE((part.steps() > 0 || steps == 0));
        next += part.steps();
      }
      CHECK(next == steps);
    }
  }
}

TEMPLATE_TEST_CASE("steps keep the rules for programs", "[host]", few_directions, with_codes, with_exact_keys) {
  auto const s = make_sequence<float>(small_heads, 92, 12);
  offload_options options;
  options.ring = 16;
  host_cache<TestType, float> one(small_heads, {92}, embedding(), options, {.chunks = 2});
  host_cache<TestType, float> other(small_heads, {92}, embedding(), options, {.chunks = 2});
  CHECK(generate(cpu{.threads = 1}, one, s, 88) == generate(testing::adversary{.seed = 2}, other, s, 88));
}

TEST_CASE("new directions hold what the prompt did not have", "[host][threads][slow]") {
  cpu const exec{.threads = 2};
  // Generated tokens are unrelated to the prompt.
  auto const prompt = make_sequence<float>(small_heads, 600, 13);
  auto s = make_sequence<float>(small_heads, 600, 13);
  for (std::size_t i = 0; i < s.keys.size(); ++i) {
    auto const token = static_cast<std::int64_t>(i / 16 % 600);
    auto const channel = static_cast<std::int64_t>(i % 16 + i / 16 / 600 * 16);
    bool const is_odd = channel % 2 == 1;
    s.keys[i] = (token < 200) == is_odd ? 0.1F * prompt.keys[i] : 1.4F * prompt.keys[i];
  }
  offload_options options;
  options.keeps_products = true;
  options.strays = 0;
  host_cache<few_directions, float> cache(small_heads, {600}, embedding(), options, {.chunks = 70});
  generate(exec, cache, s, 200);
  auto const& known = cache.memory().sequences[0];
  CHECK(known.residual < 0.1F);
  REQUIRE(known.streamed == cache.plan().extents.archived(600) - cache.plan().extents.archived(200));
  CHECK(known.streamed_residual / static_cast<float>(known.streamed) > 5 * known.residual);
  float const prompt_residual = known.residual;
  few_directions::refit(exec, cache.cache(), 0, cache.prompt_space());
  CHECK(known.streamed == 0);
  CHECK(known.residual > prompt_residual);
  CHECK(known.residual < 0.35F);
  // The prompt's own chunks, which the old directions held, are rebuilt about as well as before.
  auto const result = cache.decode(exec, {&prompt}, {599});
  CHECK(std::all_of(result.begin(), result.end(), [](float x) { return std::isfinite(x); }));
  auto const statistics = few_directions::wait_for_statistics(exec, cache.cache());
  CHECK(statistics.sequences[0].tokens == 601);
  CHECK(statistics.hit_rate() > 0.5);
}

TEST_CASE("new directions of full rank change results by rounding alone", "[host][threads][slow]") {
  cpu const exec{.threads = 2};
  auto const s = make_sequence<float>(small_heads, 400, 14);
  offload_options options;
  options.keeps_products = true;
  host_cache<full_rank, float> cache(small_heads, {400}, embedding(), options);
  cache.prefill(exec, 0, s, 300);
  for (std::int64_t position = 300; position < 400; ++position) {
    if (position % 20 == 0) {
      full_rank::refit(exec, cache.cache(), 0, cache.prompt_space());
    }
    auto const found = cache.decode(exec, {&s}, {position});
    REQUIRE(relative_error(found, dense_attention(small_heads, s, position, embedding())) < 5e-5);
  }
  host_cache<full_rank, float> without(small_heads, {400}, embedding());
  CHECK_THROWS_WITH(full_rank::refit(exec, without.cache(), 0, without.prompt_space()),
                    tessera_test::contains("keeps no products"));
}
