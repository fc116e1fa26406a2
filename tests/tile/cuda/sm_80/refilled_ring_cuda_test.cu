// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_80/refilled_ring.cuh>
#include <tessera/view/array_view.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

/// 16 bytes for each lane of a warp.
struct alignas(16) ring_piece {
  std::uint32_t numbers[4 * lanes_in_a_warp];
};

/// What a step adds: each lane another lane's numbers, so that lanes must have waited for each other.
__device__ void add_piece(ring_piece const& from, int index, int lane, std::uint64_t& sum) {
  for (int i = 0; i < 4; ++i) {
    sum += std::uint64_t{from.numbers[4 * (31 - lane) + i]} * static_cast<unsigned>(index + 1);
  }
}

/// Adds up pieces in loops of several lengths, which share a ring: a late_refiller, whose lanes sync once for each
/// step, or a ring_refiller.
template <int Stages, bool IsLate>
struct sum_by_loops {
  static constexpr int lanes = lanes_in_a_warp;
  struct scratch_type {
    ring_piece stages[Stages];
  };
  array_view<ring_piece const> pieces;
  array_view<std::int32_t const> lengths;  ///< of the loops
  array_view<std::uint64_t> sums;          ///< of each loop and lane

  template <class G>
  __device__ void operator()(G const& group, std::int64_t, scratch_type& scratch) const {
    int next = 0;
    auto const fill = [&](int into) {
      if (next < static_cast<int>(pieces.extent(0))) {
        async_copy_16(&scratch.stages[into].numbers[4 * group.lane], &pieces[next++].numbers[4 * group.lane]);
      }
    };
    if constexpr (IsLate) {
      late_refiller<Stages, G, decltype(fill)> ring(group, fill);
      add_all(group, scratch, ring);
    } else {
      int stage = 0;
      ring_refiller<Stages, G, decltype(fill)> const ring(group, stage, fill);
      add_all(group, scratch, ring);
    }
    async_copy_wait<0>();
  }

 private:
  template <class G, class Ring>
  __device__ void add_all(G const& group, scratch_type& scratch, Ring& ring) const {
    ring.fill_all();
    for (int loop = 0; loop < static_cast<int>(lengths.extent(0)); ++loop) {
      std::uint64_t sum = 0;
      for (pipeline_step const at : pipelined(ring, static_cast<int>(lengths[loop]))) {
        add_piece(scratch.stages[at.stage], at.index, group.lane, sum);
      }
      sums[lanes * loop + group.lane] = sum;
    }
  }
};

/// The same from two rings in turns, the second of which has the pieces from the last to the first.
template <int Stages>
struct sum_in_turns {
  static constexpr int lanes = lanes_in_a_warp;
  struct scratch_type {
    ring_piece first[Stages];
    ring_piece second[Stages];
  };
  array_view<ring_piece const> pieces;
  array_view<std::uint64_t> sums;  ///< of each ring and lane

  template <class G>
  __device__ void operator()(G const& group, std::int64_t, scratch_type& scratch) const {
    int const count = static_cast<int>(pieces.extent(0));
    int next[2] = {0, 0};
    int stage[2] = {0, 0};
    auto const copy = [&](ring_piece& to, int from) {
      async_copy_16(&to.numbers[4 * group.lane], &pieces[from].numbers[4 * group.lane]);
    };
    auto const fill_first = [&](int into) {
      if (next[0] < count) {
        copy(scratch.first[into], next[0]++);
      }
    };
    auto const fill_second = [&](int into) {
      if (next[1] < count) {
        copy(scratch.second[into], count - 1 - next[1]++);
      }
    };
    ring_refiller<Stages, G, decltype(fill_first), 2> const first(group, stage[0], fill_first);
    ring_refiller<Stages, G, decltype(fill_second), 2> const second(group, stage[1], fill_second);
    for (int i = 0; i < Stages; ++i) {
      first.fill(i);
      second.fill(i);
    }
    std::uint64_t sum[2] = {0, 0};
    for (int i = 0; i < count; ++i) {
      add_piece(scratch.first[first.begin_step(i).stage], i, group.lane, sum[0]);
      first.end_step();
      add_piece(scratch.second[second.begin_step(i).stage], i, group.lane, sum[1]);
      second.end_step();
    }
    sums[group.lane] = sum[0];
    sums[lanes + group.lane] = sum[1];
    async_copy_wait<0>();
  }
};

/// The same in loops of three warps that fill the stages that they read, and wait for each other by barriers alone. A
/// step has a piece of each warp, and a lane adds up numbers of the next warp's.
template <int Stages>
struct sum_by_barriers {
  static constexpr int warps = 3;
  static constexpr int lanes = warps * lanes_in_a_warp;
  static constexpr int from_architecture = 800;
  struct scratch_type {
    ring_piece stages[Stages][warps];
    stage_ring<Stages> ring;
  };
  array_view<ring_piece const> pieces;     ///< of all steps, warp after warp
  array_view<std::int32_t const> lengths;  ///< of the loops
  array_view<std::uint64_t> sums;          ///< of each loop and lane

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t, scratch_type& scratch) const {
    int const warp = group.lane / lanes_in_a_warp;
    int const lane = group.lane % lanes_in_a_warp;
    int next = warp;
    auto const fill = [&](fill_step<Stages> const& at) {
      shared_barrier& full = at.when_empty(scratch.ring);
      if (next < static_cast<int>(pieces.extent(0))) {
        async_copy_16(&scratch.stages[at.stage][warp].numbers[4 * lane], &pieces[next].numbers[4 * lane]);
      }
      next += warps;
      full.arrive_after_copies();
    };
    if (group.lane == 0) {
      scratch.ring.init(lanes, lanes);
    }
    group.sync();
    pipeline_state<Stages> steps;
    auto ahead = steps;
    for (fill_step<Stages> const at : pipelined(ring_filler(ahead), Stages - 1)) {
      fill(at);
    }
    for (int loop = 0; loop < static_cast<int>(lengths.extent(0)); ++loop) {
      std::uint64_t sum = 0;
      for (read_step<Stages> const at : pipelined(refilling_reader(steps), static_cast<int>(lengths[loop]))) {
        if ((at.index + warp) % 3 == 0) {
          async_copy_wait<0>();  // so that others are ahead
        }
        fill(fills_later<Stages - 1>(at));
        shared_barrier& is_read = at.when_full(scratch.ring);
        ring_piece const& piece = scratch.stages[at.stage][(warp + 1) % warps];
        add_piece(piece, at.index, lane, sum);
        release_for_lane{}(is_read, static_cast<std::uint32_t>(sum));
        auto const later = reads_later<1>(at);
        sum += later.index == at.index + 1 && later.stage == (at.stage + 1) % Stages ? 0 : 1;
      }
      sums[lanes * loop + group.lane] = sum;
    }
    async_copy_wait<0>();
  }
};

std::vector<ring_piece> made_pieces(std::size_t count) {
  std::vector<ring_piece> pieces(count);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < 128; ++k) {
      pieces[i].numbers[k] = static_cast<std::uint32_t>(i * 1000 + k * k % 977);
    }
  }
  return pieces;
}

/// What lanes must have of `count` pieces from `first` on.
void expect_sums(std::vector<ring_piece> const& pieces, std::size_t first, std::size_t count,
                 std::vector<std::uint64_t>& to) {
  for (std::size_t lane = 0; lane < 32; ++lane) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t k = 0; k < 4; ++k) {
        sum += std::uint64_t{pieces[first + i].numbers[4 * (31 - lane) + k]} * (i + 1);
      }
    }
    to.push_back(sum);
  }
}

/// Program: a sum_by_loops.
template <class Program>
void check_loops(std::vector<std::int32_t> const& lengths) {
  CAPTURE(sizeof(typename Program::scratch_type), lengths);
  std::size_t all = 0;
  for (std::int32_t const length : lengths) {
    all += static_cast<std::size_t>(length);
  }
  auto const pieces = made_pieces(all);
  std::vector<std::uint64_t> expected;
  std::size_t first = 0;
  for (std::int32_t const length : lengths) {
    expect_sums(pieces, first, static_cast<std::size_t>(length), expected);
    first += static_cast<std::size_t>(length);
  }
  cuda const exec;
  auto const on_device = to_device(exec, pieces);
  auto const list = to_device(exec, lengths);
  auto sums = to_device(exec, std::vector<std::uint64_t>(expected.size()));
  exec.run(Program{on_device.view(), list.view(), sums.view()}, 1);
  CHECK(to_host(exec, sums) == expected);
}

template <int Stages>
void check_barriers(std::vector<std::int32_t> const& lengths) {
  using program = sum_by_barriers<Stages>;
  CAPTURE(Stages, lengths);
  std::size_t all = 0;
  for (std::int32_t const length : lengths) {
    all += static_cast<std::size_t>(length);
  }
  auto const pieces = made_pieces(all * program::warps);
  std::vector<ring_piece> of_warp[program::warps];
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    of_warp[i % program::warps].push_back(pieces[i]);
  }
  std::vector<std::uint64_t> expected;
  std::size_t first = 0;
  for (std::int32_t const length : lengths) {
    for (std::size_t warp = 0; warp < program::warps; ++warp) {
      expect_sums(of_warp[(warp + 1) % program::warps], first, static_cast<std::size_t>(length), expected);
    }
    first += static_cast<std::size_t>(length);
  }
  cuda const exec;
  auto const on_device = to_device(exec, pieces);
  auto const list = to_device(exec, lengths);
  auto sums = to_device(exec, std::vector<std::uint64_t>(expected.size()));
  exec.run(program{on_device.view(), list.view(), sums.view()}, 1);
  CHECK(to_host(exec, sums) == expected);
}

template <int Stages>
void check_turns(std::size_t count) {
  CAPTURE(Stages, count);
  auto const pieces = made_pieces(count);
  std::vector<std::uint64_t> expected;
  expect_sums(pieces, 0, count, expected);
  expect_sums({pieces.rbegin(), pieces.rend()}, 0, count, expected);
  cuda const exec;
  auto const on_device = to_device(exec, pieces);
  auto sums = to_device(exec, std::vector<std::uint64_t>(expected.size()));
  exec.run(sum_in_turns<Stages>{on_device.view(), sums.view()}, 1);
  CHECK(to_host(exec, sums) == expected);
}

}  // namespace

TEST_CASE("loops that share a ring see what was copied for their steps", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_loops<sum_by_loops<1, false>>({5, 1, 0, 7});
  check_loops<sum_by_loops<2, false>>({1, 1, 1, 9});
  check_loops<sum_by_loops<4, false>>({3, 0, 0, 2});
  check_loops<sum_by_loops<4, false>>({40, 33, 27});
}

TEST_CASE("loops that share a ring filled a step late see what was copied for their steps", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_loops<sum_by_loops<2, true>>({5, 1, 0, 7});
  check_loops<sum_by_loops<3, true>>({1, 1, 1, 9});
  check_loops<sum_by_loops<4, true>>({3, 0, 0, 2});
  check_loops<sum_by_loops<5, true>>({40, 33, 27});
}

TEST_CASE("warps that fill what they read by barriers see what was copied for their steps", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_barriers<2>({5, 1, 0, 7});
  check_barriers<3>({1, 1, 1, 9});
  check_barriers<4>({3, 0, 0, 2});
  check_barriers<5>({40, 33, 27});
}

TEST_CASE("two rings whose steps take turns see what was copied for each", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_turns<1>(1);
  check_turns<1>(37);
  check_turns<3>(2);
  check_turns<3>(50);
}
