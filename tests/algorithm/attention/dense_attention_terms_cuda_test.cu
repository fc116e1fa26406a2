// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/algorithm/attention/dense_attention.cuh>
#include <tessera/exec/buffer.hpp>
#include <tessera/map/dense_bias.hpp>
#include <tessera/map/linear_bias.hpp>

#include "algorithm/attention/attention_on_device.cuh"
#include "support/guarded_memory.cuh"
#include "support/listed_tiles.cuh"
#include "support/score_functions.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// Checks a call with a bias, or lists, or results of another type, against attention in double. A fast program must
/// run: there is one for all GPUs. `expected`: the bias for the host; for lists log(how often a key is listed).
template <class Result, class Bias = no_bias, class T = bfloat16>
void check_terms(attention_problem<T> const& p, Bias const& bias, reference_bias const& expected,
                 head_layout layout = head_layout::heads_first,
                 memory_handle memory = std::make_shared<device_memory>()) {
  attention_shape const& s = p.shape;
  CAPTURE(s.batch, s.query_heads, s.key_heads, s.queries, s.keys, s.channels, p.query_lengths, p.key_lengths);
  CAPTURE(p.options.is_causal, p.options.window_left, p.options.window_right, p.list_counts, p.list_tiles);
  tessera::cuda exec;
  exec.memory = std::move(memory);
  exec.options.refuses_slower_programs = layout != head_layout::shifted;
  auto const by_formula = attention_by_formula(p, expected);
  auto const found = run_on_device<dense_attention, Result>(exec, p, layout, true, attention_functions<Bias>{bias});
  CHECK(found.is_clean);
  double const apart = std::is_same_v<T, bfloat16> ? 0.032 : 0.004;
  CHECK(farthest(found.found.result, by_formula.result) < apart);
  double largest = 0;  // of the log-sum-exps, which are rounded as floats are
  for (double const lse : by_formula.log_sum_exp) {
    largest = std::isfinite(lse) ? std::max(largest, std::fabs(lse)) : largest;
  }
  CHECK(farthest(found.found.log_sum_exp, by_formula.log_sum_exp) < 2e-4 + std::ldexp(largest, -22));
}

/// Slopes of a linear_bias, on the device.
struct slopes_on_device {
  std::vector<float> host;
  buffer<float> device;

  explicit slopes_on_device(std::vector<float> const& slopes)
      : host(slopes), device(to_device(tessera::cuda{}, slopes)) {}
  linear_bias bias() const { return {{device.data(), device.size()}}; }
  reference_bias expected() const {
    return [this](std::int64_t, std::int64_t head, std::int64_t query, std::int64_t key) {
      return static_cast<double>(host[as_size(head)]) * static_cast<double>(key - query);
    };
  }
};

/// Biases in memory, in rows of `pitch`, from element `offset` on; every 19th is minus infinity, but for keys 0 and 1.
template <class B>
struct biases_on_device {
  attention_shape shape;
  std::int64_t pitch;
  std::int64_t offset;
  std::vector<B> host;
  buffer<B> device;

  biases_on_device(attention_shape const& s, std::int64_t more, std::int64_t from)
      : shape(s), pitch(s.keys + more), offset(from), host(make()), device(to_device(tessera::cuda{}, host)) {}
  head_view<B const> view(B const* data) const {
    std::int64_t const head = shape.queries * pitch;  // sequences share their biases
    return {data + offset, {shape.batch, shape.query_heads, shape.queries, shape.keys}, {0, head, pitch, 1}};
  }
  dense_bias<B> bias() const { return {view(device.data())}; }
  reference_bias expected() const {
    return [this](std::int64_t sequence, std::int64_t head, std::int64_t query, std::int64_t key) {
      return static_cast<double>(load(view(host.data())(sequence, head, query, key)));
    };
  }

 private:
  std::vector<B> make() const {
    std::vector<B> made(as_size(offset + shape.query_heads * shape.queries * pitch));
    for (std::size_t i = 0; i < made.size(); ++i) {
      std::int64_t const key = (static_cast<std::int64_t>(i) - offset) % pitch;
      float const value = 2 * testing::gauss{}.value(5, i);
      made[i] = store<B>(i % 19 == 7 && key > 1 ? minus_infinity : value);
    }
    return made;
  }
};

/// What slope_bias is on the host.
reference_bias expected_of(slope_bias const& bias) {
  return [bias](std::int64_t sequence, std::int64_t head, std::int64_t query, std::int64_t key) {
    return static_cast<double>(bias(sequence, head, query, key));
  };
}

/// Shapes and masks whose edges lie beside those of tiles.
template <class Check>
void each_problem(std::int64_t channels, Check const& check) {
  for (auto const& [queries, keys] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {7, 7}, {63, 129}, {65, 127}, {127, 128}, {129, 400}, {300, 385}}) {
    auto p = make_attention_problem<bfloat16>({2, 4, 2, queries, keys, channels});
    for (attention_options const& options :
         {attention_options{}, attention_options{.is_causal = true},
          attention_options{.softmax_scale = 0.05F, .window_left = 70, .window_right = 20}}) {
      p.options = options;
      check(p);
    }
    p.sinks = {0.5F, -3.0F, 20.0F, minus_infinity};
    p.options = {.is_causal = true};
    p.query_lengths = {static_cast<std::int32_t>(queries), static_cast<std::int32_t>(queries / 2)};
    p.key_lengths = {static_cast<std::int32_t>(keys / 2), static_cast<std::int32_t>(keys)};
    check(p);
  }
}

}  // namespace

TEST_CASE("dense attention on a GPU adds a line to scores", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  slopes_on_device const slopes({0.5F, 0.0625F, -0.25F, 0.0F});
  for (std::int64_t const channels : {64, 80, 128, 256}) {
    each_problem(channels, [&](auto const& p) { check_terms<bfloat16>(p, slopes.bias(), slopes.expected()); });
  }
  slopes_on_device const steep({30.0F, -30.0F});
  check_terms<bfloat16>(make_attention_problem<bfloat16>({1, 2, 2, 200, 2100, 128}), steep.bias(), steep.expected());
  slopes_on_device const split({0.01F, 0.5F});
  check_terms<bfloat16>(make_attention_problem<bfloat16>({1, 2, 1, 70, 9000, 64}), split.bias(), split.expected());
}

TEST_CASE("dense attention on a GPU adds biases from memory, by 16 bytes and one by one", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128, 256}) {
    each_problem(channels, [&](auto const& p) {
      std::int64_t const to_chunks = (8 - p.shape.keys % 8) % 8;
      biases_on_device<bfloat16> const in_chunks(p.shape, to_chunks, 8);
      check_terms<bfloat16>(p, in_chunks.bias(), in_chunks.expected());
      biases_on_device<bfloat16> const odd(p.shape, to_chunks + 1, 8);
      check_terms<bfloat16>(p, odd.bias(), odd.expected());
    });
    auto const halves = make_attention_problem<float16>({1, 2, 2, 200, 328, channels});
    biases_on_device<float16> const of_halves(halves.shape, 0, 0);
    check_terms<float16>(halves, of_halves.bias(), of_halves.expected());
    auto const p = make_attention_problem<bfloat16>({1, 2, 2, 200, 330, channels});
    biases_on_device<float> const floats(p.shape, 2, 4);
    check_terms<bfloat16>(p, floats.bias(), floats.expected());
  }
}

TEST_CASE("dense attention on a GPU adds functions to scores", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  slope_bias const bias{0.125F};
  for (std::int64_t const channels : {64, 128, 256}) {
    each_problem(channels, [&](auto const& p) { check_terms<bfloat16>(p, bias, expected_of(bias)); });
  }
}

TEST_CASE("dense attention on a GPU reads no biases beyond the last one", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128, 256}) {
    auto p = make_attention_problem<bfloat16>({1, 2, 2, 257, 387, channels});
    p.key_lengths = {385};
    std::vector<bfloat16> const values(as_size(257 * 387), store<bfloat16>(0.5F));
    for (guarded_edge const edge : {guarded_edge::before, guarded_edge::behind}) {
      tessera::cuda exec;
      exec.memory = std::make_shared<guarded_resource>(edge);
      auto const memory = to_device(exec, values);
      dense_bias<bfloat16> const bias{{memory.data(), {1, 2, 257, 387}, {0, 0, 387, 1}}};
      check_terms<bfloat16>(
          p, bias, [](auto...) { return 0.5; }, head_layout::heads_first, std::make_shared<guarded_resource>(edge));
    }
  }
}

TEST_CASE("dense attention on a GPU makes NaN of rows whose terms are NaN, and of no others", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128, 256}) {
    for (float const bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      auto const p = make_attention_problem<bfloat16>({1, 1, 1, 300, 300, channels});
      biases_on_device<float> biases(p.shape, 0, 0);
      biases.host[as_size(130 * 300 + 222)] = bad;
      biases.device = to_device(tessera::cuda{}, biases.host);
      auto const found = run_on_device<dense_attention, bfloat16>(tessera::cuda{}, p, head_layout::heads_first, true,
                                                                  attention_functions<dense_bias<float>>{biases.bias()})
                             .found;
      std::int64_t wrong = 0;
      for (std::int64_t query = 0; query < 300; ++query) {
        bool const is_nan =
            std::isnan(found.result[as_size(query * channels)]) && std::isnan(found.log_sum_exp[as_size(query)]);
        wrong += is_nan == (query == 130) ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
    auto const p = make_attention_problem<bfloat16>({1, 1, 1, 200, 300, channels});
    biases_on_device<float> hidden(p.shape, 0, 0);  // every third query sees nothing
    for (std::size_t i = 0; i < hidden.host.size(); ++i) {
      hidden.host[i] = i / 300 % 3 == 1 ? minus_infinity : 0.0F;
    }
    hidden.device = to_device(tessera::cuda{}, hidden.host);
    check_terms<bfloat16>(p, hidden.bias(), hidden.expected());
  }
}

TEST_CASE("dense attention on a GPU walks lists of tiles", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  slope_bias const slope{0.125F};
  for (std::int64_t const channels : {64, 128, 256}) {
    for (list_kind const kind : {list_kind::half, list_kind::empty, list_kind::hostile}) {
      each_problem(channels, [&](auto p) {
        set_lists(p, kind);
        check_terms<bfloat16>(p, no_bias{}, [&](auto... at) { return list_bias(p, at...); });
        if (kind == list_kind::hostile) {
          check_terms<bfloat16>(p, slope,
                                [&](auto... at) { return list_bias(p, at...) + static_cast<double>(slope(at...)); });
        }
      });
    }
    auto p = make_attention_problem<bfloat16>({1, 1, 1, 70, 9000, channels});  // keys are split
    set_lists(p, list_kind::shuffled);
    check_terms<bfloat16>(p, no_bias{}, [&](auto... at) { return list_bias(p, at...); });
    biases_on_device<bfloat16> const biases(p.shape, 0, 0);
    check_terms<bfloat16>(p, biases.bias(), [&](std::int64_t sequence, std::int64_t head, auto... at) {
      return list_bias(p, sequence, head, at...) + biases.expected()(sequence, head, at...);
    });
  }
}

TEST_CASE("dense attention on a GPU leaves results in fp32", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 80, 128, 208}) {
    each_problem(channels, [&](auto const& p) { check_terms<float>(p, no_bias{}, {}); });
    for (head_layout const layout : {head_layout::tokens_first, head_layout::shifted}) {
      check_terms<float>(make_attention_problem<bfloat16>({2, 2, 1, 70, 130, channels}), no_bias{}, {}, layout);
    }
    check_terms<float>(make_attention_problem<bfloat16>({1, 1, 1, 70, 9000, channels}), no_bias{}, {});
  }
}

TEST_CASE("dense attention on a GPU adds terms to sequences that lie one behind the other", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  slopes_on_device const slopes({0.5F, -0.0625F});
  attention_functions<linear_bias> const functions{slopes.bias()};
  CHECK(distance_of_packed<dense_attention>(128, functions, slopes.expected()) < 0.032);
}
