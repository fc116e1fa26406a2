// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Finds the indices of the highest scores.
///
///     float const scores[] = {0.1F, 0.9F, 0.5F, 0.9F};
///     std::int64_t taken[2];
///     tessera::top_k(scores, 4, 2, taken);             // {1, 3}
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/math.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// Whether candidate a is dropped before candidate b: it scores less, or the same and comes later. NaN scores least.
struct gives_way {
  float const* scores;
  TESSERA_FN constexpr bool operator()(std::int64_t a, std::int64_t b) const {
    bool const a_is_nan = is_nan(scores[a]);
    bool const b_is_nan = is_nan(scores[b]);
    if (a_is_nan != b_is_nan) {
      return a_is_nan;
    }
    if (a_is_nan || scores[a] == scores[b]) {
      return a > b;
    }
    return scores[a] < scores[b];
  }
};

struct comes_later {
  TESSERA_FN constexpr bool operator()(std::int64_t a, std::int64_t b) const { return a > b; }
};

/// Restores a heap, whose root is before all others, after the element at `index` changed.
template <class Before>
TESSERA_FN constexpr void sift_down(std::int64_t* heap, std::int64_t size, std::int64_t index, Before before) {
  std::int64_t const moving = heap[index];
  for (std::int64_t child = 2 * index + 1; child < size; child = 2 * index + 1) {
    if (child + 1 < size && before(heap[child + 1], heap[child])) {
      ++child;
    }
    if (!before(heap[child], moving)) {
      break;
    }
    heap[index] = heap[child];
    index = child;
  }
  heap[index] = moving;
}

template <class Before>
TESSERA_FN constexpr void make_heap(std::int64_t* heap, std::int64_t size, Before before) {
  for (std::int64_t index = size / 2; index-- > 0;) {
    sift_down(heap, size, index, before);
  }
}

}  // namespace detail

/// Writes the indices of the `take` highest scores to `taken`, in ascending order; 0 <= take <= candidates. Of equal
/// scores the earlier one is taken, and a NaN is taken last, so the answer is unique. It needs no memory but `taken`,
/// and O(n log take) time.
TESSERA_FN constexpr void top_k(float const* scores, std::int64_t candidates, std::int64_t take, std::int64_t* taken) {
  if (take <= 0) {
    return;
  }
  detail::gives_way const order{scores};
  for (std::int64_t index = 0; index < take; ++index) {
    taken[index] = index;
  }
  detail::make_heap(taken, take, order);  // the root is the next one to drop
  for (std::int64_t index = take; index < candidates; ++index) {
    if (order(taken[0], index)) {
      taken[0] = index;
      detail::sift_down(taken, take, 0, order);
    }
  }
  detail::make_heap(taken, take, detail::comes_later{});
  for (std::int64_t last = take - 1; last > 0; --last) {
    std::int64_t const latest = taken[0];
    taken[0] = taken[last];
    taken[last] = latest;
    detail::sift_down(taken, last, 0, detail::comes_later{});
  }
}

}  // namespace v0
}  // namespace tessera
