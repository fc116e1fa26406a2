// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a finish of rows is called with the state of the loss's Reducer
#include <cstdint>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/cpu.hpp>

using loss = tessera::exact_cross_entropy_of<float, tessera::arg_max_reducer<float>>;

struct keep_best {
  tessera::array_view<float> best;
#if defined(TESSERA_FAIL)
  void operator()(std::int64_t token, tessera::indexed_value<float> const& state) const {
    best[token] = state.value;
  }
#else
  void operator()(std::int64_t, std::int64_t token, tessera::indexed_value<float> const& state) const {
    best[token] = state.value;
  }
#endif
};

void reduce(loss::inputs<std::int64_t> const& in, tessera::linear_loss_outputs const& out,
            tessera::workspace const& space, tessera::array_view<float> best) {
  loss::forward(tessera::cpu{}, in, {}, out, space, keep_best{best});
}
