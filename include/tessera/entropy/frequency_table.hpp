// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Probabilities of the 256 pairs of exponent codes, as integers that add up to a power of two.
///
/// Two neighbouring weights make one symbol of the coder. Halving the number of coding steps is worth more than the
/// 0.02 bit per weight that it costs. Neighbouring exponents are all but independent (mutual information at most 0.01
/// bit). So the frequency of a pair is the product of two single frequencies, and only one histogram, of 256 exponents,
/// is counted.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/entropy/exponent_window.hpp>

namespace tessera {
inline namespace v0 {

/// The symbol of a pair: the code of the first weight in the low four bits.
TESSERA_FN constexpr std::uint32_t pair_symbol(std::uint32_t first_code, std::uint32_t second_code) {
  return first_code | (second_code << 4);
}

/// The symbol of two escapes, which every table can code.
inline constexpr std::uint32_t escape_pair = 0xff;

/// Frequencies of 256 symbols that sum to 2^ProbabilityBits. A symbol with frequency 0 cannot be coded.
template <int ProbabilityBits>
struct frequency_table {
  static constexpr int symbols = 256;                            ///< symbols of a table
  static constexpr std::uint32_t total = 1u << ProbabilityBits;  ///< the sum of all frequencies

  std::uint16_t frequency[symbols];  ///< how many of the `total` slots a symbol has

  /// Whether the frequencies sum to total and each is below it, as decoders require.
  TESSERA_FN constexpr bool is_valid() const {
    std::uint32_t sum = 0;
    for (int i = 0; i < symbols; ++i) {
      if (frequency[i] >= total) {
        return false;
      }
      sum += frequency[i];
    }
    return sum == total;
  }
};

/// The rule that makes frequencies from how often each exponent code occurs. Each code gets a share in 65536, and a
/// pair the product of two shares. Pairs rarer than 2^-17 get frequency 0, pairs rarer than one slot get 1, and the
/// others their proportion, rounded. Slots that are left over are given to frequent symbols, and missing ones taken
/// from them, one slot each, lowest symbols first.
///
/// Each function is about one symbol, so that the lanes of a group can divide the work (program/weights/codebook.hpp).
/// All arithmetic is on integers, so that every machine makes the same table.
template <int ProbabilityBits>
struct frequency_model {
  static constexpr std::uint64_t total = 1u << ProbabilityBits;  ///< the sum of all frequencies
  /// A pair rarer than 2^-17 is cheaper as two escapes than as one part in 4096 of the table.
  static constexpr int rare_bits = 17;

  /// A code's share in 65536. Codes that occur never get 0, nor do escapes. If nothing was counted, all codes get the
  /// same share.
  TESSERA_FN static constexpr std::uint32_t share(std::uint64_t count, std::uint64_t all, std::uint32_t code) {
    bool const needed = count > 0 || all == 0 || code == exponent_window::escape_code;
    std::uint64_t const scaled = all > 0 ? (count << 16) / all : 0;
    return needed && scaled == 0 ? 1u : static_cast<std::uint32_t>(scaled);
  }

  /// How a pair's frequency is found before the remainder is handed out.
  enum class kind : std::uint8_t { absent, one, proportional };

  /// The kind of a pair whose product of shares is `weight`; weight_sum is the sum of all pairs' products.
  TESSERA_FN static constexpr kind classify(std::uint32_t symbol, std::uint64_t weight, std::uint64_t weight_sum) {
    if (symbol != escape_pair && (weight << rare_bits) < weight_sum) {
      return kind::absent;
    }
    return (weight << ProbabilityBits) < weight_sum ? kind::one : kind::proportional;
  }

  /// A proportional frequency, rounded half up, at least 1.
  TESSERA_FN static constexpr std::uint32_t rounded(std::uint64_t weight, std::uint64_t slots, std::uint64_t sum) {
    std::uint64_t const frequency = (2 * weight * slots + sum) / (2 * sum);
    return frequency == 0 ? 1u : static_cast<std::uint32_t>(frequency);
  }
};

}  // namespace v0
}  // namespace tessera
