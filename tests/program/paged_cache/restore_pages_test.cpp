// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/paged_cache/direction_codec.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/paged_cache/page_reader.hpp>
#include <tessera/program/paged_cache/restore_pages.hpp>
#include <tessera/testing/adversary.hpp>

#include "program/paged_cache/small_cache.hpp"
#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera_test::message_of;

namespace {

/// Keys and values that are restored of the small cache, with room for 210 tokens; token 70 of a sequence is retained.
template <class Result>
struct restored_cache : tessera_test::small_cache {
  static constexpr std::int64_t room = 210;
  std::vector<Result> keys = std::vector<Result>(3 * heads * room * channels, Result{0x7777});
  std::vector<Result> values = keys;

  restored_cache() {
    for (std::int64_t block = 0; block < 6; ++block) {
      for (std::int64_t head = 0; head < heads; ++head) {
        header(block, head) = {block == 2 ? std::uint64_t{1} << 6 : 0, 3, 1, 0.0F, 0.0F, {0, 0}};
      }
    }
  }
  template <class Executor>
  void restore(Executor const& exec, int layer) {
    restore_pages<bfloat16, Result, direction_codec<>> const program{memory,
                                                                     sequences(),
                                                                     layer,
                                                                     {keys.data(), {3, heads, room, channels}},
                                                                     {values.data(), {3, heads, room, channels}},
                                                                     exec.status()};
    exec.run(program, program.groups());
  }
  /// How many elements are not those of the tail, of retained rows or of pages, or were written beyond the length.
  [[nodiscard]] int wrong(int layer) const {
    int count = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      auto const at = static_cast<std::int64_t>(i);
      int const channel = static_cast<int>(at % channels);
      std::int64_t const token = at / channels % room;
      std::int64_t const head = at / channels / room % heads;
      std::int64_t const sequence = at / channels / room / heads;
      std::int64_t const slot = slots[static_cast<std::size_t>(sequence)];
      Result key{0x7777};
      Result value{0x7777};
      if (token >= lengths[static_cast<std::size_t>(sequence)]) {
        // nothing is there
      } else if (sequence == 2 && token < 128) {
        std::int64_t const block = blocks[static_cast<std::size_t>(4 + token / 64)];
        page_reader const reader{memory.format, memory.page(block, head), layer};
        bool const is_retained = block == 2 && token % 64 == 6;
        key = is_retained ? as_result(memory.retained_row(slot, head, 3, layer, key_part)[channel])
                          : store<Result>(reader.key(static_cast<int>(token % 64), channel));
        value = is_retained ? as_result(memory.retained_row(slot, head, 3, layer, value_part)[channel])
                            : store<Result>(reader.value(static_cast<int>(token % 64), channel));
      } else {
        key = as_result(memory.tail_row(slot, layer, key_part, head, token)[channel]);
        value = as_result(memory.tail_row(slot, layer, value_part, head, token)[channel]);
      }
      count += keys[i] == key && values[i] == value ? 0 : 1;
    }
    return count;
  }
  static Result as_result(bfloat16 value) { return store<Result>(load(value)); }
};

}  // namespace

TEST_CASE("keys and values come back from pages, retained rows and the tail, and end with the sequence",
          "[host][threads]") {
  cpu const exec{.threads = 2};
  for (int const layer : {0, 1}) {
    CAPTURE(layer);
    restored_cache<bfloat16> same;
    CHECK(sealed_pages(203, 64) == 2);
    same.restore(exec, layer);
    CHECK(same.wrong(layer) == 0);
    restored_cache<float16> other;
    other.restore(exec, layer);
    CHECK(other.wrong(layer) == 0);
  }
  CHECK_NOTHROW(exec.wait());
}

TEST_CASE("of an impossible sequence or block nothing is restored, and it is named", "[host]") {
  cpu const exec{.threads = 1};
  auto const message = [&](auto const& spoil) {
    restored_cache<bfloat16> cache;
    spoil(cache);
    cache.restore(exec, 0);
    CHECK(cache.keys[static_cast<std::size_t>((2 * 2 * 210 + 70) * 32)] == bfloat16{0x7777});
    return message_of([&] { exec.wait(); });
  };
  CHECK_THAT(message([](auto& cache) { cache.blocks[5] = 6; }), tessera_test::contains("6"));
  CHECK_THAT(message([](auto& cache) { cache.slots[2] = 3; }), tessera_test::contains("3"));
  CHECK_THAT(message([](auto& cache) { cache.lengths[2] = 1001; }), tessera_test::contains("1001"));
}

TEST_CASE("restoring pages keeps the rules for programs", "[host]") {
  restored_cache<bfloat16> cache;
  cache.restore(testing::adversary{.seed = 19}, 1);
  CHECK(cache.wrong(1) == 0);
}
