// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../../examples/compress_weights/container.hpp"

#include <span>
#include <string>

#include "support/catch.hpp"

using namespace tessera_examples;
using tessera_test::contains;

namespace {

safetensors_header two_tensors() {
  safetensors_header header;
  header.tensors = {{"a", "U8", {2}, 0, 2}, {"b", "I8", {1}, 2, 3}};
  return header;
}

/// A container of two tensors that were kept, with any text for the checksums.
std::string container_with(std::string const& checksums) {
  safetensors_header header = two_tensors();
  header.metadata = {{key_version, container_version},
                     {key_header, safetensors_prefix(two_tensors()).substr(8)},
                     {key_checksums, checksums}};
  return safetensors_prefix(header) + "xyz";
}

std::string refusal(std::string const& file) {
  try {
    memory_source const source(std::as_bytes(std::span(file)));
    container_reader const container(source, "model");
  } catch (failure const& problem) {
    CHECK(problem.code() == exit_code::unsound);
    return problem.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a container's checksums are words of 8 hexadecimal digits and nothing else", "[host]") {
  std::string const original = safetensors_prefix(two_tensors()).substr(8);
  std::string const right = checksum_text(checksum_of(std::as_bytes(std::span(original))));
  CHECK(refusal(container_with(right + " 01234567 89abcdef")) == "accepted");
  // The last word of each is shorter than what it is taken for. Without the library's checks of indices a read past
  // the text may go unseen.
  for (char const* end : {"", "8", "89abcde", "89abcdefg", "89abcdef ", "89abcdef 0", "89abcdeg", "89ABCDEF", " "}) {
    CAPTURE(end);
    std::string const message = refusal(container_with(right + " 01234567 " + end));
    CHECK_THAT(message, contains("model: corrupt: "));
    CHECK_THAT(message, contains("is not 8 hexadecimal digits but") || contains("there are "));
  }
  CHECK_THAT(refusal(container_with("")), contains("there are 0 checksums but should be 3"));
  CHECK_THAT(refusal(container_with("0")), contains("checksum 0 is not 8 hexadecimal digits but \"0\""));
  CHECK_THAT(refusal(container_with(right)), contains("there are 1 checksums but should be 3"));
  CHECK_THAT(refusal(container_with("00000000 01234567 89abcdef")), contains("the original header's checksum is"));
}
