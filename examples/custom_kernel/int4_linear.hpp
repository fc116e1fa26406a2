// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A kernel that a user of tessera may write: a linear layer with 4-bit weights and bf16 inputs. README.md goes through
/// it line by line.
#pragma once

#include <cstdint>

#include <tessera/core/check.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/tile/gemm_tile.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/source/int4_codes.hpp>
#include <tessera/tile/tile_order.hpp>

namespace tessera_examples {

using namespace tessera;

using quantizer = symmetric_quantizer<4, 128>;  // 128 weights of a row share a scale
using scale_view = matrix_view<symmetric_params const>;

/// outputs = inputs * weights^T, where a weight is its code times the scale of its group.
template <int Rows, int Columns, int Lanes, class Output>
struct int4_linear {
  static constexpr int lanes = Lanes;
  static constexpr int blocks_per_multiprocessor = lanes == 32 ? 5 : 2;  // with enough registers for so many blocks
  static constexpr int k_tile = quantizer::group;
  static_assert(Columns <= Lanes, "a lane fetches the scale of a column");
  struct scratch_type {
    staged_tile<bfloat16, Rows, k_tile> x;
    staged_tile<bfloat16, Columns, k_tile> w;
    float scales[Lanes];  // scales of the columns; the other elements are not used
  };

  dense<bfloat16> inputs;       // tokens x depth
  int4_codes weights;           // columns x depth
  scale_view scales;            // groups of the depth x columns
  int parts;                    // parts of the depth, each summed by its own group of lanes
  matrix_view<Output> outputs;  // tokens of the first part, of the second, ... x columns

  TESSERA_FN constexpr tile_order order() const {
    return {static_cast<int>(divide_up(inputs.rows(), std::int64_t{Rows})),
            static_cast<int>(divide_up(weights.rows(), std::int64_t{Columns})), 8};
  }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    using tile = gemm_tile<bfloat16, shape<Rows, Columns, 16>, Group>;
    auto const coordinate = order().at(which % order().count());
    std::int64_t const part = which / order().count();
    std::int64_t const row = std::int64_t{coordinate.row} * Rows;
    std::int64_t const column = std::int64_t{coordinate.column} * Columns;
    std::int64_t const end = scales.extent(0) * (part + 1) / parts;
    typename tile::sum_tile totals;
    tile::clear(group, totals);
    int4_codes::fetched<Group, decltype(scratch.w)> codes;
    per_lane<float, Group> scale;
    auto const fetch = [&, this](std::int64_t k) {
      weights.fetch(group, codes, column, k * k_tile);
      for (int lane : group) {
        scale[lane] = lane < Columns && column + lane < weights.rows() ? scales(k, column + lane).scale : 0.0F;
      }
    };
    std::int64_t k = scales.extent(0) * part / parts;
    fetch(k);
    while (k < end) {
      group.sync();  // the codes and inputs of the step before have been read
      weights.store(group, codes, scratch.w);
      for (int lane : group) {
        scratch.scales[lane] = scale[lane];
      }
      inputs.load(group, scratch.x, row, k * k_tile);
      if (++k < end) {
        fetch(k);  // loaded while this step is multiplied
      }
      typename tile::sum_tile sums;
      tile::clear(group, sums);
      for (int at = 0; at < k_tile; at += tile::depth) {
        typename tile::a_tile x;
        typename tile::b_tile w;
        tile::load_a(group, x, scratch.x.values + at, scratch.x.stride);
        tile::load_b_transposed(group, w, scratch.w.values + at, scratch.w.stride);
        tile::multiply(group, x, w, sums);
      }
      tile::each_pair(group, sums, totals,
                      [&](int, int c, float sum, float& total) { total += sum * scratch.scales[c]; });
    }
    tile::each(group, totals, [&, this](int r, int c, float total) {
      if (row + r < inputs.rows() && column + c < weights.rows()) {
        outputs(part * inputs.rows() + row + r, column + c) = store<Output>(total);
      }
    });
  }
};

/// Adds up the sums of the parts of the depth, from the first to the last.
struct sum_parts {
  static constexpr int lanes = 128;
  struct scratch_type {};
  matrix_view<float const> sums;
  matrix_view<bfloat16> outputs;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      std::int64_t const row = (which * lanes + lane) / outputs.extent(1);
      std::int64_t const column = (which * lanes + lane) % outputs.extent(1);
      float total = 0;
      for (std::int64_t at = row; row < outputs.extent(0) && at < sums.extent(0); at += outputs.extent(0)) {
        total += sums(at, column);
      }
      if (row < outputs.extent(0)) {
        outputs(row, column) = store<bfloat16>(total);
      }
    }
  }
};

/// Quantizes weights to codes and scales, one group of weights for each lane.
struct quantize_weights {
  static constexpr int lanes = 32;
  struct scratch_type {};
  matrix_view<bfloat16 const> weights;   // columns x depth, which is even
  matrix_view<int4x2> codes;             // columns x depth / 2
  matrix_view<symmetric_params> scales;  // groups of the depth x columns

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      std::int64_t const row = (which * lanes + lane) / scales.extent(0);
      std::int64_t const part = (which * lanes + lane) % scales.extent(0);
      if (row < weights.extent(0)) {
        quantize(row, part, part * quantizer::group, min((part + 1) * quantizer::group, weights.extent(1)));
      }
    }
  }

 private:
  TESSERA_FN void quantize(std::int64_t row, std::int64_t part, std::int64_t begin, std::int64_t end) const {
    quantizer const q;
    auto range = q.range().identity();
    for (std::int64_t k = begin; k < end; ++k) {
      q.range().push(range, load(weights(row, k)));
    }
    symmetric_params const params = q.fit(range);
    scales(part, row) = params;
    for (std::int64_t k = begin; k < end; k += 2) {
      codes(row, k / 2) =
          pack_int4(q.encode(load(weights(row, k)), params), q.encode(load(weights(row, k + 1)), params));
    }
  }
};

/// The 4-bit weights of a layer, in an executor's memory.
class int4_layer {
 public:
  template <class Executor>
  int4_layer(Executor const& exec, matrix_view<bfloat16 const> weights)
      : columns_(weights.extent(0)),
        depth_(weights.extent(1)),
        codes_(exec, columns_ * depth_ / 2),
        scales_(exec, columns_ * groups()) {
    check<shape_error>(depth_ > 0 && depth_ % 2 == 0, "int4_layer: the depth is ", depth_, " but must be even, not 0");
    exec.run(quantize_weights{weights, {codes_.data(), {columns_, depth_ / 2}}, {scales_.data(), {groups(), columns_}}},
             divide_up(columns_ * groups(), std::int64_t{quantize_weights::lanes}));
  }

  /// `sums` has the sums of parts of the depth for small batches, see partial_sums().
  template <class Executor>
  void forward(Executor const& exec, matrix_view<bfloat16 const> inputs, array_view<float> sums,
               matrix_view<bfloat16> outputs) const {
    std::int64_t const tokens = inputs.extent(0);
    check<shape_error>(sums.size() >= partial_sums(tokens), "int4_layer.forward: there are ", sums.size(),
                       " partial sums but ", partial_sums(tokens), " are needed");
    if (tokens > few_tokens) {
      int4_linear<128, 64, 128, bfloat16> const program{{inputs}, codes(), scales(), 1, outputs};
      exec.run(program, program.order().count());
    } else {
      // A warp for each 32 columns and 16 groups, so that there are enough warps to keep the memory busy.
      matrix_view<float> const by_part(sums.data, {parts() * tokens, columns_});
      int4_linear<few_tokens, 32, 32, float> const program{{inputs}, codes(), scales(), parts(), by_part};
      exec.run(program, program.order().count() * parts());
      exec.run(sum_parts{by_part, outputs}, divide_up(outputs.size(), std::int64_t{sum_parts::lanes}));
    }
  }
  /// How many elements forward() needs in `sums`.
  [[nodiscard]] std::int64_t partial_sums(std::int64_t tokens) const {
    return tokens > few_tokens ? 0 : parts() * tokens * columns_;
  }

  [[nodiscard]] int4_codes codes() const { return {{codes_.data(), {columns_, depth_ / 2}}}; }
  [[nodiscard]] scale_view scales() const { return {scales_.data(), {groups(), columns_}}; }
  [[nodiscard]] std::int64_t bytes() const { return static_cast<std::int64_t>(codes_.bytes() + scales_.bytes()); }
  [[nodiscard]] std::int64_t groups() const { return divide_up(depth_, std::int64_t{quantizer::group}); }

 private:
  static constexpr int few_tokens = 16;
  [[nodiscard]] int parts() const { return static_cast<int>(divide_up(groups(), std::int64_t{16})); }

  std::int64_t columns_;
  std::int64_t depth_;
  buffer<int4x2> codes_;
  buffer<symmetric_params> scales_;
};

}  // namespace tessera_examples
