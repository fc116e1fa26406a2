// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/offloaded_cache/prefill.hpp>
#include <tessera/select/landmark.hpp>
#include <tessera/testing/adversary.hpp>

#include "program/offloaded_cache/small_memory.hpp"
#include "support/catch.hpp"

using namespace tessera;

namespace {

using selector_type = landmark_selector<4>;
constexpr auto archived = static_cast<std::int16_t>(chunk_slot::archived);
constexpr auto exact = static_cast<std::int16_t>(chunk_slot::exact);

/// Keys and values of a prompt of the second sequence, whose chunks are rows 8 to 19. Heads lie behind each other.
struct prompt_of_memory : tessera_test::small_memory {
  static constexpr std::int64_t first_row = 8;
  std::int64_t tokens;
  std::vector<float> keys;
  std::vector<float> prompt_values;
  std::vector<float> cosines;

  explicit prompt_of_memory(std::int64_t of)
      : tokens(of),
        keys(samples(heads * tokens * channels, 1)),
        prompt_values(samples(heads * tokens * channels, 2)),
        cosines(sized(heads * chunks()), garbage) {}

  [[nodiscard]] std::int64_t chunks() const { return tokens / n.chunk; }
  [[nodiscard]] view<float const, 3> heads_of(std::vector<float> const& all) const {
    return {all.data(), {heads, tokens, channels}};
  }
  [[nodiscard]] float const* key(std::int64_t head, std::int64_t token) const {
    return &keys[sized((head * tokens + token) * channels)];
  }
  [[nodiscard]] view<float, 2> least() { return {cosines.data(), {heads, chunks()}}; }
  template <class Executor, class Program>
  static void run(Executor const& exec, Program const& program) {
    exec.run(program, program.groups());
  }
  /// Summarises the chunks from `first` on, as a piece of the prompt.
  template <class Executor>
  void summarize(Executor const& exec, std::int64_t first) {
    run(exec, summarize_prompt<float, selector_type>{heads_of(keys).slice(1, first * n.chunk, tokens - first * n.chunk),
                                                     rotary(),
                                                     {},
                                                     first * n.chunk,
                                                     first_row + first,
                                                     chunks() - first,
                                                     memory().landmarks,
                                                     least()});
  }
  /// The largest error of landmarks and cosines of a chunk.
  double error_of_summary(std::int64_t head, std::int64_t chunk) {
    std::vector<double> mean(channels);
    for (std::int64_t token = 0; token < n.chunk; ++token) {
      for (std::int64_t c = 0; c < channels; ++c) {
        std::int64_t const at = chunk * n.chunk + token;
        mean[sized(c)] += turned(key(head, at), at, c) / 4;
      }
    }
    double worst = 0;
    double least_cosine = 1;
    for (std::int64_t c = 0; c < channels; ++c) {
      double const found = double{load(memory().landmarks(first_row + chunk, head, c))};
      worst = std::max(worst, std::fabs(found - mean[sized(c)]) - std::fabs(mean[sized(c)]) * 0x1p-8);
    }
    for (std::int64_t token = 0; token < n.chunk; ++token) {
      double product = 0;
      double of_key = 0;
      double of_mean = 0;
      for (std::int64_t c = 0; c < channels; ++c) {
        double const own = turned(key(head, chunk * n.chunk + token), chunk * n.chunk + token, c);
        product += own * mean[sized(c)];
        of_key += own * own;
        of_mean += mean[sized(c)] * mean[sized(c)];
      }
      least_cosine = std::min(least_cosine, product / std::sqrt(of_key * of_mean));
    }
    return std::max(worst, std::fabs(double{least()(head, chunk)} - least_cosine));
  }
};

template <class Executor>
void check_summaries(Executor const& exec) {
  prompt_of_memory prompt(42);  // ten chunks and two tokens that are in none
  prompt.summarize(exec, 0);
  double worst = 0;
  for (std::int64_t head = 0; head < 2; ++head) {
    for (std::int64_t chunk = 0; chunk < 10; ++chunk) {
      worst = std::max(worst, prompt.error_of_summary(head, chunk));
    }
  }
  CHECK(worst < 2e-6);
  CHECK(load(prompt.memory().landmarks(18, 0, 0)) == load(store<bfloat16>(prompt.garbage)));
  prompt_of_memory in_pieces(42);
  in_pieces.summarize(exec, 7);
  CHECK(in_pieces.least()(1, 6) == prompt.garbage);
  CHECK(in_pieces.least()(1, 7) == prompt.least()(1, 7));
  CHECK(to_bits(in_pieces.memory().landmarks(17, 1, 11)) == to_bits(prompt.memory().landmarks(17, 1, 11)));
}

template <class Executor>
void check_values(Executor const& exec) {
  prompt_of_memory prompt(42);
  prompt.run(exec,
             put_values<float, exact_values>{prompt.heads_of(prompt.prompt_values), 4, 8, 10, prompt.memory().values});
  int wrong = 0;
  for (std::int64_t head = 0; head < 2; ++head) {
    for (std::int64_t token = 0; token < 40; ++token) {
      for (std::int64_t c = 0; c < prompt.channels; ++c) {
        float const value = prompt.prompt_values[prompt.sized((head * 42 + token) * prompt.channels + c)];
        wrong += prompt.stored_value(8 + token / 4, head, token % 4, c) == value ? 0 : 1;
      }
    }
  }
  CHECK(wrong == 0);
  CHECK(prompt.stored_value(7, 1, 3, 11) == prompt.garbage);
  CHECK(prompt.stored_value(18, 0, 0, 0) == prompt.garbage);
}

/// Chooses outliers of chunks with these cosines, and copies them.
template <class Executor>
void check_outliers(Executor const& exec, std::vector<float> const& cosines) {
  prompt_of_memory prompt(static_cast<std::int64_t>(4 * cosines.size()));
  auto const count = static_cast<std::int64_t>(cosines.size());
  std::copy(cosines.begin(), cosines.end(), prompt.cosines.begin());
  std::copy(cosines.rbegin(), cosines.rend(), prompt.cosines.begin() + count);  // the other way round for head 1
  auto const memory = prompt.memory();
  prompt.run(exec, open_sequence<float, bfloat16>{prompt.n, memory, 1, 8, 12});
  prompt.run(exec, choose_outliers<float, bfloat16>{prompt.n, memory, 1, 8, count, prompt.least()});
  prompt.run(exec, copy_exact<float, bfloat16>{prompt.n, memory, prompt.rotary(), 1, prompt.heads_of(prompt.keys),
                                               prompt.heads_of(prompt.prompt_values)});
  for (std::int64_t head = 0; head < 2; ++head) {
    std::vector<std::pair<float, std::int64_t>> expected;
    for (std::int64_t chunk = 0; chunk < count; ++chunk) {
      expected.emplace_back(prompt.least()(head, chunk), chunk);
    }
    std::sort(expected.begin(), expected.end());  // of equal ones the earlier
    expected.resize(std::min(expected.size(), std::size_t{3}));
    std::vector<std::int64_t> ids;
    for (auto const& of : expected) {
      ids.push_back(of.second);
    }
    std::sort(ids.begin(), ids.end());
    for (std::int64_t slot = 0; slot < prompt.n.exact(); ++slot) {
      bool const is_taken = slot < static_cast<std::int64_t>(ids.size());
      std::int64_t const id = is_taken ? ids[prompt.sized(slot)] : -1;
      REQUIRE(memory.exact_ids(1, head, slot) == id);
      if (is_taken) {
        CHECK(memory.exact_measures(1, head, slot) == prompt.least()(head, id));
        CHECK(memory.chunk_slots(8 + id, head) == exact);
        std::int64_t const token = 4 * id + 3;
        CHECK(double{memory.exact_keys(1, head, slot, 3, 1)} ==
              Approx(prompt.turned(prompt.key(head, token), token, 1)).margin(1e-6));
        CHECK(memory.exact_values(1, head, slot, 3, 9) == prompt.heads_of(prompt.prompt_values)(head, token, 9));
      } else {
        CHECK(memory.exact_values(1, head, slot, 0, 0) == prompt.garbage);
      }
    }
    CHECK(std::count(prompt.slots.begin(), prompt.slots.end(), exact) == 2 * std::min<std::int64_t>(count, 3));
  }
}

}  // namespace

TEST_CASE("a sequence that begins has no chunk anywhere, and no other sequence changes", "[host][threads]") {
  prompt_of_memory prompt(42);
  auto const memory = prompt.memory();
  prompt.run(cpu{.threads = 2}, open_sequence<float, bfloat16>{prompt.n, memory, 1, 8, 12});
  CHECK(std::all_of(prompt.slots.begin(), prompt.slots.begin() + 2 * 8, [](auto slot) { return slot == -99; }));
  CHECK(std::all_of(prompt.slots.begin() + 2 * 8, prompt.slots.end(), [](auto slot) { return slot == archived; }));
  CHECK(std::count(prompt.slot_ids.begin(), prompt.slot_ids.end(), -1) == 2 * prompt.n.slots);
  CHECK(std::count(prompt.exact_ids.begin(), prompt.exact_ids.end(), -1) == 2 * prompt.n.exact());
  for (std::int64_t head = 0; head < 2; ++head) {
    CHECK((memory.hands(0, head) == -99 && memory.hands(1, head) == 0));
    CHECK((memory.usage(0, head).selected == -99 && memory.usage(1, head).selected == 0));
    CHECK(memory.usage(1, head).resident == 0);
  }
  cached_sequence const& begun = prompt.sequences[1];
  CHECK((begun.first == 8 && begun.capacity == 12 && begun.tokens == 0 && begun.chunks == 0));
  CHECK((begun.energy == 0 && begun.residual == 0 && begun.streamed == 0 && begun.streamed_residual == 0));
  CHECK((begun.fitted == 0 && begun.scale == 1));
  CHECK(prompt.sequences[0].energy == -1);
}

TEST_CASE("landmarks and least cosines are those of rotated keys, in pieces too", "[host][threads]") {
  check_summaries(cpu{.threads = 2});
}

TEST_CASE("values of whole chunks go to their rows of the store", "[host][threads]") {
  check_values(cpu{.threads = 2});
}

TEST_CASE("the chunks with the least cosines are exact, of equal ones the earlier", "[host][threads]") {
  cpu const exec{.threads = 2};
  check_outliers(exec, {0.9F, 0.2F, 0.5F, 0.2F, -0.3F, 0.2F, 0.9F, 0.2F, 0.7F});
  check_outliers(exec, {0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F});
  check_outliers(exec, {0.5F, -1.0F});  // fewer chunks than slots
}

TEST_CASE("the ring has the latest tokens, each in its slot", "[host][threads]") {
  for (std::int64_t const tokens : {42, 5}) {
    prompt_of_memory prompt(tokens);
    auto const memory = prompt.memory();
    std::int64_t const oldest = 4 * prompt.n.archived(tokens);
    prompt.run(cpu{.threads = 2},
               fill_ring<float, bfloat16>{prompt.n, memory, prompt.rotary(), 1, prompt.heads_of(prompt.keys),
                                          prompt.heads_of(prompt.prompt_values), oldest});
    double worst = 0;
    int wrong = 0;
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t token = oldest; token < tokens; ++token) {
        for (std::int64_t c = 0; c < prompt.channels; ++c) {
          float const* const key = prompt.key(head, token);
          std::int64_t const at = token % prompt.n.ring;
          worst = std::max(worst, std::fabs(double{memory.ring_keys(1, head, at, c)} - prompt.turned(key, token, c)));
          wrong += memory.ring_sources(1, at, head * prompt.channels + c) == key[c] ? 0 : 1;
          wrong += memory.ring_values(1, head, at, c) == prompt.heads_of(prompt.prompt_values)(head, token, c) ? 0 : 1;
        }
      }
    }
    CHECK(worst < 1e-6);
    CHECK(wrong == 0);
    auto const kept = std::count_if(prompt.ring_values.begin(), prompt.ring_values.end(),
                                    [&](float value) { return value != prompt.garbage; });
    CHECK(kept == (tokens - oldest) * 2 * prompt.channels);
  }
}

TEST_CASE("the measures of a prompt are its keys' mean square length and the part that directions leave", "[host]") {
  prompt_of_memory prompt(42);
  std::vector<subspace_measures> found{{}};
  found[0].trace = 800.0;
  found[0].held = 600.0;
  found[0].scale = 2.0F;
  auto const finish = [&](std::int32_t tokens) {
    prompt.run(cpu{.threads = 1}, finish_prompt{prompt.sequences, 1, tokens, 7, found});
    return prompt.sequences[1];
  };
  cached_sequence const known = finish(40);
  CHECK((known.tokens == 40 && known.chunks == 7 && known.fitted == 40));
  CHECK(known.energy == 5.0);  // 800 / 2^2 / 40
  CHECK(known.residual == 0.25F);
  CHECK(known.scale == 2.0F);
  CHECK(finish(0).energy == 0.0);
  found[0].held = 801.0;  // more than all, by rounding
  CHECK(finish(40).residual == 0.0F);
  found[0].trace = 0.0;  // keys that are not kept in directions
  CHECK(finish(40).residual == 0.0F);
  CHECK(prompt.sequences[0].energy == -1);
}

TEST_CASE("the programs of a prompt keep the rules for programs", "[host]") {
  check_summaries(testing::adversary{.seed = 31});
  check_values(testing::adversary{.seed = 32});
  check_outliers(testing::adversary{.seed = 33}, {0.9F, 0.2F, 0.5F, 0.2F, -0.3F});
}
