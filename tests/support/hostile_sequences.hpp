// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Calls of a cache with impossible lists, for any executor: each call is reported, and nothing else happens.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <tessera/core/status.hpp>

#include "support/catch.hpp"
#include "support/listed_cache.hpp"

namespace tessera_test {

enum class cache_operation { append, write, seal, attend, restore };

/// One of the lists of a cache's calls.
using cache_list = std::vector<std::int32_t> cache_lists::*;

/// Makes lists of the second sequence hostile.
struct hostile_list {
  cache_operation operation;
  cache_list list;
  std::size_t index;
  std::int32_t value;
  status_code expected;
};

inline std::vector<hostile_list> hostile_lists() {
  constexpr std::int32_t least = INT32_MIN;
  constexpr std::int32_t most = INT32_MAX;
  std::vector<hostile_list> all;
  for (auto const operation : {cache_operation::append, cache_operation::write, cache_operation::seal,
                               cache_operation::attend, cache_operation::restore}) {
    bool const reads = operation == cache_operation::attend || operation == cache_operation::restore;
    bool const appends = operation == cache_operation::append || operation == cache_operation::write;
    auto const add = [&](auto list, std::size_t index, std::vector<std::int32_t> const& values, status_code expected) {
      for (std::int32_t const value : values) {
        all.push_back({operation, list, index, value, expected});
      }
    };
    add(&cache_lists::slots, 1, {-1, 3, least, most}, status_code::bad_slot);
    add(&cache_lists::lengths, 1, {-1, 641, least, most}, status_code::bad_length);
    add(&cache_lists::pages, 1, {-1, 5, least, most}, status_code::bad_page_count);
    if (appends) {  // calls that only read may read fewer tokens than there are
      add(&cache_lists::pages, 1, {4}, status_code::bad_page_count);
    }
    add(&cache_lists::pages, 1, {0}, status_code::full_tail);
    if (operation != cache_operation::write) {  // write has no pages
      add(&cache_lists::blocks, reads ? 5 : 6, {-1, 12, least, most}, status_code::bad_block);
    }
    if (appends) {
      add(&cache_lists::fresh, 1, {-1, 61, least, most}, status_code::bad_new_tokens);
      add(&cache_lists::lengths, 1, {59}, status_code::bad_new_tokens);
    }
  }
  return all;
}

/// Two sequences of 200 tokens, with room for 60 more if the test wants it.
template <class Executor, class Cache>
struct hostile_problem {
  listed_cache<Executor, Cache> cache;
  cache_lists lists;
  std::vector<float> found;

  hostile_problem(Executor const& exec, listed_tokens const& tokens, page_bits bits, cache_operation operation)
      : cache(exec, tokens.part[0].channels, retain_most_different::angle(1.5F), bits) {
    lists.lengths = lists.fresh = {200, 200};
    cache.append(lists, tokens, 0, 200);
    begin(operation);
    if (operation == cache_operation::seal) {
      cache.write(lists, tokens, 200, 60);
    }
  }
  /// A problem as another one was when its cache had this state.
  hostile_problem(Executor const& exec, std::int64_t channels, page_bits bits, cache_operation operation,
                  std::vector<std::byte> const& state)
      : cache(exec, channels, retain_most_different::angle(1.5F), bits) {
    begin(operation);
    cache.set_state(state);
  }
  void begin(cache_operation operation) {
    lists.lengths = lists.fresh = {200, 200};
    lists.pages = {2, 2};
    if (operation == cache_operation::append || operation == cache_operation::write ||
        operation == cache_operation::seal) {
      lists.lengths = {260, 260};
      lists.fresh = {60, 60};
    }
  }
  /// The complaint of a call with these lists.
  std::string run(listed_tokens const& tokens, cache_operation operation, cache_lists const& by) {
    return complaint_of([&, this] {
      switch (operation) {
        case cache_operation::append:
          return cache.append(by, tokens, 200, 60);
        case cache_operation::write:
          return cache.write(by, tokens, 200, 60);
        case cache_operation::seal:
          return cache.seal(by);
        case cache_operation::attend:
          return cache.attend(by, 1, found);
        case cache_operation::restore:
          return cache.restore(by, 2, 260, found);
      }
    });
  }
};

/// The first sequence has the results that it has without the second one; the second one has none.
inline void check_attended(std::vector<float> const& found, std::vector<float> const& alone, std::int64_t channels) {
  REQUIRE(found.size() == alone.size());
  std::size_t const of_sequence = as_size(4 * channels);
  int wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    bool const is_second = i < 2 * of_sequence ? i >= of_sequence : i >= 2 * of_sequence + 4;
    wrong += is_second ? !std::isnan(found[i]) : found[i] != alone[i];
  }
  CHECK(wrong == 0);
}

inline void check_restored(std::vector<float> const& found, std::vector<float> const& alone, bool is_page,
                           std::int64_t channels) {
  REQUIRE(found.size() == alone.size());
  int wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    auto const at = static_cast<std::int64_t>(i) / channels;
    std::int64_t const token = at % 260;
    bool const is_second = at / 260 / 2 % 2 == 1;
    bool const is_left_out = !is_page || token / 64 == 1 || token >= 200;
    wrong += is_second ? (found[i] == -77.0F) != is_left_out : found[i] != alone[i];
  }
  CHECK(wrong == 0);
}

/// What == says of vectors, which looks at one byte after the other.
inline bool are_same_bytes(std::vector<std::byte> const& a, std::vector<std::byte> const& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

template <class Cache = minicache, class Executor>
void check_hostile_lists(Executor const& exec, std::int64_t channels, page_bits bits = {}) {
  listed_tokens const tokens(260, channels);
  std::optional<hostile_problem<Executor, Cache>> known;  // the operation on the first sequence without the second one
  std::vector<std::byte> state_before;
  cache_operation known_operation = cache_operation::append;
  for (hostile_list const& one : hostile_lists()) {
    CAPTURE(channels, bits.keys, bits.values, static_cast<int>(one.operation), one.index, one.value,
            describe(one.expected));
    if (!known || one.operation != known_operation) {
      known.emplace(exec, tokens, bits, one.operation);
      known_operation = one.operation;
      state_before = known->cache.state(true);
      REQUIRE(known->run(tokens, one.operation, known->lists.without_second()).empty());
    }
    hostile_problem<Executor, Cache> const& alone = *known;
    hostile_problem<Executor, Cache> spoiled(exec, channels, bits, one.operation, state_before);
    bool const began_alike = are_same_bytes(state_before, spoiled.cache.state(true));
    REQUIRE(began_alike);
    (spoiled.lists.*one.list)[one.index] = one.value;
    std::string const words = spoiled.run(tokens, one.operation, spoiled.lists);
    char const* const calls[] = {"append", "write", "seal", "attend", "restore"};
    bool const is_tail = one.expected == status_code::full_tail;  // it may have as many tokens as follow from its pages
    CHECK_THAT(words, contains(std::string("cross_layer_cache.") + calls[static_cast<int>(one.operation)] + ": ") &&
                          contains("sequence 1 ") &&
                          contains(is_tail || one.expected == status_code::bad_new_tokens
                                       ? (is_tail ? "in no sealed page" : "new tokens")
                                       : std::to_string(one.value)));
    CHECK_THAT(words, contains(one.expected == status_code::full_tail ? "shape_error" : "value_error"));
    CHECK(complaint_of([&] { spoiled.cache.exec.wait(); }).empty());
    bool const is_page = one.expected == status_code::bad_block;
    bool const are_alike = are_same_bytes(alone.cache.state(!is_page), spoiled.cache.state(!is_page));
    CHECK(are_alike);
    if (one.operation == cache_operation::attend) {
      check_attended(spoiled.found, alone.found, channels);
    }
    if (one.operation == cache_operation::restore) {
      check_restored(spoiled.found, alone.found, is_page, channels);
    }
  }
}

}  // namespace tessera_test
