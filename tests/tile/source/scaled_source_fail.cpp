// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a ScaledSource says how many columns share a scale: static constexpr int group
#include <cstdint>

#include <tessera/algorithm/gemm/scaled_linear.hpp>
#include <tessera/exec/cpu.hpp>

/// A matrix of ones.
struct ones {
  using value_type = float;
#if !defined(TESSERA_FAIL)
  static constexpr int group = 32;
#endif
  std::int64_t rows() const {
    return 2;
  }
  std::int64_t columns() const {
    return 32;
  }
  float exact(std::int64_t, std::int64_t) const {
    return 1.0F;
  }
  float scale(std::int64_t, std::int64_t) const {
    return 1.0F;
  }
};

void multiply(tessera::matrix_view<float> outputs) {
  tessera::scaled_linear::forward(tessera::cpu{}, ones{}, ones{}, outputs);
}
