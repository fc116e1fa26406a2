// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The programs of an encoding one by one: what each of them writes, and what all of them together.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/weights/decode.hpp>
#include <tessera/program/weights/encode.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

constexpr std::uint8_t garbage = 0x77;
constexpr std::int64_t count = 4000;  // three blocks of 1024 weights and a part of one

weight_stream_spec spec_of(int mantissa_kept, int log2_normalizer_block = 0) {
  weight_stream_spec spec;
  spec.log2_block = 10;
  spec.mantissa_kept = mantissa_kept;
  spec.log2_normalizer_block = log2_normalizer_block;
  spec.block_checksums = true;
  spec.count = count;
  return spec;
}

/// The memory of an encoding of bf16 that keeps `Kept` bits of mantissas, full of garbage where nothing must be zero.
template <int Kept>
struct encoding_at_hand {
  using mantissa = keep_mantissa<Kept>;
  std::vector<bfloat16> weights = std::vector<bfloat16>(count);
  std::vector<std::uint64_t> counts = std::vector<std::uint64_t>(256);
  std::unique_ptr<pair_coder::encode_table> table = std::make_unique<pair_coder::encode_table>();
  std::vector<std::uint64_t> memory;  ///< of the stream and of what may not be touched behind it
  std::vector<std::uint8_t> slots;
  std::int64_t bytes = -1;
  weight_encoding<bfloat16> encoding;

  explicit encoding_at_hand(weight_stream_spec const& spec, bool is_random = false) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      bool const is_odd = is_random || i / 1024 == 2;  // the third block has any bits at all, so that it is raw
      weights[i] = is_odd ? testing::sample<bfloat16>(testing::uniform_bits{}, 3, i)
                          : testing::sample<bfloat16>(testing::gauss{.sigma = 0.02}, 3, i);
    }
    encoding.spec = spec;
    encoding.weights = weights.data();
    std::int64_t const most = spec.payload_offset() + spec.block_count() * encoding.slot_bytes();
    memory.assign(static_cast<std::size_t>(most / 8 + 8), 0x7777777777777777U);
    slots.assign(static_cast<std::size_t>(spec.block_count() * encoding.slot_bytes()), garbage);
    encoding.stream = reinterpret_cast<std::uint8_t*>(memory.data());
    encoding.counts = counts.data();
    encoding.table = table.get();
    encoding.slots = slots.data();
    encoding.capacity = most;
    encoding.stream_bytes = &bytes;
  }
  template <class Executor>
  void encode(Executor const& exec) {
    weight_stream_spec const& spec = encoding.spec;
    encoding.status = exec.status();
    if (spec.log2_normalizer_block > 0) {
      exec.run(normalize_weights<bfloat16>{encoding}, normalizers());
    }
    exec.run(count_exponents<bfloat16, mantissa>{encoding}, count_exponents<bfloat16, mantissa>::groups(spec));
    exec.run(write_codebook{codebook_writing::of(encoding)}, 1);
    exec.run(encode_weights<bfloat16, mantissa>{encoding}, spec.block_count());
    exec.run(locate_payloads<bfloat16>{encoding}, 1);
    exec.run(move_payloads<bfloat16>{encoding}, spec.block_count());
    exec.run(checksum_blocks<bfloat16>{encoding}, spec.block_count());
  }
  [[nodiscard]] std::int64_t normalizers() const {
    return (count + (1 << encoding.spec.log2_normalizer_block) - 1) >> encoding.spec.log2_normalizer_block;
  }
  /// The weights that the stream stands for.
  [[nodiscard]] std::vector<bfloat16> decoded() const {
    cpu const exec{.threads = 1};
    std::vector<bfloat16> made(count);
    auto const room = std::make_unique<weight_decode_table>();
    weight_decoding<bfloat16> decoding;
    decoding.spec = encoding.spec;
    decoding.stream = encoding.stream;
    decoding.stream_bytes = bytes;
    decoding.blocks = encoding.spec.block_count();
    decoding.weights = made.data();
    decoding.table = room.get();
    decoding.status = exec.status();
    exec.run(read_codebook<bfloat16>{decoding}, 1);
    exec.run(decode_weights<bfloat16, mantissa>{decoding}, decoding.blocks);
    exec.wait();
    return made;
  }
  [[nodiscard]] weight_block_index const& entry(std::int64_t block) const { return encoding.index()[block]; }
  [[nodiscard]] std::uint8_t const* stream() const { return encoding.stream; }
  [[nodiscard]] std::vector<std::uint8_t> written() const { return {stream(), stream() + bytes}; }
};

bool same_bits(std::vector<bfloat16> const& a, std::vector<bfloat16> const& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(bfloat16)) == 0;
}

}  // namespace

TEST_CASE("what the programs of an encoding write decodes to the same bits", "[host][threads]") {
  encoding_at_hand<7> at(spec_of(7));
  at.encode(cpu{.threads = 2});
  REQUIRE(at.bytes > 0);
  CHECK(at.bytes < 2 * count);
  CHECK(same_bits(at.decoded(), at.weights));
  CHECK(at.entry(2).words == weight_block_index::raw);
  CHECK(at.entry(3).words != weight_block_index::raw);
  CHECK(std::all_of(at.stream() + at.bytes, at.stream() + at.bytes + 32, [](int byte) { return byte == garbage; }));
}

TEST_CASE("exponents of all weights are counted", "[host][threads]") {
  encoding_at_hand<7> at(spec_of(7));
  std::vector<std::uint64_t> expected(256, 0);
  for (bfloat16 const weight : at.weights) {
    ++expected[to_bits(weight) >> 7 & 0xffU];
  }
  cpu{.threads = 2}.run(count_exponents<bfloat16, keep_mantissa<7>>{at.encoding},
                        count_exponents<bfloat16, keep_mantissa<7>>::groups(at.encoding.spec));
  CHECK(at.counts == expected);
}

TEST_CASE("a normalizer is the mantissa of the largest finite weight of its block, in 256ths", "[host][threads]") {
  encoding_at_hand<3> at(spec_of(3, 6));
  cpu{.threads = 2}.run(normalize_weights<bfloat16>{at.encoding}, at.normalizers());
  int wrong = 0;
  for (std::int64_t block = 0; block < at.normalizers(); ++block) {
    std::uint32_t largest = 0;
    for (std::int64_t i = 64 * block; i < std::min(count, 64 * block + 64); ++i) {
      std::uint32_t const magnitude = to_bits(at.weights[static_cast<std::size_t>(i)]) & 0x7fffU;
      largest = magnitude < 0x7f80U ? std::max(largest, magnitude) : largest;
    }
    std::uint32_t const expected = largest < 0x80U ? 0 : (largest & 0x7fU) << 1;
    wrong += at.stream()[at.encoding.spec.normalizers_offset() + block] == expected ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(at.stream()[at.encoding.spec.normalizers_offset() + at.normalizers()] == garbage);
}

TEST_CASE("mantissas that are kept in part decode to weights within a step of theirs", "[host][threads]") {
  encoding_at_hand<3> at(spec_of(3, 6));
  at.encode(cpu{.threads = 2});
  auto const found = at.decoded();
  int wrong = 0;
  for (std::size_t i = 0; i < 2048; ++i) {
    double const weight = double{load(at.weights[i])};
    double const difference = std::abs(double{load(found[i])} - weight);
    wrong += difference <= 0x1p-3 * std::abs(weight) ? 0 : 1;
  }
  CHECK(wrong == 0);
  encoding_at_hand<3> plain(spec_of(3));
  plain.encode(cpu{.threads = 1});
  CHECK(plain.bytes < at.bytes);  // it has no normalizers
}

TEST_CASE("payloads follow each other, and the header says where they end", "[host]") {
  encoding_at_hand<7> at(spec_of(7));
  at.encode(cpu{.threads = 1});
  weight_stream_spec const& spec = at.encoding.spec;
  std::int64_t end = spec.payload_offset();
  for (std::int64_t block = 0; block < spec.block_count(); ++block) {
    CHECK(spec.payload_begin(at.entry(block)) == end);
    end += spec.payload_bytes(spec.coded_in(block), at.entry(block));
  }
  CHECK(at.bytes == end);
  weight_stream_header header;
  std::memcpy(&header, at.stream(), sizeof(header));
  CHECK(header.total_bytes == static_cast<std::uint64_t>(end));
  CHECK(header.header_checksum == checksum_of(header));
  weight_section_ends const ends = weight_section_ends::in(spec);
  for (std::int64_t const section : ends.of) {  // each begins at a multiple of 64 bytes, after zeros
    for (std::int64_t byte = section; byte % 64 != 0; ++byte) {
      REQUIRE(at.stream()[byte] == 0);
    }
  }
}

TEST_CASE("a stream that finds no room is reported with the bytes that it needs, and nothing is written behind",
          "[host]") {
  cpu const exec{.threads = 1};
  encoding_at_hand<7> whole(spec_of(7));
  whole.encode(exec);
  encoding_at_hand<7> at(spec_of(7));
  at.encoding.capacity = whole.bytes - 16;  // the last payload does not fit
  at.encode(exec);
  CHECK_THROWS_AS(exec.wait(), shape_error);
  CHECK(at.bytes == whole.bytes);
  std::int64_t const last = at.encoding.spec.payload_begin(at.entry(3));
  CHECK(std::memcmp(at.stream() + at.encoding.spec.payload_offset(), whole.stream() + at.encoding.spec.payload_offset(),
                    static_cast<std::size_t>(last - at.encoding.spec.payload_offset())) == 0);
  CHECK(std::all_of(at.stream() + last, at.stream() + whole.bytes, [](int byte) { return byte == garbage; }));
}

TEST_CASE("weights of any bits are no larger than they were, but for header, index and codebook", "[host]") {
  encoding_at_hand<7> at(spec_of(7), true);
  at.encode(cpu{.threads = 1});
  CHECK(same_bits(at.decoded(), at.weights));
  CHECK(at.bytes <= at.encoding.capacity);
}

TEST_CASE("the programs of an encoding keep the rules for programs, and give the same bytes", "[host]") {
  encoding_at_hand<3> expected(spec_of(3, 6));
  expected.encode(cpu{.threads = 1});
  encoding_at_hand<3> found(spec_of(3, 6));
  found.encode(testing::adversary{.seed = 61});
  CHECK(found.written() == expected.written());
}
