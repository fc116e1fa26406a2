// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The portable program of attention over codes as the one that GPUs without wgmma have.
#pragma once

#include <tessera/concepts/executor.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/refusal.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// attention_tiles: sm_80 and later, where the code is not that of sm_90a.
struct attention_tiles_model {
  static constexpr char const* name = "attention_tiles (cp.async, mma.sync)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return {};
  }
  template <class Architectures, class Call>
  static refusal refuses(basic_cuda<Architectures> const& exec, Call const& call) {
    return first_of(unless(call.queries.data == nullptr, "queries have no codes yet"),
                    unless(!exec.template has<specific_program>(),
                           "the device runs code for sm_90a, which has programs with wgmma"));
  }
  template <class Architectures, class Call>
  static void run(basic_cuda<Architectures> const& exec, Call const& call) {
    run_portably(exec, call);
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
