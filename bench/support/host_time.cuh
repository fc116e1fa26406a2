// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures the time that a call takes on the host, which a decoder of few tokens waits for. `us_a_call` is the time to
/// enqueue a call, and `us_beyond` what is left of it without the time in which as many empty launches, clears and
/// copies are enqueued.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/observer.hpp>

#include "cuda.cuh"

namespace bench {

/// A program that does nothing.
struct empty_program {
  static constexpr int lanes = 128;
  struct scratch_type {};
  template <class Group>
  TESSERA_FN void operator()(Group const&, std::int64_t, scratch_type&) const {}
};

struct counting_observer final : tessera::observer {
  void launched(tessera::launch const&) override { ++launches; }
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
host_times host_microseconds(tessera::cuda const& exec, Call const& call, Base const& base) {
  int const rounds = only_starts() ? 1 : 60;
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
  return {median(of_call), median(beyond)};
}

/// Measures `call(exec)`, and as many empty launches and clears as it enqueues launches, clears and copies.
template <class Call>
void measure_host_time(benchmark::State& state, Call const& call) {
  tessera::cuda const exec;
  counting_observer counts;
  tessera::cuda watched = exec;
  watched.options.watched_by = &counts;
  call(watched);
  tessera::buffer<std::byte> bytes(exec, 4);
  host_times const times = host_microseconds(exec, call, [&](tessera::cuda const& on) {
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

}  // namespace bench
