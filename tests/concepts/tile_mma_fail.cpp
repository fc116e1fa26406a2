// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a TileMma names its shape: static constexpr int rows, columns, depth
#include "concepts/serial_mma.hpp"

struct without_depth {
  struct group_type {};
  struct a_tile {};
  struct b_tile {};
  struct sum_tile {};
  using operand_type = float;
  using sum_type = float;
  static constexpr int rows = 4;
  static constexpr int columns = 4;
};

template <tessera::TileMma M>
struct product {};

#if defined(TESSERA_FAIL)
product<without_depth> result;
#else
product<tessera_test::serial_mma<4, 4, 4>> result;
#endif
