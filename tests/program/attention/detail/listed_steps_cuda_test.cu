// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cuda.cuh>
#include <tessera/program/attention/detail/listed_steps.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/pipeline_state.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace listed_steps_test {  // not anonymous: for old architectures nothing refers to the programs

constexpr int warpgroups = 3;  ///< that have lists

/// What a warpgroup does with a tile.
enum class taken : std::int32_t { not_at_all, plain, plain_first, masked, masked_first };

/// Lists of a work item in memory: warpgroup `g` has counts[g] entries, from `tiles` + g * pitch on.
struct lists_of_item {
  std::int32_t const* tiles;
  std::int32_t const* counts;
  std::int32_t pitch;
  std::int32_t begin;       ///< the first tile that counts
  std::int32_t end;         ///< one past the last tile that counts
  std::int32_t full_begin;  ///< the first tile without a mask
  std::int32_t full_end;    ///< one past the last tile without a mask
};

/// Warp 0 merges the lists, warps 1 to 3 walk over the steps as warpgroups, and a thread of warp 4 as the producer.
struct walk_lists {
  static constexpr int lanes = 32 * (warpgroups + 2);
  static constexpr int stages = 4;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 10000;
  struct scratch_type {
    listed_steps<stages> steps;
  };

  lists_of_item lists;
  bool masks_all;
  std::int32_t most;     ///< room for steps
  std::int32_t* tiles;   ///< the tile of each step, by the producer
  unsigned* takers;      ///< the takers of each step, by the producer
  taken* done;           ///< warpgroups x `most`
  std::int32_t* counts;  ///< how many steps the producer and each warpgroup saw

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t, scratch_type& scratch) const {
    if (group.lane == 0) {
      scratch.steps.init(warpgroups);
      fence_barrier_init();
    }
    group.sync();
    int const warp = group.lane / 32;
    if (warp == 0) {
      merge(scratch, group.lane);
    } else if (warp <= warpgroups) {
      walk(scratch, group.lane % 32, warp - 1);
    } else if (group.lane % 32 == 0) {
      produce(scratch);
    }
  }

 private:
  __device__ void merge(scratch_type& scratch, int lane) const {
    pipeline_state<listed_steps<stages>::stages> to;
    bool const has_list = lane < warpgroups;
    list_cursor own{has_list ? lists.tiles + lane * lists.pitch : nullptr,
                    1,
                    has_list ? lists.counts[lane] : 0,
                    lists.begin,
                    lists.end,
                    0,
                    0};
    own.start();
    merge_lists(scratch.steps, to, own,
                [&](std::int32_t tile) { return tile >= lists.full_begin && tile < lists.full_end; });
  }
  __device__ void produce(scratch_type& scratch) const {
    pipeline_state<listed_steps<stages>::stages> step;
    std::int32_t count = 0;
    bool is_last = false;
    for (; !is_last; step.advance()) {
      scratch.steps.ring.await_full(step);
      step_group const& group = scratch.steps.groups[step.stage];
      step_plan const plan = group.plans[0].read();
      is_last = plan.is_last();
      for (int i = 0; i < plan.count(); ++i, ++count) {
        if (count < most) {
          list_step const found = group.steps[i].read();
          tiles[count] = found.tile();
          takers[count] = found.takers();
        }
      }
      scratch.steps.ring.empty[step.stage].arrive();
    }
    counts[warpgroups] = count;
  }
  __device__ void walk(scratch_type& scratch, int lane, int warpgroup) const {
    pipeline_count<listed_steps<stages>::stages> count;
    pipeline_state<stages> at;
    std::int32_t seen = 0;
    auto const note = [&](taken what) {
      if (lane == 0 && seen < most) {
        done[warpgroup * most + seen] = what;
      }
      ++seen;
      at.advance();
    };
    walk_over_lists(
        scratch.steps, count, warpgroup, at, [&] { return masks_all; },
        [&](auto const& tile) { note(tile.is_first() ? taken::plain_first : taken::plain); },
        [&](auto const& tile) { note(tile.is_first() ? taken::masked_first : taken::masked); },
        [&] { note(taken::not_at_all); });
    if (lane == 0) {
      counts[warpgroup] = seen;
    }
  }
};

/// A step, as merging says it.
struct expected_step {
  std::int32_t tile;
  unsigned takers;
};
/// What merging is to make of lists: the least tile under a cursor is the next step.
std::vector<expected_step> merged(std::vector<std::vector<std::int32_t>> const& lists, std::int32_t begin,
                                  std::int32_t end) {
  std::vector<std::vector<std::int32_t>> left(lists.size());
  for (std::size_t i = 0; i < lists.size(); ++i) {
    std::copy_if(lists[i].begin(), lists[i].end(), std::back_inserter(left[i]),
                 [&](std::int32_t tile) { return tile >= begin && tile < end; });
  }
  std::vector<expected_step> steps;
  while (true) {
    expected_step next{list_cursor::none, 0};
    for (auto const& list : left) {
      next.tile = std::min(next.tile, list.empty() ? list_cursor::none : list.front());
    }
    if (next.tile == list_cursor::none) {
      break;
    }
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (!left[i].empty() && left[i].front() == next.tile) {
        next.takers |= 1U << i;
        left[i].erase(left[i].begin());
      }
    }
    steps.push_back(next);
  }
  if (steps.empty()) {
    steps.push_back({0, 0});  // a work item has a step at least
  }
  return steps;
}

/// Walks over lists on the device, and compares with merged().
void check_walk(std::vector<std::vector<std::int32_t>> const& lists, std::int32_t begin, std::int32_t end,
                std::int32_t full_begin, std::int32_t full_end, bool masks_all) {
  constexpr std::int32_t most = 1024;
  CAPTURE(lists, begin, end, full_begin, full_end, masks_all);
  std::int32_t pitch = 1;
  std::vector<std::int32_t> counts;
  for (auto const& list : lists) {
    pitch = std::max(pitch, static_cast<std::int32_t>(list.size()));
    counts.push_back(static_cast<std::int32_t>(list.size()));
  }
  std::vector<std::int32_t> entries(lists.size() * static_cast<std::size_t>(pitch), -1);
  for (std::size_t i = 0; i < lists.size(); ++i) {
    std::copy(lists[i].begin(), lists[i].end(), entries.begin() + static_cast<std::ptrdiff_t>(i) * pitch);
  }
  device_values<std::int32_t> const device_entries(entries);
  device_values<std::int32_t> const device_counts(counts);
  device_values<std::int32_t> tiles(std::vector<std::int32_t>(most, -1));
  device_values<unsigned> takers(std::vector<unsigned>(most, ~0U));
  device_values<taken> done(std::vector<taken>(warpgroups * most, taken::not_at_all));
  device_values<std::int32_t> seen(std::vector<std::int32_t>(warpgroups + 1, -1));
  cuda().run(walk_lists{{device_entries.data(), device_counts.data(), pitch, begin, end, full_begin, full_end},
                        masks_all,
                        most,
                        tiles.data(),
                        takers.data(),
                        done.data(),
                        seen.data()},
             1);
  auto const steps = merged(lists, begin, end);
  auto const found_counts = seen.download();
  REQUIRE(found_counts == std::vector<std::int32_t>(warpgroups + 1, static_cast<std::int32_t>(steps.size())));
  auto const found_tiles = tiles.download();
  auto const found_takers = takers.download();
  auto const found_done = done.download();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    CAPTURE(i);
    CHECK(found_tiles[i] == steps[i].tile);
    CHECK(found_takers[i] == steps[i].takers);
    bool const is_plain = !masks_all && steps[i].tile >= full_begin && steps[i].tile < full_end;
    bool const is_first = steps[i].tile == 0;
    taken const of_taker =
        is_plain ? (is_first ? taken::plain_first : taken::plain) : (is_first ? taken::masked_first : taken::masked);
    for (std::size_t g = 0; g < warpgroups; ++g) {
      CAPTURE(g);
      bool const takes = (steps[i].takers >> g & 1) != 0;
      CHECK(found_done[g * most + i] == (takes ? of_taker : taken::not_at_all));
    }
  }
}

}  // namespace listed_steps_test

using namespace listed_steps_test;

TEST_CASE("plans of steps say which are taken, and how") {
  unsigned const all = (1U << step_plan::most) - 1;
  for (unsigned const taken_steps : {0U, 1U, 0x155U, 0xaaU, all}) {
    for (int count = 1; count <= step_plan::most; ++count) {
      for (bool const is_last : {false, true}) {
        unsigned const some = taken_steps & ((1U << count) - 1);
        step_plan plan = step_plan::of(count, some, some & 0x99U, some & 1U, false, is_last);
        CHECK(plan.is_last() == is_last);
        CHECK_FALSE(plan.is_run());
        for (int i = 0; i < count; ++i, plan.advance()) {
          CAPTURE(taken_steps, count, is_last, i);
          REQUIRE(plan.has_step());
          CHECK(plan.takes() == ((some >> i & 1) != 0));
          CHECK(plan.is_plain() == ((some & 0x99U) >> i & 1));
          CHECK(plan.is_first() == (i == 0 && (some & 1U) != 0));
          CHECK_FALSE(plan.all_masked().is_plain());
          CHECK(plan.all_masked().takes() == plan.takes());
          CHECK(plan.all_masked().is_first() == plan.is_first());
          CHECK(plan.is_last() == is_last);
        }
        CHECK_FALSE(plan.has_step());
      }
    }
  }
}
TEST_CASE("plans of runs have more steps, and may be masked") {
  for (unsigned const taken_steps : {0U, 1U, 0x5555555U, 0xfffffffU, 0x8000001U}) {
    for (int const count : {1, 9, 10, 27, 28}) {
      for (bool const is_last : {false, true}) {
        CAPTURE(taken_steps, count, is_last);
        unsigned const some = taken_steps & ((1U << count) - 1);
        step_plan const plan = step_plan::of(count, some, some, 0, true, is_last);
        CHECK(plan.is_run());
        CHECK(plan.is_last() == is_last);
        CHECK(static_cast<unsigned>(plan.run_steps()) == (some | 1U << count));
        step_plan masked = plan.all_masked();
        CHECK_FALSE(masked.is_run());
        for (int i = 0; i < count; ++i, masked.advance()) {
          REQUIRE(masked.has_step());
          CHECK(masked.takes() == ((some >> i & 1) != 0));
          CHECK_FALSE(masked.is_plain());
          CHECK_FALSE(masked.is_first());
          CHECK(masked.is_last() == is_last);
        }
        CHECK_FALSE(masked.has_step());
      }
    }
  }
}

TEST_CASE("warpgroups walk over merged lists in the same steps as the producer", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    return;
  }
  std::vector<std::int32_t> all;
  std::vector<std::int32_t> even;
  std::vector<std::int32_t> third;
  for (std::int32_t i = 0; i < 100; ++i) {
    all.push_back(i);
    if (i % 2 == 0) {
      even.push_back(i);
    }
    if (i % 3 == 1) {
      third.push_back(i);
    }
  }
  std::vector<std::int32_t> const descending(all.rbegin(), all.rend());
  for (bool const masks_all : {false, true}) {
    check_walk({all, all, all}, 0, 100, 0, 100, masks_all);
    check_walk({all, even, third}, 0, 100, 0, 99, masks_all);
    check_walk({even, third, {}}, 0, 80, 12, 57, masks_all);
    check_walk({{}, {}, {}}, 0, 100, 0, 100, masks_all);
    check_walk({{5}, {200}, {0}}, 0, 100, 0, 5, masks_all);
    check_walk({descending, even, {7, 7, 3, 99, 7}}, 2, 100, 0, 100, masks_all);
    check_walk({third, descending, even}, 0, 100, 40, 41, masks_all);
  }
}
