// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Reads tensors of tests/data for tests that need only one tensor's bytes of a safetensors file. It has no JSON
/// parser, which takes longer to compile than most tests, and trusts the file, whose checks are in tests/data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace tessera_test {

/// The elements of tensor `name` in file `file` of tests/data.
template <class T>
std::vector<T> real_tensor(std::string const& file, std::string const& name) {
  std::ifstream stream(TESSERA_TEST_DATA "/" + file, std::ios::binary);
  std::string const bytes{std::istreambuf_iterator<char>(stream), {}};
  std::uint64_t header = 0;
  if (bytes.size() > sizeof header) {
    std::memcpy(&header, bytes.data(), sizeof header);
  }
  std::size_t const entry = bytes.find('"' + name + '"');
  std::size_t const offsets = bytes.find("data_offsets", entry);
  if (entry == std::string::npos || offsets == std::string::npos) {
    throw std::runtime_error(file + " has no tensor " + name);
  }
  std::size_t const from = bytes.find('[', offsets) + 1;
  std::size_t const first = std::stoull(bytes.substr(from, 20));
  std::size_t const last = std::stoull(bytes.substr(bytes.find(',', from) + 1, 20));
  std::vector<T> values((last - first) / sizeof(T));
  std::memcpy(static_cast<void*>(values.data()), bytes.data() + sizeof header + header + first, last - first);
  return values;
}

}  // namespace tessera_test
