// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/program/weights/detail/decode_task.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

template <class T>
__global__ void judge(decode_task<T> task, weight_stream_header const* headers, int count, int* verdicts) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    task.stream = reinterpret_cast<std::uint8_t const*>(headers + i);
    verdicts[i] = task.header_fits() ? 1 : 0;
  }
}

template <class T>
weight_stream_spec spec_of(weight_type type, weight_coder coder) {
  weight_stream_spec spec;
  spec.type = type;
  spec.coder = coder;
  spec.log2_block = 11;
  spec.mantissa_kept = scalar_traits<T>::mantissa_bits;
  spec.block_checksums = true;
  spec.count = 100'001;
  return spec;
}

/// A sound header, then the same header with each of its bits inverted, with checksums that fit.
std::vector<weight_stream_header> headers_of(weight_stream_spec const& spec) {
  weight_stream_header good = spec.header();
  good.window_base = 1;
  good.window_extra = 1 + exponent_window::neighbours;
  good.total_bytes = static_cast<std::uint64_t>(spec.smallest_bytes()) + 1024;
  std::vector<weight_stream_header> headers;
  for (std::size_t bit = 0; bit <= 8 * sizeof(good); ++bit) {
    weight_stream_header changed = good;
    if (bit > 0) {
      reinterpret_cast<std::uint8_t*>(&changed)[(bit - 1) / 8] ^= static_cast<std::uint8_t>(1U << (bit - 1) % 8);
    }
    changed.header_checksum = checksum_of(changed);
    headers.push_back(changed);
  }
  return headers;
}

template <class T>
weight_decoding<T> decoding_of(weight_type type, weight_coder coder) {
  weight_decoding<T> decoding;
  decoding.spec = spec_of<T>(type, coder);
  decoding.stream_bytes = decoding.spec.smallest_bytes() + 2000;
  return decoding;
}

template <class T>
std::vector<int> verdicts_of_the_host(weight_decoding<T> decoding, std::vector<weight_stream_header> const& headers) {
  std::vector<int> verdicts;
  for (weight_stream_header const& header : headers) {
    decoding.stream = reinterpret_cast<std::uint8_t const*>(&header);
    verdicts.push_back(decoding.header_matches() ? 1 : 0);
  }
  return verdicts;
}

template <class T>
void compare_verdicts(weight_type type, weight_coder coder) {
  auto const decoding = decoding_of<T>(type, coder);
  auto const headers = headers_of(decoding.spec);
  auto const expected = verdicts_of_the_host(decoding, headers);
  device_values<weight_stream_header> const on_device(headers);
  device_values<int> const verdicts(headers.size());
  judge<<<1, 128>>>(decode_task<T>::of(decoding, 0), on_device.data(), static_cast<int>(headers.size()),
                    verdicts.data());
  CHECK(verdicts.download() == expected);
}

}  // namespace

TEST_CASE("a task knows what the host knows of a tensor", "[host]") {
  weight_decoding<bfloat16> decoding;
  decoding.spec = spec_of<bfloat16>(weight_type::bf16, weight_coder::rans_pairs);
  decoding.first_block = 7;
  decoding.stream_bytes = 12345;
  auto const task = decode_task<bfloat16>::of(decoding, 40);
  CHECK(task.count == 100'001);
  CHECK(task.log2_block == 11);
  CHECK(task.flags == weight_stream_header::flag_block_checksums);
  CHECK(task.first_block == 7);
  CHECK(task.blocks_before == 40);
  CHECK(task.stream_bytes == 12345);
  CHECK(task.index_offset == decoding.spec.index_offset());
  CHECK(task.planes_offset == decoding.spec.planes_offset());
  CHECK(task.payload_offset == decoding.spec.payload_offset());
}

TEST_CASE("a header with one wrong bit is good only if the bit is of a window or a size that fits, or of a checksum",
          "[host]") {
  auto const decoding = decoding_of<float8_e4m3>(weight_type::fp8_e4m3, weight_coder::fixed_codes);
  auto const verdicts = verdicts_of_the_host(decoding, headers_of(decoding.spec));
  CHECK(verdicts[0] == 1);
  CHECK(verdicts[1] == 0);
  CHECK(std::count(verdicts.begin(), verdicts.end(), 1) > 64);
  CHECK(std::count(verdicts.begin(), verdicts.end(), 1) < 100);
}

TEST_CASE("the device takes and refuses the headers that the host does, whatever bit is wrong", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  compare_verdicts<bfloat16>(weight_type::bf16, weight_coder::rans_pairs);
  compare_verdicts<float8_e4m3>(weight_type::fp8_e4m3, weight_coder::fixed_codes);
}
