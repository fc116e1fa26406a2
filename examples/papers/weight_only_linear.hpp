// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Weight-only quantization, W4A16 (as in GPTQ, arXiv 2210.17323, and AWQ, arXiv 2306.00978): a linear layer of bf16
/// inputs and 4-bit weights, of which 128 neighbouring ones of a row share a scale.
///
///     output(t, c) = sum over groups g of  scale(c, g) * sum over k in g of  input(t, k) * code(c, k)
///
/// Codes are whole numbers from -7 to 7, which bf16 holds exactly, so that a scale takes one multiplication for a sum
/// of 128 products. The quantizer, the layout of codes and the source are words of the library; `linear` multiplies by
/// any source. Bytes: (1/2 + 1/32) a weight instead of 2. FLOPs: 2 tokens a weight.
#pragma once

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/algorithm/gemm/quantized_matrix.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/tile/source/scaled_codes.hpp>

namespace tessera_examples {

using namespace tessera;

class weight_only_linear {
 public:
  using quantizer = two_to_a_byte<symmetric_quantizer<4, 128>>;
  using matrix = quantized_matrix<quantizer>;

  /// Quantizes the weights, columns x depth. The depth is even.
  template <class Executor>
  weight_only_linear(Executor const& exec, matrix_view<bfloat16 const> weights)
      : columns_(weights.extent(0)),
        depth_(weights.extent(1)),
        codes_(exec, columns_ * matrix::code_columns(depth_)),
        scales_(exec, columns_ * matrix::groups(depth_)) {
    matrix::quantize(exec, {}, weights, {codes_.data(), {columns_, matrix::code_columns(depth_)}},
                     {scales_.data(), {columns_, matrix::groups(depth_)}});
  }
  /// The weights as products take them.
  [[nodiscard]] scaled_codes<quantizer, bfloat16> weights() const {
    return {{}, {codes_.data(), {columns_, depth_ / 2}}, {scales_.data(), {columns_, matrix::groups(depth_)}}};
  }
  /// The workspace of forward(): for many tokens a GPU writes parts of the weights to memory as bf16.
  template <class Executor>
  [[nodiscard]] workspace_plan plan_forward(Executor const& exec, std::int64_t tokens) const {
    return linear<bfloat16>::plan_forward(exec, tokens, weights());
  }
  /// Enqueues outputs = inputs weights^T: tokens x depth, tokens x columns.
  template <class Executor>
  void forward(Executor const& exec, matrix_view<bfloat16 const> inputs, matrix_view<bfloat16> outputs,
               workspace const& space) const {
    linear<bfloat16>::forward(exec, inputs, weights(), outputs, space);
  }

 private:
  std::int64_t columns_, depth_;
  buffer<int4x2> codes_;
  buffer<symmetric_params> scales_;
};

}  // namespace tessera_examples
