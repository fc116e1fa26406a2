// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The portable steps of coding a block: what they undo, how much room they use, what they refuse. block_avx2_test.cpp
// and block_avx512_test.cpp compare their faster versions with them.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <tessera/program/weights/block.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/serial/group.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

constexpr serial_group<32> group;

/// A block of codes with the tables and scratch to code it.
struct coded_pairs {
  using steps = weight_block_steps<bfloat16, keep_mantissa<7>>;
  static constexpr int coded = 8192;

  std::unique_ptr<weight_block_scratch> scratch = std::make_unique<weight_block_scratch>();
  pair_coder::model_type model{};
  std::unique_ptr<pair_coder::decode_table> slots = std::make_unique<pair_coder::decode_table>();

  /// Draws pairs from `used` equally frequent ones.
  explicit coded_pairs(int used) {
    for (int i = 0; i < used; ++i) {
      model.frequency[i * 7 % 256] = static_cast<std::uint16_t>(4096 / used);
    }
    pair_coder::make_decode_table(model, *slots);
    for (int i = 0; i < coded / 2; ++i) {
      auto const slot = testing::hash(1, static_cast<std::uint64_t>(i)) % pair_coder::slots;
      scratch->codes[i] = static_cast<std::uint8_t>(slots->entry[slot] & 0xffu);
    }
  }

  /// The states and then the words of the packed block.
  std::vector<std::uint8_t> pack() {
    auto const table = pair_coder::make_encode_table(model);
    packed_block<serial_group<32>> const packed = steps::pack(group, coded, table, *scratch);
    std::vector<std::uint8_t> payload(static_cast<std::size_t>(128 + 2 * packed.words));
    for (int lane = 0; lane < 32; ++lane) {
      CHECK(pair_coder::is_state(packed.state.values[lane]));
      store_little_endian(payload.data() + 4 * lane, packed.state.values[lane]);
    }
    for (int i = 0; i < packed.words && packed.words <= weight_stream_spec::largest_words; ++i) {
      store_little_endian(payload.data() + 128 + 2 * i, scratch->words[steps::words_end - packed.words + i]);
    }
    return payload;
  }
  bool unpack(std::vector<std::uint8_t> const& payload, weight_block_scratch& into) const {
    return steps::unpack(group, coded, *slots, payload.data(), payload.data() + 128,
                         static_cast<int>(payload.size() / 2 - 64), into);
  }
};

template <class T, int Kept>
struct split_block {
  using steps = weight_block_steps<T, keep_mantissa<Kept>>;
  weight_block<T> block;
  std::unique_ptr<weight_block_scratch> scratch = std::make_unique<weight_block_scratch>();
  std::vector<std::uint8_t> planes;
  int escapes = 0;

  split_block(std::vector<T> const& weights, int coded, exponent_window window) {
    block.weights = weights.data();
    block.count = static_cast<int>(weights.size());
    block.coded = coded;
    planes.assign(static_cast<std::size_t>(steps::residual_planes.bytes(coded)), 0xff);
    escapes = steps::split(group, block, window, nullptr, planes.data(), *scratch);
  }
  [[nodiscard]] std::uint32_t code(int i) const { return steps::code_at(*scratch, i); }
  [[nodiscard]] std::uint32_t residual(int i) const { return steps::residual_at(planes.data(), block.coded, i); }
};

std::vector<bfloat16> row_of(std::uint16_t bits) {
  return std::vector<bfloat16>(256, bfloat16{bits});
}

}  // namespace

TEST_CASE("unpack undoes pack, for blocks of few, many and all words", "[host]") {
  for (int used : {2, 16, 64, 256}) {
    coded_pairs pairs(used);
    std::vector<std::uint8_t> const payload = pairs.pack();
    if (payload.size() / 2 - 64 > weight_stream_spec::largest_words) {
      continue;
    }
    // 4096 pairs of log2(used) bits each; the states hold up to 16 bits a lane.
    double const bits = 4096 * std::log2(used);
    CHECK(16.0 * static_cast<double>(payload.size() / 2 - 64) <= bits + 16);
    CHECK(16.0 * static_cast<double>(payload.size() / 2 - 64) >= bits - 32 * 16);
    auto const unpacked = std::make_unique<weight_block_scratch>();
    REQUIRE(pairs.unpack(payload, *unpacked));
    CHECK(std::memcmp(unpacked->codes, pairs.scratch->codes, sizeof(unpacked->codes)) == 0);
  }
}

TEST_CASE("words that do not fit are counted and not written", "[host]") {
  coded_pairs pairs(256);
  std::memset(pairs.scratch->words, 0x77, sizeof(pairs.scratch->words));
  // Pairs of one in 4096: twelve bits each, 3072 words.
  for (auto& frequency : pairs.model.frequency) {
    frequency = 1;
  }
  pairs.model.frequency[255] = 4096 - 255;
  std::memset(pairs.scratch->codes, 0, sizeof(pairs.scratch->codes));
  std::vector<std::uint8_t> const payload = pairs.pack();
  CHECK(payload.size() / 2 - 64 > 3000);
  std::uint16_t guard = 0;
  std::memcpy(&guard, pairs.scratch->words, 2);
  CHECK(guard == 0x7777);
}

TEST_CASE("unpack refuses states out of range, and words too few or too many", "[host]") {
  coded_pairs pairs(64);
  std::vector<std::uint8_t> const sound = pairs.pack();
  auto const unpacked = std::make_unique<weight_block_scratch>();
  REQUIRE(pairs.unpack(sound, *unpacked));
  std::vector<std::uint8_t> broken = sound;
  broken[3] = 0x80;
  CHECK_FALSE(pairs.unpack(broken, *unpacked));
  broken = sound;
  broken[1] = broken[2] = broken[3] = 0;
  CHECK_FALSE(pairs.unpack(broken, *unpacked));
  broken.assign(sound.begin(), sound.end() - 2);
  CHECK_FALSE(pairs.unpack(broken, *unpacked));
  broken = sound;
  broken.resize(sound.size() + 2);
  CHECK_FALSE(pairs.unpack(broken, *unpacked));
}

TEST_CASE("split lists the exponents that have no code, ascending by position", "[host]") {
  std::vector<bfloat16> weights = row_of(0x3f80);  // exponent 127
  weights[200].bits = 0x0001;                      // 0
  weights[3].bits = 0xff81;                        // 255
  weights[77].bits = 0x4080;                       // 129
  weights[78].bits = 0x4400;                       // 136: the exponent from elsewhere
  split_block<bfloat16, 7> const split(weights, 256, {116, 136});
  REQUIRE(split.escapes == 2);
  CHECK(split.scratch->escapes[0] == weight_escape::pack(3, 255, false));
  CHECK(split.scratch->escapes[1] == weight_escape::pack(200, 0, false));
  CHECK(split.code(3) == exponent_window::escape_code);
  CHECK(split.code(4) == 11);
  CHECK(split.code(77) == 13);
  CHECK(split.code(78) == exponent_window::extra_code);
  CHECK(split.residual(3) == 0x81);
  CHECK(split.residual(4) == 0);
}

TEST_CASE("weights added to fill a row have the window's first exponent, no residual and no escape", "[host]") {
  std::vector<bfloat16> const weights(5, bfloat16{0xffff});
  split_block<bfloat16, 7> const split(weights, 256, {10, 24});
  CHECK(split.escapes == 5);
  for (int i = 5; i < 256; ++i) {
    REQUIRE(split.code(i) == 0);
    REQUIRE(split.residual(i) == 0);
  }
}

TEST_CASE("a NaN that no mantissa bit is kept of is an escape, an infinity is not", "[host]") {
  std::vector<bfloat16> weights = row_of(0x7f80);
  weights[9].bits = 0xffc0;
  weights.resize(1024, bfloat16{0x7f80});
  split_block<bfloat16, 0> const split(weights, 1024, {242, 0});
  REQUIRE(split.escapes == 1);
  CHECK(split.scratch->escapes[0] == weight_escape::pack(9, 255, true));
  CHECK(weight_escape::position(split.scratch->escapes[0]) == 9);
  CHECK(weight_escape::exponent(split.scratch->escapes[0]) == 255);
  CHECK(weight_escape::lost_nan(split.scratch->escapes[0]));
}

TEST_CASE("more escapes than a block may have are counted and not written", "[host]") {
  std::vector<bfloat16> weights(1024, bfloat16{0x0001});
  split_block<bfloat16, 7> const split(weights, 1024, {100, 114});
  CHECK(split.escapes == 1024);
}

TEST_CASE("random bits for stochastic rounding depend on seed and position alone", "[host]") {
  using block = weight_block<bfloat16>;
  CHECK(block::random_bits(1, 5) == block::random_bits(1, 5));
  CHECK(block::random_bits(1, 5) != block::random_bits(1, 6));
  CHECK(block::random_bits(1, 5) != block::random_bits(2, 5));
  CHECK(block::random_bits(3, 9) == static_cast<std::uint32_t>(testing::hash(3, 9) >> 32));
  double mean = 0;
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    mean += std::ldexp(static_cast<double>(block::random_bits(7, i)), -32) / 100'000;
  }
  CHECK(std::fabs(mean - 0.5) < 0.005);
}
