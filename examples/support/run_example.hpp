// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs an example: an exception becomes a message and an exit code (failure.hpp), which main() returns.
#pragma once

#include <cstdio>
#include <exception>

#include "failure.hpp"

namespace tessera_examples {

template <class Run>
int run_example(char const* name, Run const& run) {
  try {
    run();
    return 0;
  } catch (failure const& problem) {
    std::fprintf(stderr, "%s: %s\n", name, problem.what());
    return static_cast<int>(problem.code());
  } catch (std::exception const& problem) {
    std::fprintf(stderr, "%s: %s\n", name, problem.what());
    return static_cast<int>(exit_code::unsound);
  }
}

}  // namespace tessera_examples
