// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The threads behind `tessera::cpu`: they take ranges of a job until none is left. Threads start when the first job
/// needs them and sleep between jobs. Any thread may run jobs, several at once, and a job may run another.
///
///     detail::worker_pool pool;
///     pool.run(job, 8);     // on this thread and at most 7 others; returns when the job is done
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Indices 0 to `count` - 1 in ranges of `grain`, each taken once. An exception ends the job; of several, the one with
/// the lowest index is kept. Ranges are taken in order and each is worked off up to its own first exception, so that
/// the kept exception is the one that a single thread would have met.
class parallel_job {
 public:
  parallel_job(std::int64_t count, std::int64_t grain)
      : count_(static_cast<std::uint64_t>(count)), grain_(static_cast<std::uint64_t>(grain)) {}
  parallel_job(parallel_job const&) = delete;
  parallel_job& operator=(parallel_job const&) = delete;

  /// The work of one thread: `while (take(first, last)) …`.
  virtual void participate() = 0;

  [[nodiscard]] bool has_work() const { return next_.load(std::memory_order_relaxed) < count_; }

  [[nodiscard]] bool take(std::int64_t& first, std::int64_t& last) {
    if (!has_work()) {
      return false;
    }  // keeps `next_` from growing without end
    std::uint64_t const mine = next_.fetch_add(grain_, std::memory_order_relaxed);
    if (mine >= count_) {
      return false;
    }
    first = static_cast<std::int64_t>(mine);
    last = static_cast<std::int64_t>(count_ - mine < grain_ ? count_ : mine + grain_);
    return true;
  }

  /// Keeps the exception that is being handled, for index `index`; call it inside of a handler.
  void keep_current_exception(std::int64_t index) {
    next_.store(count_, std::memory_order_relaxed);
    std::lock_guard const lock(exception_mutex_);
    if (index < exception_index_) {
      exception_index_ = index;
      exception_ = std::current_exception();
    }
  }
  void rethrow() {
    if (exception_) {
      std::rethrow_exception(exception_);
    }
  }

 protected:
  ~parallel_job() = default;

 private:
  friend class worker_pool;

  std::uint64_t count_;
  std::uint64_t grain_;
  std::atomic<std::uint64_t> next_{0};
  std::mutex exception_mutex_;
  std::exception_ptr exception_;
  std::int64_t exception_index_ = std::numeric_limits<std::int64_t>::max();
  int helpers_ = 0;  // guarded by the pool's mutex, as is the next
  int helpers_allowed_ = 0;
};

class worker_pool {
 public:
  worker_pool() = default;
  worker_pool(worker_pool const&) = delete;
  worker_pool& operator=(worker_pool const&) = delete;
  ~worker_pool() {
    {
      std::lock_guard const lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  /// Works the job off with this thread and at most `threads - 1` others, then rethrows the job's exception.
  void run(parallel_job& job, int threads) {
    if (threads > 1) {
      offer(job, threads - 1);
    }
    job.participate();
    if (threads > 1) {
      withdraw(job);
    }
    job.rethrow();
  }

 private:
  void offer(parallel_job& job, int helpers) {
    {
      std::lock_guard const lock(mutex_);
      start_threads(helpers);
      job.helpers_allowed_ = helpers;
      jobs_.push_back(&job);
    }
    work_.notify_all();
  }

  /// Waits for the threads that still work on the job. They never wait for this thread, so this wait ends also when
  /// jobs are nested.
  void withdraw(parallel_job& job) {
    std::unique_lock lock(mutex_);
    remove(job);
    done_.wait(lock, [&job] { return job.helpers_ == 0; });
  }

  void start_threads(int helpers) {
    try {
      while (threads_.size() < static_cast<std::size_t>(helpers)) {
        threads_.emplace_back([this] { serve(); });
      }
    } catch (std::system_error const&) {
      // The machine gives no more threads: those that run, and at the least the caller, do the work.
    }
  }

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) {
        return;
      }
      parallel_job& job = *jobs_.front();
      ++job.helpers_;
      if (--job.helpers_allowed_ == 0) {
        remove(job);
      }
      lock.unlock();
      job.participate();
      lock.lock();
      remove(job);
      if (--job.helpers_ == 0) {
        done_.notify_all();
      }
    }
  }

  void remove(parallel_job const& job) {
    for (auto at = jobs_.begin(); at != jobs_.end(); ++at) {
      if (*at == &job) {
        jobs_.erase(at);
        return;
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  std::deque<parallel_job*> jobs_;
  std::vector<std::thread> threads_;
  bool stopping_ = false;
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
