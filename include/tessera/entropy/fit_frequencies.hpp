// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Computes a coder's frequencies from the counts of 256 symbols.
///
///     tessera::frequency_table<12> table;
///     tessera::fit_frequencies(counts, table);    // counts: 256 numbers, of a sum below 2^47
///     table.is_valid();                           // always true
///
/// A symbol rarer than 2^-17 gets frequency 0: listing its few occurrences costs less than a slot, which is taken from
/// all other symbols. A symbol rarer than one and a half slots gets 1. The others share the slots that are left in
/// proportion to their counts. All arithmetic is on integers, so that every machine makes the same table.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/entropy/frequency_table.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// What fit_frequencies shares out, and among which counts.
struct slot_shares {
  std::uint64_t all = 0;       ///< the sum of all counts
  std::uint64_t shared = 0;    ///< the sum of the counts of symbols that get more than one slot
  std::uint64_t slots = 0;     ///< slots that those symbols share
  std::uint32_t frequent = 0;  ///< the most frequent symbol; the lowest of several
};

/// Whether a symbol with this count gets no slot.
TESSERA_FN constexpr bool is_rare(std::uint64_t count, std::uint64_t all) {
  constexpr int rare_bits = 17;
  return count == 0 || (count << rare_bits) < all;
}

/// Whether a symbol with this count, which is not rare, gets exactly one slot of `total`.
TESSERA_FN constexpr bool gets_one_slot(std::uint64_t count, std::uint64_t all, std::uint64_t total) {
  return 2 * count * total < 3 * all;
}

/// Gives one slot to each symbol that gets no more, none to those that get more or are rare, and says what is left.
template <int ProbabilityBits>
TESSERA_FN constexpr slot_shares give_single_slots(std::uint64_t const* counts,
                                                   frequency_table<ProbabilityBits>& table) {
  slot_shares shares;
  for (std::uint32_t symbol = 0; symbol < frequency_table<ProbabilityBits>::symbols; ++symbol) {
    shares.all += counts[symbol];
    shares.frequent = counts[symbol] > counts[shares.frequent] ? symbol : shares.frequent;
  }
  shares.slots = table.total;
  for (int symbol = 0; symbol < table.symbols; ++symbol) {
    bool const rare = is_rare(counts[symbol], shares.all);
    bool const one = !rare && gets_one_slot(counts[symbol], shares.all, table.total);
    table.frequency[symbol] = one ? 1 : 0;
    shares.slots -= one ? 1 : 0;
    shares.shared += rare || one ? 0 : counts[symbol];
  }
  return shares;
}

}  // namespace detail

/// Writes the frequencies of 256 symbols with these counts, whose sum is below 2^47. If nothing was counted, all
/// symbols get the same frequency. A symbol that occurs alone leaves one slot to its neighbour, because no frequency of
/// a valid table is the sum of all. Cost: about 2,000 operations, by one lane.
template <int ProbabilityBits>
TESSERA_FN constexpr void fit_frequencies(std::uint64_t const* counts, frequency_table<ProbabilityBits>& table) {
  detail::slot_shares const shares = detail::give_single_slots(counts, table);
  if (shares.all == 0) {
    for (std::uint16_t& frequency : table.frequency) {
      frequency = static_cast<std::uint16_t>(table.total / table.symbols);
    }
    return;
  }
  std::uint64_t below = 0;  // the sum of the shared counts of lower symbols
  for (int symbol = 0; symbol < table.symbols; ++symbol) {
    if (!detail::is_rare(counts[symbol], shares.all) && table.frequency[symbol] == 0) {
      std::uint64_t const first = below * shares.slots / shares.shared;
      below += counts[symbol];
      table.frequency[symbol] = static_cast<std::uint16_t>(below * shares.slots / shares.shared - first);
    }
  }
  if (table.frequency[shares.frequent] == table.total) {
    table.frequency[shares.frequent] = static_cast<std::uint16_t>(table.total - 1);
    table.frequency[shares.frequent ^ 1U] = 1;
  }
}

}  // namespace v0
}  // namespace tessera
