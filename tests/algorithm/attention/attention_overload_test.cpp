// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

#include "support/attention_reference.hpp"
#include "support/attention_runs.hpp"
#include "support/catch.hpp"

namespace other_machine {

/// An executor with programs of its own for the 8-bit method; here they only count calls.
struct executor : tessera::cpu {
  int* quantized;
  int* attended;
};

template <class T>
void quantize_attention(executor const& exec, tessera::quantize_call<tessera::sage_attention2::method, T> const& call) {
  ++*exec.quantized;
  tessera::detail::quantize_attention_portably(exec, call);
}

template <class T>
void run_attention(executor const& exec, tessera::attention_call<tessera::sage_attention2::method, T> const& call) {
  ++*exec.attended;
  tessera::detail::run_attention_portably(exec, call);
}

}  // namespace other_machine

using namespace tessera;
using namespace tessera_test;

TEST_CASE("an executor's own programs are taken for the methods that they are for", "[host]") {
  int quantized = 0;
  int attended = 0;
  other_machine::executor const exec{{}, &quantized, &attended};
  auto const p = make_attention_problem<bfloat16>({1, 1, 1, 5, 9, 32});
  auto const found = run_attention_problem<sage_attention2, bfloat16>(exec, p);
  CHECK(quantized == 1);
  CHECK(attended == 1);
  CHECK(found.result == run_attention_problem<sage_attention2, bfloat16>(cpu{}, p).result);
  run_attention_problem<sage_attention2_int4, bfloat16>(exec, p);
  CHECK(quantized == 1);
  CHECK(attended == 1);
}
