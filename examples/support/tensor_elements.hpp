// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A tensor of a .safetensors file as a vector.
#pragma once

#include <cstring>
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
      std::vector<T> elements(static_cast<std::size_t>(tensor.elements()));
      std::memcpy(elements.data(), model.data(tensor).data(), elements.size() * sizeof(T));
      return elements;
    }
  }
  throw failure(exit_code::unsound, path + ": has no tensor " + name + " of dtype " + dtype);
}

}  // namespace tessera_examples
