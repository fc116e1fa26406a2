// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compressed collectives over NCCL, all three in one source, since what takes long to compile is the codec. One GPU is
// one rank; several are several, where they are there.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tessera/algorithm/weights/compressed_all_gather.hpp>
#include <tessera/algorithm/weights/compressed_broadcast.hpp>
#include <tessera/algorithm/weights/compressed_reduce_scatter.hpp>
#include <tessera/comm/nccl.cuh>
#include <tessera/comm/nccl_memory.cuh>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/neuzip.hpp>

#include "algorithm/weights/weight_samples.hpp"
#include "support/catch.hpp"
#include "support/collective_runs.hpp"
#include "support/cuda.hpp"
#include "support/nccl_ranks.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

using weights = weight_array<bfloat16>;

/// Calls run(exec, ranks, comm) in a thread for each of the first devices; what each threw.
std::vector<std::string> on_devices(int count, std::function<void(cuda const&, nccl&, ncclComm_t)> const& run,
                                    bool has_thread_blocks = true) {
  return on_nccl_ranks(
      count,
      [&](ncclComm_t comm, int) {
        own_stream const stream;
        cuda exec{.stream = stream.stream};
        exec.options.refuses_slower_programs = true;
        nccl ranks(comm);
        run(exec, ranks, comm);
        ranks.check_now();
      },
      has_thread_blocks);
}

buffer<bfloat16> to_device(cuda const& exec, weights const& list) {
  buffer<bfloat16> copy(exec, list.count());
  exec.copy(list.view(), copy);
  exec.wait();
  return copy;
}
weights to_host(cuda const& exec, array_view<bfloat16 const> list) {
  weights copy(list.size());
  exec.copy(list, copy.view());
  exec.wait();
  return copy;
}

/// Runs a collective twice in one workspace: run(wire, space, root).
template <class Collective, class Run>
void run_twice(cuda const& exec, nccl& ranks, std::int64_t count, compressed_collective_options const& options,
               Run const& run) {
  side_queue<cuda> const wire(exec, Collective::side_marks, true);
  workspace_plan const plan = Collective::plan(exec, ranks.size(), count, options);
  buffer<std::byte> memory(exec, plan.bytes());
  for (int time = 0; time < 2; ++time) {
    run(wire, workspace(plan, memory), time % ranks.size());
  }
  exec.wait();
}

void gather(cuda const& exec, nccl& ranks, std::int64_t count, compressed_collective_options const& options) {
  auto const own = to_device(exec, weights_of_rank<bfloat16>(ranks.rank(), 1, count));
  buffer<bfloat16> all(exec, ranks.size() * count);
  using collective = compressed_all_gather<neuzip>;
  run_twice<collective>(exec, ranks, count, options, [&](auto const& wire, workspace const& space, int) {
    exec.clear(all);
    collective::exchange(exec, wire, ranks, own.view(), all.view(), options, space);
  });
  for (int rank = 0; rank < ranks.size(); ++rank) {
    auto const found = to_host(exec, all.view().slice(0, rank * count, count));
    check<value_error>(found == weights_of_rank<bfloat16>(rank, 1, count), "the list of rank ", rank, " of ", count,
                       " weights is another one");
  }
}

void broadcast(cuda const& exec, nccl& ranks, std::int64_t count, compressed_collective_options const& options) {
  using collective = compressed_broadcast<neuzip>;
  auto const list = to_device(exec, weights_of_rank<bfloat16>(ranks.rank(), 1, count));
  buffer<bfloat16> given(exec, count);
  run_twice<collective>(exec, ranks, count, options, [&](auto const& wire, workspace const& space, int root) {
    exec.copy(list, given);
    collective::exchange(exec, wire, ranks, root, given.view(), options, space);
    check<value_error>(to_host(exec, given.view()) == weights_of_rank<bfloat16>(root, 1, count), "the list of root ",
                       root, " of ", count, " weights is another one");
  });
}

/// What a rank has for all of them.
buffer<bfloat16> gradients(cuda const& exec, nccl const& ranks, std::int64_t count) {
  return to_device(exec,
                   weights(weight_kind::gauss, 9 + static_cast<std::uint64_t>(ranks.rank()), ranks.size() * count));
}
/// Throws where a part is not the sums of all ranks' gradients.
void check_sums(cuda const& exec, nccl const& ranks, array_view<bfloat16 const> part) {
  std::int64_t const count = part.size();
  std::vector<float> sums(static_cast<std::size_t>(count));
  for (int rank = 0; rank < ranks.size(); ++rank) {
    weights const list(weight_kind::gauss, 9 + static_cast<std::uint64_t>(rank), ranks.size() * count);
    for (std::int64_t i = 0; i < count; ++i) {
      float const next = load(list[ranks.rank() * count + i]);
      float& sum = sums[static_cast<std::size_t>(i)];
      sum = rank == 0 ? next : sum + next;
    }
  }
  auto const found = to_host(exec, part);
  for (std::int64_t i = 0; i < count; ++i) {
    check<value_error>(found[i].bits == store<bfloat16>(sums[static_cast<std::size_t>(i)]).bits, "sum ", i, " of ",
                       count, " is ", load(found[i]), " but must be ", sums[static_cast<std::size_t>(i)]);
  }
}

void reduce(cuda const& exec, nccl& ranks, std::int64_t count, compressed_collective_options const& options) {
  using collective = compressed_reduce_scatter<neuzip>;
  auto const all = gradients(exec, ranks, count);
  buffer<bfloat16> part(exec, count);
  run_twice<collective>(exec, ranks, count, options, [&](auto const& wire, workspace const& space, int) {
    collective::exchange(exec, wire, ranks, all.view(), part.view(), options, space);
  });
  check_sums(exec, ranks, part.view());
}

/// Options with chunks of many lengths for lists of some million weights.
compressed_collective_options growing_messages(bool sends_to_each) {
  auto options = compressed_collective_options::for_copy_engines();
  options.head_bytes = 1 << 20;
  options.chunk_bytes = 1 << 18;
  options.longest_bytes = 1 << 21;
  options.smallest_bytes = 0;
  options.sends_to_each = sends_to_each;
  return options;
}

/// Gathers lists of several sizes in memory that NCCL has registered, the longer ones with tails.
void gather_registered(cuda const& exec, nccl& ranks, ncclComm_t comm) {
  using collective = compressed_all_gather<neuzip>;
  for (std::int64_t const count : {8193, 300007, 1500003}) {
    auto options = growing_messages(false);
    options.body_bits = count > 1000000 ? 9.5F : 0.0F;
    auto const own = to_device(exec, weights_of_rank<bfloat16>(ranks.rank(), 1, count));
    buffer<bfloat16> all(exec, ranks.size() * count);
    workspace_plan const plan = collective::plan(exec, ranks.size(), count, options);
    nccl_memory const memory(comm, plan.bytes());
    side_queue<cuda> const wire(exec, collective::side_marks, true);
    collective::exchange(exec, wire, ranks, own.view(), all.view(), options, workspace(plan, memory.view()));
    for (int rank = 0; rank < ranks.size(); ++rank) {
      auto const found = to_host(exec, all.view().slice(0, rank * count, count));
      check<value_error>(found == weights_of_rank<bfloat16>(rank, 1, count), "the list of rank ", rank, " of ", count,
                         " weights is another one");
    }
  }
}

/// Calls a collective several times in memory that the ranks share: the first ranks begin a call while the last ones
/// decode what the one before brought.
template <class Collective, class Run>
void run_shared(cuda const& exec, nccl& ranks, ncclComm_t comm, std::int64_t count,
                compressed_collective_options const& options, Run const& run) {
  workspace_plan const plan = Collective::plan(exec, ranks.size(), count, options);
  nccl_memory const memory(comm, plan.bytes());
  check<value_error>(memory.reaches_peers() || ranks.size() == 1 || plan.bytes() == 0, "of ", ranks.size(),
                     " ranks only ", 1, " is reached");
  ranks.use(memory);
  side_queue<cuda> const wire(exec, Collective::side_marks, true);
  for (int time = 0; time < 4; ++time) {
    run(wire, workspace(plan, memory.view()));
  }
  exec.wait();
}

/// Gathers and adds lists of several sizes by stores into the memory of the other ranks.
void exchange_by_stores(cuda const& exec, nccl& ranks, ncclComm_t comm) {
  auto growing = growing_messages(false);
  growing.stores_to_peers = true;
  auto with_checksums = small_stores();
  with_checksums.checksums = true;
  auto usual = compressed_collective_options::for_peer_memory();
  for (auto const& options : {growing, small_stores(), with_checksums, usual}) {
    for (std::int64_t const count : {1, 7, 2048, 8191, 8192, 8193, 300007, 1500003, 20000003}) {
      if ((count > 2000000) != (options.smallest_bytes > 0)) {
        continue;
      }
      auto const own = to_device(exec, weights_of_rank<bfloat16>(ranks.rank(), 1, count));
      buffer<bfloat16> all(exec, ranks.size() * count);
      using gathering = compressed_all_gather<neuzip>;
      run_shared<gathering>(exec, ranks, comm, count, options, [&](auto const& wire, workspace const& space) {
        exec.clear(all);
        gathering::exchange(exec, wire, ranks, own.view(), all.view(), options, space);
      });
      for (int rank = 0; rank < ranks.size(); ++rank) {
        auto const found = to_host(exec, all.view().slice(0, rank * count, count));
        check<value_error>(found == weights_of_rank<bfloat16>(rank, 1, count), "the list of rank ", rank, " of ", count,
                           " weights is another one");
      }
      auto const parts = gradients(exec, ranks, count);
      buffer<bfloat16> part(exec, count);
      using adding = compressed_reduce_scatter<neuzip>;
      run_shared<adding>(exec, ranks, comm, count, options, [&](auto const& wire, workspace const& space) {
        exec.clear(part);
        adding::exchange(exec, wire, ranks, parts.view(), part.view(), options, space);
      });
      check_sums(exec, ranks, part.view());
    }
  }
}

/// What goes wrong on each of `count` devices, with lists of many sizes.
std::vector<std::string> run_all(int count) {
  return on_devices(count, [](cuda const& exec, nccl& ranks, ncclComm_t) {
    auto tails = small_messages();
    tails.body_bits = 10.0F;
    tails.checksums = true;
    for (auto const& options :
         {small_messages(), tails, compressed_collective_options{}, growing_messages(true), growing_messages(false)}) {
      for (std::int64_t const elements : {0, 1, 7, 2048, 8193, 300007, 1500003}) {
        gather(exec, ranks, elements, options);
        broadcast(exec, ranks, elements, options);
        reduce(exec, ranks, elements, options);
      }
    }
  });
}

}  // namespace

TEST_CASE("compressed collectives over NCCL with one rank give its lists", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(run_all(1) == std::vector<std::string>(1));
}

TEST_CASE("compressed collectives over NCCL on several devices give all lists", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  int const devices = device_count();
  if (devices < 2) {
    TESSERA_SKIP("NCCL between devices wants two, and there is one");
  }
  CHECK(run_all(2) == std::vector<std::string>(2));
  if (devices > 2) {
    CHECK(run_all(devices) == std::vector<std::string>(static_cast<std::size_t>(devices)));
  }
}

TEST_CASE("compressed_all_gather by copy engines gives all lists", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (device_count() < 2) {
    TESSERA_SKIP("NCCL between devices wants two, and there is one");
  }
  CHECK(on_devices(2, &gather_registered, false) == std::vector<std::string>(2));
}

TEST_CASE("compressed collectives by stores to peers give all lists and sums", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  CHECK(on_devices(1, &exchange_by_stores) == std::vector<std::string>(1));
  int const devices = device_count();
  if (devices < 2) {
    TESSERA_SKIP("NCCL between devices wants two, and there is one");
  }
  CHECK(on_devices(2, &exchange_by_stores) == std::vector<std::string>(2));
  if (devices > 2) {
    CHECK(on_devices(devices, &exchange_by_stores) == std::vector<std::string>(static_cast<std::size_t>(devices)));
  }
}
