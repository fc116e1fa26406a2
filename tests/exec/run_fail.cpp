// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a model says whether it takes a call, and runs it: static refusal refuses\(exec, call\)
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/run.hpp>

/// An executor with a faster program for a call.
struct device : tessera::cpu {};
struct request {};
template <class Exec>
void run_portably(Exec const&, request const&) {}

struct fast_program {
  static constexpr char const* name = "fast_program";
  template <tessera::Executor Exec, class Call>
  static constexpr tessera::refusal refuses_types() {
    return {};
  }
#if !defined(TESSERA_FAIL)
  static tessera::refusal refuses(device const&, request const&) {
    return {};
  }
#endif
  static void run(device const&, request const&) {}
};

template <>
struct tessera::models_for<device, request> {
  using type = tessera::model_list<fast_program>;
};

void call(device const& exec) {
  tessera::run(exec, request{});
}
