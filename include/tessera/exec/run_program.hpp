// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `run_program`: how algorithms run programs for which an executor may have faster ones. Those overload it for their
/// executor and the program's type.
///
///     run_program(exec, score_chunks<T, S>{...});             // as many groups as the program says
///
///     template <class Architectures, class S>                    // in a .cuh
///     void run_program(basic_cuda<Architectures> const& exec, score_chunks<bfloat16, S> const& program) { ... }
#pragma once

#include <cstdint>

#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/program.hpp>

namespace tessera {
inline namespace v0 {

/// Runs `groups` groups of a program, if there are any.
template <Executor Exec, Program P>
void run_program(Exec const& exec, P const& program, std::int64_t groups) {
  exec.run(program, groups);
}

/// Runs a program that says how many groups it takes, with so many groups.
template <Executor Exec, Program P>
void run_program(Exec const& exec, P const& program) {
  exec.run(program, program.groups());
}

}  // namespace v0
}  // namespace tessera
