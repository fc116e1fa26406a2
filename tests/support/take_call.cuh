// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Gives a call to one model of run() (exec/run.hpp) alone, so that a test knows which program ran.
#pragma once

#include <tessera/exec/cuda.cuh>
#include <tessera/exec/run.hpp>

namespace tessera_test {

/// Enqueues the call by the model, if the model takes it. Returns whether it does.
template <class Model, class Call>
bool take_call(tessera::cuda const& exec, Call const& call) {
  static_assert(tessera::ModelOf<Model, tessera::cuda, Call>);
  if (Model::refuses(exec, call)) {
    return false;
  }
  Model::run(exec, call);
  return true;
}

}  // namespace tessera_test
