// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Executor: owns threads or a stream, has memory, and runs programs.
///
///     struct twice {
///       template <tessera::Executor Exec>
///       static void forward(Exec const& exec, array_view<float> values) {   // executor first, outputs last
///         exec.run(doubled{values}, values.size() / 32);                    // may return before the work is done
///       }
///     };
///
/// Laws: runs of one executor happen in the order of the calls, each seeing what the runs before it wrote; no call
/// waits but wait(), which throws what groups reported since the last wait(); copies of an executor are the same
/// executor.
/// Models: cpu, cuda, testing::adversary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/concepts/program.hpp>
#include <tessera/core/because.hpp>
#include <tessera/core/status.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
template <class E>
concept Executor =
    (requires(E const& e) { e.run(detail::program_archetype{}, std::int64_t{}); }
        || because<"an Executor runs programs: void run(Program const& program, std::int64_t count) const">) &&
    (requires(E const& e) { e.wait(); }
        || because<"an Executor has wait(), which throws what groups reported: void wait() const">) &&
    (requires(E const& e) { e.memory().allocate(std::size_t{}, std::size_t{}, e.stream); }
        || because<"an Executor has a memory resource and a stream for it: memory() and stream">) &&
    (requires(E const& e) { requires std::is_same_v<decltype(e.status()), status_word*>; }
        || because<"an Executor has a word for reports: status_word* status() const">);
// clang-format on

}  // namespace v0
}  // namespace tessera
