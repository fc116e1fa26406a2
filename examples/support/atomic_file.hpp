// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A file that appears under its name complete or not at all. If it replaces another file, no more people can read it
/// than could read that file.
///
/// Bytes go to a temporary file beside the target. `commit` flushes it to the disk, renames it, and flushes the folder.
/// Without `commit` the temporary file is removed: by the destructor, or, after `remove_temporary_file_on_signals`,
/// when SIGINT, SIGTERM or SIGHUP end the program. (Only SIGKILL and power failures leave it behind; its name starts
/// with a dot and ends in .partial.)
#pragma once

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <span>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "failure.hpp"

namespace tessera_examples {
namespace detail {

/// The temporary file that a signal has to remove. It is written before the pointer, and read by the handler alone.
inline char temporary_path[PATH_MAX];
inline std::atomic<char const*> temporary_to_remove{nullptr};

extern "C" inline void tessera_examples_end_by_signal(int which) {
  char const* const path = temporary_to_remove.load();
  if (path != nullptr) {
    ::unlink(path);
  }
  ::signal(which, SIG_DFL);
  ::raise(which);
}

}  // namespace detail

/// Call it once, at the start of `main`. It also makes a limit on file sizes an error that `write` reports.
inline void remove_temporary_file_on_signals() {
  for (int const which : {SIGINT, SIGTERM, SIGHUP}) {
    if (std::signal(which, &detail::tessera_examples_end_by_signal) == SIG_IGN) {
      std::signal(which, SIG_IGN);
    }
  }
  std::signal(SIGXFSZ, SIG_IGN);
}

/// The file; a program has one at a time.
class atomic_file {
 public:
  atomic_file(std::string target, bool overwrite) : target_(resolved(std::move(target))), overwrite_(overwrite) {
    refuse_what_must_stay();
    std::size_t const slash = target_.rfind('/');
    folder_ = slash == std::string::npos ? "." : slash == 0 ? "/" : target_.substr(0, slash);
    std::string const name = slash == std::string::npos ? target_ : target_.substr(slash + 1);
    std::string const pattern = folder_ + "/." + name.substr(0, 200) + ".XXXXXX.partial";
    require(exit_code::unwritable, pattern.size() < sizeof(detail::temporary_path), target_,
            ": cannot write: the path has ", pattern.size(), " characters but may have ",
            sizeof(detail::temporary_path) - 1);
    create(pattern);
  }
  atomic_file(atomic_file const&) = delete;
  atomic_file& operator=(atomic_file const&) = delete;
  ~atomic_file() {
    if (file_ >= 0) {
      ::close(file_);
    }
    if (!temporary_.empty()) {
      ::unlink(temporary_.c_str());
    }
    detail::temporary_to_remove.store(nullptr);
  }

  /// The path of the bytes until `commit`.
  [[nodiscard]] std::string const& temporary_path() const { return temporary_; }
  [[nodiscard]] std::int64_t size() const { return size_; }

  void append(std::span<std::byte const> bytes) {
    write_at(size_, bytes);
    size_ += static_cast<std::int64_t>(bytes.size());
  }
  /// Overwrites bytes that were appended before.
  void write_at(std::int64_t offset, std::span<std::byte const> bytes) {
    while (!bytes.empty()) {
      ssize_t const written = ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) {
        continue;
      }
      check_call(written > 0, "write");
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      offset += written;
    }
  }

  void commit() {
    check_call(::fsync(file_) == 0, "flush");
    check_call(::close(std::exchange(file_, -1)) == 0, "close");
    rename();
    temporary_.clear();
    detail::temporary_to_remove.store(nullptr);
    int const folder = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check_call(folder >= 0, "open the folder");
    // Some file systems cannot flush folders, and report EINVAL.
    bool const flushed = ::fsync(folder) == 0 || errno == EINVAL;
    ::close(folder);
    check_call(flushed, "flush the folder");
  }

 private:
  void check_call(bool worked, char const* what) const {
    require(exit_code::unwritable, worked, target_, ": cannot ", what, ": ", std::strerror(errno));
  }

  /// The path to write to. A symbolic link stays a link: the file that it points to is replaced. A link that points to
  /// nothing is refused: whoever made it would decide where a new file appears.
  static std::string resolved(std::string target) {
    char* const path = ::realpath(target.c_str(), nullptr);
    if (path == nullptr) {
      int const reason = errno;
      struct stat status {};
      bool const is_link = ::lstat(target.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
      require(exit_code::unwritable, !is_link, target,
              ": cannot write: a symbolic link that leads to no file: ", std::strerror(reason));
      return target;
    }
    std::string result = path;
    std::free(path);
    return result;
  }

  void refuse_what_must_stay() {
    struct stat status {};
    if (::stat(target_.c_str(), &status) != 0) {
      return;
    }
    require(exit_code::unwritable, S_ISREG(status.st_mode), target_, ": cannot write: not a regular file");
    require(exit_code::unwritable, overwrite_, target_, ": exists already (--force replaces it)");
    replaced_ = status;
  }

  void create(std::string const& pattern) {
    std::memcpy(detail::temporary_path, pattern.c_str(), pattern.size() + 1);
    constexpr int suffix = static_cast<int>(sizeof(".partial")) - 1;
    file_ = ::mkostemps(detail::temporary_path, suffix, O_CLOEXEC);
    check_call(file_ >= 0, "create a file beside it");
    temporary_ = detail::temporary_path;
    detail::temporary_to_remove.store(detail::temporary_path);
    static_cast<void>(::fchmod(file_, mode()));  // if this fails, only the user can read the file
  }

  /// Who may read and write the file: the same as for the file that it replaces, else as for any new file. Until this
  /// is set only the user may.
  [[nodiscard]] mode_t mode() const {
    if (!replaced_) {
      mode_t const mask = ::umask(0);
      ::umask(mask);
      return 0666 & ~mask;
    }
    struct stat made {};
    bool const is_same =
        ::fstat(file_, &made) == 0 && made.st_uid == replaced_->st_uid && made.st_gid == replaced_->st_gid;
    // With another owner or group the same bits would admit other people than before.
    bool const keeps = is_same || ::fchown(file_, replaced_->st_uid, replaced_->st_gid) == 0;
    return replaced_->st_mode & (keeps ? 0777 : 0700);
  }

  void rename() {
    if (!overwrite_) {
      // Unlike rename, link never replaces a file that someone made in the meantime.
      if (::link(temporary_.c_str(), target_.c_str()) == 0) {
        ::unlink(temporary_.c_str());
        return;
      }
      bool const has_no_links = errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS;
      check_call(has_no_links, "rename");
      refuse_what_must_stay();
    }
    check_call(::rename(temporary_.c_str(), target_.c_str()) == 0, "rename");
  }

  std::string target_;
  bool overwrite_;
  std::optional<struct stat> replaced_;  ///< the file that is under the name before
  std::string folder_;
  std::string temporary_;
  int file_ = -1;
  std::int64_t size_ = 0;
};

}  // namespace tessera_examples
