// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/attention/attention.cuh>
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

#include "algorithm/attention/attention_on_device.cuh"
#include "support/attention_reference.hpp"
#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"
#include "support/quantized_reference.hpp"
#include "support/sampled_reference.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// Memory begins as rubbish, or as it is after another problem.
template <class Attention, class T>
std::vector<std::byte> quantize_on_device(tessera::cuda const& exec, attention_problem<T> const& p,
                                          head_layout layout = head_layout::heads_first,
                                          std::vector<std::byte> before = {}) {
  device_attention<T> const in(exec, p, layout);
  auto const plan = Attention::plan_quantize(exec, p.shape);
  before.resize(as_size(plan.bytes()), std::byte{0xa5});
  auto memory = to_device(exec, before);
  workspace const space(plan, memory);
  Attention::quantize(exec, p.shape, in.inputs(), {.softmax_scale = p.options.softmax_scale},
                      Attention::operands(p.shape, space), space);
  auto made = to_host(exec, memory);
  exec.wait();
  return made;
}

template <class Attention, class T = bfloat16>
void check_shape(attention_shape const& s, bool has_values_beyond, head_layout layout = head_layout::heads_first) {
  CAPTURE(s.keys, s.channels, has_values_beyond, static_cast<int>(layout));
  tessera::cuda const exec;
  auto p = make_attention_problem<T>(s);
  if (has_values_beyond) {
    add_values_beyond(p);
  }
  check_codes<Attention>(quantize_on_device<Attention>(exec, p, layout), p);
}

/// Keys far from all others, of both signs, the largest ones, infinities and NaNs, in every head and many channels.
template <class T>
void add_outliers(attention_problem<T>& p) {
  constexpr float largest = std::is_same_v<T, bfloat16> ? 3e38F : 65504.0F;
  constexpr float awkward[] = {1e4F, -INFINITY, -largest, NAN, largest, -3e4F};
  for (std::size_t at = 5; at < p.keys.size(); at += 211) {
    p.keys[at] = store<T>(awkward[at / 211 % 6]);
  }
}

}  // namespace

TEST_CASE("codes by samples are on a GPU those of the host to the last bit, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const tokens : {1023, 1024, 1025, 2047, 2500, 4096, 8200}) {
    check_shape<sage_attention2>({1, 2, 1, 3, tokens, 64}, false);
    check_shape<sampled_all, float16>({1, 2, 2, 3, tokens, 128}, false, head_layout::tokens_first);
    check_shape<sampled_keys_alone>({1, 2, 2, 3, tokens, 64}, false);
    check_shape<sampled_values_alone>({1, 2, 2, 3, tokens, 64}, false);
  }
  for (std::int64_t const channels : {16, 80, 96, 128, 256}) {
    check_shape<sage_attention2>({1, 2, 1, 3, 2200, channels}, false, head_layout::tokens_first);
    check_shape<sage_attention2>({1, 2, 1, 3, 2200, channels}, false, head_layout::shifted);
  }
}

TEST_CASE("values beyond their sample's range have on a GPU the codes of the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 96, 128, 256}) {
    for (std::int64_t const tokens : {1024, 2500, 8200}) {
      check_shape<sage_attention2>({2, 2, 2, 3, tokens, channels}, true);
    }
    check_shape<sampled_all>({2, 3, 3, 3, 2500, channels}, true, head_layout::tokens_first);
    check_shape<sampled_values_alone, float16>({1, 2, 2, 3, 4100, channels}, true);
    check_shape<sage_attention2, float16>({1, 2, 2, 3, 1500, channels}, true, head_layout::shifted);
  }
  check_shape<sage_attention2>({1, 1, 1, 3, 50000, 64}, true);
  check_shape<sampled_all>({2, 150, 150, 3, 1030, 16}, true);
}

TEST_CASE("samples of sequences that are shorter than their extent are on a GPU those of the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (std::int64_t const channels : {64, 128, 256}) {
    auto all = make_attention_problem<bfloat16>({11, 1, 1, 2, 2500, channels});
    all.key_lengths = {2500, 0, 1, 7, 127, 128, 129, 1000, 1023, 1024, 2049};
    check_codes<sage_attention2>(quantize_on_device<sage_attention2>(exec, all), all);
    check_codes<sampled_all>(quantize_on_device<sampled_all>(exec, all), all);
    auto longer = make_attention_problem<bfloat16>({3, 1, 1, 2, 640000 / channels, channels});
    longer.key_lengths = {1000000, 1023, 4099};
    check_codes<sage_attention2>(quantize_on_device<sage_attention2>(exec, longer), longer);
    auto p = make_attention_problem<bfloat16>({2, 2, 2, 2, 3000, channels});
    p.key_lengths = {1100, 2800};
    add_values_beyond(p);
    check_codes<sage_attention2>(quantize_on_device<sage_attention2>(exec, p), p);
    check_codes<sampled_all>(quantize_on_device<sampled_all>(exec, p), p);
  }
}

TEST_CASE("means of keys with outliers are on a GPU those of the host, to the last bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (std::int64_t const tokens : {1, 2, 3, 5, 15, 16, 17, 31, 128, 130, 143, 144, 300, 1500, 8200}) {
    for (std::int64_t const channels : {64, 80, 128, 256}) {
      CAPTURE(tokens, channels);
      auto p = make_attention_problem<bfloat16>({1, 2, 2, 3, tokens, channels});
      add_outliers(p);
      check_codes<sage_attention2>(quantize_on_device<sage_attention2>(exec, p), p);
    }
    auto smooth = make_attention_problem<float16>({1, 2, 2, 3, tokens, 128});
    add_outliers(smooth);
    check_codes<sampled_all>(quantize_on_device<sampled_all>(exec, smooth, head_layout::tokens_first), smooth);
  }
  auto padded = make_attention_problem<bfloat16>({10, 1, 1, 2, 2500, 128});
  padded.key_lengths = {0, 1, 3, 15, 16, 131, 140, 300, 1030, 2049};
  add_outliers(padded);
  check_codes<sage_attention2>(quantize_on_device<sage_attention2>(exec, padded), padded);
}

TEST_CASE("values beyond the range of one call mean nothing to the next in the same memory", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto const clean = make_attention_problem<bfloat16>({2, 2, 2, 3, 2500, 128});
  auto p = clean;
  add_values_beyond(p);
  auto const after = quantize_on_device<sage_attention2>(exec, p);
  check_codes<sage_attention2>(after, p);
  check_codes<sage_attention2>(quantize_on_device<sage_attention2>(exec, clean, head_layout::heads_first, after),
                               clean);
}

TEST_CASE("a captured quantization by samples does the same each time, and follows its inputs", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto const clean = make_attention_problem<bfloat16>({1, 2, 2, 3, 2500, 64});
  auto other = clean;
  add_values_beyond(other);
  device_attention<bfloat16> in(exec, clean, head_layout::heads_first);
  auto const plan = sage_attention2::plan_quantize(exec, clean.shape);
  auto memory = to_device(exec, std::vector<std::byte>(as_size(plan.bytes()), std::byte{0xa5}));
  workspace const space(plan, memory);
  auto const heads = sage_attention2::operands(clean.shape, space);
  cudaStream_t stream = nullptr;
  cuda_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  tessera::cuda capturing = exec;
  capturing.stream = stream;
  sage_attention2::quantize(capturing, clean.shape, in.inputs(), {}, heads, space);  // kernels are loaded
  capturing.wait();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t runnable = nullptr;
  cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  sage_attention2::quantize(capturing, clean.shape, in.inputs(), {}, heads, space);
  cuda_ok(cudaStreamEndCapture(stream, &graph));
  cuda_ok(cudaGraphInstantiate(&runnable, graph, 0));
  attention_problem<bfloat16> const* const problems[] = {&clean, &other, &clean};
  for (auto const* p : problems) {
    device_attention<bfloat16> const next(exec, *p, head_layout::heads_first);
    exec.copy(next.values.memory, in.values.memory);
    exec.wait();
    cuda_ok(cudaGraphLaunch(runnable, stream));
    capturing.wait();
    check_codes<sage_attention2>(to_host(exec, memory), *p);
  }
  cuda_ok(cudaGraphExecDestroy(runnable));
  cuda_ok(cudaGraphDestroy(graph));
  cuda_ok(cudaStreamDestroy(stream));
}
