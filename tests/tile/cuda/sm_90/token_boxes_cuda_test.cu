// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/sm_90/token_boxes.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace token_boxes_test {  // not anonymous: for old architectures nothing refers to the programs

constexpr int box_rows = 16;
constexpr int box_columns = 32;  // floats: 128 bytes

/// Writes a box row by row: of its 128 bytes, the 16 bytes number c of row r are at 128 r + 16 (c ^ (r % 8)).
struct copy_token_box {
  static constexpr int lanes = 64;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 10000;
  struct scratch_type {
    alignas(1024) float box[box_rows * box_columns];
    shared_barrier full;
  };

  token_map from;
  token_place place;
  box_coordinate coordinate;
  float* to;

  __device__ void operator()(cuda_block<64> const& group, std::int64_t, scratch_type& scratch) const {
    if (group.lane == 0) {
      scratch.full.init(1);
      fence_barrier_init();
    }
    group.sync();
    if (group.lane == 0) {
      scratch.full.arrive_and_expect(static_cast<int>(sizeof scratch.box));
      load_token_box(scratch.box, from, scratch.full, place, coordinate);
    }
    scratch.full.wait(0);
    for (int i = group.lane; i < box_rows * box_columns; i += lanes) {
      int const row = i / box_columns;
      int const column = i % box_columns;
      to[i] = scratch.box[row * box_columns + ((column / 4) ^ (row % 8)) * 4 + column % 4];
    }
  }
};

/// Heads in memory that is otherwise full of NaN.
struct stored_tokens {
  std::int64_t extents[4];
  std::int64_t strides[4];
  std::int64_t packed;  ///< tokens of all sequences, if they lie one behind the other

  [[nodiscard]] std::vector<float> memory() const {
    std::vector<float> all(20000, std::numeric_limits<float>::quiet_NaN());
    std::int64_t const tokens = packed > 0 ? packed : extents[2];
    for (std::int64_t sequence = 0; sequence < (packed > 0 ? 1 : extents[0]); ++sequence) {
      for (std::int64_t head = 0; head < extents[1]; ++head) {
        for (std::int64_t token = 0; token < tokens; ++token) {
          for (std::int64_t channel = 0; channel < extents[3]; ++channel) {
            all[at(sequence, head, token, channel)] =
                static_cast<float>(((sequence * 10 + head) * 100 + token) * 100 + channel);
          }
        }
      }
    }
    return all;
  }
  [[nodiscard]] std::size_t at(std::int64_t sequence, std::int64_t head, std::int64_t token,
                               std::int64_t channel) const {
    return static_cast<std::size_t>(sequence * strides[0] + head * strides[1] + token * strides[2] +
                                    channel * strides[3]);
  }
  /// The elements of a box, zeros beyond the end of the tokens and the last channel.
  [[nodiscard]] std::vector<float> box(std::vector<float> const& all, token_head of, token_interval tokens,
                                       box_coordinate from) const {
    std::vector<float> found(box_rows * box_columns);
    for (std::size_t i = 0; i < found.size(); ++i) {
      std::int64_t const token = from.row + static_cast<std::int64_t>(i) / box_columns;
      std::int64_t const channel = from.column + static_cast<std::int64_t>(i) % box_columns;
      if (token < tokens.end && channel < extents[3]) {
        found[i] = all[at(packed > 0 ? 0 : of.sequence, of.head, tokens.first + token, channel)];
      }
    }
    return found;
  }
};

inline std::string refused_tokens(head_view<float> const& from, box_shape box) {
  try {
    static_cast<void>(make_token_map("attend", from, 0, box));
  } catch (value_error const& e) {
    return e.what();
  }
  return "nothing thrown";
}

}  // namespace token_boxes_test

using namespace token_boxes_test;

TEST_CASE("a box of tokens is read with zeros from the end of the sequence on", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the device has no copy engine for tensors");
    return;
  }
  tessera::cuda const exec;
  std::vector<stored_tokens> const all{
      {{2, 3, 37, 40}, {5000, 1600, 40, 1}, 0},    // head by head
      {{2, 3, 37, 40}, {5000, 40, 124, 1}, 0},     // token by token
      {{1, 3, 1, 36}, {7, 100, 5, 1}, 0},          // one token, whose stride does not matter
      {{3, 2, 20, 44}, {0, 44, 92, 1}, 50},        // sequences one behind the other, token by token
      {{3, 2, 20, 44}, {0, 50 * 44, 44, 1}, 50}};  // the same, head by head
  for (stored_tokens const& stored : all) {
    auto const memory = stored.memory();
    device_values<float> const from(memory);
    auto const& e = stored.extents;
    auto const& s = stored.strides;
    head_view<float> const heads(from.data(), {e[0], e[1], e[2], e[3]}, {s[0], s[1], s[2], s[3]});
    REQUIRE(can_map_tokens(heads, stored.packed));
    token_map const map = make_token_map("test", heads, stored.packed, {box_rows, box_columns});
    auto const longest = static_cast<std::int32_t>(e[2]);
    for (std::int32_t const end : {0, 1, 7, 15, 16, 17, longest}) {
      for (box_coordinate const coordinate : {box_coordinate{0, 0}, box_coordinate{32, 0}, box_coordinate{4, 16}}) {
        if (end > longest) {
          continue;
        }
        std::int32_t const first = stored.packed > 0 ? static_cast<std::int32_t>(stored.packed) - end : 0;
        token_head const of{stored.packed > 0 ? 0 : static_cast<std::int32_t>(e[0] - 1), 1};
        CAPTURE(s[1], s[2], first, end, coordinate.column, coordinate.row);
        device_values<float> const to(box_rows * box_columns);
        exec.run(copy_token_box{map, map.place_of(of, {first, end}), coordinate, to.data()}, 1);
        exec.wait();
        CHECK(to.download() == stored.box(memory, of, {first, end}, coordinate));
      }
    }
  }
}

TEST_CASE("a map of tokens that a thread remembers is the one that the driver makes", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the device has no copy engine for tensors");
    return;
  }
  device_values<float> const memory(std::vector<float>(8192));
  float* const first = memory.data();
  // Each differs from the first in one thing.
  std::vector<head_view<float>> const all{
      {first, {2, 2, 8, 32}, {2048, 1024, 64, 1}},     {first, {3, 2, 8, 32}, {2048, 1024, 64, 1}},
      {first, {2, 1, 8, 32}, {2048, 1024, 64, 1}},     {first, {2, 2, 9, 32}, {2048, 1024, 64, 1}},
      {first, {2, 2, 8, 31}, {2048, 1024, 64, 1}},     {first, {2, 2, 8, 32}, {4096, 1024, 64, 1}},
      {first, {2, 2, 8, 32}, {2048, 512, 64, 1}},      {first, {2, 2, 8, 32}, {2048, 1024, 128, 1}},
      {first + 64, {2, 2, 8, 32}, {2048, 1024, 64, 1}}};
  int wrong = 0;
  for (int turn = 0; turn < 2; ++turn) {
    for (head_view<float> const& heads : all) {
      for (box_shape const box : {box_shape{8, 32}, box_shape{8, 16}, box_shape{4, 32}, box_shape{8, 32}}) {
        token_map const found = make_token_map("test", heads, 0, box);
        tensor_map const made = detail::encode_token_map("test", heads, 0, box);
        wrong += std::memcmp(&found.boxes, &made, sizeof made) == 0 && found.tokens == heads.extent(2) ? 0 : 1;
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("tokens that the copy engine cannot address are known as such, and refused with their strides", "[cuda]") {
  alignas(16) static float few[256];
  auto const maps = [](std::int64_t offset, std::int64_t(&&extents)[4], std::int64_t(&&strides)[4],
                       std::int64_t packed = 0) {
    return can_map_tokens(head_view<float>(few + offset, extents, strides), packed);
  };
  CHECK(maps(0, {2, 2, 3, 5}, {64, 32, 8, 1}));
  CHECK(maps(4, {1, 1, 3, 5}, {3, 7, 8, 1}));
  CHECK(maps(0, {1, 1, 1, 5}, {3, 7, 6, 1}));
  CHECK(maps(0, {2, 2, 3, 5}, {0, 32, 8, 1}, 4));
  CHECK(!maps(0, {2, 2, 3, 5}, {0, 32, 8, 1}));
  CHECK(!maps(0, {2, 2, 3, 5}, {64, 32, 8, 1}, 4));
  CHECK(!maps(1, {2, 2, 3, 5}, {64, 32, 8, 1}));
  CHECK(!maps(0, {2, 2, 3, 5}, {62, 32, 8, 1}));
  CHECK(!maps(0, {2, 2, 3, 5}, {64, 30, 8, 1}));
  CHECK(!maps(0, {2, 2, 3, 5}, {64, 32, 6, 1}));
  CHECK(!maps(0, {2, 2, 3, 5}, {64, 32, 8, 2}));
  CHECK(!maps(0, {2, 2, 3, 5}, {64, -32, 8, 1}));
  CHECK(!maps(0, {2, 0, 3, 5}, {64, 32, 8, 1}));
  head_view<float> const sound(few, {2, 2, 3, 5}, {64, 32, 8, 1});
  CHECK(refused_tokens({few, {2, 2, 3, 5}, {64, 30, 8, 1}}, {8, 32}) ==
        "attend: heads of 3 x 5 with strides 64, 30, 8 and 1 cannot be copied by boxes: tokens must begin at multiples "
        "of 16 bytes");
  CHECK(refused_tokens(sound, {300, 32}) == "attend: a box has 300 rows but takes 1 to 256");
  CHECK(refused_tokens(sound, {8, 33}) == "attend: a row of a box has 132 bytes but takes 16, 32, ... 128");
}
