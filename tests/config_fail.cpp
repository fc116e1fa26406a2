// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: tessera needs C\+\+20: -std=c\+\+20
#if defined(TESSERA_FAIL)
#undef __cplusplus
#define __cplusplus 201703L  // what a compiler for C++17 says
#endif
#include <tessera/config.hpp>

TESSERA_FN int answer();
