// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cuda_runtime_api.h>

#include <cstdint>
#include <nccl.h>
#include <string>
#include <vector>

#include <tessera/comm/nccl.cuh>
#include <tessera/comm/nccl_memory.cuh>
#include <tessera/exec/cuda.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/message_of.hpp"
#include "support/nccl_ranks.cuh"

using namespace tessera;
using tessera_test::device_count;
using tessera_test::message_of;
using tessera_test::nccl_communicators;
using tessera_test::own_stream;

namespace nccl_memory_cuda_test {

/// Gathers lists of several sizes in registered memory; throws where a rank gets other numbers.
void gather_in_place(cuda const& exec, ncclComm_t comm) {
  nccl ranks(comm);
  constexpr std::int64_t most = 1 << 20;
  nccl_memory const memory(comm, ranks.size() * most * std::int64_t{sizeof(std::int32_t)});
  auto* const first = reinterpret_cast<std::int32_t*>(memory.view().data);
  for (std::int64_t const count : {std::int64_t{1}, std::int64_t{1000}, most}) {
    std::vector<std::int32_t> own(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      own[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(ranks.rank() * most + i);
    }
    array_view<std::int32_t> const all(first, ranks.size() * count);
    array_view<std::int32_t> const part = all.slice(0, ranks.rank() * count, count);
    exec.copy(own, part);
    ranks.all_gather(exec, array_view<std::int32_t const>(part), all);
    std::vector<std::int32_t> found(static_cast<std::size_t>(all.size()));
    exec.copy(array_view<std::int32_t const>(all), found);
    exec.wait();
    for (std::int64_t i = 0; i < all.size(); ++i) {
      std::int64_t const wanted = i / count * most + i % count;
      check<value_error>(found[static_cast<std::size_t>(i)] == wanted, "number ", i, " of ", all.size(), " is ",
                         found[static_cast<std::size_t>(i)], " but must be ", wanted);
    }
  }
  ranks.check_now();
}

std::vector<std::string> run_on(int count, bool has_thread_blocks) {
  return tessera_test::on_nccl_ranks(
      count,
      [](ncclComm_t comm, int) {
        own_stream const stream;
        gather_in_place(cuda{.stream = stream.stream}, comm);
      },
      has_thread_blocks);
}

}  // namespace nccl_memory_cuda_test

using namespace nccl_memory_cuda_test;

TEST_CASE("nccl_memory of one rank is memory", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(run_on(1, true) == std::vector<std::string>(1));
  nccl_communicators const comms(1);
  CHECK(nccl_memory(comms[0], 0).view().data == nullptr);
  CHECK(nccl_memory(comms[0], 5).view().size() == 5);
  CHECK(message_of([&] { static_cast<void>(nccl_memory(comms[0], -1)); }) ==
        "nccl_memory: -1 bytes are asked for but must be at least 0");
  CHECK(message_of([] { static_cast<void>(nccl_memory(nullptr, 1)); }) == "nccl_memory: the ncclComm_t is null");
}

TEST_CASE("all_gather of nccl_memory, by programs and by copy engines, is that of other memory", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  int const devices = device_count();
  if (devices < 2) {
    tessera_test::report_skip("NCCL between devices wants two, and there is one");
    SUCCEED("skipped");
    return;
  }
  for (bool const has_thread_blocks : {true, false}) {
    CHECK(run_on(2, has_thread_blocks) == std::vector<std::string>(2));
  }
}
