// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <tessera/entropy/tans_coder.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/weights/exponent_codebook.hpp>
#include <tessera/testing/adversary.hpp>

#include "algorithm/weights/own_coders.hpp"
#include "support/catch.hpp"

using namespace tessera;

namespace {

/// What write_exponent_codebook makes of counts.
template <class T, class Coder>
struct written_codebook {
  weight_stream_spec spec;
  std::vector<std::uint8_t> stream;
  std::unique_ptr<typename Coder::encode_table> table = std::make_unique<typename Coder::encode_table>();
  weight_stream_header header{};

  template <class Executor>
  written_codebook(Executor const& exec, std::vector<std::uint64_t> counts) {
    spec.coder = static_cast<weight_coder>(Coder::stream_id);
    spec.codebook_units = (Coder::codebook_bytes + 63) / 64;
    spec.log2_block = 10;
    spec.block_checksums = true;
    spec.count = 3000;
    stream.assign(static_cast<std::size_t>(spec.payload_offset()), 0x77);
    weight_encoding<T, Coder> encoding;
    encoding.spec = spec;
    encoding.stream = stream.data();
    encoding.counts = counts.data();
    encoding.table = table.get();
    exec.run(write_exponent_codebook<T, Coder>{encoding}, 1);
    std::memcpy(&header, stream.data(), sizeof(header));
  }
  [[nodiscard]] std::uint8_t const* codebook() const { return stream.data() + spec.codebook_offset(); }
};

std::vector<std::uint64_t> counts_of(std::vector<std::size_t> const& exponents) {
  std::vector<std::uint64_t> counts(256);
  for (std::size_t exponent : exponents) {
    ++counts[exponent];
  }
  return counts;
}

}  // namespace

TEST_CASE("a codebook holds the fitted model, and its checksum and the most frequent exponent are in the header",
          "[host]") {
  auto const counts = counts_of({120, 121, 121, 250});
  written_codebook<bfloat16, tans_coder> const found(cpu{.threads = 1}, counts);
  tans_coder::model_type model;
  tans_coder::fit_model(counts.data(), model);
  std::vector<std::uint8_t> bytes(tans_coder::codebook_bytes);
  tans_coder::store_model(model, bytes.data());
  CHECK(std::equal(bytes.begin(), bytes.end(), found.codebook()));
  CHECK(found.header.coder == 3);
  CHECK(found.header.codebook_units == 8);
  CHECK(found.header.window_base == 121);
  CHECK(found.header.window_extra == 0);
  CHECK(found.header.content_checksum == crc32c(bytes.data(), bytes.size()));
  CHECK(tans_coder::can_code(*found.table, 250));
  CHECK_FALSE(tans_coder::can_code(*found.table, 122));
}

TEST_CASE("a codebook is filled up with zeros, as are the gaps between sections", "[host]") {
  written_codebook<bfloat16, tessera_test::six_bit_coder> const found(cpu{.threads = 1}, counts_of({120, 121}));
  CHECK(found.codebook()[0] == 120 - 32);
  CHECK(std::count(found.codebook() + 1, found.codebook() + 64, 0) == 63);
  auto const gap = found.stream.begin() + found.spec.index_end();
  CHECK(std::count(gap, found.stream.begin() + found.spec.checksums_offset(), 0) == 40);
}

TEST_CASE("writing a codebook of exponents keeps the rules for programs", "[host]") {
  auto const counts = counts_of({3, 5, 5, 250});
  written_codebook<bfloat16, tans_coder> const expected(cpu{.threads = 1}, counts);
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    written_codebook<bfloat16, tans_coder> const found(testing::adversary{.seed = seed}, counts);
    CHECK(found.stream == expected.stream);
    CHECK(std::memcmp(found.table.get(), expected.table.get(), sizeof(*found.table)) == 0);
  }
}
