// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/precision.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/tile/copies_in_flight.hpp>
#include <tessera/tile/source/async_source.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/staged_tile.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

/// Loads a tile twice, at once and asynchronously, and writes both.
template <class Source>
struct both_loads {
  static constexpr int lanes = 64;
  using tile = staged_tile<bfloat16, 24, 64>;
  struct scratch_type {
    tile at_once, awaited;
  };
  Source source;
  std::int64_t first_row, first_column;
  matrix_view<bfloat16> at_once, awaited;  ///< as the tile

  template <class G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type& scratch) const {
    source.begin_load(group, scratch.awaited, first_row, first_column);
    copies_in_flight<G>::commit();
    source.load(group, scratch.at_once, first_row, first_column);
    copies_in_flight<G>::template await<0>();
    group.sync();
    for (int lane : group) {
      for (int i = lane; i < tile::rows * tile::columns; i += lanes) {
        int const row = i / tile::columns, column = i % tile::columns;
        at_once(row, column) = scratch.at_once(row, column);
        awaited(row, column) = scratch.awaited(row, column);
      }
    }
  }
};

template <class Source>
void check_both_loads(cuda const& exec, Source const& source, std::int64_t first_row, std::int64_t first_column) {
  static_assert(AsyncSource<Source, cuda_block<64>, typename both_loads<Source>::tile>);
  CAPTURE(first_row, first_column);
  constexpr std::int64_t rows = both_loads<Source>::tile::rows, columns = both_loads<Source>::tile::columns;
  std::vector<bfloat16> const poison(static_cast<std::size_t>(rows * columns), store<bfloat16>(-1.0F));
  auto at_once = to_device(exec, poison);
  auto awaited = to_device(exec, poison);
  exec.run(
      both_loads<Source>{
          source, first_row, first_column, {at_once.data(), {rows, columns}}, {awaited.data(), {rows, columns}}},
      1);
  auto const expected = to_host(exec, at_once);
  auto const found = to_host(exec, awaited);
  bool is_same = true;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    is_same = is_same && expected[i] == found[i];
  }
  CHECK(is_same);
}

/// The same in words of so many bytes, where the source has them.
template <int Bytes, class Source>
void check_words(cuda const& exec, Source const& source, std::int64_t first_row, std::int64_t first_column) {
  if (source.template has_words<Bytes>()) {
    check_both_loads(exec, source.template in_words<Bytes>(), first_row, first_column);
  }
}

}  // namespace

TEST_CASE("tiles that a GPU loads asynchronously are those that it loads at once", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  std::vector<bfloat16> values;
  for (int i = 0; i < 50 * 80 + 1; ++i) {
    values.push_back(store<bfloat16>(static_cast<float>(i % 251)));
  }
  auto const memory = to_device(exec, values);
  auto const order = to_device(exec, std::vector<std::int64_t>{49, 0, 7, -1, 50, 7, 31, 2, 3});
  // Columns that fill chunks or words of 4 bytes, columns that do not, and rows that begin at odd elements.
  for (matrix_view<bfloat16 const> const matrix :
       {matrix_view<bfloat16 const>(memory.data(), {50, 80}), matrix_view<bfloat16 const>(memory.data(), {49, 77}),
        matrix_view<bfloat16 const>(memory.data(), {50, 78}),
        matrix_view<bfloat16 const>(memory.data(), {50, 77}, {78, 1}),
        matrix_view<bfloat16 const>(memory.data() + 1, {50, 80})}) {
    dense<bfloat16> const rows{matrix};
    gathered<bfloat16> const list{matrix, order.view()};
    CHECK(rows.has_words<4>() == (matrix.stride(0) % 2 == 0 && matrix.data == memory.data()));
    CHECK(list.has_words<8>() == (matrix.stride(0) % 4 == 0 && matrix.data == memory.data()));
    for (std::int64_t const first_row : {0, 24, 48, 72}) {
      for (std::int64_t const first_column : {0, 16, 64}) {
        check_both_loads(exec, rows, first_row, first_column);
        check_both_loads(exec, list, first_row / 24, first_column);
        check_words<4>(exec, rows, first_row, first_column);
        check_words<8>(exec, rows, first_row, first_column);
        check_words<4>(exec, list, first_row / 24, first_column);
        check_words<8>(exec, list, first_row / 24, first_column);
      }
    }
  }
}
