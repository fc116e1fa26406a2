// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/entropy/weight_stream.hpp>
#include <tessera/program/weights/checksum.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

constexpr std::int64_t many = std::int64_t{1} << 35;

std::vector<weight_stream_spec> specs(std::vector<std::int64_t> const& counts) {
  std::vector<weight_stream_spec> all;
  for (int type = 0; type < weight_types; ++type) {
    int const mantissa_bits = weight_type_traits::of(static_cast<weight_type>(type)).mantissa_bits;
    for (int kept : {0, 1, 3, 7, mantissa_bits}) {
      for (int log2_block : {10, 11, 13}) {
        for (int log2_normalizer_block : {0, 5, 9, 10}) {
          for (std::int64_t count : counts) {
            if (kept > mantissa_bits || (kept == mantissa_bits && log2_normalizer_block > 0)) {
              continue;
            }
            weight_stream_spec spec;
            spec.type = static_cast<weight_type>(type);
            spec.coder = count % 2 == 0 ? weight_coder::rans_pairs : weight_coder::fixed_codes;
            spec.log2_block = log2_block;
            spec.mantissa_kept = kept;
            spec.log2_normalizer_block = log2_normalizer_block;
            spec.block_checksums = count % 3 == 0;
            spec.count = count;
            all.push_back(spec);
          }
        }
      }
    }
  }
  return all;
}

/// What is wrong with a layout, or nothing.
std::string flaw_of(weight_stream_spec const& spec) {
  std::int64_t const starts[] = {spec.codebook_offset(),    spec.index_offset(),  spec.checksums_offset(),
                                 spec.normalizers_offset(), spec.planes_offset(), spec.payload_offset()};
  std::int64_t const ends[] = {spec.codebook_offset() + (spec.coder == weight_coder::rans_pairs ? 512 : 0),
                               spec.index_end(),
                               spec.checksums_end(),
                               spec.normalizers_end(),
                               spec.planes_end(),
                               spec.largest_bytes()};
  std::int64_t const blocks = spec.block_count();
  for (int i = 0; i < 6; ++i) {
    if (starts[i] % 64 != 0 || ends[i] < starts[i] ||
        (i > 0 && (starts[i] < ends[i - 1] || starts[i] - ends[i - 1] >= 64))) {
      return "section " + std::to_string(i);
    }
  }
  if (ends[1] - starts[1] != 8 * blocks || ends[2] - starts[2] != (spec.block_checksums ? 4 * blocks : 0)) {
    return "index";
  }
  std::int64_t const normalizers =
      spec.log2_normalizer_block == 0 ? 0 : divide_up(spec.count, std::int64_t{1} << spec.log2_normalizer_block);
  if (ends[3] - starts[3] != normalizers) {
    return "normalizers";
  }
  std::int64_t const coded = align_up(spec.count, std::int64_t{spec.granularity()});
  if (ends[4] - starts[4] != coded * (1 + spec.mantissa_kept) / 8) {
    return "planes";
  }
  return spec.smallest_bytes() == spec.payload_offset() ? "" : "smallest_bytes";
}

}  // namespace

TEST_CASE("sections of a stream follow each other, each from the next multiple of 64 bytes", "[host]") {
  for (weight_stream_spec const& spec :
       specs({0, 1, 31, 1023, 1024, 1025, 8191, 8192, 8193, 100'000, 12'345'678, many - 7, many})) {
    INFO("type " << static_cast<int>(spec.type) << " kept " << spec.mantissa_kept << " log2_block " << spec.log2_block
                 << " normalizers " << spec.log2_normalizer_block << " count " << spec.count);
    REQUIRE(flaw_of(spec) == "");
  }
}

TEST_CASE("blocks share out the weights, and begin where those before them end", "[host]") {
  for (weight_stream_spec const& spec : specs({1, 1000, 1024, 8193, 100'000})) {
    std::int64_t weights = 0;
    std::int64_t normalizers = 0;
    for (std::int64_t block = 0; block < spec.block_count(); ++block) {
      REQUIRE(spec.planes_before(block) == spec.residual_planes().bytes(weights));
      REQUIRE(spec.normalizers_before(block) == normalizers);
      REQUIRE(spec.coded_in(block) >= spec.weights_in(block));
      REQUIRE(spec.coded_in(block) <= spec.block_weights());
      REQUIRE(spec.coded_in(block) % spec.granularity() == 0);
      weights += spec.weights_in(block);
      normalizers += spec.normalizers_in(block);
    }
    REQUIRE(weights == spec.count);
  }
}

TEST_CASE("no payload that an encoder may choose is larger than a raw one", "[host]") {
  for (weight_stream_spec const& spec : specs({8192, 8193})) {
    std::int64_t const coded = spec.block_weights();
    weight_block_index const raw{0, weight_block_index::raw, 0};
    int const raw_bits = spec.traits().exponent_bits + (spec.mantissa_kept == 0 ? 1 : 0);  // one marks NaNs
    CHECK(spec.payload_bytes(coded, raw) == coded * raw_bits / 8);
    CHECK(spec.payload_bytes(coded, {0, 7, 3}) % 16 == 0);
    CHECK(spec.escapes_offset(coded, 7) % 4 == 0);
  }
}

TEST_CASE("sizes beyond 2^32 bytes and billions of weights are exact", "[host]") {
  weight_stream_spec spec;
  spec.count = many;  // bf16: 64 GiB
  CHECK(spec.block_count() == std::int64_t{1} << 22);
  CHECK(spec.planes_end() - spec.planes_offset() == many);
  CHECK(spec.largest_bytes() == spec.payload_offset() + many);
  spec.log2_block = 10;
  CHECK(spec.block_count() == std::int64_t{1} << 25);
  CHECK(spec.planes_before(spec.block_count() - 1) == many - 1024);
  spec.type = weight_type::fp32;
  spec.mantissa_kept = 23;
  CHECK(spec.planes_before(spec.block_count() - 1) == 3 * (many - 1024));
  // The largest number of blocks that the header can name.
  spec.count = std::int64_t{1} << 41;
  CHECK(spec.block_count() == std::int64_t{1} << 31);
  CHECK(spec.header().block_count == std::uint32_t{1} << 31);
  CHECK(spec.index_end() - spec.index_offset() == std::int64_t{1} << 34);
  // The last payload of the largest stream is still within reach of a 32-bit position.
  spec.count = many;
  CHECK((spec.largest_bytes() - spec.payload_offset()) / weight_stream_spec::payload_alignment <= std::int64_t{1}
                                                                                                      << 32);
}

TEST_CASE("a header has these 64 bytes in this order", "[host]") {
  weight_stream_spec spec;
  spec.type = weight_type::fp32;
  spec.coder = weight_coder::fixed_codes;
  spec.log2_block = 12;
  spec.mantissa_kept = 3;
  spec.log2_normalizer_block = 9;
  spec.block_checksums = true;
  spec.count = 0x0102030405;
  weight_stream_header header = spec.header();
  header.window_base = 0x6f;
  header.window_extra = 0x7d;
  header.total_bytes = 0x1122334455;
  header.content_checksum = 0xa1a2a3a4;
  header.header_checksum = checksum_of(header);
  std::uint8_t const expected[60] = {
      'T',  'S',  'R',  'A',  1,    0,    2,    2,     // magic, version, type, coder
      12,   3,    9,    0x6f, 0x7d, 0,    0,    0,     // block, mantissa, normalizers, window
      1,    0,    0,    0,    0x31, 0x20, 0x10, 0x00,  // flags, blocks
      0x05, 0x04, 0x03, 0x02, 0x01, 0,    0,    0,     // weights
      0x55, 0x44, 0x33, 0x22, 0x11, 0,    0,    0,     // bytes
      0xa4, 0xa3, 0xa2, 0xa1, 0,    0,    0,    0,     // checksum of the content
      0,    0,    0,    0,    0,    0,    0,    0,    0, 0, 0, 0};
  CHECK(std::memcmp(&header, expected, sizeof(expected)) == 0);
  CHECK(header.header_checksum == crc32c(expected, sizeof(expected)));
}

TEST_CASE("an index entry has position, words and escapes", "[host]") {
  weight_block_index const entry{0x01020304, 0x0506, 0x0708};
  std::uint8_t const expected[8] = {4, 3, 2, 1, 6, 5, 8, 7};
  CHECK(std::memcmp(&entry, expected, sizeof(expected)) == 0);
}

TEST_CASE("a header names its weights and blocks", "[host]") {
  weight_stream_spec spec;
  spec.count = 100'000;
  CHECK(spec.header().block_count == 13);
  CHECK(spec.header().count == 100'000);
  CHECK(spec.header().flags == 0);
  spec.coder = weight_coder::stored;
  CHECK(spec.block_count() == 0);
  CHECK(spec.smallest_bytes() == 64 + 200'000);
  CHECK(spec.largest_bytes() == spec.smallest_bytes());
}
