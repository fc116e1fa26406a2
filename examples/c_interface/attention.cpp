// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention.hpp"

#include <cstddef>
#include <cstdint>

#include <tessera/sage_attention2.hpp>

#include "errors.hpp"
#include "executors.hpp"
#include "tensors.hpp"
#include "tessera_c.h"

namespace tessera_c {
namespace {

using method = tessera::sage_attention2;

/// The extents of a call, whose tensors need no memory yet.
template <class T>
tessera::attention_shape shape_of(tessera_attention_inputs const& from) {
  auto const queries = planned_view<T const, 4>("queries", from.queries);
  auto const keys = planned_view<T const, 4>("keys", from.keys);
  auto const values = planned_view<T const, 4>("values", from.values);
  return {queries.extent(0), queries.extent(1), keys.extent(1),  queries.extent(2),
          keys.extent(2),    queries.extent(3), values.extent(3)};
}

template <class T>
tessera::attention_inputs<T> inputs_of(tessera_attention_inputs const& from) {
  tessera::attention_inputs<T> to{view_of<T const, 4>("queries", from.queries), view_of<T const, 4>("keys", from.keys),
                                  view_of<T const, 4>("values", from.values)};
  to.query_lengths = view_if_given<std::int32_t const, 1>("lengths of queries", from.query_lengths);
  to.key_lengths = view_if_given<std::int32_t const, 1>("lengths of keys", from.key_lengths);
  to.sinks = view_if_given<float const, 1>("sinks", from.sinks);
  return to;
}

}  // namespace
}  // namespace tessera_c

using namespace tessera_c;

tessera_status tessera_attention_workspace(tessera_executor const* executor, tessera_attention_inputs const* inputs,
                                           tessera_attention_options const* options, std::size_t* bytes) {
  return guarded("tessera_attention_workspace", [&] {
    auto const in = known_part(inputs, "inputs");
    auto const chosen = attention_options_of(options);
    with_executor(executor, [&](auto const& exec) {
      with_float_type("queries", in.queries.type, [&]<class T>(T) {
        set_bytes(bytes, method::plan_forward(exec, shape_of<T>(in), chosen).bytes());
      });
    });
  });
}

tessera_status tessera_attention_forward(tessera_executor const* executor, tessera_attention_inputs const* inputs,
                                         tessera_attention_options const* options,
                                         tessera_attention_outputs const* outputs, tessera_memory workspace) {
  return guarded("tessera_attention_forward", [&] {
    auto const in = known_part(inputs, "inputs");
    auto const out = known_part(outputs, "outputs");
    auto const chosen = attention_options_of(options);
    with_executor(executor, [&](auto const& exec) {
      with_float_type("queries", in.queries.type, [&]<class T>(T) {
        auto const plan = method::plan_forward(exec, shape_of<T>(in), chosen);
        method::forward(exec, inputs_of<T>(in), chosen, attention_outputs_of<T>(out), workspace_in(plan, workspace));
      });
    });
  });
}
