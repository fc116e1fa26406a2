// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <atomic>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/exec/worker_pool.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Notes every range and every thread; throws at the indices it is told to.
class noting_job final : public detail::parallel_job {
 public:
  noting_job(std::int64_t count, std::int64_t grain, std::set<std::int64_t> bad = {})
      : parallel_job(count, grain), visits(static_cast<std::size_t>(count)), bad_(std::move(bad)) {}

  void participate() override {
    participants.fetch_add(1);
    std::int64_t first = 0;
    std::int64_t last = 0;
    while (take(first, last)) {
      for (std::int64_t i = first; i < last; ++i) {
        try {
          visits[static_cast<std::size_t>(i)].fetch_add(1);
          if (bad_.count(i) != 0) {
            throw std::runtime_error(std::to_string(i));
          }
        } catch (...) {
          keep_current_exception(i);
          return;
        }
      }
    }
  }

  std::vector<std::atomic<int>> visits;
  std::atomic<int> participants{0};

 private:
  std::set<std::int64_t> bad_;
};

/// Ends only when `wanted` threads take part at the same time.
class meeting final : public detail::parallel_job {
 public:
  explicit meeting(int wanted) : parallel_job(wanted, 1), wanted_(wanted) {}
  void participate() override {
    std::int64_t first = 0;
    std::int64_t last = 0;
    while (take(first, last)) {
      present_.fetch_add(1);
      while (present_.load() < wanted_) {
        std::this_thread::yield();
      }
    }
  }

 private:
  int wanted_;
  std::atomic<int> present_{0};
};

}  // namespace

TEST_CASE("ranges cover every index once, the last one being shorter", "[host]") {
  noting_job job(10, 4);
  std::int64_t first = 0;
  std::int64_t last = 0;
  CHECK(job.take(first, last));
  CHECK(last - first == 4);
  CHECK(job.take(first, last));
  CHECK(job.take(first, last));
  CHECK(first == 8);
  CHECK(last == 10);
  CHECK_FALSE(job.take(first, last));
  CHECK_FALSE(job.has_work());
}

TEST_CASE("a job runs on as many threads as it may, at the same time", "[host]") {
  detail::worker_pool pool;
  for (int threads : {1, 2, 5, 3}) {
    meeting job(threads);
    pool.run(job, threads);  // would not return with fewer
    CHECK_FALSE(job.has_work());
  }
}

TEST_CASE("no more threads than allowed take part", "[host]") {
  detail::worker_pool pool;
  meeting warm_up(6);
  pool.run(warm_up, 6);
  for (int repeat = 0; repeat < 50; ++repeat) {
    noting_job job(200, 1);
    pool.run(job, 2);
    CHECK(job.participants.load() <= 2);
    for (auto const& visits : job.visits) {
      REQUIRE(visits.load() == 1);
    }
  }
}

TEST_CASE("of several exceptions the one with the lowest index is thrown", "[host]") {
  detail::worker_pool pool;
  for (int repeat = 0; repeat < 50; ++repeat) {
    noting_job job(1000, 3, {500, 41, 43, 999});
    CHECK_THROWS_WITH(pool.run(job, 4), "41");
  }
}
