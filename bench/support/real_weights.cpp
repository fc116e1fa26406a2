// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "real_weights.hpp"

#include <stdexcept>

#if __has_include(<nlohmann/json.hpp>)
#include <cstdlib>
#include <cstring>
#include <string>

#include "../../examples/support/mapped_file.hpp"
#include "../../examples/support/safetensors.hpp"

namespace bench {

std::vector<std::vector<std::uint16_t>> minilm_bf16() {
  char const* const folder = std::getenv("TESSERA_TEST_DATA");
  std::string const path = std::string(folder != nullptr ? folder : TESSERA_TEST_DATA) + "/minilm_bf16.safetensors";
  tessera_examples::mapped_file const file(path);
  tessera_examples::safetensors_reader const model(file.bytes(), path);
  std::vector<std::vector<std::uint16_t>> all;
  for (tessera_examples::tensor_entry const& tensor : model.tensors()) {
    if (tensor.dtype != "BF16" || tensor.elements() == 0) {
      throw std::runtime_error(path + ": tensor " + tensor.name + " is empty or not of BF16");
    }
    std::vector<std::uint16_t>& bits = all.emplace_back(static_cast<std::size_t>(tensor.elements()));
    std::memcpy(bits.data(), model.data(tensor).data(), bits.size() * sizeof(std::uint16_t));
  }
  return all;
}

}  // namespace bench
#else

namespace bench {

std::vector<std::vector<std::uint16_t>> minilm_bf16() {
  throw std::runtime_error("built without nlohmann/json.hpp, which reading .safetensors files needs");
}

}  // namespace bench
#endif
