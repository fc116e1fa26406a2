// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tessera/algorithm/gemm/row_reduction.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/cuda_memory.cuh>
#include <tessera/exec/explain.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/reduce/log_sum_exp.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/message_of.hpp"
#include "support/placed_caches.hpp"
#include "support/placed_operands.hpp"

using namespace tessera;
using tessera_test::contains;
using tessera_test::cuda_ok;
using tessera_test::idle_executor;
using tessera_test::message_of;
using tessera_test::operand_places;

namespace {

/// Memory of the host that nothing has registered.
struct alignas(256) host_block {
  std::byte bytes[4096];
};

/// Makes calls with each operand in the host's memory, and with none. The device is asked, and runs nothing.
template <class Calls>
void check_calls(Calls const& calls) {
  cuda const device;
  buffer<std::byte> here(device, std::int64_t{1} << 26);  // calls ask about regions of their workspaces, too
  auto const there = std::make_unique<host_block>();
  auto const reach = [&](char const* function, char const* what, void const* first) {
    device.check_reach(function, what, first);
  };
  idle_executor<decltype(reach)> const exec{reach};
  calls(exec, [&](char const* function, auto const& operands, auto const& call) {
    CHECK(message_of([&] { call(operand_places{here.data()}); }) == "");
    for (char const* const operand : operands) {
      std::string const said =
          device.state->reads_all_memory()
              ? ""
              : join(function, ": the ", operand, " lie in memory of the host, which device ", device.state->device(),
                     " does not read; copy them to a buffer of the executor");
      CHECK(message_of([&] { call(operand_places{here.data(), there.get(), operand}); }) == said);
    }
  });
}

}  // namespace

TEST_CASE("memory of the host is refused by name where a device does not read it", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  cpu const host{.threads = 1};
  buffer<bfloat16> there(exec, 20'000);
  exec.clear(there);
  buffer<bfloat16> here(host, 20'000);
  buffer<bfloat16> const pinned(20'000, std::make_shared<pinned_memory>());
  auto const stream = neuzip::encode(exec, there);
  CHECK(stream.size() > 0);
  CHECK_NOTHROW(exec.check_reach("f", "weights", pinned.data()));
  std::vector<std::byte> copied(static_cast<std::size_t>(stream.size()) + 16);
  if (exec.state->reads_all_memory()) {
    CHECK_NOTHROW(exec.check_reach("f", "weights", here.data()));
    return;
  }
  CHECK_THROWS_WITH(neuzip::encode(exec, here),
                    contains("compressed_weights.encode: the weights lie in memory of the host, which device "));
  CHECK_THROWS_WITH(neuzip::decode(exec, stream, here),
                    contains("compressed_weights.decode: the weights lie in memory of the host, which device "));
  auto const first = (16 - reinterpret_cast<std::uintptr_t>(copied.data()) % 16) % 16;
  array_view<std::byte const> const of_host(copied.data() + first, stream.size());
  CHECK_THROWS_WITH(neuzip::decode(exec, of_host, there),
                    contains("compressed_weights.decode: the bytes of the stream lie in memory of the host"));
  exec.wait();  // and the device is as it was
}

TEST_CASE("memory of the host is refused as an operand of products and losses", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_calls([](auto const& exec, auto const& visit) { tessera_test::calls_of_products(exec, visit); });
  check_calls([](auto const& exec, auto const& visit) { tessera_test::calls_of_losses(exec, visit); });
}

TEST_CASE("memory of the host is refused as an operand of attention", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_calls([](auto const& exec, auto const& visit) { tessera_test::calls_of_attention(exec, visit); });
  check_calls([](auto const& exec, auto const& visit) { tessera_test::calls_of_codes(exec, visit); });
}

TEST_CASE("memory of the host is refused as an operand of caches and searches", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_calls([](auto const& exec, auto const& visit) { tessera_test::calls_of_pages(exec, visit); });
  check_calls([](auto const& exec, auto const& visit) { tessera_test::calls_of_offloaded_caches(exec, visit); });
  check_calls([](auto const& exec, auto const& visit) { tessera_test::calls_of_searches(exec, visit); });
}

TEST_CASE("memory of the host is refused as an operand of compressed weights", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_calls([](auto const& exec, auto const& visit) { tessera_test::calls_of_weights(exec, visit); });
}

TEST_CASE("a call that only enqueues work refuses memory of the host, also while it is captured", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  using sums = row_reduction<lse_reducer<float>>;
  using state_type = lse_reducer<float>::state_type;
  cudaStream_t stream = nullptr;
  cuda_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  {
    cuda const exec{.stream = stream};
    buffer<float> values(exec, 4 * 100);
    buffer<state_type> states(exec, 4);
    exec.clear(values);
    exec.wait();
    std::vector<float> here(4 * 100);
    auto const reduce = [&](float const* first) {
      workspace_plan const plan = sums::plan(exec, 4, 100);
      sums::reduce(exec, {}, view<float const, 2>(first, {4, 100}), states.view(), workspace(plan, {}));
    };
    cudaGraph_t graph = nullptr;
    cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    std::string const said = exec.state->reads_all_memory() ? "" : message_of([&] { reduce(here.data()); });
    std::string const unsaid = message_of([&] { reduce(values.data()); });
    cuda_ok(cudaStreamEndCapture(stream, &graph));
    std::size_t nodes = 0;
    cuda_ok(cudaGraphGetNodes(graph, nullptr, &nodes));
    cuda_ok(cudaGraphDestroy(graph));
    CHECK(unsaid == "");
    CHECK(nodes == 1);
    if (!exec.state->reads_all_memory()) {
      CHECK_THAT(said, contains("row_reduction.reduce: the values lie in memory of the host, which device "));
    }
    CHECK_NOTHROW(explain(exec, [&](auto const& dry) { dry.check_reach("f", "values", here.data()); }));
    CHECK_NOTHROW(cuda::described({}).check_reach("f", "values", here.data()));
    exec.wait();
  }
  cuda_ok(cudaStreamDestroy(stream));
}

TEST_CASE("asking where memory lies leaves an earlier error as it is", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  buffer<float> const values(exec, 4);
  buffer<float> const pinned(4, std::make_shared<pinned_memory>());
  std::vector<float> const here(4);
  CHECK(cudaSetDevice(-1) == cudaErrorInvalidDevice);
  CHECK_NOTHROW(check_reach(exec, "f", "values", values, "pinned values", pinned));
  static_cast<void>(message_of([&] { exec.check_reach("f", "values", here.data()); }));
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaSuccess);
}
