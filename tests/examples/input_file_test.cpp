// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../../examples/support/input_file.hpp"

#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <vector>

#include "support/catch.hpp"
#include "support/scratch_folder.hpp"

using namespace tessera_examples;
using tessera_test::contains;
using tessera_test::scratch_folder;

namespace {

std::string text_at(byte_source const& source, std::int64_t offset, std::size_t count) {
  std::string text(count, '?');
  source.read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

/// The code and the words with which a call fails.
template <class Call>
std::string refusal(Call const& call) {
  try {
    call();
  } catch (failure const& problem) {
    return std::to_string(static_cast<int>(problem.code())) + " " + problem.what();
  }
  return "done";
}

}  // namespace

TEST_CASE("a file is read from any offset", "[host]") {
  scratch_folder const folder;
  std::ofstream(folder / "in") << "0123456789";
  input_file const file(folder / "in");
  CHECK(file.size() == 10);
  CHECK(text_at(file, 0, 10) == "0123456789");
  CHECK(text_at(file, 7, 2) == "78");
  CHECK(text_at(file, 10, 0).empty());
  byte_range const range = byte_range{&file, 0, file.size()}.behind(2).first(5);
  CHECK(range.size == 5);
  std::array<std::byte, 2> two{};
  range.read(3, two);
  CHECK(std::to_integer<char>(two[0]) == '5');
}

TEST_CASE("memory is read like a file", "[host]") {
  std::string const text = "0123456789";
  memory_source const source(std::as_bytes(std::span(text)));
  CHECK(source.size() == 10);
  CHECK(text_at(source, 7, 3) == "789");
  CHECK(text_at(source, 10, 0).empty());
  CHECK_THAT(refusal([&] { text_at(source, 8, 3); }), contains("2 cannot read 3 bytes from byte 8 on: there are 10"));
  CHECK_THAT(refusal([&] { text_at(source, -1, 1); }), contains("2 cannot read 1"));
  CHECK_THAT(refusal([&] { text_at(source, 11, 0); }), contains("2 cannot read 0"));
}

TEST_CASE("a file that is cut off while it is read is an error, not the program's end", "[host]") {
  scratch_folder const folder;
  std::ofstream(folder / "in") << std::string(100'000, 'x');
  input_file const file(folder / "in");
  CHECK(text_at(file, 99'999, 1) == "x");
  std::filesystem::resize_file(folder / "in", 5000);
  CHECK(text_at(file, 4999, 1) == "x");
  CHECK_THAT(refusal([&] { text_at(file, 99'999, 1); }),
             contains("2 " + folder / "in" + ": was cut off while it was read: it ends before byte 99999"));
  CHECK_THAT(refusal([&] { text_at(file, 0, 100'000); }), contains("it ends before byte 5000 but had 100000 bytes"));
}

TEST_CASE("what is no regular file is refused at once", "[host]") {
  scratch_folder const folder;
  REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);  // to open it as a file would mean to wait for a writer
  std::filesystem::create_symlink("nothing", folder / "link");
  for (std::string const& path : {folder / "fifo", folder / ".", std::string("/dev/zero")}) {
    CHECK(refusal([&] { input_file const file(path); }) == "2 " + path + ": cannot read: not a regular file");
  }
  for (std::string const& path : {folder / "link", folder / "nothing"}) {
    CHECK(refusal([&] { input_file const file(path); }) == "2 " + path + ": cannot open: No such file or directory");
  }
}
