// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Refuses to compile where a header is missing, so that a call with a tessera::cuda executor would mean the portable
/// program. Include it last.
///
/// Each function that algorithms overload for CUDA gets one or two more overloads here. CUDA's own overload suits a
/// call better than these; the one for any executor does not, so that without CUDA's own the call is ambiguous. Nothing
/// is ever called.
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>

namespace tessera {

template <class A, class Call>
void run_attention(basic_cuda<A> const&, Call const&);
template <class A, class Call>
void quantize_attention(basic_cuda<A> const&, Call const&);
template <class Mantissa, class A, class List>
void run_decode(basic_cuda<A> const&, List);
template <class A, class Call>
void run_decode_attention(basic_cuda<A> const&, Call const&);
template <class A, class Call>
void add_products(basic_cuda<A> const&, Call const&);
template <class A, class Search>
void find_subspace(basic_cuda<A> const&, Search const&);
template <class A, class Problem>
void run_linear(basic_cuda<A> const&, Problem const&);
template <class A, class Call>
void run_loss_gradients(basic_cuda<A> const&, Call const&);
template <class A, class Program, class Softmaxes>
void run_loss_tiles(basic_cuda<A> const&, Program const&, loss_marks const&, Softmaxes const&);
template <class A, class Program>
void run_program(basic_cuda<A> const&, Program const&);
template <class Executor, class T, class E>
void run_program(Executor const&, attend_chunks<T, E> const&);
template <class A, class Call>
void run_cached_attention(basic_cuda<A> const&, Call const&);

}  // namespace tessera

namespace tessera_test {

using namespace tessera;

template <class T>
T const& a();

// The types of the calls' results, for which the compiler has to choose functions.
using method = sage_attention2::method;
using tile = loss_gemm_tile<bfloat16>;
using states = lse_reducer<float>;
using weight_list = array_view<weight_decoding<bfloat16> const>;
using gradients = loss_gradient_call<tile, states, gradient_filter<12>, bfloat16>;
using chosen = std::tuple<
    std::type_identity<decltype(run_attention(a<cuda>(), a<attention_call<method, bfloat16>>()))>,
    std::type_identity<decltype(quantize_attention(a<cuda>(), a<quantize_call<method, bfloat16>>()))>,
    std::type_identity<decltype(run_decode<keep_mantissa<7>>(a<cuda>(), a<weight_list>()))>,
    std::type_identity<decltype(run_decode_attention(a<cuda>(), a<decode_attention_call<bfloat16, bfloat16>>()))>,
    std::type_identity<decltype(add_products(a<cuda>(), a<gram_call<bfloat16>>()))>,
    std::type_identity<decltype(find_subspace(a<cuda>(), a<subspace_search<bfloat16>>()))>,
    std::type_identity<decltype(run_linear(a<cuda>(), a<linear_problem<bfloat16, bfloat16, plain_sum>>()))>,
    std::type_identity<decltype(run_loss_gradients(a<cuda>(), a<gradients>()))>,
    std::type_identity<decltype(run_loss_tiles(a<cuda>(), a<loss_tiles<tile, states>>(), a<loss_marks>(),
                                               a<kept_softmaxes<bfloat16>>()))>,
    std::type_identity<decltype(run_program(a<cuda>(), a<attend_chunks<bfloat16, std::int8_t>>()))>,
    std::type_identity<decltype(run_cached_attention(a<cuda>(), a<cached_attention_call<bfloat16, bfloat16>>()))>>;

// Checks a side queue on a stream, which other executors' side queues do not take, and sums in registers of tensor
// cores.
static_assert(std::is_constructible_v<side_queue<cuda>, cuda const&, cudaStream_t, int>);
static_assert(sizeof(gemm_tile<bfloat16, shape<64, 64, 16>, cuda_block<128>>::sum_tile) < 64 * 64 * sizeof(float));

}  // namespace tessera_test
