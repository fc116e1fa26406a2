// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Attention on one core of the CPU: 2 heads of 1024 queries and keys and 128 channels, from bf16 to bf16. GFLOPs
/// counts four operations for each query, key and channel.
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/algorithm/attention/dense_attention.hpp>
#include <tessera/core/cpu_features.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/testing/generators.hpp>

#include "support/cpu.hpp"

namespace {

using namespace tessera;

constexpr std::int64_t heads = 2;
constexpr std::int64_t tokens = 1024;
constexpr std::int64_t channels = 128;

struct problem {
  std::vector<bfloat16> queries = sampled(1);
  std::vector<bfloat16> keys = sampled(2);
  std::vector<bfloat16> values = sampled(3);
  std::vector<bfloat16> results = std::vector<bfloat16>(queries.size());

  static std::vector<bfloat16> sampled(std::uint64_t seed) {
    std::vector<bfloat16> made(static_cast<std::size_t>(heads * tokens * channels));
    for (std::size_t i = 0; i < made.size(); ++i) {
      made[i] = testing::sample<bfloat16>(testing::gauss{}, seed, i);
    }
    return made;
  }
  static head_view<bfloat16 const> view_of(std::vector<bfloat16> const& from) {
    return {from.data(), {1, heads, tokens, channels}};
  }
  /// The first query's first channels against sums in double.
  void require_result() const {
    std::vector<double> weights;
    double total = 0;
    for (std::int64_t key = 0; key < tokens; ++key) {
      double product = 0;
      for (std::int64_t i = 0; i < channels; ++i) {
        product += double{load(queries[static_cast<std::size_t>(i)])} *
                   load(keys[static_cast<std::size_t>(key * channels + i)]);
      }
      weights.push_back(std::exp(product / std::sqrt(double{channels})));
      total += weights.back();
    }
    for (std::int64_t channel = 0; channel < 8; ++channel) {
      double expected = 0;
      for (std::int64_t key = 0; key < tokens; ++key) {
        expected += weights[static_cast<std::size_t>(key)] / total *
                    load(values[static_cast<std::size_t>(key * channels + channel)]);
      }
      double const found = load(results[static_cast<std::size_t>(channel)]);
      if (!(std::abs(found - expected) < 0.02)) {
        throw std::runtime_error("channel " + std::to_string(channel) + " of the first result is " +
                                 std::to_string(found) + " but " + std::to_string(expected) + " is right");
      }
    }
  }
};

template <class Method>
void measure(benchmark::State& state) {
  problem p;
  cpu const exec{.threads = 1};
  attention_shape const shape{1, heads, heads, tokens, tokens, channels};
  auto const plan = Method::plan_forward(exec, shape);
  buffer<std::byte> memory(plan.bytes());
  double const seconds = bench::time_cpu(state, [&] {
    attention_inputs<bfloat16> const in{problem::view_of(p.queries), problem::view_of(p.keys),
                                        problem::view_of(p.values)};
    attention_outputs<bfloat16> const out{head_view<bfloat16>(p.results.data(), {1, heads, tokens, channels}), {}};
    Method::forward(exec, in, {}, out, workspace(plan, memory));
    exec.wait();
  });
  p.require_result();
  double const operations = 4.0 * heads * tokens * tokens * channels;
  bench::report_cpu(state, seconds, {.operations = operations});
}

bool const added = [] {
  std::string const shape = std::string(simd_level_name(best_simd_level())) + "/d128/2x1k/1thread";
  bench::add("sage_attention2/cpu/" + shape, measure<sage_attention2>);
  bench::add("dense_attention/cpu/" + shape, measure<dense_attention>);
  return true;
}();

}  // namespace
