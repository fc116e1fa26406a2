// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cuda.cuh>
#include <tessera/tile/cuda/load_matrix.cuh>
#include <tessera/tile/cuda/shared_access.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "tile/cuda/device_values.cuh"

using namespace tessera;
using tessera_test::device_values;

namespace load_matrix_test {  // not anonymous: for old architectures nothing refers to store_four

/// Rows of 16 bytes; row number r of all matrices lies at position position_of(r), so that an address counts.
constexpr int matrix_rows = 32;
__host__ __device__ constexpr int position_of(int row) {
  return row * 5 % matrix_rows;
}

/// A warp loads matrices in all four ways; `results`: of each lane 2, 4, 2 and 4 words.
struct load_all_ways {
  static constexpr int lanes = 32;
  static constexpr int words = 12;
  struct scratch_type {
    alignas(16) std::uint32_t rows[matrix_rows * 4];
  };

  std::uint32_t const* from;
  std::uint32_t* results;

  template <class Group>
  __device__ void operator()(Group const& group, std::int64_t, scratch_type& scratch) const {
    int const lane = group.lane;
    for (int i = lane; i < matrix_rows * 4; i += lanes) {
      scratch.rows[i] = from[i];
    }
    group.sync();
    std::uint32_t const address = shared_address(scratch.rows + 4 * position_of(lane));
    std::uint32_t two[2];
    std::uint32_t four[4];
    std::uint32_t* const to = results + words * lane;
    load_matrix_x2(two, address);
    to[0] = two[0];
    to[1] = two[1];
    load_matrix_x4(four, address);
    for (int i = 0; i < 4; ++i) {
      to[2 + i] = four[i];
    }
    load_matrix_x2_transposed(two, address);
    to[6] = two[0];
    to[7] = two[1];
    load_matrix_x4_transposed(four, address);
    for (int i = 0; i < 4; ++i) {
      to[8 + i] = four[i];
    }
  }
};

/// A warp stores four matrices, of each lane four words.
struct store_four {
  static constexpr int lanes = 32;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 10000;
  struct scratch_type {
    alignas(16) std::uint32_t rows[matrix_rows * 4];
  };

  std::uint32_t const* from;
  std::uint32_t* to;

  template <class Group>
  __device__ void operator()(Group const& group, std::int64_t, scratch_type& scratch) const {
    int const lane = group.lane;
    std::uint32_t const* const own = from + 4 * lane;
    store_matrix_x4(shared_address(scratch.rows + 4 * position_of(lane)), own[0], own[1], own[2], own[3]);
    group.sync();
    for (int i = lane; i < matrix_rows * 4; i += lanes) {
      to[i] = scratch.rows[i];
    }
  }
};

/// Element (row, column) of matrix `which`, of 16 bits, as the host sees the rows.
inline std::uint32_t element(std::vector<std::uint32_t> const& rows, int which, int row, int column) {
  auto const word = static_cast<std::size_t>(4 * position_of(8 * which + row) + column / 2);
  return rows[word] >> (16 * (column % 2)) & 0xffffU;
}

inline std::vector<std::uint32_t> numbered_rows() {
  std::vector<std::uint32_t> rows(matrix_rows * 4);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<std::uint32_t>(2 * i) | static_cast<std::uint32_t>(2 * i + 1) << 16;
  }
  return rows;
}

}  // namespace load_matrix_test

using namespace load_matrix_test;

TEST_CASE("lanes hold the words of a matrix's rows, or of its columns where it is transposed", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const rows = numbered_rows();
  device_values<std::uint32_t> const from(rows);
  device_values<std::uint32_t> const to(32 * load_all_ways::words);
  tessera::cuda const exec;
  exec.run(load_all_ways{from.data(), to.data()}, 1);
  exec.wait();
  auto const found = to.download();
  int wrong = 0;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < load_all_ways::words; ++i) {
      int const which = i < 2 ? i : i < 6 ? i - 2 : i < 8 ? i - 6 : i - 8;
      int const line = lane / 4;
      int const across = 2 * (lane % 4);
      bool const is_transposed = i >= 6;
      std::uint32_t const low = is_transposed ? element(rows, which, across, line) : element(rows, which, line, across);
      std::uint32_t const high =
          is_transposed ? element(rows, which, across + 1, line) : element(rows, which, line, across + 1);
      wrong += found[static_cast<std::size_t>(load_all_ways::words * lane + i)] == (low | high << 16) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("matrices are stored as they are loaded", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!tessera_test::has_sm_90()) {
    WARN("the device has no instruction that stores matrices");
    return;
  }
  auto const words = numbered_rows();  // of each lane four
  device_values<std::uint32_t> const from(words);
  device_values<std::uint32_t> const to(words.size());
  tessera::cuda const exec;
  exec.run(store_four{from.data(), to.data()}, 1);
  exec.wait();
  auto const found = to.download();
  int wrong = 0;
  for (int which = 0; which < 4; ++which) {
    for (int row = 0; row < 8; ++row) {
      for (int column = 0; column < 8; ++column) {
        auto const lane = static_cast<std::size_t>(4 * row + column / 2);
        std::uint32_t const expected =
            words[4 * lane + static_cast<std::size_t>(which)] >> (16 * (column % 2)) & 0xffffU;
        wrong += element(found, which, row, column) == expected ? 0 : 1;
      }
    }
  }
  CHECK(wrong == 0);
}
