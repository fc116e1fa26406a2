// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// compressed_all_gather on one device, whose other ranks have the same lists.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/algorithm/weights/compressed_all_gather.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/neuzip.hpp>

#include "algorithm/weights/device_weights.cuh"
#include "support/catch.hpp"
#include "support/collective_runs.hpp"
#include "support/cuda.hpp"
#include "support/message_of.hpp"
#include "support/pretended_ranks.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

static_assert(Communicator<mirrored_ranks<cuda>, cuda> && PeerCommunicator<mirrored_peers<cuda>, cuda>);

/// What a rank of `count` has gathered on the device, and what it says.
template <class Codec>
struct gathered_on_device {
  using type = typename Codec::value_type;
  std::vector<type> all;
  compressed_traffic traffic;
  std::string said;
  bool is_sound = false;

  gathered_on_device(int rank, int count, weight_array<type> const& list, compressed_collective_options const& options,
                     enqueued_damage<cuda> const& damage = {}, int times = 1) {
    cuda exec;
    exec.options.refuses_slower_programs = true;
    if (options.stores_to_peers) {
      mirrored_peers<cuda> ranks(rank, damage);
      run(exec, ranks, list, options, times);
    } else {
      mirrored_ranks<cuda> ranks(rank, count, damage);
      run(exec, ranks, list, options, times);
    }
  }

 private:
  template <class Ranks>
  void run(cuda const& exec, Ranks& ranks, weight_array<type> const& list, compressed_collective_options const& options,
           int times) {
    using collective = compressed_all_gather<Codec>;
    int const count = ranks.size();
    side_queue<cuda> const wire(exec, collective::side_marks, true);
    device_weights<type> const own(list, 1);
    device_weights<type> const whole(count * list.count(), 3);
    workspace_plan const plan = collective::plan(exec, count, list.count(), options);
    device_bytes const memory(plan.bytes());
    said = message_of([&] {
      for (int i = 0; i < times; ++i) {
        traffic =
            collective::exchange(exec, wire, ranks, own.view(), whole.view(), options, workspace(plan, memory.view()));
      }
      exec.wait();
    });
    cuda_ok(cudaDeviceSynchronize());
    all.resize(static_cast<std::size_t>(count * list.count()));
    cuda_ok(cudaMemcpy(all.data(), whole.view().data, all.size() * sizeof(type), cudaMemcpyDeviceToHost));
    is_sound = memory.is_intact_after(plan.bytes()) && whole.guards_are_intact();
  }
};

/// Whether `all` is the list, `count` times.
template <class T>
bool repeats(std::vector<T> const& all, weight_array<T> const& list) {
  for (std::size_t first = 0; first < all.size(); first += list.size()) {
    if (std::memcmp(all.data() + first, list.data(), list.size() * sizeof(T)) != 0) {
      return false;
    }
  }
  return true;
}

template <class Codec>
void check_on_device(int rank, int count, weight_kind kind, std::int64_t weights,
                     compressed_collective_options const& options, int times = 1) {
  INFO("rank " << rank << " of " << count << ", kind " << static_cast<int>(kind) << ", " << weights << " weights");
  weight_array<typename Codec::value_type> const list(kind, 7, weights);
  gathered_on_device<Codec> const found(rank, count, list, options, {}, times);
  CHECK(found.said.empty());
  CHECK(found.is_sound);
  CHECK(repeats(found.all, list));
}

}  // namespace

TEST_CASE("on a device compressed_all_gather gives the bits of all lists", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const count : {0, 1, 7, 2048, 8193, 65536, 300007}) {
    check_on_device<neuzip>(0, 2, weight_kind::gauss, count, small_messages());
    check_on_device<neuzip>(2, 3, weight_kind::mixture, count, small_messages());
    check_on_device<neuzip>(1, 2, weight_kind::random_bits, count, small_messages());
  }
  check_on_device<neuzip_of<float16>>(1, 3, weight_kind::gauss, 300007, small_messages());
  check_on_device<neuzip_of<float>>(1, 3, weight_kind::gauss, 300007, small_messages());
}

TEST_CASE("on a device compressed_all_gather takes large lists, one after the other", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  constexpr std::int64_t count = 20'000'003;
  check_on_device<neuzip>(1, 2, weight_kind::gauss, count, {}, 3);
  auto options = small_messages();
  options.body_bits = 10.0F;  // all chunks have tails
  check_on_device<neuzip>(1, 2, weight_kind::gauss, count, options, 3);
  options.checksums = true;
  check_on_device<neuzip>(0, 2, weight_kind::gauss, count, options, 2);
}

TEST_CASE("on a device compressed_all_gather by stores gives the bits of both lists", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const count : {1, 7, 2048, 8191, 8192, 8193, 65536, 300007}) {
    check_on_device<neuzip>(0, 2, weight_kind::gauss, count, small_stores(), 3);
    check_on_device<neuzip>(1, 2, weight_kind::random_bits, count, small_stores());
  }
  check_on_device<neuzip_of<float16>>(1, 2, weight_kind::gauss, 300007, small_stores());
  check_on_device<neuzip_of<float>>(0, 2, weight_kind::gauss, 300007, small_stores());
  check_on_device<neuzip>(1, 2, weight_kind::gauss, 20'000'003, compressed_collective_options::for_peer_memory(), 3);
  auto options = small_stores();
  options.checksums = true;
  check_on_device<neuzip>(0, 2, weight_kind::mixture, 20'000'003, options, 2);
}

TEST_CASE("on a device damaged streams that were stored are refused as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  weight_array<bfloat16> const list(weight_kind::gauss, 7, 40001);
  auto const layout = detail::message_layout<neuzip>::of("test", list.count(), small_stores());
  std::int64_t const streams = align_up(layout.head * 2, std::int64_t{256});
  gathered_on_device<neuzip> const found(0, 2, list, small_stores(),
                                         [=](cuda const& exec, int, array_view<std::byte> memory) {
                                           exec.clear(memory.slice(0, streams + layout.stored_at(1), 64));
                                         });
  CHECK_THAT(found.said, contains("compressed_weights.decode: the header contradicts itself (code "));
  CHECK(found.is_sound);
}

TEST_CASE("on a device damaged messages of compressed_all_gather are refused as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  weight_array<bfloat16> const list(weight_kind::gauss, 7, 40001);
  auto const damaged_at = [&](int which, std::int64_t first, std::int64_t bytes) {
    return gathered_on_device<neuzip>(0, 2, list, small_messages(),
                                      [=](cuda const& exec, int message, array_view<std::byte> of) {
                                        if (message == which) {
                                          exec.clear(of.slice(0, first, bytes));
                                        }
                                      });
  };
  auto const header = damaged_at(2, 0, 64);  // after the head and a body
  CHECK_THAT(header.said, contains("compressed_weights.decode: the header contradicts itself (code "));
  CHECK(header.is_sound);
  auto const table = damaged_at(3, 8, 8);
  CHECK_THAT(table.said,
             contains("compressed_all_gather.exchange: chunk 1 of rank 1 has 0 bytes, as the rank's message "
                      "says, but can have from "));
  CHECK(table.is_sound);
  auto const index = damaged_at(1, 576, 8);
  CHECK_THAT(index.said, contains("compressed_weights.decode: "));
  CHECK(index.is_sound);
}

TEST_CASE("on a device compressed_all_gather refuses lists on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  using collective = compressed_all_gather<neuzip>;
  cuda const exec;
  if (exec.state->reads_all_memory()) {
    TESSERA_SKIP("programs of this device read all memory of the host");
  }
  side_queue<cuda> const wire(exec, collective::side_marks, true);
  mirrored_ranks<cuda> ranks(0, 2);
  weight_array<bfloat16> const list(weight_kind::gauss, 7, 40001);
  device_weights<bfloat16> const whole(2 * list.count());
  workspace_plan const plan = collective::plan(exec, 2, list.count(), small_messages());
  device_bytes const memory(plan.bytes());
  CHECK_THAT(message_of([&] {
               collective::exchange(exec, wire, ranks, list.view(), whole.view(), small_messages(),
                                    workspace(plan, memory.view()));
             }),
             contains("compressed_all_gather.exchange: the weights of the own list lie in memory of the host"));
}
