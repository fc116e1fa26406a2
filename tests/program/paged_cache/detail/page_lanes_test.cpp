// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include <tessera/program/paged_cache/detail/page_lanes.hpp>
#include <tessera/program/paged_cache/page_arithmetic.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

std::uint32_t code_of(int token, int channel) {
  return static_cast<std::uint32_t>(testing::hash(3, static_cast<std::uint64_t>(token * 256 + channel)) % 16);
}

/// The words in which the codes of all elements are in their fields, set one after the other.
template <int Channels>
std::vector<std::uint32_t> expected_words(bool are_keys) {
  constexpr int strips = Channels / 16;
  std::vector<std::uint32_t> words(static_cast<std::size_t>(64 * Channels / 8));
  for (int strip = 0; strip < strips; ++strip) {
    for (int lane = 0; lane < 32; ++lane) {
      lane_codes codes;
      for (int field = 0; field < lane_codes::fields; ++field) {
        for (int half = 0; half < 2; ++half) {
          code_coordinates const coordinate{lane, field, half};
          int const row = are_keys ? coordinate.column() : coordinate.row();     // row of channels
          int const column = are_keys ? coordinate.row() : coordinate.column();  // column of tokens
          codes.put(4, field, half, code_of(16 * coordinate.tile() + column, 16 * strip + row));
        }
      }
      for (int word = 0; word < 4; ++word) {
        words[static_cast<std::size_t>(lane_codes::slot(4, strip, lane, word))] = codes.words[word];
      }
    }
  }
  return words;
}

/// The bytes of two words that the digits of `selector` pick.
std::uint32_t picked(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    std::uint32_t const digit = selector >> 4 * i & 7U;
    result |= ((digit < 4 ? low : high) >> 8 * (digit % 4) & 0xffU) << 8 * i;
  }
  return result;
}

/// Writes the words of codes of keys of a thread to their slots.
template <int Channels>
void write_keys(std::vector<std::uint32_t>& words, page_lanes<Channels> const& at) {
  auto const code = [&](int slot, int j) { return code_of(at.key_token(slot), at.channel(j)); };
  for (int two = 0; two < 2; ++two) {
    for (int i = 0; i < 2; ++i) {
      std::uint32_t word = 0;
      for (int second = 0; second < 2; ++second) {
        int const slot = 2 * two + second;
        std::uint32_t const first = code(slot, 2 * i) | code(slot, 2 * i + 1) << 16;
        std::uint32_t const other = code(slot, 4 + 2 * i) | code(slot, 5 + 2 * i) << 16;
        word += picked(first, other, at.key_selector()) * at.key_factor(second);
      }
      words[static_cast<std::size_t>(at.key_word(i, two))] += word;
    }
  }
}

/// Writes the words of codes of values of a thread to their slots.
template <int Channels>
void write_values(std::vector<std::uint32_t>& words, page_lanes<Channels> const& at) {
  std::uint32_t pairs[4] = {};
  for (int slot = 0; slot < 4; ++slot) {
    for (int j = 0; j < 8; ++j) {
      pairs[slot] += (code_of(at.value_token(slot), at.channel(j)) << 8 * (j % 4)) * at.value_factor(j / 4);
    }
  }
  for (int two = 0; two < 2; ++two) {
    std::uint32_t const selector = two == 0 ? 0x5140 : 0x7362;
    std::uint32_t const low = picked(pairs[0], pairs[1], selector);
    std::uint32_t const high = picked(pairs[2], pairs[3], selector);
    for (int which = 0; which < 2; ++which) {
      words[static_cast<std::size_t>(at.value_word(two, which))] += picked(low, high, at.value_selector(which));
    }
  }
}

template <int Channels>
std::vector<std::uint32_t> words_of_threads(bool are_keys) {
  using lanes_type = page_lanes<Channels>;
  std::vector<std::uint32_t> words(static_cast<std::size_t>(64 * Channels / 8));
  for (int lane = 0; lane < lanes_type::lanes; ++lane) {
    if (are_keys) {
      write_keys(words, lanes_type{lane});
    } else {
      write_values(words, lanes_type{lane});
    }
  }
  return words;
}

template <int Channels>
void check_elements() {
  using lanes_type = page_lanes<Channels>;
  std::set<int> keys;
  std::set<int> values;
  for (int lane = 0; lane < lanes_type::lanes; ++lane) {
    lanes_type const at{lane};
    auto const slots = page_slots<Channels>::of(at);
    for (int slot = 0; slot < lanes_type::slots; ++slot) {
      for (int j = 0; j < 8; ++j) {
        CHECK(keys.insert(at.key_token(slot) * 256 + at.channel(j)).second);
        CHECK(values.insert(at.value_token(slot) * 256 + at.channel(j)).second);
      }
      CHECK((at.key_token(slot) - lanes_type::first_token(at.row())) % 8 == 0);
      CHECK(slots.octet_of(slot, at.eight()) == static_cast<unsigned>(at.key_token(slot) * Channels + 8 * at.eight()));
      for (int half = 0; half < 2; ++half) {
        int const channel = at.channel(4 * half);
        CHECK(slots.four_of(true, slot, half) == static_cast<unsigned>(at.key_token(slot) * Channels + channel));
        CHECK(slots.four_of(false, slot, half) == static_cast<unsigned>(at.value_token(slot) * Channels + channel));
      }
      CHECK(slots.value_word(slot / 2, slot % 2) == static_cast<unsigned>(at.value_word(slot / 2, slot % 2)));
      lanes_type const first{lane ^ lanes_type::distance_to(slot)};  // the thread whose slot 0 holds this token
      CHECK((first.key_token(0) == at.key_token(slot) && first.value_token(0) == at.value_token(slot)));
      CHECK((first.copy() == at.copy() && first.row() == at.row() && first.lane / 32 == lane / 32));
    }
  }
  CHECK(keys.size() == static_cast<std::size_t>(64 * Channels));
  CHECK(values.size() == static_cast<std::size_t>(64 * Channels));
}

/// The sum that a thread has after slots were exchanged.
template <int Channels>
float sum_of_lane(std::vector<float> const& eights, int lane) {
  using lanes_type = page_lanes<Channels>;
  std::vector<float> slots(static_cast<std::size_t>(lanes_type::lanes * 4));
  auto const at = [&](int which, int slot) -> float& { return slots[static_cast<std::size_t>(which * 4 + slot)]; };
  for (int which = 0; which < lanes_type::lanes; ++which) {
    for (int slot = 0; slot < 4; ++slot) {
      lanes_type const own{which};
      at(which, slot) = eights[static_cast<std::size_t>(own.key_token(slot) * lanes_type::eights + own.eight())];
    }
  }
  for (int distance = 1; distance < lanes_type::eights; distance *= 2) {
    std::vector<float> const before = slots;
    int const kept = distance == 1 ? 2 : 1;  // slots left after the step
    int const shift = distance == 1 ? 2 : distance == 2 ? 1 : 0;
    for (int which = 0; which < lanes_type::lanes; ++which) {
      for (int slot = 0; slot < kept; ++slot) {
        at(which, slot) = before[static_cast<std::size_t>(which * 4 + slot)] +
                          before[static_cast<std::size_t>((which ^ distance) * 4 + slot + shift)];
      }
    }
  }
  return at(lane, 0);
}

template <int Channels>
void check_sums() {
  using lanes_type = page_lanes<Channels>;
  std::vector<float> eights;
  for (int i = 0; i < 64 * lanes_type::eights; ++i) {
    eights.push_back(static_cast<float>(testing::gauss{}.value(7, static_cast<std::uint64_t>(i))));
  }
  for (int lane = 0; lane < lanes_type::lanes; lane += 7) {
    int const token = lanes_type{lane}.key_token(0);
    float const expected = pair_sum(
        lanes_type::eights, 0.0F,
        [&](int eight) { return eights[static_cast<std::size_t>(token * lanes_type::eights + eight)]; },
        [](float& into, float other) { into += other; });
    CHECK(sum_of_lane<Channels>(eights, lane) == expected);
  }
}

}  // namespace

TEST_CASE("threads of a page have all elements once, and know who has the rest of a token", "[host]") {
  check_elements<64>();
  check_elements<128>();
  check_elements<256>();
}

TEST_CASE("slots are exchanged in the order of pair_sum", "[host]") {
  check_sums<64>();
  check_sums<128>();
  check_sums<256>();
}

TEST_CASE("threads' codes add up to the words of a page", "[host]") {
  CHECK(words_of_threads<64>(true) == expected_words<64>(true));
  CHECK(words_of_threads<128>(true) == expected_words<128>(true));
  CHECK(words_of_threads<256>(true) == expected_words<256>(true));
  CHECK(words_of_threads<64>(false) == expected_words<64>(false));
  CHECK(words_of_threads<128>(false) == expected_words<128>(false));
  CHECK(words_of_threads<256>(false) == expected_words<256>(false));
}

TEST_CASE("pages are numbered head after head, page after page", "[host]") {
  std::uint32_t number = 0;
  for (std::uint32_t sequence = 0; sequence < 3; ++sequence) {
    for (std::uint32_t page = 0; page < 5; ++page) {
      for (std::uint32_t head = 0; head < 7; ++head) {
        page_number const found = page_number::of(number++, 5, 7);
        CHECK((found.sequence == sequence && found.page == page && found.head == head));
      }
    }
  }
}
