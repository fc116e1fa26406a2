// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

#include <tessera/algorithm/weights/inspect_weight_stream.hpp>
#include <tessera/neuzip.hpp>

#include "support/catch.hpp"

namespace {

using namespace tessera;

std::vector<std::byte> small_stream() {
  std::vector<bfloat16> weights(5000);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = store<bfloat16>(0.01f * static_cast<float>(i % 97));
  }
  auto const stream = neuzip::encode(cpu{}, weights);
  return {stream.begin(), stream.end()};
}

/// Changes the header and makes its checksum fit again.
template <class Change>
std::vector<std::byte> changed(Change change) {
  std::vector<std::byte> bytes = small_stream();
  weight_stream_header header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  change(header);
  header.header_checksum = checksum_of(header);
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

weight_stream_spec inspect(std::vector<std::byte> const& bytes) {
  return inspect_weight_stream(bytes.data(), std::ssize(bytes));
}

}  // namespace

TEST_CASE("inspecting a stream gives the spec it was written with", "[host]") {
  weight_stream_spec const spec = inspect(small_stream());
  CHECK(spec.type == weight_type::bf16);
  CHECK(spec.coder == weight_coder::rans_pairs);
  CHECK(spec.count == 5000);
  CHECK(spec.mantissa_kept == 7);
  CHECK(spec.block_weights() == 8192);
}

TEST_CASE("a container is inspected as its bytes are", "[host]") {
  std::vector<std::byte> const bytes = small_stream();
  CHECK(inspect_weight_stream(bytes).spec().count == inspect(bytes).count);
  CHECK_THROWS_WITH(inspect_weight_stream({bytes.data(), {std::ssize(bytes) / 2}, {2}}),
                    "inspect_weight_stream: bytes have a stride of 2 but must have a stride of 1");
}

TEST_CASE("a header that leads outside of the stream or is of another version is refused", "[host]") {
  CHECK_THROWS_AS(inspect(changed([](auto& header) { header.version = 2; })), corrupt_data);
  CHECK_THROWS_AS(inspect(changed([](auto& header) { header.magic ^= 1; })), corrupt_data);
  CHECK_THROWS_AS(inspect(changed([](auto& header) { header.type = 9; })), corrupt_data);
  CHECK_THROWS_AS(inspect(changed([](auto& header) { header.log2_block = 30; })), corrupt_data);
  CHECK_THROWS_AS(inspect(changed([](auto& header) { header.mantissa_kept = 8; })), corrupt_data);
  CHECK_THROWS_AS(inspect(changed([](auto& header) { header.count = std::uint64_t{1} << 60; })), corrupt_data);
  CHECK_THROWS_AS(inspect(changed([](auto& header) { header.total_bytes += 16; })), corrupt_data);
  CHECK_THROWS_AS(inspect(changed([](auto& header) { header.flags = 2; })), corrupt_data);
  CHECK_THROWS_WITH(inspect(changed([](auto& header) { header.version = 2; })),
                    tessera_test::contains("version 2 but this library reads version 1"));
}

TEST_CASE("a stream shorter than a header is refused", "[host]") {
  std::vector<std::byte> const bytes(63);
  CHECK_THROWS_AS(inspect(bytes), corrupt_data);
}

TEST_CASE("a null pointer is no stream of weights", "[host]") {
  CHECK_THROWS_AS(inspect_weight_stream(nullptr, 200), value_error);
  CHECK_THROWS_WITH(inspect_weight_stream(nullptr, 200),
                    "inspect_weight_stream: the bytes of the stream have no memory but 200 elements");
  CHECK_THROWS_AS(inspect_weight_stream(nullptr, 0), corrupt_data);
}
