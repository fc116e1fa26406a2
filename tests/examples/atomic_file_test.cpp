// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../../examples/support/atomic_file.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <sys/stat.h>

#include "support/catch.hpp"
#include "support/scratch_folder.hpp"

using namespace tessera_examples;
using tessera_test::contains;
using tessera_test::scratch_folder;

namespace {

std::string content_of(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

mode_t mode_of(std::string const& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
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

TEST_CASE("a file that takes the place of another is as private as that from its first byte on", "[host]") {
  scratch_folder const folder;
  mode_t const before = ::umask(022);
  for (mode_t const mode : {0600, 0640, 0644, 0400, 0666}) {
    std::ofstream(folder / "out") << "old";
    REQUIRE(::chmod((folder / "out").c_str(), mode) == 0);
    atomic_file file(folder / "out", true);
    CHECK(mode_of(file.temporary_path()) == mode);
    write(file, "new");
    file.commit();
    CHECK(mode_of(folder / "out") == mode);
    CHECK(content_of(folder / "out") == "new");
    std::filesystem::remove(folder / "out");
  }
  {
    atomic_file file(folder / "out", true);  // replaces nothing
    file.commit();
  }
  ::umask(before);
  CHECK(mode_of(folder / "out") == 0644);
}

TEST_CASE("a symbolic link is followed to the file that it leads to, and refused where there is none", "[host]") {
  scratch_folder const folder;
  std::filesystem::create_symlink("nowhere", folder / "dangling");
  std::filesystem::create_symlink("loop", folder / "loop");
  std::filesystem::create_symlink("out", folder / "link");
  std::ofstream(folder / "out") << "old";
  for (bool const overwrite : {false, true}) {
    CHECK_THROWS_WITH(atomic_file(folder / "dangling", overwrite),
                      contains("dangling: cannot write: a symbolic link that leads to no file: No such file"));
    CHECK_THROWS_WITH(atomic_file(folder / "loop", overwrite),
                      contains("loop: cannot write: a symbolic link that leads to no file: "));
  }
  {
    atomic_file file(folder / "link", true);
    write(file, "new");
    file.commit();
  }
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(content_of(folder / "out") == "new");
  CHECK(folder.files() == 4);
}

TEST_CASE("a FIFO is no output", "[host]") {
  scratch_folder const folder;
  REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(atomic_file(folder / "fifo", true), contains("fifo: cannot write: not a regular file"));
  CHECK(folder.files() == 1);
}
