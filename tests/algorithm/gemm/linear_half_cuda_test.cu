// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/core/math.hpp>

#include "algorithm/gemm/linear_on_device.cuh"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("a linear layer on a GPU is right, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_aligned<bfloat16, bfloat16>(0, 8, 8);
  for (std::int64_t const tokens : {1, 7, 127, 128, 129, 255, 256, 257, 600}) {
    check_aligned<bfloat16, bfloat16>(tokens, 40, 72);
  }
  for (std::int64_t const columns : {1, 7, 63, 64, 65, 255, 256, 257, 520}) {
    check_aligned<bfloat16, bfloat16>(130, columns, 72);
  }
  for (std::int64_t const depth : {0, 1, 7, 63, 64, 65, 255, 256, 257, 321, 1000}) {
    check_aligned<bfloat16, bfloat16>(130, 40, depth);
  }
}

TEST_CASE("a linear layer on a GPU goes from tile to tile", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  // More tiles of clusters than run at a time.
  check_aligned<bfloat16, bfloat16>(4300, 1020, 72);
  check_aligned<bfloat16, bfloat16>(1, 16900, 72);
  check_aligned<bfloat16, bfloat16>(129, 16899, 7);
}

TEST_CASE("rows of operands and of outputs may lie anywhere", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (placement const operands : {placement{0, 0}, placement{0, 1}, placement{3, 0}, placement{8, 7}}) {
    check_linear<bfloat16, bfloat16>(150, 70, 97, operands, {0, 2});
  }
  check_linear<bfloat16, bfloat16>(150, 70, 96, {0, 8}, {1, 0});
  check_linear<bfloat16, bfloat16>(150, 300, 96, {8, 0}, {0, 3});
  for (std::int64_t const depth : {1, 2, 31, 64, 97, 193}) {  // rows at multiples of 4 bytes, and of 8
    for (placement const at : {placement{2, depth % 2 + 2 * (depth / 2 % 2)}, placement{4, 4 - depth % 4 + 8}}) {
      check_linear<bfloat16, bfloat16>(150, 70, depth, at, {0, 1});
    }
  }
}

TEST_CASE("a linear layer of fp16 on a GPU is right, with outputs of 16 and 32 bits", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_aligned<float16, float16>(257, 300, 200);
  check_aligned<float16, float>(257, 300, 200);
  check_linear<float16, float16>(65, 66, 67, {1, 0}, {0, 0});
}

TEST_CASE("operands of a linear layer on a GPU may lie across the depth", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const tokens : {0, 1, 7, 63, 64, 65, 127, 128, 129, 255, 256, 257}) {
    check_across<bfloat16, bfloat16>(tokens, 40, 72);
  }
  for (std::int64_t const columns : {1, 7, 8, 56, 64, 72, 248, 255, 256, 264, 520}) {
    check_across<bfloat16, bfloat16>(136, columns, 72);
  }
  for (std::int64_t const depth : {0, 1, 7, 63, 64, 65, 129, 321}) {
    check_across<bfloat16, bfloat16>(136, 40, depth);
  }
  check_across<bfloat16, bfloat16>(4300, 1024, 72);  // more tiles of clusters than run at a time
  check_across<bfloat16, bfloat16>(296, 1020, 136);  // rows of outputs that TMA does not write
  check_across<float16, float>(257, 304, 200);
}

TEST_CASE("where operands of a linear layer on a GPU lie changes no bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  constexpr std::int64_t depth = 200;
  for (std::int64_t const tokens : {136, 4304}) {  // small and large tiles
    auto const operand = [&](std::int64_t rows, std::uint64_t seed, bool is_across) {
      auto made = ordered_samples<bfloat16>(exec, rows, depth, seed, is_across);
      for (std::int64_t i = 0; i < rows * depth; ++i) {
        made.on_host()(i / depth, i % depth) = operand_sample<bfloat16>(seed, static_cast<std::uint64_t>(i));
      }
      return made;
    };
    auto const multiply = [&](across_depth across) {
      auto x = operand(tokens, 1, across.inputs);
      auto w = operand(1032, 2, across.weights);
      matrix_on_device<bfloat16> y(exec, tokens, 1032, {});
      exec.copy(x.host, x.device);
      exec.copy(w.host, w.device);
      linear<bfloat16>::forward(exec, x.on_device(), w.on_device(), y.on_device());
      exec.copy(y.device, y.host);
      exec.wait();
      return y.host;
    };
    auto const expected = multiply({false, false});
    with_each_order([&](across_depth across) {
      auto const found = multiply(across);
      CHECK(std::memcmp(found.data(), expected.data(), found.size() * sizeof(bfloat16)) == 0);
    });
  }
}

TEST_CASE("strides of a linear layer on a GPU may be anything", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto x = sampled<bfloat16>(exec, 80, 130, {}, 1);
  auto w = sampled<bfloat16>(exec, 80, 96, {}, 2);
  matrix_on_device<bfloat16> y(exec, 96, 130, {});
  exec.copy(x.host, x.device);
  exec.copy(w.host, w.device);
  linear<bfloat16>::forward(exec, x.on_device().transposed(), w.on_device().transposed(), y.on_device().transposed());
  exec.copy(y.device, y.host);
  exec.wait();
  CHECK(wrong_sums<bfloat16, bfloat16, bfloat16>(x.on_host().transposed(), w.on_host().transposed(), {},
                                                 y.on_host().transposed()) == 0);
}

TEST_CASE("infinities and NaNs reach the outputs of their rows and columns on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (std::int64_t const gap : {0, 1}) {
    auto x = sampled<bfloat16>(exec, 140, 128, {0, gap}, 1);
    auto w = sampled<bfloat16>(exec, 64, 128, {0, gap}, 2);
    matrix_on_device<bfloat16> y(exec, 140, 64, {});
    x.on_host()(5, 17) = store<bfloat16>(infinity);
    x.on_host()(131, 100) = store<bfloat16>(-infinity);
    w.on_host()(9, 3) = from_bits<bfloat16>(0x7fc1);
    CHECK(wrong_on_device<bfloat16>(exec, x, w, y, {}, [&] {
            linear<bfloat16>::forward(exec, x.on_device(), w.on_device(), y.on_device());
          }) == 0);
  }
}

TEST_CASE("a linear layer on a GPU repeats bit for bit, also from a graph", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cudaStream_t stream{};
  cuda_ok(cudaStreamCreate(&stream));
  {
    tessera::cuda const exec{.stream = stream};
    auto x = sampled<bfloat16>(exec, 300, 512, {}, 1);
    auto w = sampled<bfloat16>(exec, 520, 512, {}, 2);
    matrix_on_device<bfloat16> y(exec, 300, 520, {});
    exec.copy(x.host, x.device);
    exec.copy(w.host, w.device);
    auto const forward = [&] { linear<bfloat16>::forward(exec, x.on_device(), w.on_device(), y.on_device()); };
    forward();
    exec.copy(y.device, y.host);
    exec.wait();
    auto const first = y.host;
    exec.clear(y.device);
    cudaGraph_t graph{};
    cudaGraphExec_t executable{};
    cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    forward();
    cuda_ok(cudaStreamEndCapture(stream, &graph));
    cuda_ok(cudaGraphInstantiate(&executable, graph, 0));
    cuda_ok(cudaGraphLaunch(executable, stream));
    exec.copy(y.device, y.host);
    exec.wait();
    CHECK(std::memcmp(first.data(), y.host.data(), first.size() * sizeof(bfloat16)) == 0);
    cuda_ok(cudaGraphExecDestroy(executable));
    cuda_ok(cudaGraphDestroy(graph));
  }
  cuda_ok(cudaStreamDestroy(stream));
}
