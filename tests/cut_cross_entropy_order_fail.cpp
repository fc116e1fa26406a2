// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: tessera: linear_loss.forward takes an executor, inputs<Label>, linear_loss_options, linear_loss_outputs
#include <cstdint>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/cpu.hpp>

using loss = tessera::cut_cross_entropy;
using matrix = tessera::matrix_view<tessera::bfloat16 const>;

void reduce(matrix hidden, matrix classifier, tessera::array_view<std::int64_t const> labels,
            tessera::linear_loss_options& options, tessera::array_view<float> value, tessera::workspace& space) {
  loss::forward(tessera::cpu{}, {hidden, classifier, labels}, {}, {value}, space);
#if defined(TESSERA_FAIL)
  loss::forward(tessera::cpu{}, {hidden, classifier, labels}, {.loss = value}, options, space);
#else
  loss::forward(tessera::cpu{}, {hidden, classifier, labels}, options, {.loss = value}, space);
#endif
}
