// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"

using namespace tessera;
using testing::broken_rule;

namespace {

/// Reverses each tile through scratch.  Correct when `Syncs`, and only then.
template <bool Syncs>
struct reverse_tiles {
  static constexpr int lanes = 32;
  struct scratch_type {
    int values[lanes];
  };
  array_view<int> values;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    for (int lane : group) {
      scratch.values[lane] = values[which * lanes + lane];
    }
    if constexpr (Syncs) {
      group.sync();
    }
    for (int lane : group) {
      values[which * lanes + lane] = scratch.values[lanes - 1 - lane];
    }
  }
};

/// Runs a function object as the program of one tile of 32 lanes.
template <class Body>
struct one_tile {
  static constexpr int lanes = 32;
  struct scratch_type {
    int values[64];
  };
  template <class Group>
  void operator()(Group const& group, std::int64_t, scratch_type& scratch) const {
    Body{}(group, scratch);
  }
};

template <class Body>
void run_alone(Body) {
  testing::adversary{}.run(one_tile<Body>{}, 1);
}

struct histogram {
  static constexpr int lanes = 32;
  struct scratch_type {
    std::uint32_t counts[4];
  };
  array_view<std::uint32_t> counts;
  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    for (int lane : group) {
      if (lane < 4) {
        scratch.counts[lane] = 0;
      }
    }
    group.sync();
    for (int lane : group) {
      group.atomic_add(scratch.counts[lane * lane % 4], 1u);
    }
    group.sync();
    for (int lane : group) {
      if (lane < 4) {
        counts[which * 4 + lane] = scratch.counts[lane];
      }
    }
  }
};

struct order_of_lanes {
  static constexpr int lanes = 32;
  struct scratch_type {};
  std::vector<int>* visited;
  std::vector<std::int64_t>* tiles;
  template <class Group>
  void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    tiles->push_back(which);
    for (int lane : group) {
      visited->push_back(lane);
    }
  }
};

struct collectives {
  static constexpr int lanes = 32;
  struct scratch_type {};
  array_view<std::int64_t> results;
  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t, scratch_type&) const {
    per_lane<int, Group> v;
    per_lane<bool, Group> odd;
    for (int lane : group) {
      v[lane] = lane * lane;
      odd[lane] = (lane & 1) != 0;
    }
    std::int64_t const whole[]{
        sum(group, v),          maximum(group, v), minimum(group, v), broadcast(group, v, 3),
        ballot(group, odd),     any(group, odd),   all(group, odd),   count_below(group, 0xffu, 5),
        exclusive_sum(group, v)};
    for (int lane : group) {
      if (is_first(lane)) {
        for (int i = 0; i < 9; ++i) {
          results[i] = whole[i];
        }
      }
      if (lane == 3) {
        results[9] = v[lane];
      }
    }
  }
};

}  // namespace

TEST_CASE("a correct program gives on the adversary what it gives on the cpu", "[host]") {
  std::vector<int> expected(32 * 50);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] = static_cast<int>(i);
  }
  std::vector<int> const start = expected;
  cpu{}.run(reverse_tiles<true>{expected}, 50);
  CHECK(expected[0] == 31);
  for (std::uint64_t seed : {1u, 2u, 99u}) {
    std::vector<int> found = start;
    testing::adversary{.seed = seed}.run(reverse_tiles<true>{found}, 50);
    CHECK(found == expected);
  }
}

TEST_CASE("a program that forgets a sync passes on the cpu but not here", "[host]") {
  std::vector<int> on_cpu(32, 5);
  cpu{}.run(reverse_tiles<false>{on_cpu}, 1);
  CHECK(on_cpu == std::vector<int>(32, 5));
  std::vector<int> here(32, 5);
  testing::adversary{}.run(reverse_tiles<false>{here}, 1);
  CHECK(here != on_cpu);
}

TEST_CASE("lanes and tiles come in an order that depends on the seed, each once", "[host]") {
  auto const order = [](std::uint64_t seed) {
    std::vector<int> lanes;
    std::vector<std::int64_t> tiles;
    testing::adversary{.seed = seed}.run(order_of_lanes{&lanes, &tiles}, 5);
    lanes.insert(lanes.end(), tiles.begin(), tiles.end());
    return lanes;
  };
  CHECK(order(1) == order(1));
  CHECK(order(1) != order(2));
  std::vector<int> sorted = order(3);
  CHECK(std::vector<int>(sorted.begin(), sorted.begin() + 32) !=
        std::vector<int>(sorted.begin() + 32, sorted.begin() + 64));
  std::sort(sorted.begin(), sorted.begin() + 32);
  std::sort(sorted.end() - 5, sorted.end());
  for (int i = 0; i < 32; ++i) {
    CHECK(sorted[static_cast<std::size_t>(i)] == i);
  }
  CHECK(std::vector<int>(sorted.end() - 5, sorted.end()) == std::vector<int>{0, 1, 2, 3, 4});
}

TEST_CASE("atomic additions to scratch are seen by all lanes", "[host]") {
  std::vector<std::uint32_t> counts(12);
  testing::adversary{}.run(histogram{counts}, 3);
  CHECK(counts == std::vector<std::uint32_t>{16, 16, 0, 0, 16, 16, 0, 0, 16, 16, 0, 0});
}

TEST_CASE("collectives agree with the serial group", "[host]") {
  std::vector<std::int64_t> expected(10);
  std::vector<std::int64_t> found(10);
  cpu{}.run(collectives{expected}, 1);
  testing::adversary{}.run(collectives{found}, 1);
  CHECK(found == expected);
  CHECK(expected == std::vector<std::int64_t>{10416, 961, 0, 9, 0xaaaaaaaa, 1, 0, 5, 10416, 5});
}

TEST_CASE("two lanes that write different values to one address break a rule", "[host]") {
  CHECK_THROWS_AS(run_alone([](auto const& group, auto& scratch) {
                    for (int lane : group) {
                      scratch.values[lane / 2] = lane;
                    }
                    group.sync();
                  }),
                  broken_rule);
  CHECK_THROWS_WITH(run_alone([](auto const& group, auto& scratch) {
                      for (int lane : group) {
                        scratch.values[1] = 256 + (lane & 1);
                      }
                    }),
                    tessera_test::contains("to byte 4 of the scratch"));
  CHECK_NOTHROW(run_alone([](auto const& group, auto& scratch) {
    for (int lane : group) {
      scratch.values[lane / 2] = lane / 2;
    }
    group.sync();
  }));
}

TEST_CASE("the variable of another lane is out of reach", "[host]") {
  CHECK_THROWS_WITH(run_alone([](auto const& group, auto&) {
                      per_lane<int, std::remove_cvref_t<decltype(group)>> v;
                      for (int lane : group) {
                        v[lane] = lane;
                      }
                      for (int lane : group) {
                        v[lane] = v[lane ^ 1];
                      }
                    }),
                    tessera_test::contains("is used by lane"));
  CHECK_THROWS_WITH(run_alone([](auto const& group, auto& scratch) {
                      per_lane<int, std::remove_cvref_t<decltype(group)>> v;
                      for (int lane : group) {
                        v[lane] = lane;
                      }
                      scratch.values[0] = v[0];
                    }),
                    tessera_test::contains("the variable of lane 0 is used outside of a loop over lanes"));
}

TEST_CASE("collectives, syncs and loops inside of a loop over lanes break a rule, as does leaving it", "[host]") {
  CHECK_THROWS_AS(run_alone([](auto const& group, auto&) {
                    for (int lane : group) {
                      if (lane < 3) {
                        group.sync();
                      }
                    }
                  }),
                  broken_rule);
  CHECK_THROWS_AS(run_alone([](auto const& group, auto&) {
                    per_lane<bool, std::remove_cvref_t<decltype(group)>> v;
                    for (int lane : group) {
                      v[lane] = lane < 3 && any(group, v);
                    }
                  }),
                  broken_rule);
  CHECK_THROWS_AS(run_alone([](auto const& group, auto& scratch) {
                    for (int lane : group) {
                      for (int other : group) {
                        scratch.values[lane] = other;
                      }
                    }
                  }),
                  broken_rule);
  CHECK_THROWS_AS(run_alone([](auto const& group, auto&) {
                    for (int lane : group) {
                      if (lane == 7) {
                        break;
                      }
                    }
                  }),
                  broken_rule);
}

TEST_CASE("the adversary has memory, status and copies like any executor", "[host]") {
  testing::adversary const exec;
  buffer<int> values(exec, 3);
  exec.clear(values);
  exec.copy(std::vector<int>{1, 2, 3}, values);
  CHECK(values[2] == 3);
  exec.status()->bits = status_word::pack(status_code::bad_header, 4);
  CHECK_THROWS_AS(exec.wait(), corrupt_data);
}
