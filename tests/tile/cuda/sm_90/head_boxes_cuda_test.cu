// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/sm_90/cluster.cuh>
#include <tessera/tile/cuda/sm_90/head_boxes.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace head_boxes_test {  // not anonymous: for old architectures nothing refers to the programs

constexpr int box_rows = 16;
constexpr int box_columns = 32;  // floats: 128 bytes

/// The element of a box whose 16 bytes number c of row r are at 128 r + 16 (c ^ (r % 8)).
__device__ inline float element_of(float const* box, int row, int column) {
  return box[row * box_columns + ((column / 4) ^ (row % 8)) * 4 + column % 4];
}

/// Writes a box row by row.
struct copy_head_box {
  static constexpr int lanes = 64;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 10000;
  struct scratch_type {
    alignas(1024) float box[box_rows * box_columns];
    shared_barrier full;
  };

  tensor_map from;
  head_coordinate coordinate;
  float* to;

  __device__ void operator()(cuda_block<64> const& group, std::int64_t, scratch_type& scratch) const {
    if (group.lane == 0) {
      scratch.full.init(1);
      fence_barrier_init();
    }
    group.sync();
    if (group.lane == 0) {
      scratch.full.arrive_and_expect(static_cast<int>(sizeof scratch.box));
      load_head_box(scratch.box, from, scratch.full, coordinate);
    }
    scratch.full.wait(0);
    for (int i = group.lane; i < box_rows * box_columns; i += lanes) {
      to[i] = element_of(scratch.box, i / box_columns, i % box_columns);
    }
  }
};

/// The first block of a cluster has a box copied to both blocks, which write it.
struct copy_head_box_to_both {
  static constexpr int lanes = 64;
  static constexpr int blocks_per_cluster = 2;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 10000;
  using scratch_type = copy_head_box::scratch_type;

  tensor_map from;
  head_coordinate coordinate;
  float* to;  ///< of each block

  __device__ void operator()(cuda_block<64> const& group, std::int64_t which, scratch_type& scratch) const {
    if (group.lane == 0) {
      scratch.full.init(1);
      fence_barrier_init();
      scratch.full.arrive_and_expect(static_cast<int>(sizeof scratch.box));
    }
    sync_cluster();
    if (group.lane == 0 && rank_in_cluster() == 0) {
      load_head_box_for_cluster(scratch.box, from, scratch.full, coordinate, 3);
    }
    scratch.full.wait(0);
    for (int i = group.lane; i < box_rows * box_columns; i += lanes) {
      to[which * box_rows * box_columns + i] = element_of(scratch.box, i / box_columns, i % box_columns);
    }
    sync_cluster();
  }
};

constexpr std::int64_t heads = 3;
constexpr std::int64_t rows = 20;
constexpr std::int64_t columns = 40;
constexpr std::int64_t row_stride = 44;
constexpr std::int64_t head_stride = 1000;

/// Elements of a box, zeros outside of the heads.
inline std::vector<float> box_at(std::vector<float> const& memory, head_coordinate coordinate) {
  std::vector<float> box(box_rows * box_columns);
  for (std::size_t i = 0; i < box.size(); ++i) {
    std::int64_t const row = coordinate.row + static_cast<std::int64_t>(i) / box_columns;
    std::int64_t const column = coordinate.column + static_cast<std::int64_t>(i) % box_columns;
    bool const exists =
        row >= 0 && row < rows && column >= 0 && column < columns && coordinate.head >= 0 && coordinate.head < heads;
    auto const at = static_cast<std::size_t>(exists ? coordinate.head * head_stride + row * row_stride + column : 0);
    box[i] = exists ? memory[at] : 0.0F;
  }
  return box;
}

inline std::vector<float> memory_of_heads() {
  std::vector<float> memory(heads * head_stride);
  for (std::size_t i = 0; i < memory.size(); ++i) {
    memory[i] = static_cast<float>(i + 1);
  }
  return memory;
}

inline std::string refused_heads(view<float, 3> from, box_shape box) {
  try {
    static_cast<void>(make_head_map("factorize", from, box));
  } catch (value_error const& e) {
    return e.what();
  }
  return "nothing thrown";
}

}  // namespace head_boxes_test

using namespace head_boxes_test;

TEST_CASE("a box of a head's rows is read with zeros outside of the head", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the device has no copy engine for tensors");
    return;
  }
  auto const memory = memory_of_heads();
  device_values<float> const from(memory);
  view<float, 3> const all(from.data(), {heads, rows, columns}, {head_stride, row_stride, 1});
  tensor_map const map = make_head_map("test", all, {box_rows, box_columns});
  tessera::cuda const exec;
  for (head_coordinate const coordinate :
       {head_coordinate{0, 0, 0}, head_coordinate{8, 4, 1}, head_coordinate{-4, -2, 2}, head_coordinate{32, 10, 2},
        head_coordinate{0, 19, 1}, head_coordinate{0, 0, 3}}) {
    CAPTURE(coordinate.column, coordinate.row, coordinate.head);
    device_values<float> const to(box_rows * box_columns);
    exec.run(copy_head_box{map, coordinate, to.data()}, 1);
    exec.wait();
    CHECK(to.download() == box_at(memory, coordinate));
  }
}

TEST_CASE("a box of a head's rows reaches both blocks of a cluster", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the device has no copy engine for tensors");
    return;
  }
  auto const memory = memory_of_heads();
  device_values<float> const from(memory);
  view<float, 3> const all(from.data(), {heads, rows, columns}, {head_stride, row_stride, 1});
  tessera::cuda const exec;
  head_coordinate const coordinate{4, 3, 1};
  device_values<float> const to(2 * box_rows * box_columns);
  exec.run(copy_head_box_to_both{make_head_map("test", all, {box_rows, box_columns}), coordinate, to.data()}, 2);
  exec.wait();
  auto expected = box_at(memory, coordinate);
  auto const once = expected;
  expected.insert(expected.end(), once.begin(), once.end());
  CHECK(to.download() == expected);
}

TEST_CASE("a map of heads that a thread remembers is the one that the driver makes", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the device has no copy engine for tensors");
    return;
  }
  device_values<float> const memory(std::vector<float>(4096));
  float* const first = memory.data();
  // Each differs from the first in one thing.
  std::vector<view<float, 3>> const all{{first, {2, 8, 32}, {1024, 64, 1}},     {first, {3, 8, 32}, {1024, 64, 1}},
                                        {first, {2, 9, 32}, {1024, 64, 1}},     {first, {2, 8, 31}, {1024, 64, 1}},
                                        {first, {2, 8, 32}, {2048, 64, 1}},     {first, {2, 8, 32}, {1024, 128, 1}},
                                        {first + 64, {2, 8, 32}, {1024, 64, 1}}};
  int wrong = 0;
  for (int turn = 0; turn < 2; ++turn) {
    for (view<float, 3> const& heads_of : all) {
      for (box_shape const box : {box_shape{8, 32}, box_shape{8, 16}, box_shape{4, 32}, box_shape{8, 32}}) {
        tensor_map const found = make_head_map("test", heads_of, box);
        tensor_map const made = detail::encode_head_map("test", heads_of, box);
        wrong += std::memcmp(&found, &made, sizeof made) == 0 ? 0 : 1;
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("heads that the copy engine cannot address are known as such, and refused with their strides", "[cuda]") {
  alignas(16) static float few[256];
  auto const maps = [](std::int64_t offset, std::int64_t of_heads, std::int64_t by_head, std::int64_t by_row,
                       std::int64_t by_column) {
    return can_map_heads(view<float, 3>(few + offset, {of_heads, 3, 5}, {by_head, by_row, by_column}));
  };
  CHECK(maps(0, 2, 32, 8, 1));
  CHECK(maps(4, 1, 7, 8, 1));
  CHECK(!maps(1, 2, 32, 8, 1));
  CHECK(!maps(0, 2, 30, 8, 1));
  CHECK(!maps(0, 2, 32, 6, 1));
  CHECK(!maps(0, 2, 32, 8, 2));
  CHECK(!maps(0, 2, -32, 8, 1));
  CHECK(!maps(0, 2, 32, 0, 1));
  CHECK(!maps(0, 0, 32, 8, 1));
  view<float, 3> const sound(few, {2, 3, 5}, {32, 8, 1});
  CHECK(refused_heads(view<float, 3>(few, {2, 3, 5}, {30, 8, 1}), {8, 32}) ==
        "factorize: heads of 3 x 5 with strides 30, 8 and 1 cannot be copied by boxes: rows must begin at multiples of "
        "16 bytes");
  CHECK(refused_heads(sound, {300, 32}) == "factorize: a box has 300 rows but takes 1 to 256");
  CHECK(refused_heads(sound, {8, 33}) == "factorize: a row of a box has 132 bytes but takes 16, 32, ... 128");
}
