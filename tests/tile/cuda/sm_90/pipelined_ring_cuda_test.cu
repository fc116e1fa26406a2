// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/worker_warps.cuh>
#include <tessera/tile/swizzled_tile.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace pipelined_ring_test {  // not anonymous: for old architectures nothing refers to the programs

/// How two warps take rows of steps.
enum class taking {
  all,        ///< each takes all steps
  in_parts,   ///< each takes all, in two loops for a row
  from_last,  ///< each takes all, from the last step to the first
  in_cuts,    ///< the same, in three loops for a row
  one_more,   ///< each takes all, and finds at the end of a step whether there is another one
  in_turns,   ///< each takes every other step, from row to row
  fetched     ///< each takes all steps, of which two are on their way to registers
};

constexpr int readers = 2;

/// A warp loads 32 numbers a step. Each reader adds up what it takes of a row, times the step's number.
template <int Stages>
struct sum_rows {
  using block_warps = worker_warps<readers>;
  static constexpr int lanes = block_warps::lanes;
  static constexpr bool waits_for_stream = true;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 10000;
  struct scratch_type {
    std::int32_t numbers[Stages][32];
    stage_ring<Stages> ring;
  };

  std::int32_t const* from;   ///< steps of all rows x 32
  std::int32_t const* steps;  ///< of each row
  int rows;
  taking how;
  std::int32_t* to;  ///< rows x readers x 32

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t, scratch_type& scratch) const {
    auto const own = block_warps::of(group);
    own.begin([&] {
      scratch.ring.init(32, how == taking::in_turns ? 32 : 32 * readers);
      fence_barrier_init();
    });
    if (own.warp == readers) {
      fill(scratch, own.lane);
    } else {
      block_warps::wait_for_barriers();
      read(scratch, own.warp, own.lane);
    }
  }

 private:
  __device__ void fill(scratch_type& scratch, int lane) const {
    pipeline_state<Stages> state;
    pipeline_count<Stages> count;
    std::int32_t const* row = from;
    for (int i = 0; i < rows; ++i) {
      auto const load = [&](fill_step<Stages> const& at) {
        shared_barrier& full = at.when_empty(scratch.ring);
        scratch.numbers[at.stage][lane] = row[at.index * 32 + lane];
        full.arrive();
      };
      if (how == taking::from_last || how == taking::in_cuts) {
        for (auto const at : pipelined(ring_filler(count), steps_from_last{0, steps[i]})) {
          load(at);
        }
      } else if (how == taking::one_more) {
        int left = steps[i];
        for (auto at : pipelined(ring_filler(count), steps_while([&left] { return --left > 0; }))) {
          at.index = steps[i] - left;
          load(at);
        }
      } else if (how == taking::fetched) {
        std::int32_t in_flight[2];
        pipelined(ring_filler(state), steps[i])
            .each_fetched(
                in_flight, [&](int step, std::int32_t& to) { to = row[step * 32 + lane]; },
                [&](fill_step<Stages> const& at, std::int32_t number) {
                  shared_barrier& full = at.when_empty(scratch.ring);
                  scratch.numbers[at.stage][lane] = number;
                  full.arrive();
                });
      } else {
        for (auto const at : pipelined(ring_filler(state), steps[i])) {
          load(at);
        }
      }
      row += 32 * steps[i];
    }
  }

  __device__ void read(scratch_type& scratch, int warp, int lane) const {
    auto const release = [lane](shared_barrier& empty) { block_warps::release(empty, lane, 32); };
    pipeline_state<Stages> state;
    ring_reader reads(scratch.ring, state, release);
    int next = how == taking::in_turns ? warp : 0;
    state.skip(next);
    for (int i = 0; i < rows; ++i) {
      std::int32_t sum = 0;
      auto const add = [&](pipeline_step at) {
        if ((at.index + warp) % 3 == 0) {
          __nanosleep(500);  // so that others are ahead
        }
        sum += scratch.numbers[at.stage][31 - lane] * (at.index + 1);
      };
      if (how == taking::from_last) {
        for (pipeline_step const at : pipelined(reads, steps_from_last{0, steps[i]})) {
          add(at);
        }
      } else if (how == taking::in_cuts) {
        steps_from_last left{0, steps[i]};
        for (int const cut : {steps[i] - 2, 3, -1}) {  // some of which cut nothing off
          for (pipeline_step const at : pipelined(reads, left.take_from(cut))) {
            add(at);
          }
        }
      } else if (how == taking::one_more) {
        int left = steps[i];
        for (pipeline_step at : pipelined(reads, steps_while([&left] { return --left > 0; }))) {
          at.index = steps[i] - left;
          add(at);
        }
      } else if (how == taking::in_turns) {
        for (pipeline_step const at : pipelined(reads, {next, steps[i], readers})) {
          add(at);
          next = at.index + readers;
        }
        next -= steps[i];
      } else {
        int const cut = how == taking::in_parts ? min(1, steps[i]) : 0;
        for (pipeline_step const at : pipelined(reads, {0, cut})) {
          add(at);
        }
        for (pipeline_step const at : pipelined(reads, {cut, steps[i]})) {
          add(at);
        }
      }
      to[(i * readers + warp) * 32 + lane] = sum;
    }
  }
};

/// A warp fills two rings. Each reader adds up products of what both have for a step, of a row that it walks over in
/// three loops; it reads the second ring `Lag` steps behind the first.
template <int Stages, int Lag>
struct sum_pairs {
  static constexpr int lanes = 32 * (readers + 1);
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 10000;
  struct scratch_type {
    std::int32_t first[Stages][32];
    std::int32_t second[Stages][32];
    stage_ring<Stages> first_ring;
    stage_ring<Stages> second_ring;
  };

  std::int32_t const* from;   ///< steps of all rows x 32; the second ring has the same, negative
  std::int32_t const* steps;  ///< of each row
  int rows;
  std::int32_t* to;  ///< rows x readers x 32

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t, scratch_type& scratch) const {
    if (group.lane == 0) {
      scratch.first_ring.init(32, 32 * readers);
      scratch.second_ring.init(32, 32 * readers);
      fence_barrier_init();
    }
    group.sync();
    if (group.lane / 32 == readers) {
      fill(scratch, group.lane % 32);
    } else {
      read(scratch, group.lane / 32, group.lane % 32);
    }
  }

 private:
  using reader_type = pair_reader<Stages, Lag, release_for_lane>;

  __device__ void fill(scratch_type& scratch, int lane) const {
    pipeline_state<Stages> state;
    std::int32_t const* row = from;
    for (int i = 0; i < rows; ++i) {
      for (auto const at : pipelined(ring_filler(state), steps_from_last{0, steps[i]})) {
        std::int32_t const number = row[at.index * 32 + lane];
        shared_barrier& first = at.when_empty(scratch.first_ring);
        scratch.first[at.stage][lane] = number;
        first.arrive();
        shared_barrier& second = at.when_empty(scratch.second_ring);
        scratch.second[at.stage][lane] = -number;
        second.arrive();
      }
      row += 32 * steps[i];
    }
  }

  __device__ void read(scratch_type& scratch, int warp, int lane) const {
    pair_state<Stages, Lag> state;
    reader_type const reads(scratch.first_ring, scratch.second_ring, state);
    for (int i = 0; i < rows; ++i) {
      std::int32_t sum = 0;
      std::int32_t factor = 0;  // of the step whose stage of the second ring is next
      auto const add = [&] {
        int const stage = reads.await_second();
        std::int32_t const number = scratch.second[stage][31 - lane];
        reads.release_second(static_cast<float>(number));
        sum += factor * number;
      };
      steps_from_last left{0, steps[i]};
      bool is_first = true;
      for (int const cut : {steps[i] - 1, 2, 0}) {
        for (pipeline_step const at : pipelined(reads, left.take_from(cut))) {
          if ((at.index + warp) % 3 == 0) {
            __nanosleep(500);  // so that others are ahead
          }
          std::int32_t const own = scratch.first[at.stage][31 - lane] * (at.index + 1);
          reads.release_first(static_cast<float>(own));
          if (Lag == 1 && !is_first) {
            add();
          }
          factor = own;
          if (Lag == 0) {
            add();
          }
          is_first = false;
        }
      }
      if (Lag == 1 && !is_first) {
        add();
      }
      to[(i * readers + warp) * 32 + lane] = sum;
    }
  }
};

/// A warpgroup writes operands of 64 x 64, and another multiplies them: sums of a b^T over the steps of each row.
template <int Stages>
struct multiply_rows {
  using mma = warpgroup_mma<bfloat16, 64>;
  using tile = swizzled_tile<bfloat16, 64>;
  static constexpr int lanes = 256;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;
  struct scratch_type {
    tile a[Stages];
    tile b[Stages];
    stage_ring<Stages> ring;
  };

  std::int32_t const* steps;  ///< of each row, one or more
  int rows;
  float* to;  ///< rows x 64 x 64

  /// Element of an operand of a step, counted over all rows.
  TESSERA_FN static float element(int operand, int step, int row, int column) {
    return static_cast<float>((operand * 5 + step * 3 + row * 7 + column * 11) % 9 - 4);
  }

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t, scratch_type& scratch) const {
    if (group.lane == 0) {
      scratch.ring.init(128, 4);
      fence_barrier_init();
    }
    group.sync();
    if (group.lane < 128) {
      fill(scratch, group.lane);
    } else {
      multiply(scratch, group.lane - 128);
    }
  }

 private:
  __device__ void fill(scratch_type& scratch, int lane) const {
    pipeline_state<Stages> state;
    int first = 0;
    for (int row = 0; row < rows; ++row) {
      for (auto const at : pipelined(ring_filler(state), steps[row])) {
        shared_barrier& full = at.when_empty(scratch.ring);
        for (int i = lane; i < 64 * 64; i += 128) {
          scratch.a[at.stage](i / 64, i % 64) = store<bfloat16>(element(0, first + at.index, i / 64, i % 64));
          scratch.b[at.stage](i / 64, i % 64) = store<bfloat16>(element(1, first + at.index, i / 64, i % 64));
        }
        fence_async_proxy();
        full.arrive();
      }
      first += steps[row];
    }
  }

  __device__ static void begin(scratch_type& scratch, int stage, typename mma::sum_type (&sums)[mma::registers],
                               bool add) {
    auto const a = matrix_descriptor::rows_of_128_bytes(detail::plain_shared_address(&scratch.a[stage]));
    auto const b = matrix_descriptor::rows_of_128_bytes(detail::plain_shared_address(&scratch.b[stage]));
    begin_multiply(sums);
#pragma unroll
    for (int bytes = 0; bytes < 128; bytes += 32) {
      mma::multiply(sums, a.further(bytes), b.further(bytes), add || bytes != 0);
    }
    commit_multiply();
  }

  __device__ void multiply(scratch_type& scratch, int lane) const {
    pipeline_state<Stages> state;
    for (int row = 0; row < rows; ++row) {
      typename mma::sum_type sums[mma::registers];
      product_reader reads(scratch.ring, state, release_for_warp{});
      for (pipeline_step const at : pipelined(reads, {0, 1})) {
        begin(scratch, at.stage, sums, false);
      }
      for (pipeline_step const at : pipelined(reads, {1, steps[row]})) {
        begin(scratch, at.stage, sums, true);
      }
      reads.finish(sums);
#pragma unroll
      for (int i = 0; i < mma::registers; ++i) {
        int const of_row = 16 * (lane / 32) + lane % 32 / 4 + 8 * (i / 2 % 2);
        int const column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
        to[(row * 64 + of_row) * 64 + column] = sums[i];
      }
    }
  }
};

/// Steps of rows for a ring of so many stages, from the least that a row has.
std::vector<std::int32_t> row_steps(int least, int stages) {
  std::vector<std::int32_t> steps;
  for (int const count : {0, 1, stages - 1, stages, stages + 1, 0, 1, 2, 11, 3 * stages, 97}) {
    steps.push_back(count > least ? count : least);
  }
  return steps;
}

/// What the serial loop gives for sum_rows.
std::vector<std::int32_t> serial_sums(std::vector<std::int32_t> const& numbers, std::vector<std::int32_t> const& steps,
                                      taking how) {
  std::vector<std::int32_t> sums(steps.size() * readers * 32);
  std::size_t before = 0;
  for (std::size_t row = 0; row < steps.size(); ++row) {
    for (std::int32_t step = 0; step < steps[row]; ++step, ++before) {
      for (std::size_t reader = 0; reader < readers; ++reader) {
        for (std::size_t lane = 0; lane < 32; ++lane) {
          bool const takes = how != taking::in_turns || before % readers == reader;
          sums[(row * readers + reader) * 32 + lane] += takes ? numbers[before * 32 + 31 - lane] * (step + 1) : 0;
        }
      }
    }
  }
  return sums;
}

/// 32 numbers for each step.
std::vector<std::int32_t> numbers_of(std::vector<std::int32_t> const& steps) {
  std::size_t total = 0;
  for (std::int32_t const count : steps) {
    total += static_cast<std::size_t>(count);
  }
  std::vector<std::int32_t> numbers(total * 32);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<std::int32_t>(i * 2654435761U % 1000);
  }
  return numbers;
}

template <int Stages>
void check_sums(taking how) {
  CAPTURE(Stages, static_cast<int>(how));
  auto const steps = row_steps(how == taking::one_more ? 1 : 0, Stages);
  auto const numbers = numbers_of(steps);
  tessera::cuda const exec;
  device_values<std::int32_t> const from(numbers);
  device_values<std::int32_t> const of_rows(steps);
  device_values<std::int32_t> const to(steps.size() * readers * 32);
  exec.run(sum_rows<Stages>{from.data(), of_rows.data(), static_cast<int>(steps.size()), how, to.data()}, 1);
  exec.wait();
  CHECK(to.download() == serial_sums(numbers, steps, how));
}

template <int Stages, int Lag>
void check_pairs() {
  CAPTURE(Stages, Lag);
  auto const steps = row_steps(0, Stages);
  auto const numbers = numbers_of(steps);
  auto products = numbers;
  for (std::int32_t& number : products) {
    number *= -number;
  }
  tessera::cuda const exec;
  device_values<std::int32_t> const from(numbers);
  device_values<std::int32_t> const of_rows(steps);
  device_values<std::int32_t> const to(steps.size() * readers * 32);
  exec.run(sum_pairs<Stages, Lag>{from.data(), of_rows.data(), static_cast<int>(steps.size()), to.data()}, 1);
  exec.wait();
  CHECK(to.download() == serial_sums(products, steps, taking::all));
}

template <int Stages>
void check_products() {
  using program = multiply_rows<Stages>;
  CAPTURE(Stages);
  tessera::cuda const exec;
  if (!exec.template has<program>()) {
    WARN("not compiled for this device");
    return;
  }
  auto const steps = row_steps(1, Stages);
  device_values<std::int32_t> const of_rows(steps);
  device_values<float> const to(steps.size() * 64 * 64);
  exec.run(program{of_rows.data(), static_cast<int>(steps.size()), to.data()}, 1);
  exec.wait();
  std::vector<float> expected(steps.size() * 64 * 64);
  int first = 0;
  for (std::size_t row = 0; row < steps.size(); first += steps[row++]) {
    for (int i = 0; i < 64 * 64; ++i) {
      float sum = 0;
      for (int k = 0; k < 64 * steps[row]; ++k) {
        sum +=
            program::element(0, first + k / 64, i / 64, k % 64) * program::element(1, first + k / 64, i % 64, k % 64);
      }
      expected[row * 64 * 64 + static_cast<std::size_t>(i)] = sum;
    }
  }
  CHECK(to.download() == expected);
}

}  // namespace pipelined_ring_test

using namespace pipelined_ring_test;

TEST_CASE("warps that fill and warps that read a ring have the steps of the serial loop", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the device has no barriers for copies");
    return;
  }
  for (taking const how :
       {taking::all, taking::in_parts, taking::from_last, taking::in_cuts, taking::one_more, taking::fetched}) {
    check_sums<1>(how);
    check_sums<2>(how);
    check_sums<3>(how);
    check_sums<5>(how);
  }
  check_sums<2>(taking::in_turns);  // a stage is always the same reader's
  check_sums<4>(taking::in_turns);
}

TEST_CASE("steps that read two rings, one of them a step behind, have what was filled for them", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the device has no barriers for copies");
    return;
  }
  check_pairs<1, 0>();
  check_pairs<2, 0>();
  check_pairs<3, 0>();
  check_pairs<2, 1>();
  check_pairs<3, 1>();
  check_pairs<5, 1>();
}

TEST_CASE("products of the stages of a ring are those of the serial loop, however many steps a row has", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_products<2>();
  check_products<3>();
  check_products<4>();
}
