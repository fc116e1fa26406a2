// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Says on stderr, about every second, what a program is doing: on a terminal in one line that changes, elsewhere in
/// lines one below the other.
///
///     progress_report report("exact");
///     report.step("layer 3 of 30");          // cheap; another thread prints
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>

namespace tessera_examples {

class progress_report {
 public:
  explicit progress_report(std::string task) : task_(std::move(task)), printer_([this] { print_every_second(); }) {}
  progress_report(progress_report const&) = delete;
  progress_report& operator=(progress_report const&) = delete;
  ~progress_report() {
    {
      std::lock_guard const lock(mutex_);
      is_done_ = true;
    }
    wake_.notify_all();
    printer_.join();
  }

  void step(std::string what) {
    std::lock_guard const lock(mutex_);
    what_ = std::move(what);
  }
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(clock::now() - start_).count(); }

 private:
  using clock = std::chrono::steady_clock;

  void print_every_second() {
    bool const is_terminal = ::isatty(STDERR_FILENO) == 1;
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::milliseconds(1000), [this] { return is_done_; })) {
      std::fprintf(stderr, "%s  %s: %s, %.0f s%s", is_terminal ? "\r" : "", task_.c_str(), what_.c_str(), seconds(),
                   is_terminal ? "\033[K" : "\n");
      std::fflush(stderr);
    }
    if (is_terminal) {
      std::fputs("\r\033[K", stderr);
    }
  }

  std::string task_;
  std::string what_ = "starting";
  clock::time_point start_ = clock::now();
  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_done_ = false;
  std::thread printer_;  // last, since it uses the others
};

}  // namespace tessera_examples
