// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A file that is read piece by piece, so that memory stays small however large the file is. It is not mapped, because
/// a program is killed that touches a mapped page of a file which was truncated in the meantime.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <span>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "byte_source.hpp"
#include "failure.hpp"

namespace tessera_examples {

/// A regular file, with the length that it had when it was opened.
class input_file final : public byte_source {
 public:
  explicit input_file(std::string path) : path_(std::move(path)) {
    // Without O_NONBLOCK the call would wait for somebody to write to a FIFO.
    file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    require(exit_code::unreadable, file_ >= 0, path_, ": cannot open: ", std::strerror(errno));
    struct stat status {};
    int const found = ::fstat(file_, &status);
    if (found != 0 || !S_ISREG(status.st_mode)) {
      std::string const reason = found != 0 ? std::strerror(errno) : "not a regular file";
      ::close(file_);
      throw failure(exit_code::unreadable, path_ + ": cannot read: " + reason);
    }
    size_ = status.st_size;
    static_cast<void>(::posix_fadvise(file_, 0, 0, POSIX_FADV_SEQUENTIAL));  // only advice: nothing depends on it
  }
  input_file(input_file const&) = delete;
  input_file& operator=(input_file const&) = delete;
  ~input_file() override { ::close(file_); }

  [[nodiscard]] std::string const& path() const { return path_; }
  [[nodiscard]] std::int64_t size() const override { return size_; }
  void read(std::int64_t offset, std::span<std::byte> into) const override {
    while (!into.empty()) {
      ssize_t const count = ::pread(file_, into.data(), into.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) {
        continue;
      }
      require(exit_code::unreadable, count >= 0, path_, ": cannot read: ", std::strerror(errno));
      require(exit_code::unreadable, count > 0, path_, ": was cut off while it was read: it ends before byte ", offset,
              " but had ", size_, " bytes");
      into = into.subspan(static_cast<std::size_t>(count));
      offset += count;
    }
  }

 private:
  std::string path_;
  int file_ = -1;
  std::int64_t size_ = 0;
};

}  // namespace tessera_examples
