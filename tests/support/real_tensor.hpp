// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Reads tensors of tests/data for tests that need only one tensor's bytes of a safetensors file. It has no JSON
/// parser, which takes longer to compile than most tests, and trusts the file, whose checks are in tests/data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <ios>
#include <stdexcept>
#include <string>
#include <vector>

namespace tessera_test {

/// The elements of tensor `name` in file `file` of tests/data.
template <class T>
std::vector<T> real_tensor(std::string const& file, std::string const& name) {
  std::ifstream stream(TESSERA_TEST_DATA "/" + file, std::ios::binary);
  std::uint64_t header = 0;
  stream.read(reinterpret_cast<char*>(&header), sizeof header);
  std::string text(stream ? static_cast<std::size_t>(header) : 0, ' ');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  std::size_t const entry = text.find('"' + name + '"');
  std::size_t const offsets = text.find("data_offsets", entry);
  if (entry == std::string::npos || offsets == std::string::npos) {
    throw std::runtime_error(file + " has no tensor " + name);
  }
  std::size_t const from = text.find('[', offsets) + 1;
  std::size_t const first = std::stoull(text.substr(from, 20));
  std::size_t const last = std::stoull(text.substr(text.find(',', from) + 1, 20));
  std::vector<T> values((last - first) / sizeof(T));
  stream.seekg(static_cast<std::streamoff>(sizeof header + header + first));
  stream.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(last - first));
  if (!stream) {
    throw std::runtime_error(file + " ends before tensor " + name);
  }
  return values;
}

}  // namespace tessera_test
