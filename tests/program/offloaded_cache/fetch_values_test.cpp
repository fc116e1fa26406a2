// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/offloaded_cache/fetch_values.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Lists of missed chunks of some heads of some sequences, of `counts` chunks each.
template <class T, class Codec>
struct fetch_problem {
  using record = value_record<Codec, T>;

  offload_extents n{};
  std::vector<cached_sequence> sequences;
  std::vector<std::byte> records;
  std::vector<missed_chunk> missed;
  std::vector<std::int32_t> counts;

  fetch_problem(std::int64_t batch, std::int64_t heads, std::int64_t channels, std::vector<std::int32_t> each)
      : counts(std::move(each)) {
    n.batch = batch;
    n.key_heads = n.query_heads = heads;
    n.channels = channels;
    n.chunk = 8;
    n.ring = 64;
    n.budget = n.slots = 40;
    std::int64_t const chunks = 50;
    n.rows = batch * chunks;
    for (std::int64_t i = 0; i < batch; ++i) {
      sequences.push_back({static_cast<std::int32_t>(i * chunks), 50, 400, 50, 1.0F, 0.0F, 0, 0.0F});
    }
    std::int64_t const bytes = record::bytes(n.chunk, channels);
    records.resize(static_cast<std::size_t>(n.rows * heads * bytes), std::byte{0xfb});
    for (std::int64_t row = 0; row < n.rows * heads; ++row) {
      for (std::int64_t piece = 0; piece < record::pieces(n.chunk, channels); ++piece) {
        record::put(sample{row, channels}, piece, n.chunk, channels, records.data() + row * bytes);
      }
    }
    missed.resize(static_cast<std::size_t>(batch * heads * n.budget), missed_chunk{-7, -7});
    for (std::size_t list = 0; list < counts.size(); ++list) {
      for (std::int32_t i = 0; i < counts[list]; ++i) {
        auto const shift = static_cast<std::int32_t>(list);
        missed[list * 40 + static_cast<std::size_t>(i)] = {(7 * i + shift) % 50, (3 * i + shift) % 40};
      }
    }
  }
  struct sample {
    std::int64_t row;
    std::int64_t channels;
    T operator()(std::int64_t token, std::int64_t channel) const {
      auto const at = static_cast<std::uint64_t>((row * 8 + token) * channels + channel);
      return store<T>(testing::gauss{}.value(3, at));
    }
  };

  fetch_values<T, bfloat16, Codec> call(std::vector<T>& slots) {
    slots.assign(static_cast<std::size_t>(n.batch * n.key_heads * n.slots * n.chunk * n.channels), store<T>(-77.0F));
    offloaded_memory<T, bfloat16> memory;
    memory.sequences = sequences;
    memory.values = {records.data(), {n.rows, n.key_heads, record::bytes(n.chunk, n.channels)}};
    memory.slot_values = {slots.data(), {n.batch, n.key_heads, n.slots, n.chunk, n.channels}};
    offload_step<T> step;
    step.queries = {nullptr, {n.batch, n.query_heads, n.channels}};
    step.missed = {missed.data(), {n.batch, n.key_heads, n.budget}};
    step.missed_counts = {counts.data(), {n.batch, n.key_heads}};
    return {n, memory, step, true};
  }
};

template <int Channels, class T, class Codec, class Executor>
void check_fetch(Executor const& exec, std::int64_t batch, std::int64_t heads, std::vector<std::int32_t> const& counts,
                 std::int64_t groups) {
  fetch_problem<T, Codec> problem(batch, heads, Channels, counts);
  std::vector<T> expected;
  std::vector<T> found;
  auto const plain = problem.call(expected);
  exec.run(plain, plain.groups());
  using program_type = fetch_records<Channels, T, bfloat16, Codec>;
  auto const call = problem.call(found);
  REQUIRE(program_type::takes(call));
  exec.run(program_type{call, groups}, groups);
  CHECK(to_bits(expected.front()) == to_bits(found.front()));
  std::size_t differing = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    differing += to_bits(expected[i]) == to_bits(found[i]) ? 0 : 1;
  }
  CHECK(differing == 0);
}

}  // namespace

TEST_CASE("an item of several lists is found in its list", "[host]") {
  for (std::vector<std::int32_t> const& counts : std::vector<std::vector<std::int32_t>>{
           {5}, {0, 0, 3}, {1, 0, 0, 2, 0}, {4, 4, 4, 4, 4, 4, 4}, {0, 0, 0, 1}, {9, 0, 1, 0, 0, 0, 0, 0, 17}}) {
    std::vector<std::int32_t> ends;
    for (std::int32_t const count : counts) {
      ends.push_back(count + (ends.empty() ? 0 : ends.back()));
    }
    std::int32_t item = 0;
    for (std::size_t list = 0; list < counts.size(); ++list) {
      for (std::int32_t index = 0; index < counts[list]; ++index) {
        listed_item const found = find_item(ends.data(), static_cast<std::int32_t>(ends.size()), item++);
        CHECK(found.list == static_cast<std::int32_t>(list));
        CHECK(found.index == index);
      }
    }
  }
}

TEST_CASE("few groups fetch what a group for each chunk fetches, to the last bit", "[host][slow]") {
  using codes = float8_quantizer<float8_e4m3>;
  std::vector<std::int32_t> const uneven{40, 0, 3, 17, 1, 0};
  for (std::int64_t const groups : {1, 3, 32}) {
    CAPTURE(groups);
    check_fetch<64, bfloat16, exact_values>(cpu{}, 3, 2, uneven, groups);
    check_fetch<128, float16, exact_values>(cpu{}, 3, 2, uneven, groups);
    check_fetch<64, float16, codes>(cpu{}, 3, 2, uneven, groups);
    check_fetch<128, bfloat16, codes>(cpu{}, 3, 2, uneven, groups);
    check_fetch<128, bfloat16, symmetric_quantizer<4, 64>>(cpu{}, 3, 2, uneven, groups);
  }
  check_fetch<64, bfloat16, codes>(testing::adversary{}, 3, 2, uneven, 2);
  check_fetch<64, bfloat16, exact_values>(testing::adversary{}, 3, 2, uneven, 2);
  check_fetch<64, bfloat16, exact_values>(cpu{}, 1, 2, {0, 0}, 4);
  // Several rounds of a group.
  check_fetch<64, bfloat16, exact_values>(cpu{}, 150, 2, std::vector<std::int32_t>(300, 2), 5);
}
