// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Stands in for cuda_engine.cu where there is no CUDA compiler.
#include "../support/weight_engine.hpp"

namespace tessera_examples {

std::unique_ptr<weight_engine> make_cuda_engine(std::string& why_not) {
  why_not = "this program was built without a CUDA compiler";
  return nullptr;
}

}  // namespace tessera_examples
