// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// DeepSeek-V3's products in fp8 (arXiv 2412.19437, section 3.3.2): a linear layer of e4m3 codes with a scale for each
/// 1 x 128 inputs and each 128 x 128 weights. Sums of 128 products leave the tensor cores, whose sums keep few bits,
/// and are scaled and added up in fp32.
///
///     output(t, c) = sum over groups g of  x(t, g) w(c / 128, g) * sum over k in g of  x_code(t, k) w_code(c, k)
///
/// The library has quantized_matrix for the inputs, and scaled_linear. `quantize_blocks`, which gives weights their
/// scales by blocks, is a user's own program. Bytes: 1 a weight, 1 + 4/128 an input. FLOPs: 2 tokens a weight.
#pragma once

#include <tessera/algorithm/gemm/quantized_matrix.hpp>
#include <tessera/algorithm/gemm/scaled_linear.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/source/scaled_operand.hpp>

namespace tessera_examples {

using namespace tessera;

using float8_groups = scaled_float_quantizer<float8_e4m3, 128>;

/// Makes the codes of a block of 128 x 128 weights, or of what there is of it. A lane takes a column.
struct quantize_blocks {
  static constexpr int lanes = 128;
  struct scratch_type {};
  matrix_view<bfloat16 const> weights;      ///< columns x depth
  matrix_view<float8_e4m3> codes;           ///< as weights
  matrix_view<scaled_float_params> scales;  ///< blocks of columns x blocks of the depth

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    float8_groups const by_block;
    std::int64_t const row = which / scales.extent(1), column = which % scales.extent(1);
    std::int64_t const end = min((row + 1) * 128, weights.extent(0));
    per_lane<float, G> largest;
    for (int lane : group) {
      largest[lane] = by_block.range().identity();
      for (std::int64_t r = row * 128; r < end && column * 128 + lane < weights.extent(1); ++r) {
        by_block.range().push(largest[lane], load(weights(r, column * 128 + lane)));
      }
    }
    scaled_float_params const scale = by_block.fit(maximum(group, largest));
    for (int lane : group) {
      scales(row, column) = scale;
      for (std::int64_t r = row * 128; r < end && column * 128 + lane < weights.extent(1); ++r) {
        codes(r, column * 128 + lane) = by_block.encode(load(weights(r, column * 128 + lane)), scale);
      }
    }
  }
};

class group_scaled_linear {
 public:
  using matrix = quantized_matrix<float8_groups>;

  /// Quantizes the weights, columns x depth, and takes memory for the codes of up to `tokens` inputs.
  template <class Executor>
  group_scaled_linear(Executor const& exec, matrix_view<bfloat16 const> weights, std::int64_t tokens)
      : columns_(weights.extent(0)),
        depth_(weights.extent(1)),
        codes_(exec, columns_ * depth_),
        scales_(exec, divide_up(columns_, std::int64_t{128}) * matrix::groups(depth_)),
        input_codes_(exec, tokens * depth_),
        input_scales_(exec, tokens * matrix::groups(depth_)) {
    exec.run(quantize_blocks{weights, {codes_.data(), {columns_, depth_}}, scales()}, scales().size());
  }
  /// Enqueues outputs = inputs weights^T: tokens x depth, tokens x columns.
  template <class Executor>
  void forward(Executor const& exec, matrix_view<bfloat16 const> inputs, matrix_view<bfloat16> outputs) {
    auto const codes = input_codes(inputs.extent(0));
    auto const scales = input_scales(inputs.extent(0));
    matrix::quantize(exec, {}, inputs, codes, scales);
    scaled_linear::forward(exec, scaled_operand<float8_groups>{codes, scales}, weights(), outputs);
  }
  matrix_view<float8_e4m3> input_codes(std::int64_t tokens) { return {input_codes_.data(), {tokens, depth_}}; }
  /// Scales of neighbouring tokens lie side by side, as scaled_linear reads them fastest.
  matrix_view<scaled_float_params> input_scales(std::int64_t tokens) {
    return {input_scales_.data(), {tokens, matrix::groups(depth_)}, {1, tokens}};
  }
  /// The weights as products take them.
  [[nodiscard]] scaled_operand<float8_groups, 128> weights() { return {{codes_.data(), {columns_, depth_}}, scales()}; }

 private:
  matrix_view<scaled_float_params> scales() {
    return {scales_.data(), {divide_up(columns_, std::int64_t{128}), matrix::groups(depth_)}};
  }
  std::int64_t columns_, depth_;
  buffer<float8_e4m3> codes_;
  buffer<scaled_float_params> scales_;
  buffer<float8_e4m3> input_codes_;
  buffer<scaled_float_params> input_scales_;
};

}  // namespace tessera_examples
