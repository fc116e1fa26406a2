// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lossy codecs run their portable programs on the device: the bytes and the weights are those of the host.
#include <tessera/neuzip.hpp>

#include "algorithm/weights/device_weights.cuh"

using namespace tessera;
using tessera_test::check_same_as_host;
using tessera_test::weight_kind;

namespace {

template <class Codec>
void check_kinds() {
  for (weight_kind kind : {weight_kind::gauss, weight_kind::mixture, weight_kind::all_nan, weight_kind::random_bits}) {
    check_same_as_host<Codec>(kind, 20'001, {});
    check_same_as_host<Codec>(kind, 20'001, {.block = 2048, .checksums = true, .normalizer_block = 512});
    check_same_as_host<Codec>(kind, 33, {.normalizer_block = 32});
  }
}

}  // namespace

TEST_CASE("bf16 weights without mantissas have the same streams and values on the device as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_kinds<neuzip_lossy<0>>();
}

TEST_CASE("bf16 weights with three mantissa bits have the same streams and values on the device as on the host",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_kinds<neuzip_lossy<3>>();
}

TEST_CASE("fp32 weights with seven mantissa bits have the same streams and values on the device as on the host",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_kinds<neuzip_lossy<7, float>>();
}
