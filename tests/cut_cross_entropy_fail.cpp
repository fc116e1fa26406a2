// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: labels are std::int32_t or std::int64_t
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/cpu.hpp>

using matrix = tessera::matrix_view<tessera::bfloat16 const>;

void reduce(matrix hidden, matrix classifier, tessera::array_view<std::uint8_t const> small,
            tessera::array_view<std::int64_t const> labels, tessera::array_view<float> loss,
            tessera::workspace const& space) {
  tessera::cut_cross_entropy::forward(tessera::cpu{}, {hidden, classifier, labels}, {}, {loss}, space);
#if defined(TESSERA_FAIL)
  tessera::cut_cross_entropy::inputs<std::uint8_t> const inputs{hidden, classifier, small};
  tessera::cut_cross_entropy::forward(tessera::cpu{}, inputs, {}, {loss}, space);
#else
  static_cast<void>(small);
#endif
}
