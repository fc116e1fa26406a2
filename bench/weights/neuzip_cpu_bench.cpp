// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// NeuZip on the CPU. GBps counts the bytes of the weights; encoding includes the histogram and the codebook. Every
/// result is checked: decoded weights against the original ones, a stream against that of the portable code.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <tessera/core/cpu_features.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/testing/generators.hpp>

#include "support/cpu.hpp"

namespace {

using tessera::bfloat16;
using tessera::neuzip;
using tessera::simd_level;

constexpr char const* variable = "TESSERA_SIMD";

/// Limits the instruction sets that the library uses, for as long as it lives.
class simd_limit {
 public:
  explicit simd_limit(simd_level level) {
    if (char const* const value = std::getenv(variable)) {
      before_ = value;
    }
    setenv(variable, tessera::simd_level_name(level), 1);
  }
  ~simd_limit() {
    if (before_.empty()) {
      unsetenv(variable);
    } else {
      setenv(variable, before_.c_str(), 1);
    }
  }
  simd_limit(simd_limit const&) = delete;
  simd_limit& operator=(simd_limit const&) = delete;

 private:
  std::string before_;
};

std::vector<bfloat16> gauss_weights(std::int64_t count) {
  std::vector<bfloat16> weights(static_cast<std::size_t>(count));
  std::size_t const threads = std::max(1U, std::thread::hardware_concurrency());
  std::size_t const share = (weights.size() + threads - 1) / threads;
  std::vector<std::thread> workers;
  for (std::size_t first = 0; first < weights.size(); first += share) {
    workers.emplace_back([&weights, first, last = std::min(weights.size(), first + share)] {
      for (std::size_t i = first; i < last; ++i) {
        weights[i] = tessera::testing::sample<bfloat16>(tessera::testing::gauss{.sigma = 0.02}, 1, i);
      }
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
  return weights;
}

/// The weights of every benchmark here, and the portable code's stream of them.
struct tensor {
  std::vector<bfloat16> weights = gauss_weights(std::int64_t{32} << 20);
  tessera::weight_stream_spec spec = neuzip::spec(std::ssize(weights));
  tessera::buffer<std::byte> stream = [this] {
    simd_limit const portable(simd_level::scalar);
    return neuzip::encode(tessera::cpu{}, weights);
  }();

  double bytes() const { return static_cast<double>(weights.size() * sizeof(bfloat16)); }
};

tensor const& shared_tensor() {
  static tensor const one;
  return one;
}

/// The workspace of a plan.
struct space {
  explicit space(tessera::workspace_plan made) : plan(std::move(made)), memory(plan.bytes()) {}
  tessera::workspace_plan plan;
  tessera::buffer<std::byte> memory;
  operator tessera::workspace() { return tessera::workspace(plan, memory); }
};

void report(benchmark::State& state, double seconds) {
  tensor const& one = shared_tensor();
  bench::report_cpu(state, seconds, {.bytes = one.bytes()});
  state.counters["bits_per_weight"] =
      8.0 * static_cast<double>(one.stream.bytes()) / static_cast<double>(one.spec.count);
}

/// Decodes with so many threads; 0 is all threads.
void decode(benchmark::State& state, simd_level level, int threads) {
  if (tessera::supported_simd_level() < level) {
    bench::skip(state, std::string("the processor has no ") + tessera::simd_level_name(level));
    return;
  }
  tensor const& one = shared_tensor();
  simd_limit const limit(level);
  tessera::cpu const exec{.threads = threads};
  std::vector<bfloat16> decoded(one.weights.size());
  space room(neuzip::plan_decode(exec, one.spec));
  double const seconds =
      bench::time_cpu(state, [&] { neuzip::decode(exec, one.spec, one.stream.view(), decoded, room); });
  exec.wait();
  if (std::memcmp(decoded.data(), one.weights.data(), decoded.size() * sizeof(bfloat16)) != 0) {
    throw std::runtime_error("decoding did not give the weights back");
  }
  report(state, seconds);
}

void encode(benchmark::State& state, int threads) {
  tensor const& one = shared_tensor();
  tessera::cpu const exec{.threads = threads};
  tessera::buffer<std::byte> stream(neuzip::largest_bytes(one.spec));
  tessera::buffer<std::int64_t> stream_bytes(1);
  space room(neuzip::plan_encode(exec, one.spec));
  double const seconds =
      bench::time_cpu(state, [&] { neuzip::encode(exec, one.spec, one.weights, stream, stream_bytes, room); });
  exec.wait();
  if (stream_bytes[0] != one.stream.size() || std::memcmp(stream.data(), one.stream.data(), one.stream.bytes()) != 0) {
    throw std::runtime_error("encoding did not make the portable code's stream");
  }
  report(state, seconds);
}

bench::registration const registered([] {
  std::string const operation = "neuzip/cpu/decode/bf16/gauss/";
  for (simd_level const level : {simd_level::scalar, simd_level::avx2, simd_level::avx512}) {
    bench::add(operation + tessera::simd_level_name(level) + "/64MiB/1thread",
               [level](benchmark::State& state) { decode(state, level, 1); });
  }
  bench::add(operation + "64MiB/all_threads",
             [](benchmark::State& state) { decode(state, tessera::supported_simd_level(), 0); });
  bench::add("neuzip/cpu/encode/bf16/gauss/64MiB/1thread", [](benchmark::State& state) { encode(state, 1); });
  bench::add("neuzip/cpu/encode/bf16/gauss/64MiB/all_threads", [](benchmark::State& state) { encode(state, 0); });
});

}  // namespace
