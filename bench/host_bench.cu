// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The time that a call takes on the host, which a decoder of few tokens waits for. `us_a_call` is the time to enqueue
/// a call, and `us_beyond` what is left of it without the time in which as many empty launches, clears and copies are
/// enqueued.
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/observer.hpp>
#include <tessera/sage_attention2.hpp>

#include "support/cuda.cuh"

namespace {

using namespace tessera;

/// A program that does nothing.
struct empty_program {
  static constexpr int lanes = 128;
  struct scratch_type {};
  template <class Group>
  TESSERA_FN void operator()(Group const&, std::int64_t, scratch_type&) const {}
};

struct counting_observer final : observer {
  void launched(launch const&) override { ++launches; }
  void moved(std::int64_t) override { ++moves; }
  int launches = 0;
  int moves = 0;
};

/// Microseconds in which calls return.
struct host_times {
  double call;    ///< the median over rounds
  double beyond;  ///< the median over rounds of the difference to the base
};

/// Rounds of calls, which the device's queue has room for, and rounds of the base take turns: other work of the host,
/// and changes of its clock, meet both.
template <class Call, class Base>
host_times host_microseconds(cuda const& exec, Call const& call, Base const& base) {
  int const rounds = bench::only_starts() ? 1 : 60;
  constexpr int calls = 10;
  auto const time_of = [&](auto const& enqueue) {
    exec.wait();
    auto const begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) {
      enqueue(exec);
    }
    std::chrono::duration<double, std::micro> const taken = std::chrono::steady_clock::now() - begin;
    return taken.count() / calls;
  };
  std::vector<double> of_call;
  std::vector<double> beyond;
  for (int round = 0; round < rounds; ++round) {
    double const of_base = time_of(base);
    of_call.push_back(time_of(call));
    beyond.push_back(of_call.back() - of_base);
  }
  exec.wait();
  return {bench::median(of_call), bench::median(beyond)};
}

template <class Call>
void measure(benchmark::State& state, Call const& call) {
  cuda const exec;
  counting_observer counts;
  cuda watched = exec;
  watched.options.watched_by = &counts;
  call(watched);
  buffer<std::byte> bytes(exec, 4);
  host_times const times = host_microseconds(exec, call, [&](cuda const& on) {
    for (int i = 0; i < counts.launches; ++i) {
      on.run(empty_program{}, 132);
    }
    for (int i = 0; i < counts.moves; ++i) {
      on.clear(bytes.view());
    }
  });
  for (auto const& unused : state) {
    static_cast<void>(unused);
    state.SetIterationTime(times.call * 1e-6);
  }
  state.counters["us_a_call"] = times.call;
  state.counters["us_beyond"] = times.beyond;
  state.counters["launches"] = counts.launches;
  state.counters["clears_and_copies"] = counts.moves;
}

void attention_on_host(benchmark::State& state, std::int64_t queries) {
  cuda const exec;
  attention_shape const shape{1, 8, 2, queries, 1024, 128};
  buffer<bfloat16> q(exec, shape.query_heads * queries * shape.channels);
  buffer<bfloat16> k(exec, shape.key_heads * shape.keys * shape.channels);
  buffer<bfloat16> out(exec, shape.query_heads * queries * shape.channels);
  exec.clear(q.view());
  exec.clear(k.view());
  auto const plan = sage_attention2::plan_forward(exec, shape);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  head_view<bfloat16 const> const keys(k.data(), {1, shape.key_heads, shape.keys, shape.channels});
  attention_inputs<bfloat16> const in{{q.data(), {1, shape.query_heads, queries, shape.channels}}, keys, keys};
  measure(state, [&](cuda const& on) {
    sage_attention2::forward(on, in, {.is_causal = true},
                             attention_outputs<bfloat16>{{out.data(), {1, shape.query_heads, queries, shape.channels}}},
                             space);
  });
}

void loss_on_host(benchmark::State& state) {
  cuda const exec;
  using loss = cut_cross_entropy;
  linear_loss_shape const shape{256, 4096, 256};
  buffer<bfloat16> hidden(exec, shape.tokens * shape.channels);
  buffer<bfloat16> classifier(exec, shape.vocabulary * shape.channels);
  buffer<std::int64_t> labels(exec, shape.tokens);
  buffer<float> value(exec, 1);
  buffer<bfloat16> of_hidden(exec, shape.tokens * shape.channels);
  buffer<bfloat16> of_classifier(exec, shape.vocabulary * shape.channels);
  exec.clear(hidden.view());
  exec.clear(classifier.view());
  exec.clear(labels.view());
  auto const plan = loss::plan_backward(exec, shape);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  loss::inputs<std::int64_t> const in{{hidden.data(), {shape.tokens, shape.channels}},
                                      {classifier.data(), {shape.vocabulary, shape.channels}},
                                      {labels.data(), {shape.tokens}}};
  linear_loss_gradients<bfloat16> const gradients{{of_hidden.data(), {shape.tokens, shape.channels}},
                                                  {of_classifier.data(), {shape.vocabulary, shape.channels}}};
  measure(state, [&](cuda const& on) {
    loss::forward(on, in, {}, {.loss = value.view()}, space);
    loss::backward(on, in, {}, {}, gradients, space);
  });
}

bench::registration const registered([] {
  bench::add_cuda("host/attention/forward/1024", [](benchmark::State& state) { attention_on_host(state, 1024); });
  bench::add_cuda("host/attention/forward/1", [](benchmark::State& state) { attention_on_host(state, 1); });
  bench::add_cuda("host/cut_cross_entropy/forward_backward", [](benchmark::State& state) { loss_on_host(state); });
});

}  // namespace
