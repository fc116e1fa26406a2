// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: sequence_parallel takes a vocabulary_parallel of a linear_loss, a soft_target_loss, a
#include <cstdint>

#include <tessera/algorithm/loss/sequence_parallel.hpp>
#include <tessera/cut_cross_entropy.hpp>

using namespace tessera;

void take_labels(sequence_parallel<vocabulary_parallel<exact_cross_entropy>>::inputs<std::int64_t> const&) {}
#if defined(TESSERA_FAIL)
int marks() {
  return sequence_parallel<exact_cross_entropy>::side_marks;
}
#endif
