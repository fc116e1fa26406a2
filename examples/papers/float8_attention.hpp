// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// FlashAttention 3 in fp8 (arXiv 2407.08608, section 3.3): attention whose queries, keys, weights and values are e4m3
/// codes, with scales for groups of tokens.
///
///     O = softmax(Q K^T / sqrt(channels)) V      Q, K: codes times the scale of their group; V: of their channel
///
/// `attention` takes any quantizers, so that the method is a type, with an fp8 quantizer in the place of
/// sage_attention2's INT8. The paper's groups are blocks of 64 queries or 128 keys (`per_block`); `per_thread` has a
/// few tokens in each, and a program for sm_90a, which the library's float8_attention (that subtracts the mean of keys)
/// runs, too. The paper's random rotation of channels (incoherent processing) is left to the caller. FLOPs: 4 queries
/// keys channels a head. Bytes: codes are half of bf16.
#pragma once

#include <tessera/algorithm/attention/attention.hpp>
#include <tessera/quantize/granularity.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/reduce/piecewise_linear_softmax.hpp>

namespace tessera_examples {

using namespace tessera;

using plain_float8_attention =
    attention<scaled_float_quantizer<float8_e4m3, per_thread>, float8_quantizer<float8_e4m3>, piecewise_linear_softmax>;

}  // namespace tessera_examples
