// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Finds the indices of the largest scores with all lanes of a group, by radix selection with counters in scratch. It
/// gives the same answer as `top_k` in select/top_k.hpp, on every executor.
///
///     struct keys {                                          // of index i; 0: not to be taken
///       array_view<float const> scores;
///       TESSERA_FN std::uint32_t operator()(std::int64_t i) const { return ordered_key(scores[i]); }
///     };
///     auto const taken = top_k(group, keys{scores}, scores.size(), 256, scratch.digits, write);   // write(rank, i)
///
/// It takes five passes over the keys, which may be computed again in each pass, and no memory but the counters, for
/// any number of scores. Most scores have the same few exponents, so that neighbouring lanes would often add to one
/// counter and wait for each other. So each of 32 neighbours has its own counters.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/tile/per_lane.hpp>

namespace tessera {
inline namespace v0 {

/// A number that is larger for a larger score, and at least 1. Zeros are equal; a NaN is below minus infinity.
TESSERA_FN constexpr std::uint32_t ordered_key(float score) {
  constexpr std::uint32_t sign = 0x80000000U;
  if (is_nan(score)) {
    return 1;
  }
  std::uint32_t const bits = score == 0.0F ? 0U : bit_cast<std::uint32_t>(score);
  return (bits & sign) != 0 ? ~bits : bits | sign;
}

/// The memory that lanes share while they look for the largest keys.
struct top_k_scratch {
  static constexpr int digit_bits = 8;          ///< bits of a digit of a key; one digit is found at a time
  static constexpr int bins = 1 << digit_bits;  ///< values of a digit, with a counter each
  static constexpr int copies = 32;  ///< copies of the counters, so that lanes that count the same digit do not meet

  std::uint32_t counts[bins][copies];  ///< counts of keys whose higher digits are those of the smallest key to be taken
  std::uint32_t digit;                 ///< this digit of that key
  std::uint32_t above;                 ///< how many keys have a larger digit

  /// A counter summed over all copies. `lane`: neighbouring lanes begin with different copies.
  [[nodiscard]] TESSERA_FN constexpr std::uint32_t count(int bin, int lane) const {
    std::uint32_t sum = 0;
    for (int copy = 0; copy < copies; ++copy) {
      sum += counts[bin][(lane + copy) % copies];
    }
    return sum;
  }
};

namespace detail {

/// The position of a digit in keys; digits go from the highest to the lowest.
struct key_digit {
  int shift;
  std::uint32_t above;  ///< mask of the digits above this one
};
inline constexpr int key_digits = 32 / top_k_scratch::digit_bits;
TESSERA_FN constexpr key_digit key_digit_at(int which) {
  int const above = top_k_scratch::digit_bits * which;
  return {32 - above - top_k_scratch::digit_bits, which == 0 ? 0U : ~(0xffffffffU >> above)};
}

/// Counts keys by one digit, if their digits above are those of `prefix`, and gives how many keys these are.
template <Group G, class Keys>
TESSERA_FN std::uint32_t count_digits(G const& group, Keys const& keys, std::int64_t count, key_digit digit,
                                      std::uint32_t prefix, top_k_scratch& scratch) {
  constexpr int copies = top_k_scratch::copies;
  group.sync();  // earlier counters have been read
  for (int lane : group) {
    for (int i = lane; i < top_k_scratch::bins * copies; i += G::size) {
      scratch.counts[i / copies][i % copies] = 0;
    }
  }
  group.sync();
  per_lane<std::uint32_t, G> found;
  for (int lane : group) {
    found[lane] = 0;
    for (std::int64_t i = lane; i < count; i += G::size) {
      std::uint32_t const key = keys(i);
      if (key != 0 && (key & digit.above) == prefix) {
        std::uint32_t const bin = (key >> digit.shift) % static_cast<std::uint32_t>(top_k_scratch::bins);
        group.atomic_add(scratch.counts[bin][lane % copies], 1U);
        ++found[lane];
      }
    }
  }
  group.sync();
  return exclusive_sum(group, found);
}

/// Finds the digit of the key than which `take` - 1 others are larger or equal; 1 <= take.
template <Group G>
TESSERA_FN void find_digit(G const& group, std::uint32_t take, top_k_scratch& scratch) {
  constexpr int bins = top_k_scratch::bins;
  constexpr int each = (bins + G::size - 1) / G::size;  // bins of a lane, from the highest down
  per_lane<std::uint32_t, G> above;
  per_lane<std::uint32_t, G> own;
  for (int lane : group) {
    own[lane] = 0;
    for (int i = lane * each; i < min((lane + 1) * each, bins); ++i) {
      own[lane] += scratch.count(bins - 1 - i, lane);
    }
    above[lane] = own[lane];
  }
  exclusive_sum(group, above);
  for (int lane : group) {
    if (above[lane] < take && take <= above[lane] + own[lane]) {
      std::uint32_t before = above[lane];
      int i = lane * each;
      std::uint32_t next = scratch.count(bins - 1 - i, lane);
      while (before + next < take) {
        before += next;
        ++i;
        next = scratch.count(bins - 1 - i, lane);
      }
      scratch.digit = static_cast<std::uint32_t>(bins - 1 - i);
      scratch.above = before;
    }
  }
  group.sync();
}

/// Calls write(rank, i) for all i with a key above `least`, and for the first `equals` of those whose key is `least`.
template <Group G, class Keys, class Write>
TESSERA_FN void write_keys(G const& group, Keys const& keys, std::int64_t count, std::uint32_t least,
                           std::uint32_t equals, Write const& write) {
  std::uint64_t before = 0;  // counts of larger keys in the upper half, of equal ones in the lower
  for (std::int64_t first = 0; first < count; first += G::size) {
    per_lane<std::uint64_t, G> index;
    per_lane<std::uint32_t, G> key;
    for (int lane : group) {
      key[lane] = first + lane < count ? keys(first + lane) : 0;
      std::uint64_t const is_above = key[lane] > least ? std::uint64_t{1} << 32 : 0;
      index[lane] = is_above + (key[lane] == least ? 1U : 0U);
    }
    std::uint64_t const all = exclusive_sum(group, index);
    for (int lane : group) {
      std::uint64_t const at = before + index[lane];
      auto const equal = static_cast<std::uint32_t>(at);
      if (key[lane] > least || (key[lane] == least && equal < equals)) {
        write(static_cast<std::int64_t>(at >> 32) + min(equal, equals), first + lane);
      }
    }
    before += all;
  }
}

}  // namespace detail

/// Calls write(rank, i) for the indices i of the `take` largest keys, or of all keys if these are fewer, in ascending
/// order; of equal keys the first are taken. Gives how many were taken. Keys, Write: function objects; a key of 0 is
/// never taken. Up to 2^32 - 1 keys. Results of write() can be read after a sync.
template <Group G, class Keys, class Write>
TESSERA_FN std::int64_t top_k(G const& group, Keys const& keys, std::int64_t count, std::int64_t take,
                              top_k_scratch& scratch, Write const& write) {
  std::uint32_t prefix = 0;
  std::uint32_t left = take > 0 ? static_cast<std::uint32_t>(min(take, count)) : 0U;
  std::uint32_t taken = left;
  for (int which = 0; which < detail::key_digits && left > 0; ++which) {
    detail::key_digit const digit = detail::key_digit_at(which);
    std::uint32_t const found = detail::count_digits(group, keys, count, digit, prefix, scratch);
    if (which == 0) {
      left = min(left, found);
      taken = left;
    }
    if (left > 0) {
      detail::find_digit(group, left, scratch);
      prefix |= scratch.digit << digit.shift;
      left -= scratch.above;
    }
  }
  if (taken > 0) {
    detail::write_keys(group, keys, count, prefix, left, write);
  }
  return static_cast<std::int64_t>(taken);
}

}  // namespace v0
}  // namespace tessera
