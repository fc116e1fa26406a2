// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cuda_runtime_api.h>

#include <cstdint>
#include <nccl.h>
#include <string>
#include <vector>

#include <tessera/comm/nccl.cuh>
#include <tessera/comm/nccl_memory.cuh>
#include <tessera/exec/cuda.cuh>
#include <tessera/testing/laws/comm/peer_communicator.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/message_of.hpp"
#include "support/nccl_ranks.cuh"

using namespace tessera;
using tessera_test::device_count;
using tessera_test::message_of;
using tessera_test::nccl_communicators;
using tessera_test::own_stream;

static_assert(PeerCommunicator<nccl, cuda>);

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

/// Throws where a rank does not keep the laws of a PeerCommunicator, or takes memory that others cannot store to.
void share_with_peers(cuda const& exec, ncclComm_t comm) {
  nccl ranks(comm);
  nccl_memory const memory(comm, 1 << 20);
  std::string const without = message_of([&] { static_cast<void>(ranks.share(exec, memory.view())); });
  ranks.use(memory);
  array_view<std::byte> const beyond(memory.view().data, memory.view().size() + 1);
  std::string const outside = message_of([&] { static_cast<void>(ranks.share(exec, beyond)); });
  bool const is_alone = ranks.size() == 1;
  check<value_error>(
      is_alone || without == "nccl.share: there is no memory of 2 ranks: give use() the nccl_memory first",
      "without use(): ", without);
  check<value_error>(is_alone || outside ==
                                     "nccl.share: 1048577 bytes are given that are no part of the 1048576 bytes "
                                     "of nccl_memory that use() was given",
                     "of other memory: ", outside);
  std::string const broken =
      testing::check_peer_communicator_laws(exec, ranks, memory.view()).text() +
      testing::check_peer_communicator_laws(exec, ranks, memory.view().slice(0, 4096, 5003)).text();
  check<value_error>(broken.empty(), broken);
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

TEST_CASE("ranks that share nccl_memory keep the laws of a PeerCommunicator", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const run = [](ncclComm_t comm, int) {
    own_stream const stream;
    share_with_peers(cuda{.stream = stream.stream}, comm);
  };
  CHECK(tessera_test::on_nccl_ranks(1, run) == std::vector<std::string>(1));
  if (device_count() < 2) {
    tessera_test::report_skip("NCCL between devices wants two, and there is one");
    return;
  }
  CHECK(tessera_test::on_nccl_ranks(2, run) == std::vector<std::string>(2));
}
