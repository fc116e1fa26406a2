// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/cluster.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace bulk_tensor_test {  // not anonymous: for old architectures nothing refers to the programs

/// Copies a box of 16 x 32 floats from one coordinate to another, adding 1 to what lies in shared memory.
struct move_box {
  static constexpr int lanes = 64;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 10000;
  struct scratch_type {
    alignas(1024) float box[16 * 32];
    shared_barrier full;
  };

  tensor_map from;
  tensor_map to;
  box_coordinate source;
  box_coordinate target;

  __device__ void operator()(cuda_block<64> const& group, std::int64_t, scratch_type& scratch) const {
    if (group.lane == 0) {
      scratch.full.init(1);
      fence_barrier_init();
    }
    group.sync();
    if (group.lane == 0) {
      scratch.full.arrive_and_expect(static_cast<int>(sizeof scratch.box));
      load_box(scratch.box, from, scratch.full, source);
    }
    scratch.full.wait(0);
    for (int i = group.lane; i < 16 * 32; i += lanes) {
      scratch.box[i] += 1.0F;
    }
    fence_async_proxy();
    group.sync();
    if (group.lane == 0) {
      store_box(to, scratch.box, target);
      commit_box_stores();
      await_box_stores<0>();
    }
  }
};

/// Each block of a cluster has one box copied to both, and gives back what it got from the other.
struct exchange_boxes {
  static constexpr int lanes = 64;
  static constexpr int blocks_per_cluster = 2;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 10000;
  struct scratch_type {
    alignas(1024) float box[2][8 * 32];
    shared_barrier full;
    shared_barrier read;
  };

  tensor_map from;  ///< a row of boxes
  float* to;        ///< of each block the sum of all that it got

  __device__ void operator()(cuda_block<64> const& group, std::int64_t which, scratch_type& scratch) const {
    auto const rank = rank_in_cluster();
    if (group.lane == 0) {
      scratch.full.init(1);
      scratch.read.init(2);
      fence_barrier_init();
    }
    sync_cluster();
    if (group.lane == 0) {
      scratch.full.arrive_and_expect(static_cast<int>(sizeof scratch.box));
      load_box_for_cluster(scratch.box[rank], from, scratch.full, {static_cast<std::int32_t>(rank) * 32, 0}, 3);
    }
    scratch.full.wait(0);
    if (group.lane < 2) {
      scratch.read.arrive_at(static_cast<unsigned>(group.lane));
    }
    scratch.read.wait(0);
    if (group.lane == 0) {
      float sum = 0.0F;
      for (float value : scratch.box[1 - rank]) {
        sum += value;
      }
      to[which] = sum;
    }
    sync_cluster();
  }
};

}  // namespace bulk_tensor_test

using namespace bulk_tensor_test;

namespace {

bool has_copy_engine() {
  return tessera_test::has_sm_90();
}

std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(i);
  }
  return values;
}

}  // namespace

TEST_CASE("a box is read with zeros outside of its matrix and written inside of it alone", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!has_copy_engine()) {
    WARN("the device has no copy engine for tensors");
    return;
  }
  constexpr std::int64_t rows = 20;
  constexpr std::int64_t columns = 40;
  constexpr std::int64_t stride = 44;
  device_values<float> const from(numbers(rows * stride));
  tessera::cuda const exec;
  for (box_coordinate const source :
       {box_coordinate{0, 0}, box_coordinate{-4, -2}, box_coordinate{20, 10}, box_coordinate{100, 3}}) {
    for (box_coordinate const target :
         {box_coordinate{0, 0}, box_coordinate{4, 3}, box_coordinate{24, 12}, box_coordinate{0, 40}}) {
      CAPTURE(source.column, source.row, target.column, target.row);
      device_values<float> const to(std::vector<float>(rows * stride, -5.0F));
      matrix_view<float> const a(from.data(), {rows, columns}, {stride, 1});
      matrix_view<float> const b(to.data(), {rows, columns}, {stride, 1});
      exec.run(move_box{make_tensor_map("test", a, {16, 32}), make_tensor_map("test", b, {16, 32}), source, target}, 1);
      auto const found = to.download();
      bool right = true;
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t column = 0; column < stride; ++column) {
          std::int64_t const r = row - target.row;
          std::int64_t const c = column - target.column;
          bool const is_written = column < columns && r >= 0 && r < 16 && c >= 0 && c < 32;
          std::int64_t const from_row = source.row + r;
          std::int64_t const from_column = source.column + c;
          bool const is_read = from_row >= 0 && from_row < rows && from_column >= 0 && from_column < columns;
          float const value = is_read ? static_cast<float>(from_row * stride + from_column) : 0.0F;
          right = right && found[static_cast<std::size_t>(row * stride + column)] == (is_written ? value + 1 : -5.0F);
        }
      }
      CHECK(right);
    }
  }
}

TEST_CASE("a box reaches both blocks of a cluster, and their barriers hear each other", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!has_copy_engine()) {
    WARN("the device has no copy engine for tensors");
    return;
  }
  device_values<float> const from(numbers(8 * 64));
  device_values<float> const to(4);
  matrix_view<float> const boxes(from.data(), {8, 64});
  tessera::cuda const exec;
  exec.run(exchange_boxes{make_tensor_map("test", boxes, {8, 32}), to.data()}, 4);
  float left = 0;
  float right = 0;
  for (int row = 0; row < 8; ++row) {
    for (int column = 0; column < 32; ++column) {
      left += static_cast<float>(64 * row + column);
      right += static_cast<float>(64 * row + column + 32);
    }
  }
  CHECK(to.download() == std::vector<float>{right, left, right, left});
}
