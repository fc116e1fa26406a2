// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../../examples/support/atomic_file.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdlib.h>
#include <string>

#include "support/catch.hpp"

using namespace tessera_examples;
using tessera_test::contains;

namespace {

/// A folder that goes away with the test.
struct scratch_folder {
  std::filesystem::path path;
  scratch_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera_XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~scratch_folder() { std::filesystem::remove_all(path); }
  [[nodiscard]] std::string operator/(char const* name) const { return (path / name).string(); }
  [[nodiscard]] auto files() const {
    return std::distance(std::filesystem::directory_iterator(path), std::filesystem::directory_iterator());
  }
};

std::string content_of(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(atomic_file& file, std::string const& text) {
  file.append(std::as_bytes(std::span(text)));
}

}  // namespace

TEST_CASE("an atomic file has its name only after commit", "[host]") {
  scratch_folder const folder;
  {
    atomic_file file(folder / "out", false);
    write(file, "hello ");
    write(file, "there");
    std::string const upper = "H";
    file.write_at(0, std::as_bytes(std::span(upper)));
    CHECK_FALSE(std::filesystem::exists(folder / "out"));
    CHECK(std::filesystem::path(file.temporary_path()).parent_path() == folder.path);
    file.commit();
    CHECK(file.size() == 11);
  }
  CHECK(content_of(folder / "out") == "Hello there");
  CHECK(folder.files() == 1);
}

TEST_CASE("an atomic file that is not committed leaves nothing", "[host]") {
  scratch_folder const folder;
  {
    atomic_file file(folder / "out", false);
    write(file, "half");
  }
  CHECK(folder.files() == 0);
}

TEST_CASE("an existing file is replaced only when that is asked for", "[host]") {
  scratch_folder const folder;
  std::ofstream(folder / "out") << "old";
  CHECK_THROWS_WITH(atomic_file(folder / "out", false), contains("exists already"));
  {
    atomic_file file(folder / "out", true);
    write(file, "new");
    CHECK(content_of(folder / "out") == "old");
    file.commit();
  }
  CHECK(content_of(folder / "out") == "new");
}

TEST_CASE("a file that someone makes in the meantime is not replaced", "[host]") {
  scratch_folder const folder;
  {
    atomic_file file(folder / "out", false);
    write(file, "ours");
    std::ofstream(folder / "out") << "theirs";
    CHECK_THROWS_WITH(file.commit(), contains("File exists"));
  }
  CHECK(content_of(folder / "out") == "theirs");
  CHECK(folder.files() == 1);
}

TEST_CASE("an atomic file goes into folders that are there, and replaces regular files only", "[host]") {
  scratch_folder const folder;
  CHECK_THROWS_WITH(atomic_file(folder / "no/out", false), contains("No such file or directory"));
  CHECK_THROWS_WITH(atomic_file(folder.path.string(), true), contains("not a regular file"));
  CHECK_THROWS_WITH(atomic_file("/dev/null", true), contains("not a regular file"));
  try {
    atomic_file const file(folder / "no/out", false);
  } catch (failure const& problem) {
    CHECK(problem.code() == exit_code::unwritable);
  }
}
