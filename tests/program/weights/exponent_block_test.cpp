// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The steps of coding a block whose exponents are the symbols: what is an escape, and what is coded in its place.
#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/entropy/tans_coder.hpp>
#include <tessera/program/weights/exponent_block.hpp>
#include <tessera/tile/serial/group.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

constexpr serial_group<32> group;

/// A block that was split, with a model of these exponents.
template <class T, int Kept>
struct split_block {
  using steps = exponent_block_steps<T, keep_mantissa<Kept>, tans_coder>;
  weight_block<T> block;
  std::unique_ptr<typename steps::scratch_type> scratch = std::make_unique<typename steps::scratch_type>();
  std::unique_ptr<tans_coder::encode_table> encode = std::make_unique<tans_coder::encode_table>();
  std::unique_ptr<tans_coder::decode_table> decode = std::make_unique<tans_coder::decode_table>();
  std::vector<std::uint8_t> planes;
  int escapes = 0;

  split_block(std::vector<T> const& weights, int coded, std::vector<std::size_t> const& exponents) {
    std::vector<std::uint64_t> counts(256);
    for (std::size_t exponent : exponents) {
      counts[exponent] = 10;
    }
    tans_coder::model_type model;
    tans_coder::fit_model(counts.data(), model);
    tans_coder::make_encode_table(model, *encode);
    tans_coder::make_decode_table(model, *decode);
    block.weights = weights.data();
    block.count = static_cast<int>(weights.size());
    block.coded = coded;
    int const padded = (coded + 1023) / 1024 * 1024;  // a step of the planes is 1024 weights
    planes.assign(static_cast<std::size_t>(steps::residual_planes.bytes(padded)), 0xff);
    exponent_window const window{static_cast<std::uint8_t>(exponents[0]), 0};
    escapes = steps::split(group, block, window, encode.get(), planes.data(), *scratch);
  }
  /// Packs and unpacks what was split, into `into`.
  bool pass_on(typename steps::scratch_type& into) {
    auto const packed = steps::pack(group, block.coded, *encode, *scratch);
    std::vector<std::uint8_t> payload(static_cast<std::size_t>(128 + 2 * packed.words));
    for (int lane = 0; lane < 32; ++lane) {
      store_little_endian(payload.data() + 4 * lane, packed.state.values[lane]);
    }
    for (int i = 0; i < packed.words; ++i) {
      store_little_endian(payload.data() + 128 + 2 * i, scratch->words[steps::words_end - packed.words + i]);
    }
    return steps::unpack(group, block.coded, *decode, payload.data(), payload.data() + 128, packed.words, into);
  }
};

std::vector<bfloat16> row_of(std::uint16_t bits) {
  return std::vector<bfloat16>(256, bfloat16{bits});
}

}  // namespace

TEST_CASE("exponents that the model cannot code are escapes, with another in their place", "[host]") {
  std::vector<bfloat16> weights = row_of(0x3f80);  // exponent 127
  weights[200].bits = 0x0001;                      // 0
  weights[3].bits = 0xff81;                        // 255
  weights[77].bits = 0x4080;                       // 129
  split_block<bfloat16, 7> split(weights, 256, {127, 129});
  REQUIRE(split.escapes == 2);
  CHECK(split.scratch->escapes[0] == weight_escape::pack(3, 255, false));
  CHECK(split.scratch->escapes[1] == weight_escape::pack(200, 0, false));
  CHECK(split.scratch->exponents[3] == 127);
  CHECK(split.scratch->exponents[200] == 127);
  CHECK(split.scratch->exponents[77] == 129);
  auto const unpacked = std::make_unique<decltype(split)::steps::scratch_type>();
  REQUIRE(split.pass_on(*unpacked));
  std::vector<bfloat16> joined(256);
  decltype(split)::steps::join(group, {127, 0}, split.planes.data(), nullptr, 0, 256, 256, *unpacked, joined.data());
  CHECK(joined[77].bits == 0x4080);
  CHECK(joined[200].bits == 0x3f81);  // until the escapes are patched
  CHECK(joined[255].bits == 0x3f80);
}

TEST_CASE("weights added to fill a row are coded like the placeholder, with no residual and no escape", "[host]") {
  std::vector<bfloat16> const weights(5, bfloat16{0xffff});
  split_block<bfloat16, 7> const split(weights, 256, {10, 24});
  CHECK(split.escapes == 5);
  for (int i = 0; i < 256; ++i) {
    REQUIRE(split.scratch->exponents[i] == 10);
  }
}

TEST_CASE("a NaN that no mantissa bit is kept of is an escape of whole exponents, an infinity is not", "[host]") {
  std::vector<bfloat16> weights(1024, bfloat16{0x7f80});
  weights[9].bits = 0xffc0;
  split_block<bfloat16, 0> const split(weights, 1024, {255, 7});
  REQUIRE(split.escapes == 1);
  CHECK(split.scratch->escapes[0] == weight_escape::pack(9, 255, true));
}

TEST_CASE("more escapes than a block may have are counted, and not written, for whole exponents, too", "[host]") {
  std::vector<bfloat16> const weights(1024, bfloat16{0x0001});
  split_block<bfloat16, 7> const split(weights, 1024, {100, 114});
  CHECK(split.escapes == 1024);
}

TEST_CASE("an exponent beyond those of the type makes a block unsound", "[host]") {
  std::vector<float16> const weights(1024, float16{0x3c00});
  split_block<float16, 10> split(weights, 1024, {15, 31});
  auto const unpacked = std::make_unique<decltype(split)::steps::scratch_type>();
  CHECK(split.pass_on(*unpacked));
  split_block<float16, 10> beyond(weights, 1024, {32, 31});  // exponent 15 is an escape, for which 32 is coded
  CHECK(beyond.escapes == 1024);
  CHECK_FALSE(beyond.pass_on(*unpacked));
}
