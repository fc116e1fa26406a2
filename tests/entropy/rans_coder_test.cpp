// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/concepts/entropy_coder.hpp>
#include <tessera/entropy/rans_coder.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/entropy_coder.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

static_assert(EntropyCoder<rans_coder<12>>);
static_assert(EntropyCoder<rans_coder<8>>);

/// The formula of the paper, with a real division.
template <class Coder>
bool pushes_by_the_formula(std::uint32_t state, std::uint32_t frequency, std::uint32_t cumulative) {
  std::uint64_t expected = state;
  bool const spills = expected >= std::uint64_t{frequency} << Coder::spill_shift;
  if (spills) {
    expected >>= 16;
  }
  expected = expected / frequency * Coder::slots + cumulative + expected % frequency;
  std::uint32_t actual = state;
  spilled_word const spilled = Coder::push(actual, Coder::make_encode_entry(frequency, cumulative));
  return actual == expected && spilled.occurred == spills && (!spills || spilled.word == (state & 0xffffu)) &&
         Coder::is_state(actual);
}

/// States where a wrong quotient would show: around multiples of the frequency, at both ends, around the spill.
std::vector<std::uint32_t> telling_states(std::uint32_t frequency, int spill_shift) {
  std::vector<std::uint32_t> states;
  auto const add = [&states](std::uint64_t state) {
    if (state >= (1u << 15) && state < (std::uint64_t{1} << 31)) {
      states.push_back(static_cast<std::uint32_t>(state));
    }
  };
  std::uint64_t const spill = std::uint64_t{frequency} << spill_shift;
  for (std::uint64_t center : {std::uint64_t{1} << 15, std::uint64_t{1} << 31, spill, spill / 2}) {
    for (std::uint64_t multiple : {center / frequency * frequency, (center / frequency + 1) * frequency, center}) {
      for (int offset = -2; offset <= 2; ++offset) {
        add(multiple + static_cast<std::uint64_t>(offset));
      }
    }
  }
  for (std::uint64_t i = 0; i < 16; ++i) {
    std::uint64_t const random = testing::hash(frequency, i);
    add((1u << 15) + random % ((1u << 31) - (1u << 15)));
    add(random % spill / frequency * frequency + frequency - 1);
  }
  return states;
}

template <class Coder>
int wrong_pushes() {
  int wrong = 0;
  for (std::uint32_t frequency = 1; frequency < Coder::slots; ++frequency) {
    std::uint32_t const most = Coder::slots - frequency;
    for (std::uint32_t cumulative : {0u, most / 2, most}) {
      for (std::uint32_t state : telling_states(frequency, Coder::spill_shift)) {
        wrong += pushes_by_the_formula<Coder>(state, frequency, cumulative) ? 0 : 1;
      }
    }
  }
  return wrong;
}

/// Frequencies like those of trained weights: a few likely symbols, some rare ones, most absent.
template <class Coder>
typename Coder::model_type skewed_model(std::uint64_t seed) {
  typename Coder::model_type model{};
  std::uint32_t left = Coder::slots;
  for (std::uint64_t i = 0; left > 0; ++i) {
    auto const symbol = static_cast<std::size_t>(testing::hash(seed, i) % 256);
    std::uint32_t const part = left > 8 ? left / 3 : 1;
    model.frequency[symbol] = static_cast<std::uint16_t>(model.frequency[symbol] + part);
    left -= part;
  }
  return model;
}

template <class Coder>
void check_all_laws(typename Coder::model_type const& model) {
  REQUIRE(model.is_valid());
  std::vector<std::uint8_t> symbols;
  for (unsigned symbol = 0; symbol < 256; ++symbol) {
    if (model.frequency[symbol] > 0) {
      symbols.push_back(static_cast<std::uint8_t>(symbol));
    }
  }
  auto const report = testing::check_laws<Coder>(model, symbols);
  CHECK(report.text() == "");
}

}  // namespace

TEST_CASE("the multiplication in push divides exactly, for every frequency at the ends of the range of states",
          "[host]") {
  CHECK(wrong_pushes<rans_coder<12>>() == 0);
  CHECK(wrong_pushes<rans_coder<8>>() == 0);
  CHECK(wrong_pushes<rans_coder<10>>() == 0);
}

TEST_CASE("rANS is a lawful entropy coder for skewed, even and extreme models", "[host]") {
  check_all_laws<rans_coder<12>>(skewed_model<rans_coder<12>>(1));
  check_all_laws<rans_coder<12>>(skewed_model<rans_coder<12>>(2));
  check_all_laws<rans_coder<8>>(skewed_model<rans_coder<8>>(3));
  rans_coder<12>::model_type even{};
  for (auto& frequency : even.frequency) {
    frequency = 16;
  }
  check_all_laws<rans_coder<12>>(even);
  rans_coder<12>::model_type extreme{};
  extreme.frequency[0] = 1;
  extreme.frequency[255] = 4095;
  check_all_laws<rans_coder<12>>(extreme);
}

TEST_CASE("symbols of frequency zero cannot be coded, all others can", "[host]") {
  auto const model = skewed_model<rans_coder<12>>(5);
  auto const table = rans_coder<12>::make_encode_table(model);
  int wrong = 0;
  for (int symbol = 0; symbol < 256; ++symbol) {
    wrong += rans_coder<12>::can_code(table.entry[symbol]) == (model.frequency[symbol] > 0) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a decode table stays inside of its slots for frequencies that add up to more", "[host]") {
  rans_coder<12>::model_type model{};
  for (auto& frequency : model.frequency) {
    frequency = 0xffff;
  }
  struct guarded {
    rans_coder<12>::decode_table table;
    std::uint32_t after = 0x12345678;
  };
  auto const room = std::make_unique<guarded>();
  rans_coder<12>::make_decode_table(model, room->table);
  CHECK(room->after == 0x12345678);
  CHECK((room->table.entry[4095] & 0xff) == 0);
}

TEST_CASE("a message costs what its model says, within a hundredth of a bit a symbol", "[host]") {
  using coder = rans_coder<12>;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    auto const model = skewed_model<coder>(seed);
    auto const table = coder::make_encode_table(model);
    auto const slots = std::make_unique<coder::decode_table>();
    coder::make_decode_table(model, *slots);
    constexpr int symbols = 100'000;
    std::uint32_t state = coder::start();
    std::int64_t words = 0;
    double ideal = 0;
    for (int i = 0; i < symbols; ++i) {
      auto const slot = testing::hash(seed, static_cast<std::uint64_t>(i)) % coder::slots;
      auto const symbol = static_cast<std::uint8_t>(slots->entry[slot] & 0xffu);
      words += coder::push(state, symbol, table).occurred ? 1 : 0;
      ideal -= std::log2(model.frequency[symbol] / 4096.0);
    }
    double const spent = 16.0 * static_cast<double>(words) + std::log2(static_cast<double>(state)) - 15;
    CHECK(std::fabs(spent - ideal) / symbols < 0.01);
    CHECK((spent - ideal) / symbols < 0.001);
  }
}
