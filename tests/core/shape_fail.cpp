// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a shape<m, n, k> has positive extents
#include <tessera/core/shape.hpp>

#if defined(TESSERA_FAIL)
static_assert(tessera::shape<128, 0, 64>::m == 128);
#else
static_assert(tessera::shape<128, 1, 64>::m == 128);
#endif
