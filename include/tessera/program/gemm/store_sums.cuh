// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Epilogues of gemm_cooperative that write a matrix: `store_sums_by_boxes` through shared memory and TMA, and
/// `store_sums_directly` for matrices whose rows do not begin at multiples of 16 bytes. `store_sums_by_rows` is that of
/// gemm_ring.
///
/// Map: see concepts/sum_map.hpp.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/sum_map.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/gemm/store_sums.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/load_matrix.cuh>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/sm_80/row_boxes.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// The common base of store_sums_by_boxes for elements of 2 and of 4 bytes. Each warp writes its 16 rows in boxes of 16
/// x 128 bytes, two of which are being stored at a time.
template <class Output, SumMap Map>
struct box_stores {
  static constexpr int box_rows = 16;
  static constexpr int box_columns = 128 / static_cast<int>(sizeof(Output));
  struct scratch_type {
    alignas(1024) unsigned char box[2][128 * box_rows];
  };

  tensor_map target;  ///< map of boxes of 16 rows of 128 bytes
  std::int32_t rows;
  std::int32_t columns;
  Map map;

  __device__ __forceinline__ void prepare() const { prefetch_tensor_map(target); }
  __device__ __forceinline__ void finish() const { await_box_stores<0>(); }

  /// Maps a sum. Sums outside of the matrix are mapped as if they were at its edge, because a map may read a list by
  /// row or column.
  template <class Sum>
  __device__ __forceinline__ auto mapped(Sum sum, std::int32_t row, std::int32_t column) const {
    return map(sum, min(row, rows - 1), min(column, columns - 1));
  }

  /// Waits until a box may be overwritten, and returns its address in shared memory. Before the first box of a tile it
  /// waits until all earlier boxes have been read, because their number may be odd.
  __device__ __forceinline__ static std::uint32_t open_box(scratch_type& scratch, int box) {
    if (thread_index() % 32 == 0) {
      if (box == 0) {
        await_box_reads<0>();
      } else {
        await_box_reads<1>();
      }
    }
    sync_warp();
    return plain_shared_address(scratch.box[box % 2]);
  }
  /// Starts to store the box that the lanes have written.
  template <class... Policy>
  __device__ __forceinline__ void close_box(scratch_type const& scratch, int box, box_coordinate coordinate,
                                            Policy... policy) const {
    box_coordinate const at{coordinate.column + box * box_columns, coordinate.row};
    fence_async_proxy();
    sync_warp();
    if (thread_index() % 32 == 0) {
      if (at.column < columns && at.row < rows) {
        store_box(target, scratch.box[box % 2], at, policy...);
      }
      commit_box_stores();
    }
  }
};

}  // namespace detail

template <class Output, SumMap Map>
struct store_sums_by_boxes;

/// The epilogue for elements of 4 bytes.
template <class Output, SumMap Map>
requires(sizeof(Output) == 4) struct store_sums_by_boxes<Output, Map> : detail::box_stores<Output, Map> {
  using base = detail::box_stores<Output, Map>;
  using scratch_type = typename base::scratch_type;

  template <class Sum, int Registers>
  __device__ __forceinline__ void operator()(Sum const (&sums)[Registers], box_coordinate coordinate,
                                             scratch_type& scratch) const {
    constexpr int eighths = base::box_columns / 8;
    constexpr int boxes = 2 * Registers / base::box_columns;
    int const lane = static_cast<int>(thread_index() % 32);
    box_coordinate const own{coordinate.column + 2 * (lane % 4), coordinate.row + lane / 4};
#pragma unroll
    for (int box = 0; box < boxes; ++box) {
      std::uint32_t const shared = base::open_box(scratch, box);
#pragma unroll
      for (int part = 0; part < 2 * eighths; ++part) {
        int const eighth = box * eighths + part / 2;
        int const reg = 4 * eighth + 2 * (part % 2);
        std::int32_t const column = own.column + 8 * eighth;
        std::int32_t const row = own.row + 8 * (part % 2);
        auto const in_box = static_cast<std::uint32_t>(lane / 4 + 8 * (part % 2));
        std::uint32_t const chunk = static_cast<std::uint32_t>(2 * (part / 2) + (lane % 4) / 2) ^ (in_box % 8);
        uint2 const pair{
            bit_cast<std::uint32_t>(detail::stored_sum<Output>(this->mapped(sums[reg], row, column))),
            bit_cast<std::uint32_t>(detail::stored_sum<Output>(this->mapped(sums[reg + 1], row, column + 1)))};
        store_shared_u32x2(shared + in_box * 128U + chunk * 16U + static_cast<std::uint32_t>(lane % 2) * 8U, pair);
      }
      this->close_box(scratch, box, coordinate);
    }
  }
};

/// The epilogue for elements of 2 bytes: sums become 64 words at once, which are stored while the next tile is
/// multiplied.
template <class Output, SumMap Map>
requires(sizeof(Output) == 2) struct store_sums_by_boxes<Output, Map> : detail::box_stores<Output, Map> {
  using base = detail::box_stores<Output, Map>;
  using scratch_type = typename base::scratch_type;

  /// Results whose storing is deferred: for each 8 columns a word for row lane / 4 and one for the row 8 further.
  template <int Registers>
  struct deferred_type {
    std::uint32_t words[Registers / 2];  ///< pairs of results
  };

  /// Rounds the sums of a warp to pairs of results, to be stored later.
  template <class Sum, int Registers>
  __device__ __forceinline__ void defer(Sum const (&sums)[Registers], box_coordinate coordinate,
                                        deferred_type<Registers>& deferred) const {
    int const lane = static_cast<int>(thread_index() % 32);
    box_coordinate const own{coordinate.column + 2 * (lane % 4), coordinate.row + lane / 4};
#pragma unroll
    for (int part = 0; part < Registers / 2; part += 16) {
      std::uint32_t words[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        std::int32_t const column = own.column + (part + i) / 2 * 8;
        std::int32_t const row = own.row + i % 2 * 8;
        int const reg = 2 * (part + i);
        words[i] = pack_pair<Output>(static_cast<float>(this->mapped(sums[reg], row, column)),
                                     static_cast<float>(this->mapped(sums[reg + 1], row, column + 1)));
      }
      sync_warp();  // so that a map's inputs are not all loaded at once, for which there are no registers
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        deferred.words[part + i] = words[i];
      }
    }
  }

  /// Stores half of the deferred results.
  template <int Half, int Registers>
  __device__ __forceinline__ void run_deferred(deferred_type<Registers> const& deferred, box_coordinate coordinate,
                                               scratch_type& scratch) const {
    constexpr int eighths = base::box_columns / 8;
    constexpr int boxes = 2 * Registers / base::box_columns;
    int const lane = static_cast<int>(thread_index() % 32);
#pragma unroll
    for (int box = Half * boxes / 2; box < (Half + 1) * boxes / 2; ++box) {
      std::uint32_t const row = base::open_box(scratch, box) + static_cast<std::uint32_t>(lane % 16) * 128U;
#pragma unroll
      for (int eighth = 0; eighth < eighths; eighth += 2) {
        std::uint32_t const* const words = deferred.words + 2 * (box * eighths + eighth);
        std::uint32_t const chunk =
            static_cast<std::uint32_t>(eighth + lane / 16) ^ static_cast<std::uint32_t>(lane % 8);
        store_matrix_x4(row + chunk * 16U, words[0], words[1], words[2], words[3]);
      }
      this->close_box(scratch, box, coordinate);
    }
  }
};

/// The epilogue for elements of 2 bytes whose rows begin and end at multiples of 16 bytes, without TMA: through shared
/// memory, so that eight lanes write 128 bytes of a row.
template <class Output, SumMap Map>
struct store_sums_by_rows {
  /// How rows are written.
  using boxes = row_boxes<Output>;
  using scratch_type = typename boxes::scratch_type;

  boxes target;  ///< rows x columns
  Map map;
  __device__ __forceinline__ void prepare() const {}
  __device__ __forceinline__ void finish() const {}

  template <class Sum, int Registers>
  __device__ __forceinline__ void operator()(Sum const (&sums)[Registers], box_coordinate coordinate,
                                             scratch_type& scratch) const {
    auto const lane = static_cast<std::int32_t>(thread_index() % 32);
    box_coordinate const own{coordinate.column + 2 * (lane % 4), coordinate.row + lane / 4};
#pragma unroll
    for (int box = 0; box < Registers / 32; ++box) {
      std::uint32_t const shared = boxes::open_box(scratch, box);
#pragma unroll
      for (int quarter = 0; quarter < 4; ++quarter) {
        std::uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          int const reg = 32 * box + 8 * quarter + 2 * i;
          box_coordinate const at{own.column + reg / 4 * 8, own.row + i % 2 * 8};
          words[i] = pack_pair<Output>(mapped(sums[reg], at), mapped(sums[reg + 1], {at.column + 1, at.row}));
        }
        boxes::write_columns(shared, quarter, words[0], words[1], words[2], words[3]);
      }
      target.close_box(scratch, box, coordinate);
    }
  }

 private:
  /// Maps a sum. Sums outside of the matrix are mapped as if they were at its edge, because a map may read a list by
  /// row or column.
  template <class Sum>
  __device__ __forceinline__ float mapped(Sum sum, box_coordinate at) const {
    return static_cast<float>(map(sum, min(at.row, static_cast<std::int32_t>(target.target.extent(0)) - 1),
                                  min(at.column, static_cast<std::int32_t>(target.target.extent(1)) - 1)));
  }
};

/// The epilogue for any strides and any storage type: each thread stores its own sums.
template <class Output, SumMap Map>
struct store_sums_directly {
  struct scratch_type {};

  /// The results: rows x columns.
  matrix_view<Output> target;
  Map map;

  __device__ __forceinline__ void prepare() const {}

  template <class Sum, int Registers>
  __device__ __forceinline__ void operator()(Sum const (&sums)[Registers], box_coordinate coordinate,
                                             scratch_type&) const {
    int const lane = static_cast<int>(thread_index() % 32);
    std::int64_t const first_row = coordinate.row + lane / 4;
    std::int64_t const first_column = coordinate.column + 2 * (lane % 4);
#pragma unroll
    for (int reg = 0; reg < Registers; ++reg) {
      std::int64_t const row = first_row + reg / 2 % 2 * 8;
      std::int64_t const column = first_column + reg / 4 * 8 + reg % 2;
      if (row < target.extent(0) && column < target.extent(1)) {
        target(row, column) = detail::stored_sum<Output>(map(sums[reg], row, column));
      }
    }
  }

  __device__ __forceinline__ void finish() const {}
};

}  // namespace v0
}  // namespace tessera
