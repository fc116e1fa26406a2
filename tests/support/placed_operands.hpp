// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Calls of every family whose operands lie where a test says: all where programs reach them, but one. The executor
/// runs nothing, so that no program is compiled.
///
///     tessera_test::idle_executor exec{[](char const* function, char const* what, void const* first) { ... }};
///     tessera_test::calls_of_products(exec, [&](char const* function, auto const& operands, auto const& call) {
///       call(operand_places{here, there, operands[0]});     // throws what check_reach() says of that operand
///     });
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <tessera/algorithm/attention/attention.hpp>
#include <tessera/algorithm/attention/attention_score.hpp>
#include <tessera/algorithm/attention/decode_attention.hpp>
#include <tessera/algorithm/attention/dense_attention.hpp>
#include <tessera/algorithm/attention/packed_codes.hpp>
#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/algorithm/gemm/materialize.hpp>
#include <tessera/algorithm/gemm/quantized_matrix.hpp>
#include <tessera/algorithm/gemm/row_reduction.hpp>
#include <tessera/algorithm/gemm/scaled_linear.hpp>
#include <tessera/algorithm/subspace/factorize_keys.hpp>
#include <tessera/algorithm/weights/coded_matrix.hpp>
#include <tessera/algorithm/weights/compressed_linear.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/memory.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/map/add_matrix.hpp>
#include <tessera/map/chained.hpp>
#include <tessera/map/dense_bias.hpp>
#include <tessera/map/from_column.hpp>
#include <tessera/map/linear_bias.hpp>
#include <tessera/map/listed_tiles.hpp>
#include <tessera/minicache.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/shadow_kv.hpp>
#include <tessera/tile/source/dequantized.hpp>
#include <tessera/tile/source/filtered.hpp>
#include <tessera/tile/source/gathered_columns.hpp>
#include <tessera/tile/source/joined_heads.hpp>
#include <tessera/tile/source/scaled_operand.hpp>

namespace tessera_test {

using namespace tessera;

/// Runs, copies and clears nothing, and asks `reach` where operands lie.
template <class Reach>
struct idle_executor {
  Reach reach;
  memory_handle memory = {};
  static constexpr stream_handle stream = nullptr;

  template <class P>
  void run(P const& /*program*/, std::int64_t /*count*/) const {}
  void wait() const {}
  [[nodiscard]] status_word* status() const { return nullptr; }
  template <class Target>
  void clear(Target&& /*target*/) const {}
  template <class Source, class Target>
  void copy(Source const& /*source*/, Target&& /*target*/) const {}
  void check_reach(char const* function, char const* what, void const* first) const { reach(function, what, first); }
};

/// Where the operands of a call lie.
struct operand_places {
  void* here;             ///< memory that programs reach, at a multiple of 256 bytes, with room for any workspace here
  void* there = nullptr;  ///< other memory, at such a multiple
  std::string_view away = "no operand";  ///< the operand that lies there

  /// The first element of an operand.
  template <class T>
  [[nodiscard]] T* of(std::string_view what) const {
    return static_cast<T*>(what == away ? there : here);
  }
  [[nodiscard]] workspace space(workspace_plan const& plan) const {
    return {plan, {of<std::byte>("bytes of the workspace"), plan.bytes()}};
  }
};

template <std::size_t Count>
using operand_names = std::array<char const*, Count>;

/// Products of matrices, and what is made of matrices.
template <class Exec, class Visit>
void calls_of_products(Exec const& exec, Visit const& visit) {
  using layer = linear<bfloat16>;
  using quantizer = symmetric_quantizer<8, 16>;
  using codes = quantized_matrix<quantizer>;
  using maxima = row_reduction<lse_reducer<float>>;
  using at = operand_places;
  auto const matrix = [](auto* first) { return view(first, {16, 16}); };
  auto const params = [](auto* first) { return view(first, {16, 1}); };
  visit("linear.forward", operand_names<4>{"inputs", "weights", "biases", "outputs"}, [&](at p) {
    matrix_view<bfloat16 const> const x = matrix(p.of<bfloat16>("inputs"));
    matrix_view<bfloat16 const> const w = matrix(p.of<bfloat16>("weights"));
    layer::forward(exec, x, w, view(p.of<float>("biases"), 16), matrix(p.of<float>("outputs")));
  });
  visit("linear.forward", operand_names<2>{"biases", "elements to be added"}, [&](at p) {
    matrix_view<bfloat16 const> const x = matrix(p.of<bfloat16>("inputs"));
    chained<add_matrix<float>, from_column<add_bias<float>>> const map{{matrix(p.of<float>("elements to be added"))},
                                                                       {{{p.of<float>("biases"), 16}}, 0}};
    layer::forward(exec, x, x, map, matrix(p.of<float>("outputs")));
  });
  visit("linear.forward",
        operand_names<5>{"inputs", "codes of the source", "parameters of codes", "outputs", "bytes of the workspace"},
        [&](at p) {
          matrix_view<bfloat16 const> const x = matrix(p.of<bfloat16>("inputs"));
          dequantized<quantizer, bfloat16> const w{{},
                                                   matrix(p.of<std::int8_t>("codes of the source")),
                                                   params(p.of<symmetric_params>("parameters of codes"))};
          workspace_plan plan("linear.forward");
          plan.add<float>("more than is needed", 64);
          layer::forward(exec, x, w, matrix(p.of<float>("outputs")), p.space(plan));
        });
  visit("scaled_linear.forward", operand_names<3>{"codes of the source", "scales of codes", "outputs"}, [&](at p) {
    scaled_operand<quantizer> const x{matrix(p.of<std::int8_t>("codes of the source")),
                                      params(p.of<symmetric_params>("scales of codes"))};
    scaled_linear::forward(exec, x, x, matrix(p.of<float>("outputs")));
  });
  visit("materialize", operand_names<3>{"rows of the source", "numbers of rows", "outputs"}, [&](at p) {
    matrix_view<float const> const rows = matrix(p.of<float>("rows of the source"));
    array_view<std::int64_t const> const order(p.of<std::int64_t>("numbers of rows"), 16);
    materialize(exec, gathered<float>{rows, order}, matrix(p.of<float>("outputs")));
    materialize(exec, gathered_columns<float>{rows, order}, matrix(p.of<float>("outputs")));
    materialize(exec, dense<float>{rows}, matrix(p.of<float>("outputs")));
  });
  visit("materialize", operand_names<1>{"heads of the source"}, [&](at p) {
    view<float const, 3> const heads(p.of<float>("heads of the source"), {1, 16, 16});
    materialize(exec, turned_heads<float>{{heads}}, matrix(p.of<float>("outputs")));
  });
  visit("materialize", operand_names<2>{"rows of the source", "marks of blocks"}, [&](at p) {
    filtered<float> const source{
        matrix(p.of<float>("rows of the source")), {p.of<std::uint8_t>("marks of blocks"), {1, 1}}, 16, 16};
    materialize(exec, source, matrix(p.of<float>("outputs")));
  });
  visit("quantized_matrix.quantize", operand_names<3>{"values", "codes", "parameters"}, [&](at p) {
    codes::quantize(exec, {}, matrix(p.of<float>("values")), matrix(p.of<std::int8_t>("codes")),
                    params(p.of<symmetric_params>("parameters")));
  });
  visit("quantized_matrix.dequantize", operand_names<3>{"values", "codes", "parameters"}, [&](at p) {
    matrix_view<std::int8_t const> const given = matrix(p.of<std::int8_t>("codes"));
    matrix_view<symmetric_params const> const scales = params(p.of<symmetric_params>("parameters"));
    codes::dequantize(exec, {}, given, scales, matrix(p.of<float>("values")));
  });
  visit("row_reduction.reduce", operand_names<3>{"values", "states", "bytes of the workspace"}, [&](at p) {
    view<float, 2> const values(p.of<float>("values"), {2, 20'000});
    maxima::reduce(exec, {}, values, {p.of<typename lse_reducer<float>::state_type>("states"), 2},
                   p.space(maxima::plan(exec, 2, 20'000)));
  });
}

/// Losses and their gradients.
template <class Exec, class Visit>
void calls_of_losses(Exec const& exec, Visit const& visit) {
  using loss = cut_cross_entropy_of<bfloat16, loss_statistics>;
  using at = operand_places;
  constexpr linear_loss_shape shape{8, 128, 64};
  linear_loss_options const options{.reduction = loss_reduction::none};
  auto const inputs = [](at p) {
    return loss::inputs<std::int32_t>{{p.of<bfloat16>("hidden states"), {8, 64}},
                                      {p.of<bfloat16>("rows of the classifier"), {128, 64}},
                                      {p.of<std::int32_t>("labels"), 8},
                                      {p.of<bfloat16>("biases"), 128},
                                      {p.of<float>("weights"), 8}};
  };
  operand_names<6> const names{"hidden states", "rows of the classifier", "labels", "biases",
                               "weights",       "bytes of the workspace"};
  auto const forward = [&](at p) {
    linear_loss_outputs const out{
        {p.of<float>("losses"), 8},       {p.of<float>("log-sum-exps"), 8},       {p.of<float>("log-probabilities"), 8},
        {p.of<float>("entropies"), 8},    {p.of<std::int32_t>("predictions"), 8}, {p.of<float>("accuracies"), 1},
        {p.of<std::int64_t>("counts"), 1}};
    loss::forward(exec, inputs(p), options, out, p.space(loss::plan_forward(exec, shape, options)));
  };
  auto const backward = [&](at p) {
    loss_upstream const upstream{{p.of<float>("upstream gradients of losses"), 8},
                                 {p.of<float>("upstream gradients of log-sum-exps"), 8},
                                 {p.of<float>("upstream gradients of entropies"), 8}};
    linear_loss_gradients<bfloat16> const out{{p.of<bfloat16>("gradients of hidden states"), {8, 64}},
                                              {p.of<bfloat16>("gradients of the classifier"), {128, 64}},
                                              {p.of<bfloat16>("gradients of the bias"), 128}};
    loss::backward(exec, inputs(p), options, upstream, out, p.space(loss::plan_backward(exec, shape, options)));
  };
  visit("linear_loss.forward", names, forward);
  visit("linear_loss.forward",
        operand_names<7>{"losses", "log-sum-exps", "log-probabilities", "entropies", "predictions", "accuracies",
                         "counts"},
        forward);
  visit("linear_loss.backward", names, backward);
  visit("linear_loss.backward",
        operand_names<6>{"upstream gradients of losses", "upstream gradients of log-sum-exps",
                         "upstream gradients of entropies", "gradients of hidden states", "gradients of the classifier",
                         "gradients of the bias"},
        backward);
}

/// Heads of 64 channels of two sequences with starts, of `tokens` each, of which those of a head lie together.
template <class T>
head_view<T> packed_heads(T* first, std::int64_t heads, std::int64_t tokens) {
  return {first, {2, heads, tokens, 64}, {0, 2 * tokens * 64, 64, 1}};
}

/// Attention without a cache.
template <class Exec, class Visit>
void calls_of_attention(Exec const& exec, Visit const& visit) {
  using method = sage_attention2;
  using at = operand_places;
  constexpr attention_shape shape{2, 4, 2, 96, 192, 64};
  auto const inputs = [](at p) {
    attention_inputs<bfloat16> in{
        packed_heads(p.of<bfloat16>("queries"), 4, 96),   packed_heads(p.of<bfloat16>("keys"), 2, 192),
        packed_heads(p.of<bfloat16>("values"), 2, 192),   {p.of<std::int32_t>("lengths of queries"), 2},
        {p.of<std::int32_t>("lengths of keys"), 2},       {{p.of<std::int32_t>("starts of queries"), 2}, 192},
        {{p.of<std::int32_t>("starts of keys"), 2}, 384}, {p.of<float>("sinks"), 4}};
    in.block_list = {{p.of<std::int32_t>("counts of the block list"), {2, 4, 2}},
                     {p.of<std::int32_t>("tiles of the block list"), {2, 4, 2, 2}}};
    return in;
  };
  auto const outputs = [](at p) {
    return attention_outputs<bfloat16>{packed_heads(p.of<bfloat16>("results"), 4, 96),
                                       {p.of<float>("log-sum-exps"), {2, 4, 96}, {0, 192, 1}}};
  };
  operand_names<13> const names{"queries",
                                "keys",
                                "values",
                                "lengths of queries",
                                "lengths of keys",
                                "starts of queries",
                                "starts of keys",
                                "sinks",
                                "counts of the block list",
                                "tiles of the block list",
                                "results",
                                "log-sum-exps",
                                "bytes of the workspace"};
  visit("attention.forward", names,
        [&](at p) { method::forward(exec, inputs(p), {}, outputs(p), p.space(method::plan_forward(exec, shape))); });
  visit("dense_attention.forward", names, [&](at p) {
    dense_attention::forward(exec, inputs(p), {}, outputs(p), p.space(dense_attention::plan_forward(exec, shape)));
  });
  auto const with_bias = [&](at p, auto const& bias) {
    attention_inputs<bfloat16> in = inputs(p);
    in.block_list = {};
    attention_functions<std::remove_cvref_t<decltype(bias)>> const functions{bias};
    method::forward(exec, in, {}, outputs(p), p.space(method::plan_forward(exec, shape)), functions);
  };
  visit("attention.forward", operand_names<3>{"biases", "counts of the block list", "tiles of the block list"},
        [&](at p) {
          dense_bias<float> const bias{{p.of<float>("biases"), {2, 4, 96, 192}}};
          with_bias(p, listed_tiles<dense_bias<float>>{inputs(p).block_list, bias});
        });
  visit("attention.forward", operand_names<1>{"slopes of biases"}, [&](at p) {
    with_bias(p, linear_bias{{p.of<float>("slopes of biases"), 4}});
  });
  visit("decode_attention.forward",
        operand_names<9>{"queries", "keys", "values", "blocks", "lengths of keys", "lengths of queries", "results",
                         "log-sum-exps", "bytes of the workspace"},
        [&](at p) {
          decode_attention_inputs<bfloat16> const in{{p.of<bfloat16>("queries"), {2, 4, 1, 64}},
                                                     {{p.of<bfloat16>("keys"), {8, 2, 64, 64}},
                                                      {p.of<bfloat16>("values"), {8, 2, 64, 64}},
                                                      {p.of<std::int32_t>("blocks"), {2, 64}},
                                                      {p.of<std::int32_t>("lengths of keys"), 2}},
                                                     {p.of<std::int32_t>("lengths of queries"), 2}};
          attention_outputs<bfloat16> const out{{p.of<bfloat16>("results"), {2, 4, 1, 64}},
                                                {p.of<float>("log-sum-exps"), {2, 4, 1}}};
          decode_attention::forward(exec, in, {}, out,
                                    p.space(decode_attention::plan_forward(exec, {2, 4, 2, 1, 64 * 64, 64})));
        });
}

/// Codes of attention's operands.
template <class Exec, class Visit>
void calls_of_codes(Exec const& exec, Visit const& visit) {
  using method = sage_attention2;
  using at = operand_places;
  constexpr attention_shape shape{2, 4, 2, 96, 192, 64};
  auto const heads = [&](at p) {
    auto made = method::operands(shape, p.space(method::plan_quantize(exec, shape)));
    auto const put = [&](char const* what, auto& to) {
      to.data = p.of<std::remove_pointer_t<decltype(to.data)>>(what);
    };
    put("codes of queries", made.queries.codes);
    put("scales of queries", made.queries.scales);
    put("scores of the mean key", made.queries.mean_scores);
    put("codes of keys", made.keys.codes);
    put("scales of keys", made.keys.scales);
    put("means of keys", made.keys.mean);
    put("codes of values", made.values.codes);
    put("scales of values", made.values.scales);
    return made;
  };
  operand_names<8> const names{"codes of queries", "scales of queries", "scores of the mean key", "codes of keys",
                               "scales of keys",   "means of keys",     "codes of values",        "scales of values"};
  visit("attention.quantize", names, [&](at p) {
    attention_inputs<bfloat16> const in{{p.of<bfloat16>("queries"), {2, 4, 96, 64}},
                                        {p.of<bfloat16>("keys"), {2, 2, 192, 64}},
                                        {p.of<bfloat16>("values"), {2, 2, 192, 64}}};
    method::quantize(exec, shape, in, {}, heads(p), p.space(method::plan_quantize(exec, shape)));
  });
  visit("attention.quantize", operand_names<3>{"lengths of queries", "lengths of keys", "starts of queries"},
        [&](at p) {
          attention_inputs<bfloat16> const in{
              packed_heads(p.of<bfloat16>("queries"), 4, 96), {p.of<bfloat16>("keys"), {2, 2, 192, 64}},
              {p.of<bfloat16>("values"), {2, 2, 192, 64}},    {p.of<std::int32_t>("lengths of queries"), 2},
              {p.of<std::int32_t>("lengths of keys"), 2},     {{p.of<std::int32_t>("starts of queries"), 2}, 192}};
          method::quantize(exec, shape, in, {}, heads(p), p.space(method::plan_quantize(exec, shape)));
        });
  visit("attention.forward", names, [&](at p) {
    attention_outputs<bfloat16> const out{{p.of<bfloat16>("results"), {2, 4, 96, 64}}};
    method::forward(exec, attention_call<method::method, bfloat16>{shape, {}, heads(p), out});
  });
  visit("attention_score.measure",
        operand_names<4>{"heads that were found", "heads that were expected", "scores", "bytes of the workspace"},
        [&](at p) {
          head_view<float> const found(p.of<float>("heads that were found"), {2, 4, 96, 64});
          head_view<float> const expected(p.of<float>("heads that were expected"), {2, 4, 96, 64});
          attention_score::measure(exec, found, expected, {p.of<float>("scores"), 1},
                                   p.space(attention_score::plan_measure(exec, shape)));
        });
  visit("pack_int4_codes", operand_names<2>{"codes", "packed codes"}, [&](at p) {
    pack_int4_codes(exec, {p.of<std::int8_t>("codes"), {1, 2, 16, 64}}, {p.of<int4x2>("packed codes"), {1, 2, 16, 32}});
  });
  visit("widen_int4_codes", operand_names<2>{"codes", "packed codes"}, [&](at p) {
    widen_int4_codes(exec, {p.of<int4x2>("packed codes"), {1, 2, 16, 32}},
                     {p.of<std::int8_t>("codes"), {1, 2, 16, 64}});
  });
}

}  // namespace tessera_test
