// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Finds a stream's window and frequencies from a histogram of exponents: the work of one group for one tensor.
///
///     tessera::serial_group<1> alone;
///     tessera::codebook_scratch scratch;
///     tessera::exponent_window window = tessera::fit_codebook(alone, counts, 255, scratch);
///     scratch.table.frequency[0];                 // of the pair of the window's first exponent with itself
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/entropy/exponent_window.hpp>
#include <tessera/entropy/frequency_table.hpp>
#include <tessera/entropy/rans_coder.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/tile/per_lane.hpp>

namespace tessera {
inline namespace v0 {

/// The coder of pairs of exponent codes, at twelve bits.
using pair_coder = rans_coder<12>;
/// The model that makes frequencies of pairs.
using pair_model = frequency_model<pair_coder::probability_bits>;

/// The distance from one counted block to the next: all of up to 1023 blocks (8 million weights) are counted, else 512
/// to 1023 of them, evenly spread. Coding is exact whatever was counted; unexpected exponents become escapes or raw
/// blocks.
TESSERA_FN constexpr std::int64_t histogram_stride(std::int64_t block_count) {
  return max(block_count >> 9, std::int64_t{1});
}

/// The scratch of fit_codebook, which its lanes share; `table` is the result.
struct codebook_scratch {
  std::uint64_t counts[256];  ///< counts of exponents
  std::uint64_t
      largest_below[2][256];  ///< the largest count up to here, as count << 8 | 255 - exponent; and the next step's
  std::uint64_t largest_above[2][256];          ///< the largest of the counts from here on
  std::uint64_t share[exponent_window::codes];  ///< the share of each code, of 65536
  pair_coder::model_type table;                 ///< the result
};

namespace detail {

/// The weight of a pair: the product of its codes' shares.
TESSERA_FN constexpr std::uint64_t pair_weight(codebook_scratch const& scratch, std::uint32_t symbol) {
  return scratch.share[symbol & 15] * scratch.share[symbol >> 4];
}

/// Computes running maxima of the counts from both ends, by doubling.
template <Group G>
TESSERA_FN void scan_counts(G const& group, codebook_scratch& scratch) {
  for (int lane : group) {
    for (int i = lane; i < 256; i += G::size) {
      scratch.largest_below[0][i] = (scratch.counts[i] << 8) | static_cast<std::uint64_t>(255 - i);
      scratch.largest_above[0][i] = scratch.largest_below[0][i];
    }
  }
  group.sync();
  for (int step = 0; step < 8; ++step) {
    int const distance = 1 << step;
    int const from = step % 2;
    for (int lane : group) {
      for (int i = lane; i < 256; i += G::size) {
        std::uint64_t const below = i >= distance ? scratch.largest_below[from][i - distance] : 0;
        std::uint64_t const above = i + distance < 256 ? scratch.largest_above[from][i + distance] : 0;
        scratch.largest_below[1 - from][i] = max(scratch.largest_below[from][i], below);
        scratch.largest_above[1 - from][i] = max(scratch.largest_above[from][i], above);
      }
    }
    group.sync();
  }
}

/// The best window with this base, as exponent_window_at gives it.
TESSERA_FN constexpr exponent_window_candidate window_candidate(codebook_scratch const& scratch, std::uint32_t base,
                                                                std::uint32_t largest_exponent) {
  std::uint32_t const end = base + exponent_window::neighbours;
  std::uint64_t inside = 0;
  for (std::uint32_t exponent = base; exponent < end; ++exponent) {
    inside += scratch.counts[exponent];
  }
  std::uint32_t extra = end <= largest_exponent ? end : base - 1;
  std::uint64_t const below = base > 0 ? scratch.largest_below[0][base - 1] : 0;
  std::uint64_t const above = end < 256 ? scratch.largest_above[0][end] : 0;
  std::uint64_t const outside = max(below, above);
  if ((outside >> 8) > scratch.counts[extra]) {
    extra = static_cast<std::uint32_t>(255 - (outside & 255));
  }
  return {{static_cast<std::uint8_t>(base), static_cast<std::uint8_t>(extra)}, inside + scratch.counts[extra]};
}

/// The window that leaves the fewest counted exponents without a code; ties to the lower base.
template <Group G>
TESSERA_FN exponent_window fit_window(G const& group, std::uint32_t largest_exponent, codebook_scratch& scratch) {
  scan_counts(group, scratch);
  int const candidates = static_cast<int>(exponent_window_candidates(largest_exponent));
  per_lane<std::uint64_t, G> key;  // covered << 16 | 255 - base << 8 | extra: the largest has the lowest base
  for (int lane : group) {
    key[lane] = 0;
    for (int base = lane; base < candidates; base += G::size) {
      auto const candidate = window_candidate(scratch, static_cast<std::uint32_t>(base), largest_exponent);
      auto const rank = static_cast<std::uint64_t>(255 - base);
      key[lane] = max(key[lane], (candidate.covered << 16) | (rank << 8) | candidate.window.extra);
    }
  }
  std::uint64_t const best = maximum(group, key);
  return {static_cast<std::uint8_t>(255 - ((best >> 8) & 255)), static_cast<std::uint8_t>(best & 255)};
}

/// Computes the shares of the sixteen codes.
template <Group G>
TESSERA_FN void share_codes(G const& group, exponent_window window, codebook_scratch& scratch) {
  per_lane<std::uint64_t, G> counted;
  per_lane<std::uint64_t, G> coded;
  for (int lane : group) {
    counted[lane] = 0;
    coded[lane] = 0;
    for (int exponent = lane; exponent < 256; exponent += G::size) {
      bool const escapes = window.code(static_cast<std::uint32_t>(exponent)) == exponent_window::escape_code;
      counted[lane] += scratch.counts[exponent];
      coded[lane] += escapes ? 0 : scratch.counts[exponent];
    }
  }
  std::uint64_t const all = sum(group, counted);
  std::uint64_t const escapes = all - sum(group, coded);
  for (int lane : group) {
    for (int i = lane; i < exponent_window::codes; i += G::size) {
      auto const code = static_cast<std::uint32_t>(i);
      bool const is_escape = code == exponent_window::escape_code;
      scratch.share[i] = pair_model::share(is_escape ? escapes : scratch.counts[window.exponent(code)], all, code);
    }
  }
  group.sync();
}

/// Computes all frequencies, rounded, and returns the number of slots that are left, which may be negative.
template <Group G>
TESSERA_FN int share_slots(G const& group, codebook_scratch& scratch) {
  std::uint64_t share_sum = 0;
  for (int code = 0; code < exponent_window::codes; ++code) {
    share_sum += scratch.share[code];
  }
  std::uint64_t const weight_sum = share_sum * share_sum;
  per_lane<std::uint32_t, G> ones;
  per_lane<std::uint64_t, G> proportional;
  for (int lane : group) {
    ones[lane] = 0;
    proportional[lane] = 0;
    for (int symbol = lane; symbol < 256; symbol += G::size) {
      std::uint64_t const weight = pair_weight(scratch, static_cast<std::uint32_t>(symbol));
      auto const kind = pair_model::classify(static_cast<std::uint32_t>(symbol), weight, weight_sum);
      ones[lane] += kind == pair_model::kind::one ? 1U : 0U;
      proportional[lane] += kind == pair_model::kind::proportional ? weight : 0;
    }
  }
  std::uint64_t const slots = pair_model::total - sum(group, ones);
  std::uint64_t const proportional_sum = sum(group, proportional);
  per_lane<std::uint32_t, G> given;
  for (int lane : group) {
    given[lane] = 0;
    for (int symbol = lane; symbol < 256; symbol += G::size) {
      std::uint64_t const weight = pair_weight(scratch, static_cast<std::uint32_t>(symbol));
      auto const kind = pair_model::classify(static_cast<std::uint32_t>(symbol), weight, weight_sum);
      std::uint32_t const rounded = pair_model::rounded(weight, slots, proportional_sum);
      scratch.table.frequency[symbol] = static_cast<std::uint16_t>(kind == pair_model::kind::absent ? 0
                                                                   : kind == pair_model::kind::one  ? 1
                                                                                                    : rounded);
      given[lane] += kind == pair_model::kind::proportional ? rounded : 0U;
    }
  }
  std::uint32_t const all_given = sum(group, given);
  group.sync();
  return static_cast<int>(slots) - static_cast<int>(all_given);
}

/// Gives or takes the slots that are left, one each, to or from the first symbols of at least the frequency `enough`.
/// Returns false if there are too few such symbols.
template <Group G>
TESSERA_FN bool settle_slots(G const& group, int left, std::uint32_t enough, codebook_scratch& scratch) {
  int const change = left < 0 ? -1 : 1;
  int open = left < 0 ? -left : left;
  per_lane<int, G> eligible;
  for (int lane : group) {
    eligible[lane] = 0;
    for (int symbol = lane; symbol < 256; symbol += G::size) {
      eligible[lane] += scratch.table.frequency[symbol] >= enough ? 1 : 0;
    }
  }
  if (sum(group, eligible) < open) {
    return false;
  }
  for (int first = 0; first < 256; first += G::size) {
    per_lane<int, G> before;
    for (int lane : group) {
      before[lane] = scratch.table.frequency[first + lane] >= enough ? 1 : 0;
    }
    int const here = exclusive_sum(group, before);
    for (int lane : group) {
      int const frequency = scratch.table.frequency[first + lane];
      if (frequency >= static_cast<int>(enough) && before[lane] < open) {
        scratch.table.frequency[first + lane] = static_cast<std::uint16_t>(frequency + change);
      }
    }
    open = here < open ? open - here : 0;
  }
  group.sync();
  return true;
}

}  // namespace detail

/// Finds the window and the frequencies from the counts of 256 exponents (counts up to 2^47). The result is the same
/// for every group. Cost: about 30,000 integer operations, shared by the group's lanes.
template <Group G>
TESSERA_FN exponent_window fit_codebook(G const& group, std::uint64_t const* counts, std::uint32_t largest_exponent,
                                        codebook_scratch& scratch) {
  for (int lane : group) {
    for (int exponent = lane; exponent < 256; exponent += G::size) {
      scratch.counts[exponent] = counts[exponent];
    }
  }
  group.sync();
  exponent_window const window = detail::fit_window(group, largest_exponent, scratch);
  detail::share_codes(group, window, scratch);
  int const left = detail::share_slots(group, scratch);
  // Frequent symbols lose least. Rounding leaves at most half a slot a symbol, so that the last attempt always
  // succeeds.
  std::uint32_t const fewest = left < 0 ? 2 : 1;
  bool settled = false;
  for (int bits = 6; bits >= 0 && !settled; bits -= 3) {
    settled = detail::settle_slots(group, left, max(1U << bits, fewest), scratch);
  }
  return window;
}

/// Writes the coder's table for pushing, from valid frequencies.
template <Group G>
TESSERA_FN void write_encode_table(G const& group, pair_coder::model_type const& model,
                                   pair_coder::encode_table& table) {
  std::uint32_t below = 0;
  for (int first = 0; first < 256; first += G::size) {
    per_lane<std::uint32_t, G> cumulative;
    for (int lane : group) {
      cumulative[lane] = model.frequency[first + lane];
    }
    std::uint32_t const total = exclusive_sum(group, cumulative);
    for (int lane : group) {
      table.entry[first + lane] =
          pair_coder::make_encode_entry(model.frequency[first + lane], below + cumulative[lane]);
    }
    below += total;
  }
  group.sync();
}

}  // namespace v0
}  // namespace tessera
