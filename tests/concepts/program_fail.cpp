// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a Program names its shared memory, a trivial type: struct scratch_type
#include <cstdint>

#include <tessera/exec/cpu.hpp>

struct clears {
  static constexpr int lanes = 32;
  struct scratch_type {
#if defined(TESSERA_FAIL)
    int sum = 0;
#else
    int sum;
#endif
  };
  template <class Group>
  TESSERA_FN void operator()(Group const&, std::int64_t, scratch_type& scratch) const {
    scratch.sum = 0;
  }
};

void run() {
  tessera::cpu{}.run(clears{}, 1);
}
