// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/offloaded_cache/low_rank_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.cuh>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>
#include <tessera/select/oracle.hpp>
#include <tessera/select/quest.hpp>
#include <tessera/tile/cuda/gemm_tile.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/long_sequence.hpp"
#include "support/offload_on_device.cuh"
#include "support/offload_problem.hpp"
#include "support/selector_steps.cuh"
#include "support/stray_sequence.hpp"
#include "support/vectors.hpp"

using namespace tessera;
using tessera_test::attention_over;
using tessera_test::check_selector;
using tessera_test::dense_attention;
using tessera_test::host_cache;
using tessera_test::long_sequence;
using tessera_test::make_long_sequence;
using tessera_test::make_sequence;
using tessera_test::mean_score;
using tessera_test::offload_heads;
using tessera_test::offload_sequence;
using tessera_test::offloaded_on_device;
using tessera_test::query_about;
using tessera_test::relative_error;
using tessera_test::sequence_that_strays;
using tessera_test::share_that_strays;
using tessera_test::to_host;

namespace {

template <class Codec>
using method_of = offloaded_cache<low_rank<64>, landmark_selector<8>, keep_outliers<4>, Codec>;
using method = method_of<exact_values>;
using T = bfloat16;
using device_cache = offloaded_on_device<method, T>;

constexpr offload_heads heads{8, 2, 64};

rotary_tables const& tables() {
  static rotary_tables const made(rotary_frequencies(500000.0, 64), 8192);
  return made;
}

std::vector<double> doubled(std::vector<float> const& values) {
  return {values.begin(), values.end()};
}

double number(T stored) {
  return static_cast<double>(load(stored));
}

}  // namespace

TEST_CASE("what lies in slots changes no bit of the results on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  std::vector<offload_sequence<T>> const all{make_sequence<T>(heads, 800, 6), make_sequence<T>(heads, 300, 7)};
  std::vector<std::int64_t> const prompts{650, 90};
  std::vector<offload_options> options(4);
  options[1].keeps_slots = false;
  options[2].slots = 17;
  options[3].slots = 100;
  std::vector<std::vector<std::vector<float>>> results;
  std::vector<double> hit_rates;
  std::vector<double> fetched;
  for (offload_options const& chosen : options) {
    device_cache cache(exec, heads, {800, 300}, tables(), chosen, {.chunks = 8});
    cache.prefill(0, all[0], prompts[0]);
    cache.prefill(1, all[1], prompts[1]);
    std::vector<std::vector<float>> own;
    double missed = 0;
    for (std::int64_t k = 0; k < 40; ++k) {
      own.push_back(cache.decode({&all[0], &all[1]}, {prompts[0] + k, prompts[1] + k}));
      for (std::int32_t const count : to_host(exec, cache.step(2).missed_counts.data, 4)) {
        missed += count;
      }
    }
    results.push_back(own);
    hit_rates.push_back(cache.statistics().hit_rate());
    fetched.push_back(missed);
  }
  CHECK((results[1] == results[0]));
  CHECK((results[2] == results[0]));
  CHECK((results[3] == results[0]));
  CHECK(hit_rates[0] > 0.3);
  CHECK(hit_rates[2] > hit_rates[0]);
  CHECK(hit_rates[3] > hit_rates[2]);
  CHECK(fetched[1] > 1.3 * fetched[0]);
  CHECK(fetched[2] < fetched[0]);
}

TEST_CASE("chunks are selected by boxes and by all keys on a GPU as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_selector<quest_selector<8>>();
  check_selector<oracle_selector<8>>();
}

TEST_CASE("chunks that directions do not hold are exact on a GPU, those that leave most where slots are few",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  constexpr std::int64_t prompt = 248;
  auto const s = sequence_that_strays<T>(heads, 8 * 60, prompt, share_that_strays);
  offload_options options;
  options.strays = 3;
  options.residual_limit = 4.0F;
  options.renewal_until = 0.0F;
  device_cache cache(exec, heads, {s.tokens}, tables(), options, {.chunks = 40});
  cache.prefill(0, s, prompt);
  CHECK(cache.sequence(0).residual < 0.03F);
  std::int64_t position = prompt;
  for (; cache.sequence(0).chunks < 52; ++position) {
    cache.decode({&s}, {position});
  }
  auto const& memory = cache.memory();
  auto const rotary = tables().embedding(rotary_pairs::halves);
  std::vector<std::int64_t> const strays{39, 42, 47};
  auto const is_stray = [&](std::int64_t chunk) { return std::count(strays.begin(), strays.end(), chunk) > 0; };
  auto const ids = to_host(exec, memory.exact_ids.data, 2 * 7);  // 4 outliers and 3 strays
  auto const keys = to_host(exec, memory.exact_keys.data, 2 * 7 * 8 * 64);
  auto const chunk_slots = to_host(exec, memory.chunk_slots.data, 52 * 2);
  cache.decode({&s}, {position});
  auto const selected = to_host(exec, cache.step(1).selected.data, 2 * 40);
  for (std::int64_t head = 0; head < 2; ++head) {
    auto const first = ids.begin() + static_cast<std::ptrdiff_t>(7 * head);
    std::vector<std::int64_t> found(first + 4, first + 7);
    std::vector<std::int64_t> exact(first, first + 7);
    std::sort(found.begin(), found.end());
    REQUIRE(found == strays);
    for (std::int64_t chunk = 0; chunk < 52; ++chunk) {
      bool const is_exact = std::count(exact.begin(), exact.end(), chunk) > 0;
      CHECK((chunk_slots[static_cast<std::size_t>(2 * chunk + head)] == -2) == is_exact);
    }
    for (std::int64_t rank = 0; rank < 40; ++rank) {
      CHECK_FALSE(is_stray(selected[static_cast<std::size_t>(40 * head + rank)]));
    }
    for (std::int64_t index = 4; index < 7; ++index) {
      std::int64_t const chunk = exact[static_cast<std::size_t>(index)];
      view<T const, 2> const rows(s.keys.data() + head * s.tokens * 64, {s.tokens, 64});
      std::int64_t differing = 0;
      for (std::int64_t i = 0; i < 8 * 64; ++i) {
        std::int64_t const token = 8 * chunk + i / 64;
        T const expected = rotated<T>(rotary, token, i % 64, plain_keys<T>{rows}.at(token));
        differing += keys[static_cast<std::size_t>(((7 * head + index) * 8 * 64) + i)] == expected ? 0 : 1;
      }
      CHECK(differing == 0);
    }
  }
}

TEST_CASE("a prompt in pieces leaves on a GPU the bits of a prompt at once", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  std::int64_t const prompt = 2 * 2048 + 508;
  auto const s = make_sequence<T>(heads, prompt + 1, 8);
  device_cache whole(exec, heads, {prompt + 1}, tables(), {}, {.chunks = 8});
  device_cache pieces(exec, heads, {prompt + 1}, tables(), {}, {.chunks = 8});
  whole.prefill(0, s, prompt);
  pieces.prefill(0, s, prompt, 2048);
  CHECK((whole.bytes() == pieces.bytes()));
  CHECK((whole.pinned_bytes() == pieces.pinned_bytes()));
  CHECK(whole.decode({&s}, {prompt}) == pieces.decode({&s}, {prompt}));
  // Shorter pieces add up products in another order, but chunks and outliers have the same bits.
  whole.prefill(0, s, prompt);
  pieces.prefill(0, s, prompt, 1000);
  auto const& a = whole.memory();
  auto const& b = pieces.memory();
  std::int64_t const chunks = whole.plan().extents.archived(prompt);
  auto const same = [&](auto const* left, auto const* right, std::int64_t count) {
    return to_host(exec, left, count) == to_host(exec, right, count);
  };
  CHECK(same(a.landmarks.data, b.landmarks.data, chunks * 2 * 64));
  CHECK(same(a.chunk_slots.data, b.chunk_slots.data, chunks * 2));
  CHECK(same(a.exact_ids.data, b.exact_ids.data, a.exact_ids.size()));
  CHECK(same(a.exact_keys.data, b.exact_keys.data, 4 * 8 * 64));
  CHECK(same(a.ring_keys.data, b.ring_keys.data, prompt % 64 * 64));
  CHECK((whole.pinned_bytes() == pieces.pinned_bytes()));
  CHECK(whole.sequence(0).residual == Approx(pieces.sequence(0).residual).epsilon(0.01));
}

namespace {

/// Whether a prompt's records on the device are the same as on the host.
template <class Codec>
bool puts_as_on_the_host(value_store store) {
  tessera::cuda const exec;
  std::int64_t const prompt = 700;
  auto const s = make_sequence<T>(heads, prompt, 9);
  offload_options options;
  options.values = store;
  offloaded_on_device<method_of<Codec>, T> there(exec, heads, {prompt}, tables(), options, {.chunks = 8});
  host_cache<method_of<Codec>, T> here(heads, {prompt}, tables().embedding(rotary_pairs::halves), options,
                                       {.chunks = 8});
  there.prefill(0, s, prompt, 400);
  here.prefill(cpu{}, 0, s, prompt);
  auto const& kept = here.memory().values;
  std::int64_t const bytes = kept.offset(here.plan().extents.archived(prompt), 0, 0);
  auto const found = to_host(exec, there.memory().values.data, bytes);
  return bytes > 80 * 2 * 64 * 4 && std::equal(found.begin(), found.end(), kept.data);
}

}  // namespace

TEST_CASE("a prompt puts coded values on a GPU as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(puts_as_on_the_host<float8_quantizer<float8_e4m3>>(value_store::host));
  CHECK(puts_as_on_the_host<symmetric_quantizer<4, 64>>(value_store::device));
}

namespace {

/// Copies 16-bit floats from the device and converts them to double.
std::vector<double> matrix_of(tessera::cuda const& exec, T const* data, std::int64_t count) {
  std::vector<double> made;
  for (T const stored : to_host(exec, data, count)) {
    made.push_back(number(stored));
  }
  return made;
}

/// The largest difference over the largest magnitude of the second list; large for NaNs.
double largest_error(std::vector<double> const& found, std::vector<double> const& expected) {
  double error = 0;
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(found[i])) {
      return 1e30;
    }
    error = std::max(error, std::abs(found[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  return error / largest;
}

/// The product of matrices of rows x inner and inner x columns elements.
std::vector<double> product(std::vector<double> const& a, std::vector<double> const& b, std::size_t inner,
                            std::size_t columns) {
  std::size_t const rows = a.size() / inner;
  std::vector<double> made(rows * columns);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t k = 0; k < inner; ++k) {
      for (std::size_t j = 0; j < columns; ++j) {
        made[i * columns + j] += a[i * inner + k] * b[k * columns + j];
      }
    }
  }
  return made;
}
std::vector<double> transposed(std::vector<double> const& a, std::size_t columns) {
  std::vector<double> made;
  for (std::size_t j = 0; j < columns; ++j) {
    for (std::size_t i = j; i < a.size(); i += columns) {
      made.push_back(a[i]);
    }
  }
  return made;
}

/// The products of the keys of all heads, over the first tokens.
std::vector<double> products_of(offload_sequence<T> const& s, std::int64_t count) {
  std::vector<double> keys;
  for (std::int64_t token = 0; token < count; ++token) {
    for (std::int64_t channel = 0; channel < 128; ++channel) {
      auto const at = static_cast<std::size_t>((channel / 64 * s.tokens + token) * 64 + channel % 64);
      keys.push_back(number(s.keys[at]));
    }
  }
  return product(transposed(keys, 128), keys, static_cast<std::size_t>(count), 128);
}

/// A sequence in which tokens from `first` on are unrelated to the prompt.
offload_sequence<T> sequence_that_turns(std::int64_t tokens, std::int64_t first) {
  auto made = make_sequence<T>(heads, tokens, 13);
  for (std::size_t i = 0; i < made.keys.size(); ++i) {
    auto const token = static_cast<std::int64_t>(i / 64) % tokens;
    bool const is_odd = i % 2 == 1;
    made.keys[i] = store<T>(load(made.keys[i]) * ((token < first) == is_odd ? 0.1F : 1.4F));
  }
  return made;
}

}  // namespace

TEST_CASE("new directions hold on a GPU what the prompt did not have", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  constexpr std::int64_t prompt = 300;
  constexpr std::int64_t steps = 250;
  auto const s = sequence_that_turns(prompt + steps + 10, prompt);
  offload_options options;
  options.keeps_products = true;
  options.strays = 0;
  options.renewal_until = 0.0F;  // only refit() changes directions
  device_cache there(exec, heads, {s.tokens}, tables(), options, {.chunks = 12});
  host_cache<method, T> here(heads, {s.tokens}, tables().embedding(rotary_pairs::halves), options, {.chunks = 12});
  there.prefill(0, s, prompt);
  here.prefill(cpu{}, 0, s, prompt);
  float const usual = there.sequence(0).residual;
  for (std::int64_t position = prompt; position < prompt + steps; ++position) {
    there.decode({&s}, {position});
    here.decode(cpu{}, {&s}, {position});
  }
  auto const& memory = there.memory();
  auto const gram = to_host(exec, memory.gram.data, 128 * 128);
  CHECK(largest_error(doubled(gram), products_of(s, prompt + steps)) < 1e-5);
  cached_sequence const before = there.sequence(0);
  REQUIRE(before.streamed == before.chunks - there.plan().extents.archived(prompt));
  CHECK(before.streamed_residual / static_cast<float>(before.streamed) > 5 * usual);
  std::int64_t const rows = before.chunks * 8;
  auto const old_directions = matrix_of(exec, memory.directions.data, 128 * 64);
  auto const old_coefficients = matrix_of(exec, memory.coefficients.data, rows * 64);

  there.refit(0);
  method::refit(cpu{}, here.cache(), 0, here.prompt_space());
  cached_sequence const after = there.sequence(0);
  CHECK(after.tokens == prompt + steps);
  CHECK(after.streamed == 0);
  CHECK(after.streamed_residual == 0.0F);
  CHECK(after.residual > usual);
  CHECK(after.residual == Approx(here.memory().sequences[0].residual).epsilon(0.02));
  CHECK(after.energy == Approx(here.memory().sequences[0].energy).epsilon(1e-4));
  auto const directions = matrix_of(exec, memory.directions.data, 128 * 64);
  std::vector<double> unit(64 * 64);
  for (std::size_t i = 0; i < unit.size(); i += 65) {
    unit[i] = 1;
  }
  // Directions are 16-bit floats.
  CHECK(largest_error(product(transposed(directions, 64), directions, 128, 64), unit) < 0.004);
  auto const relation = product(transposed(old_directions, 64), directions, 128, 64);
  auto const coefficients = matrix_of(exec, memory.coefficients.data, rows * 64);
  CHECK(largest_error(coefficients, product(old_coefficients, relation, 64, 64)) < 0.004);
  for (std::int32_t const id : to_host(exec, memory.slot_ids.data, memory.slot_ids.size())) {
    CHECK(id == -1);
  }
  for (std::int16_t const slot : to_host(exec, memory.chunk_slots.data, before.chunks * 2)) {
    CHECK(slot < 0);
  }
  for (std::int64_t position = prompt + steps; position < s.tokens; ++position) {
    auto const expected = here.decode(cpu{}, {&s}, {position});
    auto const found = there.decode({&s}, {position});
    REQUIRE(relative_error(found, doubled(expected)) < 0.06);  // other directions hold as much
  }
}

TEST_CASE("new directions of full rank change results on a GPU by rounding alone", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  constexpr offload_heads one_head{4, 1, 64};
  auto const s = make_sequence<T>(one_head, 360, 14);
  offload_options options;
  options.keeps_products = true;
  device_cache cache(exec, one_head, {360}, tables(), options, {.chunks = 64});
  cache.prefill(0, s, 300);
  auto const rotary = tables().embedding(rotary_pairs::halves);
  for (std::int64_t position = 300; position < 360; ++position) {
    if (position % 20 == 0) {
      cache.refit(0);
    }
    REQUIRE(relative_error(cache.decode({&s}, {position}), dense_attention(one_head, s, position, rotary)) < 0.015);
  }
}

namespace {

/// Checks the selected chunks against the scores of all: no other chunk ranks higher.
void check_selection(std::vector<float> const& scores, std::vector<std::int32_t> const& selected) {
  std::size_t const chunks = scores.size() / 2;
  std::vector<double> rank(chunks, -1e300);
  for (std::size_t head = 0; head < 2; ++head) {
    double sum = 0;
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      sum += std::exp(double{scores[head * chunks + chunk]});
    }
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      rank[chunk] = std::max(rank[chunk], double{scores[head * chunks + chunk]} - std::log(sum));
    }
  }
  double least = 1e300;
  std::int32_t before = -1;
  for (std::int32_t const chunk : selected) {
    REQUIRE(chunk > before);
    REQUIRE(chunk < static_cast<std::int32_t>(chunks));
    before = chunk;
    least = std::min(least, rank[static_cast<std::size_t>(chunk)]);
    rank[static_cast<std::size_t>(chunk)] = -1e300;
  }
  CHECK(*std::max_element(rank.begin(), rank.end()) <= least + 1e-5);
}

}  // namespace

TEST_CASE("a million tokens on a GPU are searched for two needles, which a step finds", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  constexpr std::int64_t chunks = 131072;
  constexpr std::int64_t prompt = 8 * chunks + 56;
  long_sequence const s{{5, 130990}, prompt};
  auto const frequencies = rotary_frequencies(500000.0, 64);
  std::vector<double> back = frequencies;
  std::transform(back.begin(), back.end(), back.begin(), [](double x) { return -x; });
  rotary_tables const forward(frequencies, prompt + 64);
  rotary_tables const backward(back, prompt + 64);
  auto const rotary = forward.embedding(rotary_pairs::halves);
  offload_options options;
  options.values = value_store::device;
  device_cache cache(exec, {2, 1, 64}, {prompt + 8}, forward, options, {.chunks = 256});
  {
    buffer<T> keys(exec, prompt * 64);
    buffer<T> values(exec, prompt * 64);
    make_long_sequence const program{s, {keys.data(), {1, prompt, 64}}, {values.data(), {1, prompt, 64}}};
    exec.run(program, program.groups());
    cache.prefill(0, program.keys, program.values);
  }
  std::vector<T> queries;
  std::vector<T> key;
  std::vector<T> value;
  for (int head = 0; head < 2; ++head) {
    auto const own = query_about(s, head, rotary, backward.embedding(rotary_pairs::halves));
    queries.insert(queries.end(), own.begin(), own.end());
  }
  for (std::int64_t c = 0; c < 64; ++c) {
    key.push_back(s.key(prompt, c));
    value.push_back(s.value(prompt, c));
  }
  auto const found = cache.decode(queries, key, value);
  auto const step = cache.step(1);
  REQUIRE(cache.plan().extents.longest == chunks + 1);
  REQUIRE(cache.sequence(0).tokens == prompt + 1);

  // Compares scores by landmarks of some chunks, and the selection from all scores.
  auto scores = to_host(exec, step.scores.data, 2 * (chunks + 1));
  scores.erase(scores.begin() + chunks + 1 + chunks);
  scores.erase(scores.begin() + chunks);  // the chunk that there is still room for
  auto const turned = matrix_of(exec, step.queries.data, 128);
  std::vector<std::vector<double>> const asked{{turned.begin(), turned.begin() + 64},
                                               {turned.begin() + 64, turned.end()}};
  auto const exact = to_host(exec, cache.memory().exact_ids.data, cache.memory().exact_ids.size());
  for (std::int64_t chunk = 5; chunk < chunks; chunk += 1009) {
    bool const is_exact = std::count(exact.begin(), exact.end(), static_cast<std::int32_t>(chunk)) > 0;
    for (std::size_t head = 0; head < 2 && !is_exact; ++head) {
      CHECK(double{scores[head * chunks + static_cast<std::size_t>(chunk)]} ==
            Approx(mean_score(s, rotary, asked[head], chunk)).margin(0.01));
    }
  }
  auto const selected = to_host(exec, step.selected.data, 256);
  REQUIRE(to_host(exec, step.selected_counts.data, 1)[0] == 256);
  check_selection(scores, selected);
  for (std::int64_t const needle : s.needles) {
    CHECK(std::count(selected.begin(), selected.end(), static_cast<std::int32_t>(needle)) == 1);
  }

  // All directions are kept, so that the step is attention over the ring, the exact and the selected chunks.
  std::vector<std::int64_t> attended;
  for (auto const* list : {&exact, &selected}) {
    for (std::int32_t const chunk : *list) {
      for (std::int64_t token = 8 * std::int64_t{chunk}; chunk >= 0 && token < 8 * chunk + 8; ++token) {
        attended.push_back(token);
      }
    }
  }
  for (std::int64_t token = 8 * chunks; token <= prompt; ++token) {
    attended.push_back(token);
  }
  for (std::size_t head = 0; head < 2; ++head) {
    std::vector<float> const own(found.begin() + static_cast<std::ptrdiff_t>(64 * head),
                                 found.begin() + static_cast<std::ptrdiff_t>(64 * head + 64));
    CHECK(relative_error(own, attention_over(s, rotary, asked[head], attended)) < 0.003);
    std::vector<double> needle;
    for (std::int64_t c = 0; c < 64; ++c) {
      needle.push_back(number(s.value(8 * s.needles[head], c)));
    }
    CHECK(relative_error(own, needle) < 0.1);
  }
}
