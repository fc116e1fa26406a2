// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A linear layer whose weights stay compressed: outputs = inputs * weights^T + bias, with no decoded copy of the
/// weights in memory.
///
///     using linear = tessera::compressed_linear<tessera::neuzip>;
///     linear::layer layer{spec, stream};           // rows x columns weights, row-major; a bias may follow
///     auto plan = linear::plan_forward(exec, spec);
///     // inputs: tokens x columns; outputs: tokens x rows
///     linear::forward(exec, layer, inputs, outputs, tessera::workspace(plan, memory));
///
/// The program is portable: any executor, any of the formats, any strides of inputs and outputs, the same bits
/// everywhere (program/weights/linear.hpp has the order of additions). It decodes the weights again for every 16
/// tokens. On GPUs take coded_matrix instead, with codes of a fixed length; or decode the layer, and multiply with
/// `linear`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/weights/compressed_weights.hpp>
#include <tessera/algorithm/weights/detail/check_streams.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/check.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/status_calls.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/weights/linear.hpp>
#include <tessera/program/weights/reader.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// The product with compressed weights. Codec: the compressed_weights that made the streams.
template <class Codec>
struct compressed_linear {
  using value_type = typename Codec::value_type;

  /// A layer's stream and bias. Nothing is copied.
  struct layer {
    expected_weight_stream spec;             ///< made by the codec's spec(), or what inspect_weight_stream found
    array_view<std::byte const> stream;      ///< 16-byte aligned
    array_view<value_type const> bias = {};  ///< one element for each column of the outputs; null for no bias
  };

  /// The workspace of forward(). Throws value_error for a spec that is not the codec's.
  template <Executor Exec>
  static workspace_plan plan_forward(Exec const&, expected_weight_stream const& spec) {
    Codec::check_spec("compressed_linear.forward", spec.spec());
    return regions().plan;
  }

  /// Enqueues the product. exec.wait() reports a corrupt stream, whose corrupt blocks count as zeros. Throws
  /// shape_error or value_error for arguments that do not fit together.
  template <Executor Exec, class Input, class Output>
  static void forward(Exec const& exec, layer const& weights, view<Input, 2> inputs, view<Output, 2> outputs,
                      workspace const& space) {
    check_shapes(weights, inputs, outputs);
    linear_workspace const layout = regions();
    space.check_room("compressed_linear.forward", layout.plan.bytes(), weights.spec.spec().count, " weights");
    check_reach(exec, "compressed_linear.forward", "bytes of the stream", weights.stream, "biases", weights.bias,
                "inputs", inputs, "outputs", outputs, "bytes of the workspace", space);
    if (inputs.extent(0) == 0 || outputs.extent(1) == 0) {
      return;
    }
    weight_decoding<value_type, coder> decoding;
    decoding.spec = weights.spec.spec();
    decoding.stream = reinterpret_cast<std::uint8_t const*>(weights.stream.data);
    decoding.stream_bytes = weights.stream.size();
    decoding.is_inspected = weights.spec.is_inspected();
    decoding.header_checksum = weights.spec.header_checksum();
    decoding.table = space[layout.table].data;
    decoding.status = status_of(exec, {"compressed_linear.forward", "block"});
    exec.run(open_weights<value_type, coder>{decoding}, 1);
    with_steps_of<value_type, typename Codec::mantissa_type, coder>(exec, [&](auto steps) {
      using reader = weight_reader<value_type, typename Codec::mantissa_type, decltype(steps)>;
      using rows = compressed_linear_rows<reader, std::remove_const_t<Input>, Output>;
      rows const program{reader{decoding}, inputs, weights.bias, outputs,
                         rows::rows_of_band(decoding.spec.block_weights(), inputs.extent(1))};
      exec.run(program, program.groups());
    });
  }

 private:
  using coder = typename Codec::table_coder_type;

  struct linear_workspace {
    workspace_plan plan{"compressed_linear.forward"};
    region<coder_decode_table<coder>> table;
  };
  static linear_workspace regions() {
    linear_workspace result;
    result.table = result.plan.template add<coder_decode_table<coder>>("decode table", 1);
    return result;
  }

  template <class Input, class Output>
  static void check_shapes(layer const& weights, view<Input, 2> inputs, view<Output, 2> outputs) {
    constexpr char const* where = "compressed_linear.forward";
    std::int64_t const rows = outputs.extent(1);
    std::int64_t const columns = inputs.extent(1);
    std::int64_t const count = weights.spec.spec().count;
    std::int64_t const needed = weights.spec.smallest_bytes();
    Codec::check_spec(where, weights.spec.spec());
    check<shape_error>(inputs.extent(0) == outputs.extent(0), where, ": the inputs have ", inputs.extent(0),
                       " tokens but the outputs have ", outputs.extent(0));
    check<shape_error>(checked_multiply(where, rows, columns) == count, where, ": ", rows, " outputs of ", columns,
                       " inputs take ", rows * columns, " weights but the stream has ", count);
    check<shape_error>(weights.bias.data == nullptr || weights.bias.size() == rows, where, ": the bias has ",
                       weights.bias.size(), " values but the outputs have ", rows, " columns");
    check_apart(where, "outputs", outputs);
    check_memory(where, "inputs", inputs);
    check_memory(where, "outputs", outputs);
    check_memory(where, "biases", weights.bias);
    detail::check_stream(where, weights.stream, needed);
  }
};

}  // namespace v0
}  // namespace tessera
