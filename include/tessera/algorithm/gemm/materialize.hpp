// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `materialize`: writes the matrix that a source gives to products to memory, for code that takes only plain matrices.
///
///     materialize(exec, dequantized<quantizer, bfloat16>{{}, codes, scales}, weights);   // rows x columns of bf16
///     exec.wait();
///
/// Every source of a product will do: dequantized codes, decoded weights, gathered rows. Each tile is loaded once, as
/// products load it; a GPU spends the time for reading the source and for writing the outputs.
#pragma once

#include <cstdint>

#include <tessera/concepts/executor.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/program/gemm/store_source.hpp>
#include <tessera/tile/source/open_source.hpp>
#include <tessera/view/check_parts.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Enqueues outputs = the source's matrix. `outputs` may have any strides but 0. Throws shape_error for extents that
/// are not the source's. The call neither waits nor allocates.
template <Executor Exec, AnySource Source>
void materialize(Exec const& exec, Source const& source, matrix_view<typename Source::value_type> outputs) {
  constexpr char const* where = "materialize";
  check<shape_error>(source.rows() == outputs.extent(0), where, ": the source has ", source.rows(),
                     " rows but the outputs have ", outputs.extent(0));
  check<shape_error>(source.columns() == outputs.extent(1), where, ": the source has ", source.columns(),
                     " columns but the outputs have ", outputs.extent(1));
  check_source(where, "source", source);
  check_memory(where, "outputs", outputs);
  check_apart(where, "outputs", outputs);
  check_reach(exec, where, "outputs", outputs);
  check_reach_of(exec, where, source);
  run(exec, store_source<Source>{source, outputs});
}

}  // namespace v0
}  // namespace tessera
