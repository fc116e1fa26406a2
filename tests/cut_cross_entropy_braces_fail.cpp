// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: in braces without a type Label is std::int64_t
#include <cstdint>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/cpu.hpp>

using loss = tessera::cut_cross_entropy;
using matrix = tessera::matrix_view<tessera::bfloat16 const>;

void reduce(matrix hidden, matrix classifier, tessera::array_view<std::int32_t const> labels,
            tessera::array_view<float> value, tessera::workspace const& space) {
#if defined(TESSERA_FAIL)
  loss::forward(tessera::cpu{}, {hidden, classifier, labels}, {.shift = 1}, {value}, space);
#else
  loss::inputs<std::int32_t> in{hidden, classifier, labels};
  loss::forward(tessera::cpu{}, in, {.shift = 1}, {value}, space);
  loss::forward(tessera::cpu{}, loss::inputs<std::int32_t>{hidden, classifier, labels}, {}, {value}, space);
#endif
}
