// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: dense_attention takes queries, keys and values of bfloat16 or float16
#include <tessera/algorithm/attention/dense_attention.hpp>
#include <tessera/exec/cpu.hpp>

template <class T>
void attend(tessera::attention_inputs<T> const& in, tessera::attention_outputs<float> const& out,
            tessera::workspace const& space) {
  tessera::dense_attention::forward(tessera::cpu{}, in, {}, out, space);
}

void attend_over_16_bits(tessera::attention_outputs<float> const& out, tessera::workspace const& space) {
#if defined(TESSERA_FAIL)
  attend(tessera::attention_inputs<float>{}, out, space);
#else
  attend(tessera::attention_inputs<tessera::float16>{}, out, space);
#endif
}
