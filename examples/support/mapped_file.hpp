// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A file's bytes, read by the operating system as they are used: memory stays small however large the file is.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <span>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "failure.hpp"

namespace tessera_examples {

class mapped_file {
 public:
  explicit mapped_file(std::string path) : path_(std::move(path)) {
    int const file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    require(exit_code::unreadable, file >= 0, path_, ": cannot open: ", std::strerror(errno));
    map(file);
    ::close(file);
  }
  mapped_file(mapped_file const&) = delete;
  mapped_file& operator=(mapped_file const&) = delete;
  ~mapped_file() {
    if (address_ != nullptr) {
      ::munmap(address_, bytes_);
    }
  }

  [[nodiscard]] std::span<std::byte const> bytes() const { return {static_cast<std::byte const*>(address_), bytes_}; }
  [[nodiscard]] std::string const& path() const { return path_; }

 private:
  void map(int file) {
    struct stat status {};
    int const found = ::fstat(file, &status);
    bool const is_regular = found == 0 && S_ISREG(status.st_mode);
    if (is_regular && status.st_size > 0) {
      bytes_ = static_cast<std::size_t>(status.st_size);
      void* const address = ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0);
      address_ = address == MAP_FAILED ? nullptr : address;
    }
    int const reason = errno;
    if (!is_regular || (bytes_ > 0 && address_ == nullptr)) {
      ::close(file);
      throw failure(
          exit_code::unreadable,
          path_ + ": cannot read: " + (found == 0 && !is_regular ? "not a regular file" : std::strerror(reason)));
    }
    if (address_ != nullptr) {
      ::madvise(address_, bytes_, MADV_SEQUENTIAL);
    }
  }

  std::string path_;
  void* address_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace tessera_examples
