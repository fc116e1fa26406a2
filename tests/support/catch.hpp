// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Catch2 for the tests: version 2 (Debian 12) and version 3 behind one include.
///
/// This is the tests' precompiled header, so a macro guards it. After a change of comments alone, ccache finds the old
/// precompiled header again; GCC's `#pragma once` would see another text than that one's and read it a second time.
#ifndef TESSERA_TESTS_SUPPORT_CATCH_HPP
#define TESSERA_TESTS_SUPPORT_CATCH_HPP

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_adapters.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
using Catch::Approx;
#else
#define CATCH_CONFIG_FAST_COMPILE  // an exception in a CHECK fails its test, too, and the check is the last one named
#include <catch2/catch.hpp>
#endif

#include <cstdio>
#include <cstdlib>
#include <string>

namespace tessera_test {

/// A matcher for text that contains `part`: CHECK_THAT(error.what(), contains("128")).
inline auto contains(std::string const& part) {
#if __has_include(<catch2/catch_test_macros.hpp>)
  return Catch::Matchers::ContainsSubstring(part);
#else
  return Catch::Matchers::Contains(part);
#endif
}

/// Whether `name` is set in the environment to anything but "" and "0".
inline bool environment_asks_for(char const* name) {
  char const* value = std::getenv(name);
  return value != nullptr && std::string(value) != "" && std::string(value) != "0";
}

/// Prints the line that ctest turns into "Skipped".
inline void report_skip(std::string const& reason) {
  std::printf("[tessera:skipped] %s\n", reason.c_str());
  std::fflush(stdout);
}

}  // namespace tessera_test

/// Ends a test case early and visibly.  Catch2 before 3.3 has no SKIP of its own.
#define TESSERA_SKIP(reason)             \
  do {                                   \
    ::tessera_test::report_skip(reason); \
    SUCCEED("skipped");                  \
    return;                              \
  } while (false)

#endif  // TESSERA_TESTS_SUPPORT_CATCH_HPP
