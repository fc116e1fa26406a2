// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Catch2 version 2's main, compiled once and never by nvcc.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
