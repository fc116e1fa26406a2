// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <tessera/entropy/rans_coder.hpp>
#include <tessera/entropy/tans_coder.hpp>
#include <tessera/program/weights/symbol_lanes.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/serial/group.hpp>

#include "algorithm/weights/own_coders.hpp"
#include "support/catch.hpp"

using namespace tessera;

namespace {

constexpr serial_group<32> group;
constexpr int per_lane_symbols = 4;
constexpr int rows = 8;
constexpr std::size_t symbol_count = 32 * per_lane_symbols * rows;
constexpr int most_words = 1000;

/// Symbols of a coder, packed and unpacked.
template <class Coder>
struct packed_symbols {
  using coding = symbol_lanes<Coder, per_lane_symbols>;
  std::vector<std::uint8_t> symbols;
  std::vector<std::uint16_t> words = std::vector<std::uint16_t>(most_words + 32, 0x7777);
  std::unique_ptr<typename Coder::encode_table> encode = std::make_unique<typename Coder::encode_table>();
  std::unique_ptr<typename Coder::decode_table> decode = std::make_unique<typename Coder::decode_table>();
  packed_block<serial_group<32>> packed;

  packed_symbols(typename Coder::model_type const& model, std::vector<std::uint8_t> const& from)
      : encode(std::make_unique<typename Coder::encode_table>(Coder::make_encode_table(model))) {
    Coder::make_decode_table(model, *decode);
    for (std::size_t i = 0; i < symbol_count; ++i) {
      symbols.push_back(from[testing::hash(3, i) % from.size()]);
    }
    packed = coding::pack(group, rows, *encode, symbols.data(), words.data(), most_words);
  }
  /// States, then words.
  [[nodiscard]] std::vector<std::uint8_t> payload() const {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(128 + 2 * packed.words));
    for (int lane = 0; lane < 32; ++lane) {
      store_little_endian(bytes.data() + 4 * lane, packed.state.values[lane]);
    }
    for (int i = 0; i < packed.words; ++i) {
      store_little_endian(bytes.data() + 128 + 2 * i,
                          words[static_cast<std::size_t>(most_words + 32 - packed.words + i)]);
    }
    return bytes;
  }
  [[nodiscard]] bool unpack(std::vector<std::uint8_t> const& bytes, std::vector<std::uint8_t>& into) const {
    into.assign(symbol_count, 0);
    return coding::unpack(group, rows, *decode, bytes.data(), bytes.data() + 128,
                          static_cast<int>(bytes.size() / 2 - 64), into.data());
  }
};

template <class Coder>
void check_lanes(typename Coder::model_type const& model, std::vector<std::uint8_t> const& from) {
  packed_symbols<Coder> const all(model, from);
  REQUIRE(all.packed.words > 0);
  REQUIRE(all.packed.words <= most_words);
  std::vector<std::uint8_t> found;
  std::vector<std::uint8_t> bytes = all.payload();
  CHECK(all.unpack(bytes, found));
  CHECK(found == all.symbols);
  bytes.resize(bytes.size() + 2);
  CHECK_FALSE(all.unpack(bytes, found));  // a word too many
  bytes.resize(bytes.size() - 4);
  CHECK_FALSE(all.unpack(bytes, found));  // a word too few
}

}  // namespace

TEST_CASE("lanes of any coder give back their symbols from one list of words", "[host]") {
  rans_coder<12>::model_type pairs{};
  pairs.frequency[1] = 4000;
  pairs.frequency[2] = 90;
  pairs.frequency[255] = 6;
  check_lanes<rans_coder<12>>(pairs, {1, 1, 1, 2, 255});
  check_lanes<tans_coder>(pairs, {1, 1, 1, 2, 255});
  check_lanes<tessera_test::six_bit_coder>({90}, {90, 100, 153});
}

TEST_CASE("words that do not fit are counted and not written, for any coder", "[host]") {
  std::vector<std::uint64_t> const counts(256, 1);
  tans_coder::model_type model;
  tans_coder::fit_model(counts.data(), model);
  std::vector<std::uint8_t> symbols(symbol_count, 7);
  std::vector<std::uint16_t> words(132, 0x7777);
  auto const table = std::make_unique<tans_coder::encode_table>(tans_coder::make_encode_table(model));
  auto const packed =
      symbol_lanes<tans_coder, per_lane_symbols>::pack(group, rows, *table, symbols.data(), words.data(), 100);
  CHECK(packed.words > 400);  // 1024 symbols of eight bits each, up to 15 of which stay in each lane
  CHECK(words[0] == 0x7777);
}
