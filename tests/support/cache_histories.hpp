// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Histories of sequences of a cache, for any executor: forks whose origins end, prompts that begin with padding.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/catch.hpp"
#include "support/listed_cache.hpp"

namespace tessera_test {

/// The results of calls that read the second sequence, in slot 1.
template <class Executor>
std::vector<std::vector<float>> second_as_read(listed_cache<Executor>& cache, cache_lists const& lists) {
  std::vector<std::vector<float>> all(6);
  for (int layer = 0; layer < 3; ++layer) {
    cache.attend(lists, layer, all[as_size(layer)]);
    cache.restore(lists, layer, lists.lengths[1], all[as_size(3 + layer)]);
    for (std::vector<float>* const list : {&all[as_size(layer)], &all[as_size(3 + layer)]}) {
      std::size_t const parts = list == &all[as_size(layer)] ? 1 : 2;  // keys, and then values
      std::size_t const each = list->size() / parts;
      std::size_t const of_sequence = parts == 1 ? as_size(4 * cache.extents.channels) : each / 2;
      std::vector<float> second;
      for (std::size_t part = 0; part < parts; ++part) {
        auto const from = list->begin() + static_cast<std::ptrdiff_t>(part * each + of_sequence);
        second.insert(second.end(), from, from + static_cast<std::ptrdiff_t>(of_sequence));
      }
      *list = second;
    }
  }
  return all;
}

/// Replaces the second sequence by the first one.
inline listed_tokens twice_the_first(listed_tokens tokens) {
  for (auto& pair : tokens.part) {
    for (auto& layer : pair.part) {
      for (auto& list : layer) {
        auto const half = static_cast<std::ptrdiff_t>(list.size() / 2);
        std::copy(list.begin(), list.begin() + half, list.begin() + half);
      }
    }
  }
  return tokens;
}

/// Checks that a fork reads the same after its origin has ended and another sequence has its slot, and that it goes on
/// as before.
template <class Executor>
void check_fork(Executor const& exec, std::int64_t channels) {
  listed_tokens const tokens(300, channels);
  listed_tokens const others(300, channels, 1000);
  listed_cache<Executor> cache(exec, channels);
  cache_lists lists;
  lists.lengths = lists.fresh = {220, 0};
  cache.append(lists, tokens, 0, 220);
  lists.pages = {2, 0};
  cache.fork(0, 1);
  lists.lengths = {0, 220};
  lists.fresh = {0, 0};
  lists.pages = {0, 2};
  lists.blocks = {8, 9, 10, -1, 0, 1, 7, -1};  // the first two are blocks of the origin
  auto const before = second_as_read(cache, lists);
  auto const saved = cache.saved(lists, 1);
  REQUIRE(cache.statistics(lists).retained_tokens > 5);
  cache.reset(0);
  lists.lengths[0] = lists.fresh[0] = 300;
  cache.append(lists, others, 0, 300);
  lists.pages[0] = 3;
  REQUIRE(cache.statistics(lists).retained_tokens > 10);
  auto const after = second_as_read(cache, lists);
  for (std::size_t i = 0; i < before.size(); ++i) {
    CAPTURE(channels, i);
    bool const is_same = before[i] == after[i];
    CHECK(is_same);
  }
  CHECK((cache.saved(lists, 1) == saved));
  // The fork goes on beside the new sequence as it does alone.
  lists.lengths = {300, 280};
  lists.fresh = {0, 60};
  cache.append(lists, tokens, 220, 60);
  lists.pages[1] = 3;
  listed_cache<Executor> alone(exec, channels);
  cache_lists own;
  own.lengths = own.fresh = {0, 220};
  alone.append(own, twice_the_first(tokens), 0, 220);
  own.pages = {0, 2};
  own.lengths = {0, 280};
  own.fresh = {0, 60};
  alone.append(own, tokens, 220, 60);
  own.pages = {0, 3};
  CHECK((cache.saved(lists, 1) == alone.saved(own, 1)));
}

/// The kinds of padding.
enum class padding { zeros, equal, turned, not_finite };

/// 192 tokens of padding, and then other tokens.
inline listed_tokens padded(listed_tokens tokens, padding kind) {
  for (auto& pair : tokens.part) {
    for (int layer = 0; layer < 2; ++layer) {
      for (int which = 0; which < 2; ++which) {
        auto& list = pair.part[layer][which];
        for (std::int64_t i = 0; i < 4 * pair.tokens * pair.channels; ++i) {
          std::int64_t const token = i / pair.channels % pair.tokens;
          std::int64_t const channel = i % pair.channels;
          if (token < 192) {
            double const turn = kind == padding::turned ? 0.01 * static_cast<double>(token * (channel / 2 + 1)) : 0.0;
            double const angle = turn + (channel % 2 == 0 ? 0.3 : 0.3 - 1.5707963267948966);
            double const length = 1.0 + 0.1 * static_cast<double>(channel / 2 % 7) * (layer == 0 ? 1 : -1);
            double const value = kind == padding::zeros        ? 0.0
                                 : kind == padding::not_finite ? std::nan("")
                                                               : length * std::cos(angle);
            list[as_size(i)] = store<bfloat16>(static_cast<float>(value));
          }
        }
      }
    }
  }
  return tokens;
}

/// Checks that thresholds that follow from angles do not follow from those of padding, however much of it comes first.
template <class Executor>
void check_padding(Executor const& exec, retain_most_different rule, padding kind) {
  listed_tokens const tokens = padded(listed_tokens(512, 64), kind);
  listed_cache<Executor> cache(exec, 64, rule);
  cache_lists lists;
  lists.blocks = {0, 1, 2, 3, 4, 5, 6, 7};
  lists.lengths = lists.fresh = {192, 192};
  cache.append(lists, tokens, 0, 192);
  lists.pages = {2, 2};
  for (std::size_t i = 0; i < 8; ++i) {
    CAPTURE(i);
    CHECK(std::isnan(cache.thresholds(1)[i]));
  }
  cache_bytes const of_padding = cache.statistics(lists);
  CHECK((of_padding.retained_tokens == 0) == (kind != padding::not_finite));
  // Four whole pages that follow decide about the threshold, with the rest of the padding or without it.
  listed_cache<Executor> alone(exec, 64, rule);
  cache_lists of_alone = lists;
  of_alone.pages = {0, 0};
  of_alone.lengths = of_alone.fresh = {128, 128};
  alone.append(of_alone, tokens, 192, 128);
  lists.lengths = {320, 320};
  lists.fresh = {128, 128};
  cache.append(lists, tokens, 192, 128);
  bool const has_angles = kind == padding::equal || kind == padding::turned;
  for (std::size_t i = 0; i < 8; ++i) {
    CAPTURE(i);
    CHECK(std::isfinite(alone.thresholds(1)[i]));
    CHECK(std::isfinite(cache.thresholds(1)[i]));
    CHECK((has_angles || cache.thresholds(1)[i] == alone.thresholds(1)[i]));
  }
  lists.pages = {4, 4};
  CHECK((kind == padding::not_finite || cache.statistics(lists).retained_tokens > 0));
}

}  // namespace tessera_test
