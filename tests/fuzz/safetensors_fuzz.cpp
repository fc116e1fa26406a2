// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// fuzz target: the reader of safetensors files that the examples use.
//
// Any bytes are read or refused; what is read covers the file exactly, and survives being written and read again.
#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "../../examples/support/safetensors.hpp"
#include "fuzz/edits.hpp"

using namespace tessera_examples;
using tessera_fuzz::must;

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  std::vector<std::byte> file(size);  // exactly as large, so that a read past its end is found
  if (size > 0) {
    std::memcpy(file.data(), data, size);
  }
  // Half of the inputs get the right length in front, which is hard to guess.
  if (size > 8 && (size & 1) == 0 && std::to_integer<int>(file[7]) > 0x7f) {
    std::size_t end = size;
    for (std::size_t i = 8; i < size; ++i) {
      if (std::to_integer<char>(file[i]) == '\0') {
        end = i;
        break;
      }
    }
    std::uint64_t const length = end - 8;
    std::memcpy(file.data(), &length, sizeof(length));
  }
  try {
    memory_source const source(file);
    safetensors_reader const reader(source, "fuzz");
    std::size_t bytes = 0;
    for (tensor_entry const& tensor : reader.tensors()) {
      auto const part = reader.elements<std::byte>(tensor);
      must(static_cast<std::int64_t>(part.size()) == tensor.bytes());
      must(tensor.elements() * bits_of_dtype(tensor.dtype) == 8 * tensor.bytes());
      must(std::equal(part.begin(), part.end(), file.begin() + 8 + std::ssize(reader.text()) + tensor.begin));
      bytes += part.size();
    }
    must(8 + reader.text().size() + bytes == size);
    std::string const prefix = safetensors_prefix(reader.header());
    safetensors_header const again = parse_safetensors_header(std::string_view(prefix).substr(8), "again");
    must(again.metadata == reader.metadata() && again.tensors.size() == reader.tensors().size());
    for (std::size_t i = 0; i < again.tensors.size(); ++i) {
      tensor_entry const& a = again.tensors[i];
      tensor_entry const& b = reader.tensors()[i];
      must(a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.begin == b.begin && a.end == b.end);
    }
  } catch (failure const&) {
  }
  return 0;
}
