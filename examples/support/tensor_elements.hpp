// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A tensor of a .safetensors file as a vector.
#pragma once

#include <string>
#include <vector>

#include "../support/failure.hpp"
#include "../support/safetensors.hpp"

namespace tessera_examples {

template <class T>
std::vector<T> elements_of(safetensors_reader const& model, std::string const& path, std::string const& name,
                           std::string const& dtype) {
  for (tensor_entry const& tensor : model.tensors()) {
    if (tensor.name == name && tensor.dtype == dtype && tensor.elements() > 0) {
      return model.elements<T>(tensor);
    }
  }
  throw failure(exit_code::unsound, path + ": has no tensor " + name + " of dtype " + dtype);
}

}  // namespace tessera_examples
