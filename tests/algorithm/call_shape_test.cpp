// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The papers' aliases are called in one way: plan_f(exec, shape, options), then f(exec, inputs, options, outputs,
// workspace(plan, memory)), then exec.wait(). Options have defaults. Objects with state plan their own memory by
// plan(exec, shape, options), and can be made in it.
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/attention/attention_score.hpp>
#include <tessera/algorithm/attention/decode_attention.hpp>
#include <tessera/algorithm/paged_cache/kivi_cache.hpp>
#include <tessera/algorithm/weights/compressed_linear.hpp>
#include <tessera/algorithm/weights/parameter_store.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/minicache.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/shadow_kv.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

template <class A, class Exec, class T = typename A::value_type>
concept CodesWeights = requires(Exec const& exec, weight_stream_spec const& spec, array_view<T const> weights,
                                array_view<T> decoded, array_view<std::byte> stream,
                                array_view<std::int64_t> stream_bytes, workspace const& space) {
  { A::plan_encode(exec, spec) } -> std::same_as<workspace_plan>;
  { A::plan_decode(exec, spec) } -> std::same_as<workspace_plan>;
  { A::encode(exec, spec, weights, stream, stream_bytes, space) } -> std::same_as<void>;
  { A::decode(exec, spec, stream, decoded, space) } -> std::same_as<void>;
};

template <class A, class Exec>
concept MultipliesByWeights = requires(Exec const& exec, weight_stream_spec const& spec, typename A::layer const& layer,
                                       view<bfloat16 const, 2> inputs, view<bfloat16, 2> outputs,
                                       workspace const& space) {
  { A::plan_forward(exec, spec) } -> std::same_as<workspace_plan>;
  { A::forward(exec, layer, inputs, outputs, space) } -> std::same_as<void>;
};

/// What forward() and attend() take, exactly: these also have overloads that refuse other arguments.
template <class Exec>
using forward_type = void (*)(Exec const&, attention_inputs<bfloat16> const&, attention_options const&,
                              attention_outputs<float> const&, workspace const&, attention_functions<> const&);
template <class A, class Exec>
using attend_type = void (A::*)(Exec const&, int, head_view<bfloat16 const>, cache_sequences const&,
                                attention_options const&, attention_outputs<float> const&, workspace const&,
                                sequence_lengths) const;

template <class A, class Exec>
concept Attends = requires(Exec const& exec, attention_shape const& shape, attention_options const& options) {
  { A::plan_forward(exec, shape) } -> std::same_as<workspace_plan>;
  { A::plan_forward(exec, shape, options) } -> std::same_as<workspace_plan>;
  static_cast<forward_type<Exec>>(&A::forward);
};

template <class A, class Exec>
concept Decodes = requires(Exec const& exec, attention_shape const& shape, attention_options const& options,
                           decode_attention_inputs<bfloat16> const& in, attention_outputs<float> const& out,
                           workspace const& space) {
  { A::plan_forward(exec, shape) } -> std::same_as<workspace_plan>;
  { A::plan_forward(exec, shape, options) } -> std::same_as<workspace_plan>;
  { A::forward(exec, in, options, out, space) } -> std::same_as<void>;
};

template <class A, class Exec>
concept QuantizesHeads = requires(Exec const& exec, attention_shape const& shape, quantize_options const& options,
                                  attention_inputs<bfloat16> const& in, typename A::heads const& out,
                                  workspace const& space) {
  { A::plan_quantize(exec, shape) } -> std::same_as<workspace_plan>;
  { A::plan_quantize(exec, shape, options) } -> std::same_as<workspace_plan>;
  { A::quantize(exec, shape, in, options, out, space) } -> std::same_as<void>;
};

/// An object with state that lies in memory of its own or in the caller's.
template <class A, class Exec, class Shape, class Options>
concept PlansItself = requires(Exec const& exec, Shape const& shape, Options const& options) {
  { A::plan(exec, shape) } -> std::same_as<workspace_plan>;
  { A::plan(exec, shape, options) } -> std::same_as<workspace_plan>;
};

template <class A, class Exec>
concept CachesTokens = PlansItself<A, Exec, cache_extents, typename A::options_type> &&
    std::constructible_from<A, Exec const&, cache_extents const&> &&
    std::constructible_from<A, Exec const&, cache_extents const&, typename A::options_type> &&
    std::constructible_from<A, Exec const&, cache_extents const&, typename A::options_type, workspace const&> &&
    requires(A const& cache, Exec const& exec, cache_inputs<bfloat16> const& in, cache_sequences const& sequences,
             cache_tokens const& added, attention_options const& options, workspace const& space) {
  { cache.plan_append(exec, cache_append_shape{1, 2}) } -> std::same_as<workspace_plan>;
  { cache.append(exec, 0, in, sequences, added, space) } -> std::same_as<void>;
  { cache.plan_seal(exec, 1) } -> std::same_as<workspace_plan>;
  { cache.seal(exec, 0, sequences, space) } -> std::same_as<void>;
  { cache.plan_attend(exec, attention_shape{}) } -> std::same_as<workspace_plan>;
  { cache.plan_attend(exec, attention_shape{}, options) } -> std::same_as<workspace_plan>;
  static_cast<attend_type<A, Exec>>(&A::attend);
};

template <class A, class Exec>
concept ComputesLosses = requires(Exec const& exec, linear_loss_shape const& shape,
                                  linear_loss_options const& options) {
  { A::plan_forward(exec, shape) } -> std::same_as<workspace_plan>;
  { A::plan_forward(exec, shape, options) } -> std::same_as<workspace_plan>;
  { A::plan_backward(exec, shape) } -> std::same_as<workspace_plan>;
  { A::plan_backward(exec, shape, options) } -> std::same_as<workspace_plan>;
};

/// A cache in two memories, the device's and the host's.
template <class A, class Exec, class Plan = typename A::template plan_type<bfloat16>>
concept OffloadsTokens = requires(Exec const& exec, offload_shape const& shape, offload_options const& options,
                                  Plan const& plan, array_view<std::byte> memory) {
  { A::template plan<bfloat16>(exec, shape) } -> std::same_as<Plan>;
  { A::template plan<bfloat16>(exec, shape, options) } -> std::same_as<Plan>;
  { A::plan_prefill(exec, plan) } -> std::same_as<workspace_plan>;
  { A::plan_decode(exec, plan) } -> std::same_as<workspace_plan>;
  A::open(exec, plan, memory, memory);
};

template <class Exec>
constexpr void check_calls() {
  static_assert(CodesWeights<neuzip, Exec>);
  static_assert(MultipliesByWeights<compressed_linear<neuzip>, Exec>);
  static_assert(PlansItself<parameter_store<neuzip, Exec>, Exec, std::vector<std::int64_t>, parameter_store_options>);
  static_assert(Attends<sage_attention2, Exec>);
  static_assert(Decodes<decode_attention, Exec>);
  static_assert(QuantizesHeads<sage_attention2, Exec>);
  static_assert(CachesTokens<minicache, Exec>);
  static_assert(CachesTokens<kivi_cache, Exec>);
  static_assert(ComputesLosses<cut_cross_entropy, Exec>);
  static_assert(OffloadsTokens<shadow_kv, Exec>);
}
template void check_calls<cpu>();

}  // namespace

TEST_CASE("a plan names the function that it is for", "[host]") {
  cpu const exec{.threads = 1};
  auto const spec = neuzip::spec(10'000);
  CHECK(neuzip::plan_encode(exec, spec).function() == "compressed_weights.encode");
  CHECK(neuzip::plan_decode(exec, spec).function() == "compressed_weights.decode");
  CHECK(compressed_linear<neuzip>::plan_forward(exec, spec).function() == "compressed_linear.forward");
  CHECK(parameter_store<neuzip, cpu>::plan(exec, {10'000}).function() == "parameter_store");
  attention_shape const shape{1, 2, 1, 300, 300, 64};
  CHECK(sage_attention2::plan_forward(exec, shape).function() == "attention.forward");
  CHECK(sage_attention2::plan_quantize(exec, shape).function() == "attention.quantize");
  CHECK(decode_attention::plan_forward(exec, shape).function() == "decode_attention.forward");
  CHECK(attention_score::plan_measure(exec, shape).function() == "attention_score.measure");
  cache_extents const extents{1, 64, 1, 1, 64};
  CHECK(minicache::plan(exec, extents).function() == "cross_layer_cache");
  minicache const cache(exec, extents);
  CHECK(cache.plan_append(exec, {.sequences = 1}).function() == "cross_layer_cache.append");
  CHECK(cache.plan_seal(exec, 1).function() == "cross_layer_cache.seal");
  CHECK(cache.plan_attend(exec, shape).function() == "cross_layer_cache.attend");
  CHECK(cut_cross_entropy::plan_forward(exec, {10, 100, 64}).function() == "linear_loss.forward");
  CHECK(cut_cross_entropy::plan_backward(exec, {10, 100, 64}).function() == "linear_loss.backward");
  auto const offloaded = shadow_kv::plan<bfloat16>(exec, {2, 2, 64, {1024}});
  CHECK(shadow_kv::plan_prefill(exec, offloaded).function() == "offloaded_cache.prefill");
  CHECK(shadow_kv::plan_decode(exec, offloaded).function() == "offloaded_cache.decode");
}
