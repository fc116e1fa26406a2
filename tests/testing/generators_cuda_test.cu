// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/testing/generators.hpp>

#include "support/cuda.hpp"

using namespace tessera::testing;

namespace {

constexpr std::size_t count = 1 << 20;

template <class T, class Generator>
__global__ void sample_all(Generator generator, std::uint64_t seed, T* data) {
  std::size_t const i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  data[i] = sample<T>(generator, seed, i);
}

template <class T, class Generator>
std::vector<T> on_device(Generator const& generator, std::uint64_t seed) {
  T* device = nullptr;
  tessera_test::cuda_ok(cudaMalloc(&device, count * sizeof(T)));
  sample_all<<<count / 256, 256>>>(generator, seed, device);
  tessera_test::cuda_ok(cudaGetLastError());
  std::vector<T> data(count);
  tessera_test::cuda_ok(cudaMemcpy(data.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
  tessera_test::cuda_ok(cudaFree(device));
  return data;
}

/// How many of the samples differ; those that do may do so by a rounding only.
template <class Generator>
int differences(Generator const& generator) {
  auto const device = on_device<float>(generator, 11);
  int different = 0;
  bool only_rounding = true;
  for (std::size_t i = 0; i < count; ++i) {
    float const host = sample<float>(generator, 11, i);
    different += host != device[i];
    only_rounding = only_rounding && std::fabs(host - device[i]) <= 1.2e-7 * std::fabs(host) + 1e-13;
  }
  CHECK(only_rounding);
  return different;
}

}  // namespace

TEST_CASE("bit patterns are the same on the host and on the device", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const device = on_device<tessera::bfloat16>(uniform_bits{}, 5);
  std::size_t different = 0;
  for (std::size_t i = 0; i < count; ++i) {
    different += device[i].bits != sample<tessera::bfloat16>(uniform_bits{}, 5, i).bits;
  }
  CHECK(different == 0);
}

TEST_CASE("random numbers are the same on the host and on the device but for rare roundings", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(differences(gauss{.sigma = 0.02}) <= 10);
  CHECK(differences(student_t{.freedom = 4}) <= 10);
  CHECK(differences(laplace{.scale = 3}) <= 10);
  CHECK(differences(uniform{.low = -2, .high = 6}) <= 10);
}
