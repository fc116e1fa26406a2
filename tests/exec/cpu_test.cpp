// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Sums each tile of 32 and adds the tile's number.
struct tile_sums {
  static constexpr int lanes = 32;
  struct scratch_type {
    float offset;
  };
  array_view<float const> values;
  array_view<float> sums;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    per_lane<float, Group> mine;
    for (int lane : group) {
      std::int64_t const i = which * lanes + lane;
      mine[lane] = i < values.size() ? values[i] : 0.0f;
      if (is_first(lane)) {
        scratch.offset = static_cast<float>(which);
      }
    }
    group.sync();
    float const total = sum(group, mine);
    for (int lane : group) {
      if (is_first(lane)) {
        sums[which] = total + scratch.offset;
      }
    }
  }
};

struct count_visits {
  static constexpr int lanes = 1;
  struct scratch_type {};
  std::atomic<int>* visits;
  template <class Group>
  void operator()(Group const&, std::int64_t which, scratch_type&) const {
    visits[which].fetch_add(1);
  }
};

struct throws_from {
  static constexpr int lanes = 1;
  struct scratch_type {};
  std::int64_t first;
  template <class Group>
  void operator()(Group const&, std::int64_t which, scratch_type&) const {
    if (which >= first) {
      throw std::runtime_error("tile " + std::to_string(which));
    }
  }
};

struct reports {
  static constexpr int lanes = 32;
  struct scratch_type {};
  status_word* status;
  std::int64_t first_bad;
  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    if (which >= first_bad) {
      group.report(status, status_code::bad_checksum, which);
    }
  }
};

struct runs_another {
  static constexpr int lanes = 1;
  struct scratch_type {};
  cpu const* exec;
  std::atomic<int>* visits;
  template <class Group>
  void operator()(Group const&, std::int64_t which, scratch_type&) const {
    exec->run(count_visits{visits + which * 100}, 100);
  }
};

bool each_is(std::vector<std::atomic<int>> const& visits, int expected) {
  for (auto const& v : visits) {
    if (v.load() != expected) {
      return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("every tile is visited once, whatever the count and the number of threads", "[host][threads]") {
  for (int threads : {0, 1, 2, 7}) {
    cpu const exec{.threads = threads};
    for (int count : {0, 1, 2, 7, 63, 64, 65, 1000}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
      exec.run(count_visits{visits.data()}, count);
      CHECK(each_is(visits, 1));
    }
  }
}

TEST_CASE("results do not depend on the number of threads", "[host][threads]") {
  std::vector<float> values(32 * 97 + 5);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 1.0f / static_cast<float>(i + 1);
  }
  std::vector<float> expected(98);
  cpu{.threads = 1}.run(tile_sums{values, expected}, 98);
  CHECK(expected[1] > 1.6f);
  for (int threads : {2, 3, 8}) {
    std::vector<float> sums(98);
    cpu{.threads = threads}.run(tile_sums{values, sums}, 98);
    CHECK(sums == expected);
  }
}

TEST_CASE("the exception of the lowest tile comes out of run, and the executor stays usable", "[host][threads]") {
  cpu const exec{.threads = 4};
  for (int repeat = 0; repeat < 20; ++repeat) {
    CHECK_THROWS_WITH(exec.run(throws_from{137}, 1000), "tile 137");
  }
  std::vector<std::atomic<int>> visits(100);
  exec.run(count_visits{visits.data()}, 100);
  CHECK(each_is(visits, 1));
}

TEST_CASE("what groups report is thrown by wait, the lowest position first, and only once", "[host][threads]") {
  cpu const exec{.threads = 4};
  exec.run(reports{exec.status(), 41}, 1000);
  try {
    exec.wait();
    FAIL("wait did not throw");
  } catch (corrupt_data const& e) {
    CHECK(e.position() == 41);
    CHECK_THAT(e.what(), tessera_test::contains("cpu.wait: the checksum does not match"));
    CHECK_THAT(e.what(), tessera_test::contains("position 41"));
  }
  CHECK_NOTHROW(exec.wait());
  exec.run(reports{nullptr, 0}, 3);
  CHECK_NOTHROW(exec.wait());
}

TEST_CASE("several host threads may run programs at once", "[host][threads]") {
  cpu const exec{.threads = 3};
  std::vector<std::atomic<int>> visits(500);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 10; ++repeat) {
        exec.run(count_visits{visits.data()}, 500);
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  CHECK(each_is(visits, 40));
}

TEST_CASE("a program may run another one", "[host][threads]") {
  cpu const exec{.threads = 4};
  std::vector<std::atomic<int>> visits(1000);
  exec.run(runs_another{&exec, visits.data()}, 10);
  CHECK(each_is(visits, 1));
}

TEST_CASE("copies of an executor share their status and outlive the original", "[host][threads]") {
  cpu const copy = [] {
    cpu const original{.threads = 2};
    original.run(reports{original.status(), 0}, 1);
    return original;
  }();
  CHECK_THROWS_AS(copy.wait(), corrupt_data);
}

TEST_CASE("negative numbers are refused with their value", "[host]") {
  CHECK_THROWS_WITH(cpu{.threads = -2}.run(throws_from{0}, 0),
                    "cpu.run: the number of threads is -2 but must not be negative");
  CHECK_THROWS_AS(cpu{}.run(throws_from{0}, -1), shape_error);
}

TEST_CASE("copy honours strides and refuses different sizes", "[host]") {
  cpu const exec;
  std::vector<int> const from{1, 2, 3};
  std::vector<int> to(6);
  exec.copy(from, array_view<int>(to.data(), {3}, {2}));
  CHECK(to == std::vector<int>{1, 0, 2, 0, 3, 0});
  CHECK_THROWS_WITH(exec.copy(from, to), "cpu.copy: the source has 3 elements but the target has 6");
  exec.clear(to);
  CHECK(to == std::vector<int>(6));
}

TEST_CASE("buffers come from the executor's memory and go back to it", "[host]") {
  tracking_memory counted{memory_handle()};
  cpu const exec{.memory = counted};
  {
    buffer<float> const a(exec, 100);
    buffer<double> const b(exec, 10);
    CHECK(counted.current_bytes() == 480);
  }
  CHECK(counted.current_bytes() == 0);
  CHECK(counted.peak_bytes() == 480);
  CHECK(counted.allocations() == 2);
}

TEST_CASE("lists without memory are neither copied nor cleared", "[host]") {
  cpu const exec;
  std::vector<int> list(4);
  array_view<int> const nowhere(nullptr, 4);
  CHECK_THROWS_WITH(exec.copy(nowhere, list), "cpu.copy: the elements of the source have no memory but 4 elements");
  CHECK_THROWS_WITH(exec.copy(list, nowhere), "cpu.copy: the elements of the target have no memory but 4 elements");
  CHECK_THROWS_WITH(exec.clear(nowhere), "cpu.clear: the elements of the target have no memory but 4 elements");
  CHECK_NOTHROW(exec.clear(array_view<int>()));
}
