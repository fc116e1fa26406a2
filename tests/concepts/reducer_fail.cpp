// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a Reducer has identity\(\): state_type identity\(\) const
#include <tessera/reduce/sum.hpp>

struct without_identity {
  using state_type = int;
  using input_type = int;
  void push(int& state, int value) const { state += value; }
  void merge(int& into, int other) const { into += other; }
};

template <tessera::Reducer R>
struct row_reduction {
  R reducer;
};

#if defined(TESSERA_FAIL)
row_reduction<without_identity> reduction;
#else
row_reduction<tessera::sum_reducer<int>> reduction;
#endif
