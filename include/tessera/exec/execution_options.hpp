// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `execution_options`: the options of executors: whether slower programs are refused or reported, who observes
/// launches, and how much of a GPU is left to others.
///
///     tessera::cuda const exec{.options = {.refuses_slower_programs = true}};
#pragma once

#include <cstdint>
#include <string_view>

#include <tessera/concepts/executor.hpp>
#include <tessera/exec/observer.hpp>
#include <tessera/exec/program_name.hpp>

namespace tessera {
inline namespace v0 {

struct execution_options {
  /// Whether a call throws slower_program instead of running a portable program where the executor has faster ones,
  /// which do not take the call.
  bool refuses_slower_programs = false;
  /// Whether a process says on stderr, once for each type of call, that such a portable program runs, and why.
  bool says_slower_programs = true;
  /// Is told about launches and choices of programs; null: nobody is.
  observer* watched_by = nullptr;
  /// How many multiprocessors of a GPU are left to what runs on other streams, such as NCCL's programs, by those that
  /// keep their multiprocessors until all work is done: the encoding and decoding of compressed_weights, and the last
  /// products of vocabulary_parallel's backward pass beside its reduction (0: 24).
  int spared_multiprocessors = 0;
  /// Not for users: nothing runs, and nothing is copied or cleared. explain() sets it.
  bool is_dry = false;
};

namespace detail {

/// The options of an executor; the defaults for one that has none.
template <Executor Exec>
[[nodiscard]] execution_options options_of(Exec const& exec) {
  if constexpr (requires { exec.options.watched_by; }) {
    return exec.options;
  } else {
    return {};
  }
}

/// How many multiprocessors an executor leaves to others: what its options say, or else `usual`.
template <Executor Exec>
[[nodiscard]] int spared_by(Exec const& exec, int usual) {
  int const asked = options_of(exec).spared_multiprocessors;
  return asked > 0 ? asked : usual;
}

/// Tells the observer, if there is one, about a launch.
inline void tell_launch(execution_options const& options, launch const& what) {
  if (options.watched_by != nullptr) {
    options.watched_by->launched(what);
  }
}

/// The launch of a program.
template <class P>
[[nodiscard]] launch launch_of(std::int64_t groups) {
  constexpr std::string_view name = program_name<P>();
  return {name, groups, P::lanes};
}

/// Tells the observer, if there is one, about bytes that are cleared or copied.
inline void tell_bytes(execution_options const& options, std::int64_t bytes) {
  if (options.watched_by != nullptr) {
    options.watched_by->moved(bytes);
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
