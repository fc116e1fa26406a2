// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A folder that is removed after the test.
#pragma once

#include <filesystem>
#include <iterator>
#include <stdlib.h>
#include <string>

namespace tessera_test {

struct scratch_folder {
  std::filesystem::path path;
  scratch_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera_XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  scratch_folder(scratch_folder const&) = delete;
  scratch_folder& operator=(scratch_folder const&) = delete;
  ~scratch_folder() { std::filesystem::remove_all(path); }
  [[nodiscard]] std::string operator/(char const* name) const { return (path / name).string(); }
  [[nodiscard]] auto files() const {
    return std::distance(std::filesystem::directory_iterator(path), std::filesystem::directory_iterator());
  }
};

}  // namespace tessera_test
