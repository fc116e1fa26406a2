// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A progress bar on the terminal; it shows nothing where standard error is not a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <unistd.h>
#include <utility>

namespace tessera_examples {

class progress_bar {
 public:
  progress_bar(std::string label, std::int64_t total)
      : label_(std::move(label)), total_(total), is_shown_(total > 0 && ::isatty(STDERR_FILENO) == 1) {
    draw();
  }
  progress_bar(progress_bar const&) = delete;
  progress_bar& operator=(progress_bar const&) = delete;
  ~progress_bar() {
    if (is_shown_) {
      std::fputs("\r\033[K", stderr);
    }
  }

  void add(std::int64_t amount) {
    done_ += amount;
    if (is_shown_ && clock::now() >= next_) {
      draw();
    }
  }

 private:
  using clock = std::chrono::steady_clock;

  void draw() {
    if (!is_shown_) {
      return;
    }
    constexpr int width = 40;
    double const part = static_cast<double>(done_) / static_cast<double>(total_);
    int const full = static_cast<int>(part * width);
    std::string const bar =
        std::string(static_cast<std::size_t>(full), '#') + std::string(static_cast<std::size_t>(width - full), '.');
    double const seconds = std::chrono::duration<double>(clock::now() - start_).count();
    double const rate = seconds > 0.2 ? static_cast<double>(done_) / seconds / 1e9 : 0.0;
    std::fprintf(stderr, "\r%-12s [%s] %3d %%  %.2f GB/s", label_.c_str(), bar.c_str(), static_cast<int>(100 * part),
                 rate);
    std::fflush(stderr);
    next_ = clock::now() + std::chrono::milliseconds(100);
  }

  std::string label_;
  std::int64_t total_;
  bool is_shown_;
  std::int64_t done_ = 0;
  clock::time_point start_ = clock::now();
  clock::time_point next_ = start_;
};

}  // namespace tessera_examples
