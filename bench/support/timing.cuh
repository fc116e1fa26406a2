// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Times device work with CUDA events: from cold caches for calls that fill the chip, as a graph for short ones.
#pragma once

#include <benchmark/benchmark.h>
#include <vector>

#include "harness.hpp"
#include "streaming.cuh"

namespace bench {

inline constexpr int samples_per_repetition = 15;

/// Evicts all data of a benchmark from the L2 cache: it writes twice the cache's size, then reads as much elsewhere, so
/// that the measured call does not pay for writing back the flush's own data.
class cache_flush {
 public:
  explicit cache_flush(device_memory& memory)
      : dirty_(memory, size()), clean_(memory, size()), sink_(memory, 1), seed_(1) {
    stream_write(clean_.data(), clean_.bytes(), seed_, memory.stream());
  }
  void operator()(cudaStream_t stream) {
    stream_write(dirty_.data(), dirty_.bytes(), ++seed_, stream);
    stream_read(clean_.data(), clean_.bytes(), sink_.data(), stream);
  }

 private:
  static std::size_t size() {
    auto const cache = static_cast<std::size_t>(device_attribute(cudaDevAttrL2CacheSize));
    return whole_blocks(2 * cache + bytes_per_block);
  }
  device_array<unsigned char> dirty_;
  device_array<unsigned char> clean_;
  device_array<std::uint32_t> sink_;
  std::uint32_t seed_;
};

/// Median seconds of `body(stream)`, each call from a cold L2. All samples are enqueued before the first is waited for,
/// and each flush hides the launch of its call, so that the host's speed does not count. `prepare(stream)` runs before
/// each call and is not timed.
template <class Body, class Prepare>
double median_cold_seconds(cudaStream_t stream, int samples, Body&& body, Prepare&& prepare) {
  device_memory flush_memory;
  cache_flush flush(flush_memory);
  flush_memory.wait();
  prepare(stream);
  body(stream);  // warm-up: module load, first allocations
  check(cudaStreamSynchronize(stream), "warm-up");
  std::vector<event> starts(static_cast<std::size_t>(samples));
  std::vector<event> stops(static_cast<std::size_t>(samples));
  for (std::size_t i = 0; i < starts.size(); ++i) {
    prepare(stream);
    flush(stream);
    starts[i].record(stream);
    body(stream);
    stops[i].record(stream);
  }
  check(cudaStreamSynchronize(stream), "measured calls");
  std::vector<double> seconds;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    seconds.push_back(stops[i].seconds_since(starts[i]));
  }
  return median(std::move(seconds));
}

template <class Body>
double median_cold_seconds(cudaStream_t stream, int samples, Body&& body) {
  return median_cold_seconds(stream, samples, body, [](cudaStream_t) {});
}

/// Medians of single calls, ours and the peer's in turn. Under full load the clock changes by several per cent within a
/// second, and changes both. An eighth of the rounds is not counted.
struct race {
  double ours;
  double peer;
};
template <class Ours, class Peer>
race alternate(cudaStream_t stream, Ours ours, Peer peer, int rounds = 40) {
  int const warm_up = (rounds + 7) / 8;
  std::vector<event> marks(static_cast<std::size_t>(3 * rounds));
  for (int i = 0; i < rounds; ++i) {
    marks[static_cast<std::size_t>(3 * i)].record(stream);
    ours();
    marks[static_cast<std::size_t>(3 * i + 1)].record(stream);
    peer();
    marks[static_cast<std::size_t>(3 * i + 2)].record(stream);
  }
  check(cudaStreamSynchronize(stream), "alternating calls");
  std::vector<double> own_seconds;
  std::vector<double> peer_seconds;
  for (auto i = static_cast<std::size_t>(3 * warm_up); i < marks.size(); i += 3) {
    own_seconds.push_back(marks[i + 1].seconds_since(marks[i]));
    peer_seconds.push_back(marks[i + 2].seconds_since(marks[i + 1]));
  }
  return {median(own_seconds), median(peer_seconds)};
}

/// A benchmark's measurement, in which each iteration is the median of many cold calls.
template <class Body>
double time_cold(benchmark::State& state, cudaStream_t stream, Body&& body) {
  std::vector<double> seconds;
  for (auto _ : state) {
    seconds.push_back(median_cold_seconds(stream, samples_per_repetition, body));
    state.SetIterationTime(seconds.back());
  }
  return seconds.empty() ? 0 : median(std::move(seconds));
}

/// Calls recorded as a CUDA graph, `body(stream, i)` for i = 0 ... calls-1.
class call_graph {
 public:
  template <class Body>
  call_graph(cudaStream_t stream, int calls, Body&& body) : stream_(stream), calls_(calls) {
    body(stream, 0);
    check(cudaStreamSynchronize(stream), "warm-up");
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    for (int i = 0; i < calls; ++i) {
      body(stream, i);
    }
    check(cudaStreamEndCapture(stream, &graph_), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&executable_, graph_, 0), "cudaGraphInstantiate");
    check(cudaGraphLaunch(executable_, stream), "cudaGraphLaunch");
    check(cudaStreamSynchronize(stream), "first graph launch");
  }
  ~call_graph() {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  call_graph(call_graph const&) = delete;
  call_graph& operator=(call_graph const&) = delete;

  void launch() const { check(cudaGraphLaunch(executable_, stream_), "cudaGraphLaunch"); }

  /// The median seconds of a call.
  double seconds() const {
    std::vector<double> found;
    for (int i = 0; i < samples_per_repetition; ++i) {
      event start;
      event stop;
      start.record(stream_);
      check(cudaGraphLaunch(executable_, stream_), "cudaGraphLaunch");
      stop.record(stream_);
      check(cudaStreamSynchronize(stream_), "graph launch");
      found.push_back(stop.seconds_since(start) / calls_);
    }
    return median(std::move(found));
  }

 private:
  cudaStream_t stream_;
  int calls_;
  cudaGraph_t graph_{};
  cudaGraphExec_t executable_{};
};

template <class Body>
double graph_seconds(cudaStream_t stream, int calls, Body&& body) {
  return call_graph(stream, calls, body).seconds();
}

/// Seconds of one of `calls` calls launched as one CUDA graph, for work too short to be timed alone. The caches are as
/// warm as the calls before leave them, so rotate inputs by `i` if they fit in the L2 cache and should not be found
/// there.
template <class Body>
double time_graph(benchmark::State& state, cudaStream_t stream, int calls, Body&& body) {
  call_graph const graph(stream, calls, body);
  std::vector<double> medians;
  for (auto _ : state) {
    medians.push_back(graph.seconds());
    state.SetIterationTime(medians.back());
  }
  return medians.empty() ? 0 : median(std::move(medians));
}

}  // namespace bench
