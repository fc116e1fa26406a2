// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cuda_runtime_api.h>

#include <cstddef>
#include <nccl.h>
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/comm/all_to_all.hpp>
#include <tessera/comm/nccl.cuh>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/testing/laws/comm/communicator.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/message_of.hpp"
#include "support/nccl_ranks.cuh"

using namespace tessera;
using tessera_test::contains;
using tessera_test::cuda_ok;
using tessera_test::device_count;
using tessera_test::message_of;
using tessera_test::nccl_communicators;
using tessera_test::own_stream;

static_assert(Communicator<nccl, cuda>);

namespace nccl_cuda_test {

/// What the laws say on each of `count` devices, or what a rank threw.
std::vector<std::string> broken_laws(int count) {
  return tessera_test::on_nccl_ranks(count, [](ncclComm_t comm, int) {
    own_stream const stream;
    nccl ranks(comm);
    std::string const broken = testing::check_communicator_laws(cuda{.stream = stream.stream}, ranks).text();
    ranks.check_now();
    if (!broken.empty()) {
      throw std::runtime_error(broken);
    }
  });
}

}  // namespace nccl_cuda_test

using namespace nccl_cuda_test;

TEST_CASE("a communicator of NCCL with one rank keeps the laws", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(broken_laws(1) == std::vector<std::string>(1));
}

TEST_CASE("communicators of NCCL on several devices keep the laws", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  int const devices = device_count();
  if (devices < 2) {
    tessera_test::report_skip("NCCL between devices wants two, and there is one");
    SUCCEED("skipped");
    return;
  }
  CHECK(broken_laws(2) == std::vector<std::string>(2));
  if (devices > 2) {
    CHECK(broken_laws(devices) == std::vector<std::string>(static_cast<std::size_t>(devices)));
  }
}

TEST_CASE("nccl refuses what is wrong before it enqueues anything", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(message_of([] { static_cast<void>(nccl(nullptr)); }) == "nccl: the ncclComm_t is null");
  nccl_communicators const comms(1);
  nccl ranks(comms[0]);
  cuda const exec{};
  buffer<float> list(exec, 4);
  auto const whole = list.view();
  CHECK(ranks.rank() == 0);
  CHECK(ranks.size() == 1);
  CHECK(message_of([&] {
          ranks.all_reduce(exec, array_view<float const>(list.data(), 3), rank_reduction::sum, whole);
        }) == "nccl.all_reduce: the source has 3 elements but the target has 4");
  CHECK(message_of([&] { ranks.send(exec, whole, 1); }) == "nccl.send: the other rank is 1 but there are 1");
  CHECK(message_of([&] { ranks.receive(exec, 0, whole); }) ==
        "nccl.receive: rank 0 exchanges with rank 0, itself, which it can in grouped() only");
  CHECK(message_of([&] { all_to_all(exec, ranks, array_view<float const>(list.data(), 3), whole); }) ==
        "all_to_all: the source has 3 elements but the target has 4");
  if (device_count() > 1) {
    cuda_ok(cudaSetDevice(1));
    cuda const other{};
    cuda_ok(cudaSetDevice(0));
    CHECK(message_of([&] { ranks.all_reduce(other, whole, rank_reduction::sum, whole); }) ==
          "nccl.all_reduce: the executor is of device 1 but the ncclComm_t of device 0");
  }
  ranks.check_now();
}

TEST_CASE("on a dry executor nccl enqueues nothing and asks for no memory", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  nccl_communicators const comms(1);
  nccl ranks(comms[0]);
  cuda const exec{};
  cuda const dry{.options = {.is_dry = true}};
  std::vector<float> const ones{1, 1, 1};
  std::vector<float> found(3);
  buffer<float> list(exec, 3);
  exec.copy(ones, list);
  array_view<float> const planned(nullptr, 3);
  ranks.all_reduce(dry, planned, rank_reduction::sum, planned);
  ranks.all_gather(dry, planned, list.view());
  ranks.grouped([&] {
    ranks.send(dry, planned, 0);
    ranks.receive(dry, 0, list.view());
  });
  exec.copy(list, found);
  exec.wait();
  CHECK(found == ones);
}

TEST_CASE("calls of nccl are captured in a CUDA graph", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  nccl_communicators const comms(1);
  own_stream const stream;
  cuda const exec{.stream = stream.stream};
  nccl ranks(comms[0]);
  std::vector<float> given{1, 2, 3};
  std::vector<float> found(3);
  buffer<float> source(exec, 3);
  buffer<float> target(exec, 3);
  buffer<float> last(exec, 3);
  exec.clear(last);
  exec.wait();
  cuda_ok(cudaStreamBeginCapture(stream.stream, cudaStreamCaptureModeThreadLocal));
  ranks.all_reduce(exec, source.view(), rank_reduction::sum, target.view());
  all_to_all(exec, ranks, array_view<float const>(target.view()), last.view());
  cudaGraph_t graph = nullptr;
  cuda_ok(cudaStreamEndCapture(stream.stream, &graph));
  cudaGraphExec_t runs = nullptr;
  cuda_ok(cudaGraphInstantiate(&runs, graph, 0));
  for (float factor : {1.0F, 5.0F}) {
    given[2] *= factor;
    exec.copy(given, source);
    cuda_ok(cudaGraphLaunch(runs, stream.stream));
    exec.copy(last, found);
    exec.wait();
    CHECK(found == given);
  }
  cuda_ok(cudaGraphExecDestroy(runs));
  cuda_ok(cudaGraphDestroy(graph));
}
