// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The rest of "support/placed_operands.hpp": calls of caches, of searches for directions, and of compressed weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "support/placed_operands.hpp"

namespace tessera_test {

/// Caches in pages.
template <class Exec, class Visit>
void calls_of_pages(Exec const& exec, Visit const& visit) {
  using at = operand_places;
  using options_type = minicache::options_type;
  cache_extents const extents{.slots = 2, .tokens = 512, .blocks = 8, .heads = 2, .channels = 64};
  minicache const cache(exec, extents, options_type{.parts = {minicache::single()}});
  auto const sequences = [](at p) {
    return cache_sequences{{p.of<std::int32_t>("block tables"), {2, 8}},
                           {p.of<std::int32_t>("slots"), 2},
                           {p.of<std::int32_t>("lengths"), 2},
                           {p.of<std::int32_t>("counts of sealed pages"), 2}};
  };
  auto const heads = [](at p, char const* what, std::int64_t count = 2) {
    return head_view<bfloat16>(p.of<bfloat16>(what), {2, count, 32, 64});
  };
  auto const added = [](at p) { return cache_tokens{32, {p.of<std::int32_t>("counts of new tokens"), 2}}; };
  operand_names<4> const lists{"block tables", "slots", "lengths", "counts of sealed pages"};
  auto const append = [&](at p) {
    cache_inputs<bfloat16> in;
    in.keys[0] = heads(p, "keys");
    in.values[0] = heads(p, "values");
    cache.append(exec, 0, in, sequences(p), added(p), p.space(cache.plan_append(exec, {.sequences = 2, .tokens = 32})));
  };
  auto const write = [&](at p) { cache.write(exec, 0, heads(p, "keys"), heads(p, "values"), sequences(p), added(p)); };
  auto const seal = [&](at p) { cache.seal(exec, 0, sequences(p), p.space(cache.plan_seal(exec, 2))); };
  auto const advance = [&](at p) { cache.advance(exec, sequences(p), {p.of<std::int32_t>("counts of pages"), 2}); };
  auto const attend = [&](at p) {
    attention_outputs<bfloat16> const out{heads(p, "results", 4), {p.of<float>("log-sum-exps"), {2, 4, 32}}};
    head_view<bfloat16 const> const queries = heads(p, "queries", 4);
    auto const plan = cache.plan_attend(exec, cache.shape_of(queries, sequences(p)));
    cache.attend(exec, 0, queries, sequences(p), {}, out, p.space(plan), {p.of<std::int32_t>("lengths of queries"), 2});
  };
  auto const restore = [&](at p) { cache.restore(exec, 0, sequences(p), heads(p, "keys"), heads(p, "values")); };
  visit("cross_layer_cache.append", lists, append);
  visit("cross_layer_cache.append",
        operand_names<4>{"keys", "values", "counts of new tokens", "bytes of the workspace"}, append);
  visit("cross_layer_cache.write", lists, write);
  visit("cross_layer_cache.write", operand_names<3>{"keys", "values", "counts of new tokens"}, write);
  visit("cross_layer_cache.seal", lists, seal);
  visit("cross_layer_cache.seal", operand_names<1>{"bytes of the workspace"}, seal);
  visit("cross_layer_cache.advance", lists, advance);
  visit("cross_layer_cache.advance", operand_names<1>{"counts of pages"}, advance);
  visit("cross_layer_cache.attend", lists, attend);
  visit("cross_layer_cache.attend",
        operand_names<5>{"queries", "results", "log-sum-exps", "lengths of queries", "bytes of the workspace"}, attend);
  visit("cross_layer_cache.restore", lists, restore);
  visit("cross_layer_cache.restore", operand_names<2>{"keys", "values"}, restore);
  visit("cross_layer_cache.reset", operand_names<1>{"slots"}, [&](at p) {
    cache.reset(exec, {p.of<std::int32_t>("slots"), 2});
  });
  visit("cross_layer_cache.fork", operand_names<2>{"slots to go on from", "slots to go on in"}, [&](at p) {
    cache.fork(exec, {p.of<std::int32_t>("slots to go on from"), 1}, {p.of<std::int32_t>("slots to go on in"), 1});
  });
  visit("cross_layer_cache", operand_names<1>{"bytes of the workspace"}, [&](at p) {
    options_type const options{.parts = {minicache::single()}};
    minicache const other(exec, extents, options, p.space(minicache::plan(exec, extents, options)));
  });
}

/// Caches whose values are on the host.
template <class Exec, class Visit>
void calls_of_offloaded_caches(Exec const& exec, Visit const& visit) {
  using at = operand_places;
  using method = offloaded_cache<low_rank<16>, landmark_selector<8>, keep_outliers<2>>;
  side_queue<Exec> const side(exec, method::side_marks, true);
  auto const plan = method::plan<bfloat16>(exec, {4, 2, 16, {512}}, {.keeps_products = true}, {.chunks = 4});
  auto const open = [&](at p) {
    rotary_embedding const rotary{{p.of<rotation>("angles of positions"), {256, 8}},
                                  {p.of<rotation>("angles of blocks"), {4, 8}}};
    return method::open(exec, plan, {p.of<std::byte>("bytes of the device's block"), plan.device.bytes()},
                        {p.of<std::byte>("bytes of the host's block"), plan.host.bytes()}, rotary);
  };
  auto const tokens = [](at p, char const* what) {
    return view<bfloat16 const, 3>(p.of<bfloat16>(what), {2, 128, 16});
  };
  auto const of_prompt = method::plan_prefill(exec, plan);
  operand_names<3> const given{"keys", "values", "bytes of the workspace"};
  visit("offloaded_cache.open",
        operand_names<4>{"bytes of the device's block", "bytes of the host's block", "angles of positions",
                         "angles of blocks"},
        [&](at p) { static_cast<void>(open(p)); });
  visit("offloaded_cache.begin", operand_names<1>{"bytes of the workspace"},
        [&](at p) { static_cast<void>(method::begin(exec, open(p), 0, p.space(of_prompt))); });
  visit("offloaded_cache.take", given, [&](at p) {
    offload_prompt prompt{0, 0};
    method::take(exec, side, open(p), prompt, tokens(p, "keys"), tokens(p, "values"), p.space(of_prompt));
  });
  visit("offloaded_cache.finish", given, [&](at p) {
    offload_prompt const prompt{0, 128};
    method::finish(exec, side, open(p), prompt, tokens(p, "keys"), tokens(p, "values"), p.space(of_prompt));
  });
  visit("offloaded_cache.refit", operand_names<1>{"bytes of the workspace"},
        [&](at p) { method::refit(exec, open(p), 0, p.space(method::plan_refit(exec, plan))); });
  visit("offloaded_cache.decode",
        operand_names<7>{"queries", "keys", "values", "numbers of sequences", "results", "log-sum-exps",
                         "bytes of the workspace"},
        [&](at p) {
          offload_tokens<bfloat16> const in{{p.of<bfloat16>("queries"), {1, 4, 16}},
                                            {p.of<bfloat16>("keys"), {1, 2, 16}},
                                            {p.of<bfloat16>("values"), {1, 2, 16}},
                                            {p.of<std::int32_t>("numbers of sequences"), 1}};
          offload_outputs<bfloat16> const out{{p.of<bfloat16>("results"), {1, 4, 16}},
                                              {p.of<float>("log-sum-exps"), {1, 4}}};
          method::decode(exec, side, open(p), in, out, p.space(method::plan_decode(exec, plan)));
        });
  using of_lists = offloaded_cache<exact_keys, given_chunks<8>, keep_outliers<0>>;
  visit("offloaded_cache.decode", operand_names<2>{"given chunks", "counts of given chunks"}, [&](at p) {
    auto const listed = of_lists::plan<bfloat16>(exec, {4, 2, 16, {512}}, {}, {.chunks = 4});
    auto const cache = of_lists::open(exec, listed, {p.of<std::byte>(""), listed.device.bytes()},
                                      {p.of<std::byte>(""), listed.host.bytes()});
    offload_tokens<bfloat16> in{
        {p.of<bfloat16>(""), {1, 4, 16}}, {p.of<bfloat16>(""), {1, 2, 16}}, {p.of<bfloat16>(""), {1, 2, 16}}};
    in.given = {{p.of<std::int32_t>("given chunks"), {1, 2, 4}},
                {p.of<std::int32_t>("counts of given chunks"), {1, 2}}};
    offload_outputs<bfloat16> const out{{p.of<bfloat16>(""), {1, 4, 16}}};
    of_lists::decode(exec, side, cache, in, out, p.space(of_lists::plan_decode(exec, listed)));
  });
}

/// Searches for directions of keys.
template <class Exec, class Visit>
void calls_of_searches(Exec const& exec, Visit const& visit) {
  using at = operand_places;
  key_factorization const factorization(32, 16);
  auto const keys = [](at p) { return view<bfloat16 const, 3>(p.of<bfloat16>("keys"), {2, 64, 16}); };
  auto const gram = [](at p) { return matrix_view<float>(p.of<float>("products of channels"), {32, 32}); };
  auto const directions = [](at p) { return matrix_view<bfloat16>(p.of<bfloat16>("directions"), {32, 16}); };
  visit("key_factorization.accumulate", operand_names<3>{"keys", "products of channels", "elements of the room"},
        [&](at p) {
          factorization.accumulate(exec, keys(p), gram(p), {p.of<float>("elements of the room"), 64});
        });
  visit("key_factorization.settle", operand_names<3>{"keys", "products of channels", "bytes of the workspace"},
        [&](at p) { factorization.settle(exec, keys(p), gram(p), p.space(factorization.plan_find(exec))); });
  visit("key_factorization.find", operand_names<3>{"products of channels", "directions", "bytes of the workspace"},
        [&](at p) {
          factorization.find(exec, matrix_view<float const>(gram(p)), directions(p),
                             p.space(factorization.plan_find(exec)));
        });
  visit("key_factorization.project", operand_names<3>{"keys", "directions", "coefficients"}, [&](at p) {
    key_factorization::project(exec, keys(p), matrix_view<bfloat16 const>(directions(p)),
                               matrix_view<bfloat16>(p.of<bfloat16>("coefficients"), {64, 16}));
  });
}

/// Compressed weights.
template <class Exec, class Visit>
void calls_of_weights(Exec const& exec, Visit const& visit) {
  using at = operand_places;
  using fixed = neuzip_fixed<bfloat16>;
  auto const spec = neuzip::spec(64 * 64);
  auto const stream = [&](at p) {
    return array_view<std::byte>(p.of<std::byte>("bytes of the stream"), neuzip::largest_bytes(spec));
  };
  visit("compressed_weights.encode",
        operand_names<4>{"weights", "bytes of the stream", "sizes of streams", "bytes of the workspace"}, [&](at p) {
          neuzip::encode(exec, spec, {p.of<bfloat16>("weights"), spec.count}, stream(p),
                         {p.of<std::int64_t>("sizes of streams"), 1}, p.space(neuzip::plan_encode(exec, spec)));
        });
  visit("compressed_weights.decode", operand_names<3>{"weights", "bytes of the stream", "bytes of the workspace"},
        [&](at p) {
          neuzip::decode(exec, spec, stream(p), {p.of<bfloat16>("weights"), spec.count},
                         p.space(neuzip::plan_decode(exec, spec)));
        });
  visit("compressed_linear.forward",
        operand_names<5>{"bytes of the stream", "biases", "inputs", "outputs", "bytes of the workspace"}, [&](at p) {
          using layer = compressed_linear<neuzip>;
          layer::forward(exec, {spec, stream(p), {p.of<bfloat16>("biases"), 64}}, view(p.of<float>("inputs"), {2, 64}),
                         view(p.of<float>("outputs"), {2, 64}), p.space(layer::plan_forward(exec, spec)));
        });
  visit("coded_matrix.open", operand_names<2>{"bytes of the stream", "bytes of the workspace"}, [&](at p) {
    using matrix = coded_matrix<fixed>;
    auto const coded = fixed::spec(64 * 64);
    array_view<std::byte const> const bytes(p.of<std::byte>("bytes of the stream"), fixed::largest_bytes(coded));
    static_cast<void>(matrix::open(exec, {coded, bytes, 64, 64}, p.space(matrix::plan_open(exec, coded))));
  });
}

}  // namespace tessera_test
