// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/core/crc32c.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/cuda/crc32c.cuh>

#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace {

template <int Bytes, int Pieces>
__global__ void checksum(std::uint8_t const* data, std::uint32_t* of_lanes) {
  int const lane = static_cast<int>(threadIdx.x);
  of_lanes[lane] = warp_crc32c<Bytes, Pieces>(lane, data);
}

template <int Bytes, int Pieces>
void check_checksum() {
  INFO(Pieces << " pieces of " << Bytes << " bytes");
  std::vector<std::uint8_t> bytes(Bytes * Pieces);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(testing::hash(Bytes, i));
  }
  device_values<std::uint8_t> const data(bytes);
  device_values<std::uint32_t> const of_lanes(32);
  checksum<Bytes, Pieces><<<1, 32>>>(data.data(), of_lanes.data());
  CHECK(of_lanes.download() == std::vector<std::uint32_t>(32, crc32c(bytes.data(), bytes.size())));
}

}  // namespace

TEST_CASE("a warp's checksum is that of all bytes, for every lane", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_checksum<16, 32>();  // a codebook
  check_checksum<4, 15>();   // a header without its checksum
  check_checksum<1, 1>();
  check_checksum<3, 17>();
  check_checksum<64, 31>();
}
