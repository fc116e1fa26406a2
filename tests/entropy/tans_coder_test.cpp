// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <tessera/concepts/stream_coder.hpp>
#include <tessera/entropy/tans_coder.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/stream_coder.hpp>

#include "support/catch.hpp"

using namespace tessera;

static_assert(EntropyCoder<tans_coder>);
static_assert(StreamCoder<tans_coder>);

namespace {

using counts_type = std::vector<std::uint64_t>;

/// Counts around 120, of which `width` is the deviation.
counts_type bell(double width) {
  counts_type counts(256);
  for (int i = 0; i < 256; ++i) {
    double const distance = (i - 120) / width;
    counts[static_cast<std::size_t>(i)] = static_cast<std::uint64_t>(1e6 * std::exp(-0.5 * distance * distance));
  }
  return counts;
}
counts_type alone(std::size_t symbol) {
  counts_type counts(256);
  counts[symbol] = 1;
  return counts;
}

/// The tables of a model.
struct tables {
  tans_coder::model_type model;
  std::unique_ptr<tans_coder::encode_table> encode = std::make_unique<tans_coder::encode_table>();
  std::unique_ptr<tans_coder::decode_table> decode = std::make_unique<tans_coder::decode_table>();

  explicit tables(counts_type const& counts) {
    tans_coder::fit_model(counts.data(), model);
    tans_coder::make_encode_table(model, *encode);
    tans_coder::make_decode_table(model, *decode);
  }
};

/// Bits that symbols with these counts take, one by one.
double bits_a_symbol(counts_type const& counts) {
  tables const of(counts);
  std::vector<std::uint8_t> symbols;
  for (std::size_t symbol = 0; symbol < 256; ++symbol) {
    std::uint64_t const copies =
        tans_coder::can_code(*of.encode, static_cast<std::uint8_t>(symbol)) ? counts[symbol] / 64 : 0;
    symbols.insert(symbols.end(), copies, static_cast<std::uint8_t>(symbol));
  }
  std::uint32_t state = tans_coder::start();
  double words = 0;
  for (std::size_t i = symbols.size(); i-- > 0;) {
    std::swap(symbols[i], symbols[testing::hash(5, i) % (i + 1)]);
    words += tans_coder::push(state, symbols[i], *of.encode).occurred ? 1 : 0;
  }
  return 16 * words / static_cast<double>(symbols.size());
}
double entropy(counts_type const& counts) {
  double all = 0;
  double bits = 0;
  for (std::uint64_t count : counts) {
    all += static_cast<double>(count);
  }
  for (std::uint64_t count : counts) {
    double const share = static_cast<double>(count) / all;
    bits -= count > 0 ? share * std::log2(share) : 0;
  }
  return bits;
}

}  // namespace

TEST_CASE("the tabled coder keeps the laws of streams, whatever was counted", "[host]") {
  for (double width : {0.3, 1.0, 4.0, 20.0, 200.0}) {
    CAPTURE(width);
    CHECK(testing::check_stream_laws<tans_coder>(bell(width)).text() == "");
  }
  CHECK(testing::check_stream_laws<tans_coder>(alone(0)).text() == "");
  CHECK(testing::check_stream_laws<tans_coder>(alone(255)).text() == "");
  CHECK(testing::check_stream_laws<tans_coder>(counts_type(256, std::uint64_t{1} << 38)).text() == "");
}

TEST_CASE("the tabled coder keeps the laws for symbols that were not fitted", "[host]") {
  tans_coder::model_type model{};
  model.frequency[3] = 1;
  model.frequency[200] = 2047;
  model.frequency[201] = 2048;
  CHECK(testing::check_laws<tans_coder>(model, {3, 200, 201}).text() == "");
}

TEST_CASE("every symbol takes a position to one from which the symbol and the position come back", "[host]") {
  tables const of(bell(3.0));
  int wrong = 0;
  for (std::uint32_t symbol = 0; symbol < 256; ++symbol) {
    for (std::uint32_t position = 0; position < tans_coder::table_size && of.model.frequency[symbol] > 0; ++position) {
      std::uint32_t state = position;
      bool const spilled = tans_coder::push(state, static_cast<std::uint8_t>(symbol), *of.encode).occurred;
      tans_coder::decode_state reader(state);
      bool const same =
          tans_coder::pop(reader, *of.decode) == symbol && reader.position == position && reader.count == 0;
      wrong += same && !spilled && !tans_coder::wants_word(reader) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("a symbol has as many positions as its frequency says, and they ascend", "[host]") {
  tables const of(bell(3.0));
  std::vector<std::uint32_t> found(256);
  for (std::uint32_t entry : of.decode->entry) {
    ++found[entry & 0xff];
  }
  std::uint32_t below = 0;
  for (std::size_t symbol = 0; symbol < 256; ++symbol) {
    REQUIRE(found[symbol] == of.model.frequency[symbol]);
    auto const* const first = of.encode->next + below;
    CHECK(std::is_sorted(first, first + found[symbol]));
    below += found[symbol];
  }
}

TEST_CASE("the tabled coder takes within a hundredth of a bit of the entropy, of narrow and wide counts", "[host]") {
  for (double width : {1.0, 2.0, 4.0, 8.0, 20.0}) {
    CAPTURE(width);
    double const bits = bits_a_symbol(bell(width));
    CHECK(bits < entropy(bell(width)) + 0.01);
    CHECK(bits > entropy(bell(width)) - 0.01);
  }
}

TEST_CASE("frequencies that do not sum to 4096, or are one symbol's alone, are no codebook", "[host]") {
  tables const of(bell(3.0));
  std::vector<std::uint8_t> bytes(tans_coder::codebook_bytes);
  tans_coder::store_model(of.model, bytes.data());
  tans_coder::model_type loaded;
  REQUIRE(tans_coder::load_model(bytes.data(), loaded));
  bytes[2 * 7] = static_cast<std::uint8_t>(bytes[2 * 7] + 1);
  CHECK_FALSE(tans_coder::load_model(bytes.data(), loaded));
  std::fill(bytes.begin(), bytes.end(), std::uint8_t{0});
  bytes[2 * 9 + 1] = 16;  // 4096
  CHECK_FALSE(tans_coder::load_model(bytes.data(), loaded));
}

TEST_CASE("a state has no more bits than it says", "[host]") {
  CHECK(tans_coder::is_state(0));
  CHECK(tans_coder::is_state(4095U | 15U << 12 | 0x7fffU << 16));
  CHECK_FALSE(tans_coder::is_state(4095U | 15U << 12 | 0x8000U << 16));
  CHECK_FALSE(tans_coder::is_state(1U << 16));
}
