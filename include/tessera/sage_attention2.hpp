// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// SageAttention2: attention in 8 and 4 bits.
#pragma once

#include <tessera/algorithm/attention.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/quantize/granularity.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/reduce/online_softmax.hpp>

namespace tessera {
inline namespace v0 {

using sage_attention2 =
    attention<smoothed<symmetric_quantizer<8, per_thread>>, float8_quantizer<float8_e4m3>, online_softmax<float>>;

using sage_attention2_int4 = attention<smoothed<smoothed<symmetric_quantizer<4, per_thread>>, block_mean>,
                                       float8_quantizer<float8_e4m3>, online_softmax<float>>;

}  // namespace v0
}  // namespace tessera
