// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Lossless coding on CUDA devices, compiled once for all tests (in codecs.cu); see codecs.hpp.
#pragma once

#include <tessera/algorithm/weights/compressed_weights.cuh>
#include <tessera/exec/cuda.cuh>

#include "support/codecs.hpp"

namespace tessera_test {

template <class Executor>
struct architectures_of;
template <class Architectures>
struct architectures_of<tessera::basic_cuda<Architectures>> {
  using type = Architectures;
};
/// The architectures that this program is compiled for.
using architectures = architectures_of<tessera::cuda>::type;

}  // namespace tessera_test

TESSERA_TEST_LOSSLESS_CODECS(extern template, tessera::cuda, tessera_test::architectures);
