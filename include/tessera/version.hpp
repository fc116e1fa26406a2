// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The version of tessera; the build files read it from here alone.
#pragma once

/// The library's version, major.minor.patch.
#define TESSERA_VERSION_STRING "0.1.0"
