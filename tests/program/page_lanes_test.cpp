// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <set>
#include <vector>

#include <tessera/core/bits.hpp>
#include <tessera/program/cache_codes.hpp>
#include <tessera/program/cache_page.hpp>
#include <tessera/program/page_lanes.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

std::uint32_t code_of(int token, int channel) {
  return static_cast<std::uint32_t>(testing::hash(3, static_cast<std::uint64_t>(token * 256 + channel)) % 16);
}

/// Codes of all elements in their places, one after the other.
template <int Channels>
std::vector<std::uint32_t> expected_words(bool are_keys) {
  constexpr int strips = Channels / 16;
  std::vector<std::uint32_t> words(static_cast<std::size_t>(64 * Channels / 8));
  for (int strip = 0; strip < strips; ++strip) {
    for (int lane = 0; lane < 32; ++lane) {
      lane_codes codes;
      for (int field = 0; field < lane_codes::fields; ++field) {
        for (int half = 0; half < 2; ++half) {
          code_place const place{lane, field, half};
          int const row = are_keys ? place.column() : place.row();     // of channels
          int const column = are_keys ? place.row() : place.column();  // of tokens
          codes.put(4, field, half, code_of(16 * place.tile() + column, 16 * strip + row));
        }
      }
      for (int word = 0; word < 4; ++word) {
        words[static_cast<std::size_t>(lane_codes::place(4, strip, lane, word))] = codes.words[word];
      }
    }
  }
  return words;
}

/// What threads add up: as numbers with rubbish in their upper halves.
template <int Channels>
std::vector<std::uint32_t> words_of_threads(bool are_keys) {
  using lanes_type = page_lanes<Channels>;
  std::vector<std::uint32_t> words(static_cast<std::size_t>(64 * Channels / 8));
  for (int lane = 0; lane < lanes_type::lanes; ++lane) {
    lanes_type const at{lane};
    auto const code = [&](int slot, int j) { return code_of(at.token(slot), 8 * at.octet() + j) | 0x4b400000U; };
    for (int two = 0; two < 2; ++two) {
      for (int t = 0; t < 4 && are_keys; ++t) {
        words[static_cast<std::size_t>(at.key_word(t, at.tile(two)))] +=
            lanes_type::pair(code(2 * two, 2 * t), code(2 * two, 2 * t + 1)) * at.key_factor(0) +
            lanes_type::pair(code(2 * two + 1, 2 * t), code(2 * two + 1, 2 * t + 1)) * at.key_factor(1);
      }
      for (int j = 0; j < 8 && !are_keys; ++j) {
        std::uint32_t const both = lanes_type::pair(code(0, j), code(2, j)) * at.value_factor(0) +
                                   lanes_type::pair(code(1, j), code(3, j)) * at.value_factor(1);
        int const half = at.value_half(j, at.tile(two));
        words[static_cast<std::size_t>(half / 2)] += (both >> 16 * two & 0xffffU) << 16 * (half % 2);
      }
    }
  }
  return words;
}

template <int Channels>
void check_elements() {
  using lanes_type = page_lanes<Channels>;
  std::set<int> seen;
  for (int lane = 0; lane < lanes_type::lanes; ++lane) {
    lanes_type const at{lane};
    for (int slot = 0; slot < lanes_type::slots; ++slot) {
      CHECK(seen.insert(at.token(slot) * 32 + at.octet()).second);
      CHECK(at.token(slot) / 16 == at.tile(slot / 2));
      CHECK(at.key_word(slot, 1) == at.key_word(0, 1) + slot * lanes_type::words_of_pair);
      CHECK(at.value_half(2 * slot, 2) == at.value_half(0, 2) + 2 * slot * lanes_type::halves_of_channel);
      lanes_type const first{at.lane_of(slot)};  // whose slot 0 is this token
      CHECK((first.token(0) == at.token(slot) && first.place_in_quarter() == at.place_in_quarter()));
      CHECK(first.lane / 32 == lane / 32);
      lanes_type const owner{at.lane_of_group(slot)};
      CHECK(owner.token(owner.slot_of_group()) == at.token(slot));
      CHECK((owner.octet() / 4 == at.octet() / 4 && owner.row() == at.row()));
    }
  }
  CHECK(seen.size() == static_cast<std::size_t>(64 * lanes_type::octets));
}

/// The sum that a thread ends with, as slots are exchanged.
template <int Channels>
float sum_of_lane(std::vector<float> const& octets, int lane) {
  using lanes_type = page_lanes<Channels>;
  std::vector<float> slots(static_cast<std::size_t>(lanes_type::lanes * 4));
  auto const at = [&](int which, int slot) -> float& { return slots[static_cast<std::size_t>(which * 4 + slot)]; };
  for (int which = 0; which < lanes_type::lanes; ++which) {
    for (int slot = 0; slot < 4; ++slot) {
      lanes_type const place{which};
      at(which, slot) = octets[static_cast<std::size_t>(place.token(slot) * lanes_type::octets + place.octet())];
    }
  }
  int distance = lanes_type::octets / 2;
  for (int kept : {2, 1, 1, 1, 1}) {  // slots after the step
    if (distance == 0) {
      break;
    }
    std::vector<float> const before = slots;
    int const shift = distance == lanes_type::octets / 2 ? 2 : distance == lanes_type::octets / 4 ? 1 : 0;
    for (int which = 0; which < lanes_type::lanes; ++which) {
      for (int slot = 0; slot < kept; ++slot) {
        at(which, slot) = before[static_cast<std::size_t>(which * 4 + slot)] +
                          before[static_cast<std::size_t>((which ^ distance) * 4 + slot + shift)];
      }
    }
    distance /= 2;
  }
  return at(lane, 0);
}

template <int Channels>
void check_sums() {
  using lanes_type = page_lanes<Channels>;
  std::vector<float> octets;
  for (int i = 0; i < 64 * lanes_type::octets; ++i) {
    octets.push_back(static_cast<float>(testing::gauss{}.value(7, static_cast<std::uint64_t>(i))));
  }
  for (int lane = 0; lane < lanes_type::lanes; lane += 7) {
    int const token = lanes_type{lane}.token(0);
    float const expected = row_sum(
        Channels, 0.0F,
        [&](int channel) { return octets[static_cast<std::size_t>(token * lanes_type::octets + channel / 8)]; },
        [](float& into, float other) { into += other; });
    CHECK(sum_of_lane<Channels>(octets, lane) == expected);
  }
}

}  // namespace

TEST_CASE("threads of a page have all elements once, and know who has the rest of a token", "[host]") {
  check_elements<64>();
  check_elements<128>();
  check_elements<256>();
}

TEST_CASE("slots are exchanged in the order of row_sum", "[host]") {
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

TEST_CASE("bits of floats in order are those of integers", "[host]") {
  constexpr float infinite = std::numeric_limits<float>::infinity();
  float const rising[] = {-infinite, -3e38F, -1.0F, -1e-45F, -0.0F, 0.0F, 1e-45F, 1.0F, 3e38F, infinite};
  for (std::size_t i = 0; i + 1 < std::size(rising); ++i) {
    std::int32_t const low = ordered_bits(bit_cast<std::uint32_t>(rising[i]));
    CHECK(low < ordered_bits(bit_cast<std::uint32_t>(rising[i + 1])));
    CHECK(bits_in_order(low) == bit_cast<std::uint32_t>(rising[i]));
  }
}
