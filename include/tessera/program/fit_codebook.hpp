// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// From a histogram of exponents to a stream's window and frequencies: the work of one group for one tensor.
///
///     tessera::serial_group<1> alone;
///     tessera::codebook_scratch scratch;
///     tessera::exponent_window window = tessera::fit_codebook(alone, counts, 255, scratch);
///     scratch.table.frequency[0];                              // of the pair of the window's first exponent with itself
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/entropy/exponent_window.hpp>
#include <tessera/entropy/frequency_table.hpp>
#include <tessera/entropy/rans_coder.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/tile/per_lane.hpp>

namespace tessera {
inline namespace v0 {

/// The coder that streams use: pairs of exponent codes at twelve bits.
using pair_coder = rans_coder<12>;
using pair_model = frequency_model<pair_coder::probability_bits>;

/// Every how many blocks one is counted: all of up to 1023 blocks (8 million weights), else 512 to 1023 of them, evenly spread.
/// Coding stays exact whatever was counted; what the histogram did not foresee becomes an escape or a raw block.
TESSERA_FN constexpr std::int64_t histogram_stride(std::int64_t block_count) {
  return max(block_count >> 9, std::int64_t{1});
}

/// Shared by the lanes of fit_codebook; `table` is its result.
struct codebook_scratch {
  std::uint64_t counts[256];
  std::uint64_t code_counts[exponent_window::codes];
  std::uint64_t share[exponent_window::codes];
  std::uint64_t remainder[256];
  pair_coder::model_type table;
};

namespace detail {

/// The weight of a pair: the product of its codes' shares.
TESSERA_FN constexpr std::uint64_t pair_weight(codebook_scratch const& scratch, std::uint32_t symbol) {
  return scratch.share[symbol & 15] * scratch.share[symbol >> 4];
}

/// The window that leaves the fewest counted exponents without a code; ties to the lower base.
template <class Group>
TESSERA_FN exponent_window fit_window(Group const& group, std::uint32_t largest_exponent, codebook_scratch& scratch) {
  const int candidates = static_cast<int>(exponent_window_candidates(largest_exponent));
  per_lane<std::uint64_t, Group> key;  // covered << 8 | 255 - base: the largest has the lowest base among equals
  for (int lane : group) {
    key[lane] = 0;
    for (int base = lane; base < candidates; base += Group::size) {
      const auto candidate = exponent_window_at(static_cast<std::uint32_t>(base), scratch.counts, largest_exponent);
      key[lane] = max(key[lane], (candidate.covered << 8) | static_cast<std::uint64_t>(255 - base));
    }
  }
  const std::uint64_t best = maximum(group, key);
  const auto base = static_cast<std::uint32_t>(255 - (best & 255));
  return exponent_window_at(base, scratch.counts, largest_exponent).window;
}

/// Counts and shares of the sixteen codes.
template <class Group>
TESSERA_FN void share_codes(Group const& group, exponent_window window, codebook_scratch& scratch) {
  for (int lane : group) {
    for (int code = lane; code < exponent_window::codes; code += Group::size) {
      std::uint64_t count = 0;
      for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
        count += window.code(exponent) == static_cast<std::uint32_t>(code) ? scratch.counts[exponent] : 0;
      }
      scratch.code_counts[code] = count;
    }
  }
  group.sync();
  std::uint64_t all = 0;
  for (int code = 0; code < exponent_window::codes; ++code) {
    all += scratch.code_counts[code];
  }
  for (int lane : group) {
    for (int code = lane; code < exponent_window::codes; code += Group::size) {
      scratch.share[code] = pair_model::share(scratch.code_counts[code], all, static_cast<std::uint32_t>(code));
    }
  }
  group.sync();
}

/// Whole parts of all frequencies; gives what is left of the slots.
template <class Group>
TESSERA_FN std::int64_t share_whole_slots(Group const& group, codebook_scratch& scratch) {
  std::uint64_t share_sum = 0;
  for (int code = 0; code < exponent_window::codes; ++code) {
    share_sum += scratch.share[code];
  }
  const std::uint64_t weight_sum = share_sum * share_sum;
  per_lane<std::uint64_t, Group> ones;
  per_lane<std::uint64_t, Group> proportional;
  for (int lane : group) {
    ones[lane] = 0;
    proportional[lane] = 0;
    for (int symbol = lane; symbol < 256; symbol += Group::size) {
      const std::uint64_t weight = pair_weight(scratch, static_cast<std::uint32_t>(symbol));
      const auto kind = pair_model::classify(static_cast<std::uint32_t>(symbol), weight, weight_sum);
      ones[lane] += kind == pair_model::kind::one ? 1 : 0;
      proportional[lane] += kind == pair_model::kind::proportional ? weight : 0;
    }
  }
  const std::uint64_t slots = pair_model::total - sum(group, ones);
  const std::uint64_t proportional_sum = sum(group, proportional);
  per_lane<std::uint64_t, Group> given;
  for (int lane : group) {
    given[lane] = 0;
    for (int symbol = lane; symbol < 256; symbol += Group::size) {
      const std::uint64_t weight = pair_weight(scratch, static_cast<std::uint32_t>(symbol));
      const auto kind = pair_model::classify(static_cast<std::uint32_t>(symbol), weight, weight_sum);
      std::uint32_t frequency = kind == pair_model::kind::one ? 1 : 0;
      scratch.remainder[symbol] = 0;
      if (kind == pair_model::kind::proportional) {
        frequency = pair_model::quotient(weight, slots, proportional_sum);
        // Plus one, so that 0 says "takes no part".
        scratch.remainder[symbol] = pair_model::remainder(weight, slots, proportional_sum) + 1;
        given[lane] += frequency;
      }
      scratch.table.frequency[symbol] = static_cast<std::uint16_t>(frequency);
    }
  }
  const std::uint64_t all_given = sum(group, given);
  group.sync();
  return static_cast<std::int64_t>(slots) - static_cast<std::int64_t>(all_given);
}

/// Hands out what is left, one each, largest remainder first; or takes what was given too much from the largest frequency.
template <class Group>
TESSERA_FN void settle_slots(Group const& group, std::int64_t left, codebook_scratch& scratch) {
  per_lane<std::uint32_t, Group> key;  // frequency << 8 | 255 - symbol
  for (int lane : group) {
    key[lane] = 0;
    for (int symbol = lane; symbol < 256; symbol += Group::size) {
      key[lane] = max(key[lane], (std::uint32_t{scratch.table.frequency[symbol]} << 8) | static_cast<std::uint32_t>(255 - symbol));
    }
  }
  const int largest = 255 - static_cast<int>(maximum(group, key) & 255);
  group.sync();
  for (int lane : group) {
    for (int symbol = lane; symbol < 256; symbol += Group::size) {
      std::int64_t change = left < 0 && symbol == largest ? left : 0;
      const std::uint64_t mine = scratch.remainder[symbol];
      if (left > 0 && mine > 0) {
        std::int64_t rank = 0;
        for (int other = 0; other < 256; ++other) {
          const std::uint64_t theirs = scratch.remainder[other];
          rank += theirs > mine || (theirs == mine && other < symbol) ? 1 : 0;
        }
        change = rank < left ? 1 : 0;
      }
      scratch.table.frequency[symbol] = static_cast<std::uint16_t>(scratch.table.frequency[symbol] + change);
    }
  }
  group.sync();
}

}  // namespace detail

/// Finds the window and the frequencies for how often each of 256 exponents occurs (counts up to 2^47). The same result for every
/// group. Cost: about 150,000 integer operations, shared by the group's lanes.
template <class Group>
TESSERA_FN exponent_window fit_codebook(Group const& group, std::uint64_t const* counts, std::uint32_t largest_exponent,
                                        codebook_scratch& scratch) {
  for (int lane : group) {
    for (int exponent = lane; exponent < 256; exponent += Group::size) {
      scratch.counts[exponent] = counts[exponent];
    }
  }
  group.sync();
  const exponent_window window = detail::fit_window(group, largest_exponent, scratch);
  detail::share_codes(group, window, scratch);
  const std::int64_t left = detail::share_whole_slots(group, scratch);
  detail::settle_slots(group, left, scratch);
  return window;
}

/// What the coder's push needs, from valid frequencies.
template <class Group>
TESSERA_FN void write_encode_table(Group const& group, pair_coder::model_type const& model, pair_coder::encode_table& table) {
  std::uint32_t below = 0;
  for (int first = 0; first < 256; first += Group::size) {
    per_lane<std::uint32_t, Group> cumulative;
    for (int lane : group) {
      cumulative[lane] = model.frequency[first + lane];
    }
    const std::uint32_t total = exclusive_sum(group, cumulative);
    for (int lane : group) {
      table.entry[first + lane] = pair_coder::make_encode_entry(model.frequency[first + lane], below + cumulative[lane]);
    }
    below += total;
  }
  group.sync();
}

}  // namespace v0
}  // namespace tessera
