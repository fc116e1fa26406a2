// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// compressed_reduce_scatter on one device: what comes from another rank is what was sent there.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/weights/compressed_reduce_scatter.hpp>
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

/// What a rank of `count` makes of its parts on the device, and what it says.
template <class T>
struct sums_on_device {
  weight_array<T> sums{0};
  std::string said;
  bool is_sound = false;

  sums_on_device(int rank, int count, weight_array<T> const& parts, compressed_collective_options const& options,
                 enqueued_damage<cuda> const& damage = {}) {
    using collective = compressed_reduce_scatter<neuzip_of<T>>;
    cuda exec;
    exec.options.refuses_slower_programs = true;
    side_queue<cuda> const wire(exec, collective::side_marks, true);
    mirrored_ranks<cuda> ranks(rank, count, damage);
    device_weights<T> const all(parts, 1);
    device_weights<T> const own(parts.count() / count, 3);
    workspace_plan const plan = collective::plan(exec, count, parts.count() / count, options);
    device_bytes const memory(plan.bytes());
    said = message_of([&] {
      for (int i = 0; i < 2; ++i) {  // the second call finds what the first one left
        collective::exchange(exec, wire, ranks, all.view(), own.view(), options, workspace(plan, memory.view()));
      }
      exec.wait();
    });
    cuda_ok(cudaDeviceSynchronize());
    sums = own.download();
    is_sound = memory.is_intact_after(plan.bytes()) && own.guards_are_intact();
  }
};

/// The sums in float, in the order of the ranks, rounded once.
template <class T>
weight_array<T> sums_of(int count, weight_array<T> const& parts) {
  weight_array<T> sums(parts.count() / count);
  for (std::int64_t i = 0; i < sums.count(); ++i) {
    float sum = load(parts[i]);
    for (std::int64_t rank = 1; rank < count; ++rank) {
      sum += load(parts[rank * sums.count() + i]);
    }
    sums[i] = store<T>(sum);
  }
  return sums;
}

template <class T>
void check_sums(int rank, int count, weight_kind kind, std::int64_t values,
                compressed_collective_options const& options) {
  INFO("rank " << rank << " of " << count << ", kind " << static_cast<int>(kind) << ", " << values << " values");
  weight_array<T> const parts(kind, 5, count * values);
  sums_on_device<T> const found(rank, count, parts, options);
  CHECK(found.said.empty());
  CHECK(found.is_sound);
  CHECK(found.sums == sums_of(count, parts));
}

}  // namespace

TEST_CASE("on a device compressed_reduce_scatter adds what all ranks have", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const count : {0, 1, 7, 2048, 8193, 65536, 300007}) {
    check_sums<bfloat16>(0, 2, weight_kind::gauss, count, small_messages());
    check_sums<bfloat16>(2, 3, weight_kind::sparse, count, small_messages());
    check_sums<bfloat16>(1, 8, weight_kind::gauss, count, small_messages());
  }
  check_sums<float16>(1, 3, weight_kind::gauss, 300007, small_messages());
  check_sums<float>(1, 3, weight_kind::gauss, 300007, small_messages());
  check_sums<bfloat16>(1, 2, weight_kind::gauss, 10'000'003, {});
  auto options = small_messages();
  options.body_bits = 10.0F;  // all chunks have tails
  check_sums<bfloat16>(1, 3, weight_kind::gauss, 1'000'003, options);
  options.checksums = true;
  check_sums<bfloat16>(1, 3, weight_kind::gauss, 1'000'003, options);
}

TEST_CASE("on a device damaged messages of compressed_reduce_scatter are refused as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  weight_array<bfloat16> const parts(weight_kind::gauss, 5, 2 * 40001);
  auto const damaged_at = [&](int which, std::int64_t first, std::int64_t bytes) {
    return sums_on_device<bfloat16>(0, 2, parts, small_messages(),
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
  CHECK_THAT(table.said, contains("compressed_reduce_scatter.exchange: chunk 1 of rank 1 has 0 bytes, as the rank's "
                                  "message says, but can have from "));
  CHECK(table.is_sound);
}
