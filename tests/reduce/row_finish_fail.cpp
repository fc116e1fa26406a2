// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: tessera: linear_loss.forward takes .* and perhaps a RowFinish, which is called with the state of Statistics
#include <cstdint>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/reduce/arg_max.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/reduce/row_finish.hpp>

using reducer = tessera::arg_max_reducer<float>;
using loss = tessera::cut_cross_entropy_of<tessera::bfloat16, reducer>;
using state = reducer::state_type;
using paired_state = tessera::loss_reducer<reducer>::state_type;

void reduce(loss::inputs<std::int64_t> const& inputs, tessera::array_view<float> value, tessera::workspace& space,
            tessera::array_view<state> states, [[maybe_unused]] tessera::array_view<paired_state> paired) {
  loss::forward(tessera::cpu{}, inputs, {}, {.loss = value}, space, tessera::keep_states<state>{states});
#if defined(TESSERA_FAIL)
  loss::forward(tessera::cpu{}, inputs, {}, {.loss = value}, space, tessera::keep_states<paired_state>{paired});
#endif
}
