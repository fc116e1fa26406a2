// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Calls of each algorithm as explain() is asked about them, for devices that are only described.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/algorithm/attention/decode_attention.hpp>
#include <tessera/algorithm/attention/dense_attention.hpp>
#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/algorithm/gemm/scaled_linear.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/explain.hpp>
#include <tessera/map/dense_bias.hpp>
#include <tessera/minicache.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/shadow_kv.hpp>
#include <tessera/tile/source/coded_weights.hpp>
#include <tessera/tile/source/dequantized.hpp>
#include <tessera/tile/source/scaled_codes.hpp>
#include <tessera/tile/source/scaled_operand.hpp>

namespace tessera_test {

using namespace tessera;

/// Devices as a source sees them that is compiled for all of these, whatever this one is compiled for.
using every_cuda = basic_cuda<arch_list<800, 860, 890, 900, 1000, 1200>>;
using described_device = decltype(every_cuda::described({}));

/// An address that nothing reads or writes: at a multiple of 4096 bytes.
template <class T>
T* nowhere() {
  return reinterpret_cast<T*>(std::uintptr_t{1} << 30);
}
template <class T>
head_view<T> heads(std::int64_t count, std::int64_t tokens, std::int64_t stride = 0) {
  std::int64_t const row = stride == 0 ? 128 : stride;
  return {nowhere<T>(), {1, count, tokens, 128}, {count * tokens * row, tokens * row, row, 1}};
}
template <class T>
matrix_view<T> matrix(std::int64_t rows, std::int64_t columns) {
  return {nowhere<T>(), {rows, columns}};
}
inline workspace room(workspace_plan const& plan) {
  return workspace(plan, array_view<std::byte>(nowhere<std::byte>(), plan.bytes()));
}

/// Biases of 16K queries and keys, which heads share.
inline dense_bias<bfloat16> some_biases() {
  return {{nowhere<bfloat16 const>(), {1, 32, 16384, 16384}, {0, 0, std::int64_t{16384}, 1}}};
}
/// Lists of half of the tiles.
inline attention_block_list some_tiles() {
  return {{nowhere<std::int32_t const>(), {1, 32, 256}}, {nowhere<std::int32_t const>(), {1, 32, 256, 64}}};
}

template <class Attention, class Functions = attention_functions<>>
explanation attend(described_device const& exec, std::int64_t queries, attention_options const& options = {},
                   Functions const& functions = {}, attention_block_list const& list = {}) {
  return explain(exec, [&](auto const& dry) {
    attention_shape const shape{1, 32, 8, queries, 16384, 128};
    auto const plan = Attention::plan_forward(dry, shape);
    attention_inputs<bfloat16> in{heads<bfloat16 const>(32, queries), heads<bfloat16 const>(8, 16384),
                                  heads<bfloat16 const>(8, 16384)};
    in.block_list = list;
    Attention::forward(dry, in, options, attention_outputs<bfloat16>{heads<bfloat16>(32, queries)}, room(plan),
                       functions);
  });
}

template <class Loss, class T, class Gradient = T>
explanation train(described_device const& exec, linear_loss_options const& options = {}) {
  return explain(exec, [&](auto const& dry) {
    linear_loss_shape const shape{8192, 128256, 4096};
    auto const plan = Loss::template plan_backward<Gradient>(dry, shape, options);
    linear_loss_inputs<T, std::int64_t> const in{matrix<T const>(shape.tokens, shape.channels),
                                                 matrix<T const>(shape.vocabulary, shape.channels),
                                                 {nowhere<std::int64_t const>(), shape.tokens}};
    Loss::forward(dry, in, options, {.loss = {nowhere<float>(), 1}}, room(plan));
    linear_loss_gradients<Gradient> const out{matrix<Gradient>(shape.tokens, shape.channels),
                                              matrix<Gradient>(shape.vocabulary, shape.channels)};
    Loss::backward(dry, in, options, {}, out, room(plan));
  });
}

template <class Operand, class Output>
explanation multiply(described_device const& exec, std::int64_t depth = 4096) {
  return explain(exec, [&](auto const& dry) {
    using value_type = typename linear<Operand>::value_type;
    linear<Operand>::forward(dry, matrix<value_type const>(4096, depth), matrix<value_type const>(4096, depth),
                             matrix<Output>(4096, 4096));
  });
}

/// A layer of 4096 x 4096 x 4096 whose weights lie across the depth, and inputs too, if so said.
template <class Operand, class Output>
explanation multiply_across(described_device const& exec, bool inputs_are_across = false) {
  return explain(exec, [&](auto const& dry) {
    auto const operand = matrix<typename linear<Operand>::value_type const>(4096, 4096);
    linear<Operand>::forward(dry, inputs_are_across ? operand.transposed() : operand, operand.transposed(),
                             matrix<Output>(4096, 4096));
  });
}

/// A layer whose weights are codes of 8 bits, with a workspace of at most `budget` bytes.
inline explanation multiply_by_codes(described_device const& exec, std::int64_t tokens, std::int64_t budget = 0) {
  return explain(exec, [=](auto const& dry) {
    dequantized<symmetric_quantizer<8, 64>, bfloat16> const weights{
        {}, matrix<std::int8_t const>(4096, 4096), matrix<symmetric_params const>(4096, 64)};
    linear_options const options{.workspace_budget = budget};
    auto const plan = linear<bfloat16>::plan_forward(dry, tokens, weights, options);
    linear<bfloat16>::forward(dry, matrix<bfloat16 const>(tokens, 4096), weights, matrix<bfloat16>(tokens, 4096),
                              room(plan), options);
  });
}

/// A layer of codes of 8 bits with scales for groups of 128 columns, and of 128 x 128 of the weights.
template <class Quantizer>
explanation multiply_scaled(described_device const& exec) {
  return explain(exec, [](auto const& dry) {
    using code = typename Quantizer::code_type;
    using params = typename Quantizer::params_type;
    scaled_operand<Quantizer> const inputs{matrix<code const>(4096, 4096), matrix<params const>(4096, 32)};
    scaled_operand<Quantizer, 128> const weights{matrix<code const>(4096, 4096), matrix<params const>(32, 32)};
    scaled_linear::forward(dry, inputs, weights, matrix<bfloat16>(4096, 4096));
  });
}

/// A layer whose weights are exact codes of 4 bits with scales of groups.
inline explanation multiply_by_scaled(described_device const& exec, std::int64_t tokens) {
  return explain(exec, [tokens](auto const& dry) {
    using codes = two_to_a_byte<symmetric_quantizer<4, 128>>;
    scaled_codes<codes, bfloat16> const weights{
        {}, matrix<stored_code<codes> const>(4096, 2048), matrix<symmetric_params const>(4096, 32)};
    linear<bfloat16>::forward(dry, matrix<bfloat16 const>(tokens, 4096), weights, matrix<bfloat16>(tokens, 4096));
  });
}

/// A layer whose weights are in a stream of codes of a fixed length.
inline explanation multiply_decoded(described_device const& exec, std::int64_t tokens) {
  return explain(exec, [tokens](auto const& dry) {
    coded_weights weights{};
    weights.row_count = weights.column_count = 4096;
    linear<bfloat16>::forward(dry, matrix<bfloat16 const>(tokens, 4096), weights, matrix<bfloat16>(tokens, 4096));
  });
}

inline explanation decode_dense(described_device const& exec) {
  return explain(exec, decode_attention_call<bfloat16, bfloat16>{
                           {1, 32, 8, 1, 16384, 128},
                           {heads<bfloat16 const>(8, 16384), heads<bfloat16 const>(8, 16384), {}, {}},
                           heads<bfloat16 const>(32, 1),
                           0.1F,
                           true,
                           {heads<bfloat16>(32, 1)}});
}

/// The parts of a step of an offloaded cache that have several programs.
template <class Selector>
explanation step(described_device const& exec) {
  using method = offloaded_cache<low_rank<160>, Selector, keep_outliers<48>>;
  return explain(exec, [&](auto const& dry) {
    auto const plan = method::template plan<bfloat16>(dry, {32, 8, 128, {131072}});
    auto const memory = [](workspace_plan const& of) {
      return array_view<std::byte>(nowhere<std::byte>(), of.bytes());
    };
    auto const cache = method::open(dry, plan, memory(plan.device), memory(plan.host), {});
    using element = typename chunk_landmarks<Selector>::element_type;
    auto const one = plan.step_of(room(plan.step), 1, {});
    run(dry, score_chunks<bfloat16, Selector>{plan.extents, cache.memory, one, cache.selector, 0.1F});
    run(dry, select_chunks<bfloat16, Selector>{plan.extents, cache.memory, one, cache.selector});
    run(dry, fetch_values<bfloat16, element, exact_values>{plan.extents, cache.memory, one, true});
    run(dry, rebuild_keys<bfloat16, element>{plan.extents, cache.memory, one, cache.rotary});
    run(dry, attend_chunks<bfloat16, element>{plan.extents, cache.memory, one, 0.1F, 1, 1});
  });
}

/// Appending a page's tokens to a cache whose layers are kept in pairs, and attending to it.
template <class M, class Codec>
explanation cache_step(described_device const& exec) {
  return explain(exec, [&](auto const& dry) {
    cache_memory<bfloat16> memory{};
    memory.format = {128, Codec::key_bits, Codec::value_bits, 128 / Codec::value_group, 2};
    memory.heads = 8;
    memory.pages = nowhere<std::byte>();
    memory.tail = nowhere<bfloat16>();
    cache_append_call<M, bfloat16, Codec> append{};
    append.source.memory = memory;
    append.marks = {nowhere<page_mark>(), {1, 1, 8}};
    run(dry, append);
    cached_attention_call<bfloat16, bfloat16, Codec> attend{};
    attend.shape = {1, 32, 8, 1, 16384, 128};
    attend.memory = memory;
    attend.sequences.blocks = {nowhere<std::int32_t const>(), {1, 256}};
    attend.queries = heads<bfloat16 const>(32, 1);
    run(dry, attend);
  });
}

/// Encoding and decoding a tensor.
template <class Codec, class Exec>
explanation code_weights(Exec const& exec) {
  return explain(exec, [&](auto const& dry) {
    using value_type = typename Codec::value_type;
    weight_encoding<value_type, typename Codec::table_coder_type> const encoding{};
    weight_decoding<value_type, typename Codec::table_coder_type> const decoding{};
    run(dry, encode_weights_call<typename Codec::mantissa_type, value_type, typename Codec::table_coder_type>{
                 {&encoding, 1}});
    run(dry, decode_weights_call<typename Codec::mantissa_type, value_type, typename Codec::table_coder_type>{
                 {&decoding, 1}});
  });
}

}  // namespace tessera_test
