// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a codec of values has no state, which a cache would not keep
#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>

struct with_state : tessera::symmetric_quantizer<8, 64> {
  int level = 3;
};

#if defined(TESSERA_FAIL)
using codec = with_state;
#else
using codec = tessera::symmetric_quantizer<8, 64>;
#endif

using method =
    tessera::offloaded_cache<tessera::exact_keys, tessera::landmark_selector<8>, tessera::keep_outliers<48>, codec>;

auto make_plan(tessera::offload_shape const& shape) {
  return method::plan<tessera::bfloat16>(tessera::cpu{}, shape);
}
