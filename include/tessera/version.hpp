// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The version, in the one place that the build files read it from.
#pragma once

/// The library's version, major.minor.patch.
#define TESSERA_VERSION_STRING "0.1.0"
