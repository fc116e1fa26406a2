// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: sequence_parallel takes a vocabulary_parallel of a linear_loss or of a soft_target_loss
#include <cstdint>

#include <tessera/algorithm/loss/sequence_parallel.hpp>
#include <tessera/algorithm/loss/vocabulary_parallel_distillation.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/cut_cross_entropy.hpp>

using namespace tessera;

void take_labels(sequence_parallel<vocabulary_parallel<exact_cross_entropy>>::inputs<std::int64_t> const&) {}
#if defined(TESSERA_FAIL)
int marks() {
  return sequence_parallel<vocabulary_parallel<linear_distillation<bfloat16>>>::side_marks;
}
#endif
