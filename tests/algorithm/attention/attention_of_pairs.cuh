// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Attention over codes of 4 bits that lie two to a byte, for tests on a GPU: made in the call, or before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/attention/widened_codes.hpp>

#include "support/attention_terms.cuh"

namespace tessera_test {

using namespace tessera;

/// An executor that throws where a slower program would run, if the device is one that widens codes.
inline cuda strict_where_it_widens() {
  cuda exec;
  exec.options.refuses_slower_programs = widens(exec);
  return exec;
}

/// The results of a call, and the codes that were made before it.
struct later_results {
  std::vector<bfloat16> result;
  std::vector<std::byte> codes;
};

/// Makes codes two to a byte, and attends over them in another call, with memory for widened codes or without.
template <class Method>
later_results attend_later(cuda const& exec, attention_problem<bfloat16> const& p, bool has_memory = true) {
  attention_shape const& s = p.shape;
  device_attention<bfloat16> const in(exec, p, head_layout::heads_first);
  auto const plan = Method::plan_quantize(exec, s);
  auto memory = to_device(exec, std::vector<std::byte>(as_size(plan.bytes()), std::byte{0xa5}));
  workspace const space(plan, memory);
  auto heads = Method::operands(s, space);
  Method::quantize(exec, s, in.inputs(), {}, heads, space);
  auto const codes = to_host(exec, memory);
  auto const result = to_device(exec, std::vector<bfloat16>(as_size(s.batch * s.query_heads * s.queries * s.channels)));
  head_view<bfloat16> const to{const_cast<bfloat16*>(result.data()), {s.batch, s.query_heads, s.queries, s.channels}};
  attention_call<typename Method::method, bfloat16> call{s, p.options, heads, {to}};
  call.query_lengths = in.inputs().query_lengths;
  call.key_lengths = in.inputs().key_lengths;
  call.counters = Method::counters(s, space);
  call.partials = Method::partials(s, space);
  call.work_splits = Method::work_splits(exec, s, space);
  call.widened = has_memory ? Method::widened(exec, s, space) : array_view<std::byte>{};
  Method::forward(exec, call);
  return {to_host(exec, result), codes};
}

/// Checks that codes that were made before are those of the host, and give the results of those made in the call.
template <class Method>
void check_later(attention_problem<bfloat16> const& p) {
  attention_shape const& s = p.shape;
  CAPTURE(s.batch, s.query_heads, s.queries, s.keys, s.channels, p.options.is_causal);
  cuda const exec = strict_where_it_widens();
  auto const later = attend_later<Method>(exec, p);
  check_codes<Method>(later.codes, p);
  auto const at_once = run_on_device<Method, bfloat16>(exec, p, head_layout::tokens_first, false);
  CHECK(at_once.is_clean);
  CHECK(as_doubles(later.result) == at_once.found.result);  // codes are the same, and so are results
}

}  // namespace tessera_test
