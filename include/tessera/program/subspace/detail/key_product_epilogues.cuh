// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Epilogues of head_products: `store_gram_part` stores sums in the layout of gram_schedule, and `store_coefficients`
/// stores rows of a matrix by TMA.
#pragma once

#include <cstdint>

#include <tessera/map/plain_sum.hpp>
#include <tessera/program/gemm/store_sums.cuh>
#include <tessera/program/subspace/key_product_schedule.hpp>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/thread_index.cuh>

namespace tessera {
inline namespace v0 {

/// Stores sums of a part where gram_schedule::element() says.
struct store_gram_part {
  struct scratch_type {};

  gram_schedule schedule;  ///< the schedule of the sums
  float* parts;            ///< the sums of the parts, at a multiple of 8 bytes

  __device__ __forceinline__ void prepare() const {}
  __device__ __forceinline__ void finish() const {}

  /// Stores the sums of a warp. `row`: the first of the warp's 16 rows in the tile.
  template <int Registers>
  __device__ __forceinline__ void operator()(float const (&sums)[Registers], head_work_item const& item,
                                             std::int32_t row, scratch_type&) const {
    auto const lane = static_cast<std::int32_t>(thread_index() % 32);
    float* const own = parts + schedule.element(item, row + lane / 4, 2 * (lane % 4));
#pragma unroll
    for (int pair = 0; pair < Registers / 2; ++pair) {
      int const at = pair % 2 * 8 * gram_schedule::tile + pair / 2 * 8;
      *reinterpret_cast<float2*>(own + at) = float2{sums[2 * pair], sums[2 * pair + 1]};
    }
  }
};

template <class T>
/// Stores rows of coefficients, rounded.
struct store_coefficients {
  /// The TMA epilogue that stores them.
  using boxes_type = store_sums_by_boxes<T, plain_sum>;
  using scratch_type = typename boxes_type::scratch_type;

  boxes_type boxes;  ///< stores boxes of the coefficients

  __device__ __forceinline__ void prepare() const { boxes.prepare(); }
  __device__ __forceinline__ void finish() const { boxes.finish(); }

  /// Stores the sums of a warp. `row`: the first of the warp's 16 rows in the tile.
  template <int Registers>
  __device__ __forceinline__ void operator()(float const (&sums)[Registers], head_work_item const& item,
                                             std::int32_t row, scratch_type& scratch) const {
    box_coordinate const coordinate{0, item.row * projection_schedule::tile + row};
    typename boxes_type::template deferred_type<Registers> words;
    boxes.defer(sums, coordinate, words);
    boxes.template run_deferred<0>(words, coordinate, scratch);
    boxes.template run_deferred<1>(words, coordinate, scratch);
  }
};

}  // namespace v0
}  // namespace tessera
