// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Refuses to compile where a header is missing, so that a call with a tessera::cuda executor would mean the portable
/// program: each call for which CUDA has programs must have a list of them. Include it last.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/map/plain_sum.hpp>
#include <tessera/merge/slerp.hpp>

namespace tessera_test {

using namespace tessera;

template <class Call>
inline constexpr bool has_models = !std::is_same_v<typename models_for<cuda, Call>::type, model_list<>>;

using method = sage_attention2::method;
using tile = loss_gemm_tile<bfloat16>;
using states = lse_reducer<float>;
static_assert(has_models<attention_call<method, bfloat16>>);
static_assert(has_models<quantize_call<method, bfloat16>>);
static_assert(has_models<decode_attention_call<bfloat16, bfloat16>>);
static_assert(has_models<dense_attention_call<bfloat16, bfloat16>>);
static_assert(has_models<linear_problem<bfloat16, bfloat16, plain_sum>>);
static_assert(has_models<logit_reduction<tile, states>>);
static_assert(
    has_models<loss_gradient_call<detail::loss_gradient_regions<tile, states, gradient_filter<12>, bfloat16>>>);
static_assert(has_models<gram_call<bfloat16>> && has_models<projection_call<bfloat16>>);
static_assert(has_models<subspace_search<bfloat16>>);
static_assert(has_models<cached_attention_call<bfloat16, bfloat16>>);
static_assert(has_models<cache_append_call<slerp_merger<float>, bfloat16>>);
static_assert(has_models<encode_weights_call<keep_mantissa<7>, bfloat16>>);
static_assert(has_models<decode_weights_call<keep_mantissa<7>, bfloat16>>);
static_assert(has_models<attend_chunks<bfloat16, std::int8_t>>);

// Checks a side queue on a stream, which other executors' side queues do not take, and sums in registers of tensor
// cores.
static_assert(std::is_constructible_v<side_queue<cuda>, cuda const&, cudaStream_t, int>);
static_assert(sizeof(gemm_tile<bfloat16, shape<64, 64, 16>, cuda_block<128>>::sum_tile) < 64 * 64 * sizeof(float));

}  // namespace tessera_test
