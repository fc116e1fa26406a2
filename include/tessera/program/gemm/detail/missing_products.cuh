// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `missing_products`: what weights that no code says add to products of few rows with a coded matrix
/// (program/gemm/gemm_few_rows_coded.cuh), in whose main loop the smallest normal number with the weight's sign stands
/// for each of them.
///
/// A warp takes 32 such weights at a time, whichever blocks and rows of the matrix they are of, so that their entries
/// in lists, their bytes and the inputs are on their way together: one lane after the other would wait for each.
/// Products go through shared memory to the lane that adds up a token's, in the order of weights, so that sums are the
/// same whenever they are computed.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/source/coded_weights.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// In shared memory. Tokens: rows of the inputs, 32 at most. Rows: rows of weights of a thread block. Warps: those that
/// share these rows.
template <int Tokens, int Rows, int Warps>
struct missing_products {
  static constexpr int rows = Rows / Warps;  ///< of a warp
  static_assert(rows * Warps == Rows);

  float sums[Tokens][Rows];  ///< what is missing of each product of a row of inputs and one of weights
  /// Of the weights that warps have at hand; lanes write to different banks.
  float products[Warps][lanes_in_a_warp][Tokens + 1];

  /// Fills warp number `warp`'s part of `sums`, for rows of weights from `first_row` on. All lanes of that warp call
  /// it, and others read after a sync.
  __device__ __forceinline__ void find(int warp, int lane, coded_weights const& weights, std::int64_t first_row,
                                       matrix_view<bfloat16 const> const& inputs) {
    constexpr int lanes = lanes_in_a_warp;
    for (int i = lane; i < Tokens * rows; i += lanes) {
      sums[i / rows][warp * rows + i % rows] = 0;
    }
    sync_warp();
    std::int64_t const own_row = first_row + warp * rows;
    position_range const range{own_row * weights.columns(), (own_row + rows) * weights.columns()};
    std::int64_t const blocks = ((range.end - 1) >> weights.log2_block) + 1;
    running_sum running{-1, 0};
#pragma unroll 1
    for (std::int64_t block = range.begin >> weights.log2_block; block < blocks; block += lanes) {
      int const count = block + lane < blocks ? weights.uncoded_in(block + lane) : 0;
      int const before = sum_of_lanes_before(lane, count);
      int const all = shuffle(before + count, lanes - 1);
      own_weight next = weight_of(weights, range, block, before, lane, all);
#pragma unroll 1
      for (int first = 0; first < all; first += lanes) {
        own_weight const now = next;
        next = weight_of(weights, range, block, before, first + lanes + lane, all);
        multiply(products[warp][lane], now, inputs);
        sync_warp();
        add(warp, lane, min(all - first, lanes), now.row, running);
        sync_warp();
      }
    }
    keep(warp, lane, running);
  }

 private:
  /// Positions from `begin` to `end` - 1.
  struct position_range {
    std::int64_t begin;  ///< the first position
    std::int64_t end;    ///< one past the last position
  };
  /// A lane's weight, or one without a part in any product.
  struct own_weight {
    int row;              ///< row of the warp's part of `sums`
    std::int64_t column;  ///< column of the matrix, or -1
    float value;          ///< the weight
  };
  /// What a lane has added up of a token's products in a row.
  struct running_sum {
    int row;    ///< of the warp's part, the same for all lanes; -1 before the first
    float sum;  ///< of the lane's token
  };

  __device__ __forceinline__ static int sum_of_lanes_before(int lane, int count) {
    int sum = count;
#pragma unroll
    for (int distance = 1; distance < lanes_in_a_warp; distance *= 2) {
      int const other = shuffle_up(sum, static_cast<unsigned>(distance));
      sum += lane >= distance ? other : 0;
    }
    return sum - count;
  }
  /// Weight number `which` of those that blocks from number `block` on have together, of which there are `all`. Lane i
  /// says how many are `before` block + i. All lanes call it.
  __device__ __forceinline__ static own_weight weight_of(coded_weights const& weights, position_range const& range,
                                                         std::int64_t block, int before, int which, int all) {
    int at = 0;  // the last lane whose block begins at `which` or before
#pragma unroll
    for (int step = lanes_in_a_warp / 2; step > 0; step /= 2) {
      at += shuffle(before, at + step) <= which ? step : 0;
    }
    int const in_block = which - shuffle(before, at);
    if (which >= all) {
      return {rows - 1, -1, 0};
    }
    auto const found = weights.uncoded(block + at, in_block);
    if (found.position < range.begin || found.position >= range.end) {
      return {found.position < range.begin ? 0 : rows - 1, -1, 0};
    }
    auto const row = static_cast<int>((found.position - range.begin) / weights.columns());
    return {row, found.position - range.begin - row * weights.columns(), load(found.value)};
  }
  /// What products lack in which the smallest normal number stood for a weight. An infinite input has made an infinity
  /// of the right sign, and there lacks nothing unless the weight is zero or NaN.
  __device__ __forceinline__ static void multiply(float (&to)[Tokens + 1], own_weight const& weight,
                                                  matrix_view<bfloat16 const> const& inputs) {
    float const exact = weight.value;
    float const lacks = exact - copysignf(0x1p-126F, exact);
    bool const is_special = exact == 0.0F || is_nan(exact);  // whose product with infinity is NaN
    // All loads come first, without branches: otherwise each would be waited for.
    bfloat16 const* const input = inputs.data + max(weight.column, std::int64_t{0});
    bfloat16 values[Tokens];
#pragma unroll
    for (int token = 0; token < Tokens; ++token) {
      values[token] = input[min(std::int64_t{token}, inputs.extent(0) - 1) * inputs.stride(0)];
    }
#pragma unroll
    for (int token = 0; token < Tokens; ++token) {
      float const value = load(values[token]);
      float const product = is_finite(value) ? lacks * value : is_special ? exact * value : 0.0F;
      to[token] = weight.column >= 0 ? product : 0;
    }
  }
  /// Adds up the products of `count` weights; a lane has its own `row`.
  __device__ __forceinline__ void add(int warp, int lane, int count, int row, running_sum& running) {
    int const token = min(lane, Tokens - 1);
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
      int const next = shuffle(row, i);
      if (next != running.row) {
        keep(warp, lane, running);
        running = {next, 0};
      }
      running.sum += products[warp][i][token];
    }
  }
  __device__ __forceinline__ void keep(int warp, int lane, running_sum const& running) {
    if (lane < Tokens && running.row >= 0) {
      sums[lane][warp * rows + running.row] += running.sum;
    }
  }
};

}  // namespace v0
}  // namespace tessera
