// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `explain(exec, call)`: which programs would run a call, and why no faster ones. Nothing runs.
///
///     std::cout << tessera::explain(exec, [&](auto const& dry) {
///       tessera::sage_attention2::forward(dry, in, options, out, space);
///     }).text();
///     // attention.quantize: quantize_heads
///     // attention.forward: portable program, because quantized_decode: there is a bias; quantized_forward: there ...
///
/// For a GPU that is not here, in a source for nvcc, whatever it is compiled for: an executor of a described device.
/// Views and workspaces then need addresses, but no memory.
///
///     using every_cuda = tessera::basic_cuda<tessera::arch_list<800, 860, 890, 900, 1000, 1200>>;
///     auto const a100 = every_cuda::described({.architecture = 800, .multiprocessors = 108});
///     std::cout << tessera::explain(a100, [&](auto const& dry) {
///       tessera::linear<tessera::bfloat16>::forward(dry, inputs, weights, outputs);
///     }).text();
///     // linear.forward: gemm_ring (cp.async, mma.sync)
///
/// The predicates that choose programs answer, so that an explanation cannot differ from what runs. Memory is neither
/// read nor written. The function gets a copy of the executor on which nothing runs: it must use that copy alone, and a
/// side_queue made of it (another is refused), and no object that changes on the host. Call it with the arguments of
/// the real call, since extents, strides and alignments matter.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/concepts/executor.hpp>
#include <tessera/exec/execution_options.hpp>
#include <tessera/exec/observer.hpp>
#include <tessera/exec/run.hpp>

namespace tessera {
inline namespace v0 {

/// The programs that a call would run.
struct explanation {
  std::vector<program_choice> choices;  ///< one for each part of the call that has several programs, in their order

  /// Whether no part is run by a slower program than the executor has.
  [[nodiscard]] bool is_fast() const {
    for (program_choice const& choice : choices) {
      if (choice.is_slower()) {
        return false;
      }
    }
    return true;
  }
  /// A line for each choice.
  [[nodiscard]] std::string text() const {
    std::string lines;
    for (program_choice const& choice : choices) {
      lines += choice.text() + "\n";
    }
    return lines;
  }
};

namespace detail {

class explaining_observer final : public observer {
 public:
  void chose(program_choice const& what) override { result.choices.push_back(what); }
  explanation result;
};

}  // namespace detail

/// Call: a function of an executor, or what run() takes. Throws what checks of the call's arguments throw.
template <Executor Exec, class Call>
[[nodiscard]] explanation explain(Exec const& exec, Call const& call) {
  static_assert(
      requires { exec.options.is_dry; }, "tessera: explain takes an executor with execution_options");
  detail::explaining_observer observes;
  Exec dry = exec;
  dry.options.watched_by = &observes;
  dry.options.is_dry = true;
  if constexpr (std::is_invocable_v<Call const&, Exec const&>) {
    call(std::as_const(dry));
  } else {
    run(std::as_const(dry), call);
  }
  return std::move(observes.result);
}

}  // namespace v0
}  // namespace tessera
