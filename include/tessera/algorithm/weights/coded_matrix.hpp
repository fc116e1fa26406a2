// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Opens a stream of codes of a fixed length as the weights of a product, on any executor: they are decoded while they
/// are multiplied.
///
///     using codec = tessera::neuzip_fixed<tessera::bfloat16>;
///     using matrix = tessera::coded_matrix<codec>;
///     auto const plan = matrix::plan_open(exec, spec);                       // spec: codec::spec(rows * columns)
///     tessera::buffer<std::byte> memory(exec, plan.bytes());
///     auto const weights = matrix::open(exec, {spec, stream, rows, columns}, tessera::workspace(plan, memory));
///     tessera::linear<tessera::bfloat16>::forward(exec, inputs, weights, outputs);     // as often as needed
///
/// Opening takes two launches and is done once. The stream and the workspace must stay as they are for as long as the
/// weights are used. The product is one of the decoded weights, in the order of additions of the program that `linear`
/// chooses: the portable one gives the same bits for both.
///
/// Streams of other coders are decoded first, by the codec's decode(), and multiplied by `linear` then: to find where a
/// weight's code begins, rANS has to pop all codes before it in the block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/weights/compressed_weights.hpp>
#include <tessera/algorithm/weights/detail/check_streams.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/check.hpp>
#include <tessera/entropy/fixed_coder.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/status_calls.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/weights/open_blocks.hpp>
#include <tessera/program/weights/reader.hpp>
#include <tessera/tile/source/coded_weights.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

/// Codec: the compressed_weights that made the streams, lossless, of bf16 and with fixed_coder.
template <class Codec>
struct coded_matrix {
  static_assert(
      std::is_same_v<typename Codec::value_type, bfloat16> && Codec::is_lossless &&
          std::is_same_v<typename Codec::coder_type, fixed_coder>,
      "tessera: coded_matrix opens lossless streams of bf16 with fixed_coder, as neuzip_fixed<bfloat16> makes");

  /// A stream and the shape of its matrix. Nothing is copied.
  struct matrix {
    expected_weight_stream spec;         ///< made by the codec's spec(), or what inspect_weight_stream found
    array_view<std::byte const> stream;  ///< 16-byte aligned
    std::int64_t rows = 0;               ///< rows of the matrix, which are outputs of a layer
    std::int64_t columns = 0;            ///< columns of the matrix; weights lie in rows
  };

  /// The memory that open() fills and the weights need. Throws value_error for a spec that is not the codec's.
  template <Executor Exec>
  static workspace_plan plan_open(Exec const&, expected_weight_stream const& spec) {
    return regions(spec.spec()).plan;
  }

  /// Enqueues the checks of the stream. exec.wait() reports a corrupt stream as decode() does, with the block's number;
  /// weights of corrupt blocks are zeros. Throws shape_error or value_error for arguments that do not fit together, and
  /// for a tensor so small that its stream has no codes.
  template <Executor Exec>
  static coded_weights open(Exec const& exec, matrix const& from, workspace const& space) {
    constexpr char const* where = "coded_matrix.open";
    weight_stream_spec const& spec = from.spec.spec();
    open_workspace const layout = regions(spec);
    check_shape(from);
    space.check_room(where, layout.plan.bytes(), spec.count, " weights");
    check_reach(exec, where, "bytes of the stream", from.stream, "bytes of the workspace", space);
    weight_decoding<bfloat16> decoding;
    decoding.spec = spec;
    decoding.stream = reinterpret_cast<std::uint8_t const*>(from.stream.data);
    decoding.stream_bytes = from.stream.size();
    decoding.blocks = spec.block_count();
    decoding.is_inspected = from.spec.is_inspected();
    decoding.header_checksum = from.spec.header_checksum();
    decoding.table = space[layout.table].data;
    decoding.status = status_of(exec, {where, "block"});
    opened_block* const blocks = space[layout.blocks].data;
    exec.run(open_weights<bfloat16>{decoding}, 1);
    exec.run(open_blocks<bfloat16>{decoding, blocks}, spec.block_count());
    return {decoding.stream + spec.planes_offset(),
            decoding.stream + spec.payload_offset(),
            blocks,
            &decoding.table->window,
            spec.log2_block,
            from.rows,
            from.columns};
  }

 private:
  struct open_workspace {
    workspace_plan plan{"coded_matrix.open"};
    region<coder_decode_table<pair_coder>> table;
    region<opened_block> blocks;
  };
  static open_workspace regions(weight_stream_spec const& spec) {
    Codec::check_spec("coded_matrix.open", spec);
    open_workspace result;
    result.table = result.plan.template add<coder_decode_table<pair_coder>>("window and decode table", 1);
    result.blocks = result.plan.template add<opened_block>("opened blocks", spec.block_count());
    return result;
  }

  static void check_shape(matrix const& from) {
    constexpr char const* where = "coded_matrix.open";
    weight_stream_spec const& spec = from.spec.spec();
    check<value_error>(spec.coder == weight_coder::fixed_codes, where, ": the stream stores ", spec.count,
                       " values without codes, which `linear` multiplies as they are");
    check<shape_error>(from.rows >= 0 && from.columns >= 0, where, ": the matrix has ", from.rows, " rows and ",
                       from.columns, " columns but must have at least 0");
    check<shape_error>(checked_multiply(where, from.rows, from.columns) == spec.count, where, ": ", from.rows,
                       " rows of ", from.columns, " columns take ", from.rows * from.columns,
                       " weights but the stream has ", spec.count);
    detail::check_stream(where, from.stream, from.spec.smallest_bytes());
  }
};

}  // namespace v0
}  // namespace tessera
