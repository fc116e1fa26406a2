// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// compressed_broadcast on one device: root writes its messages on a tape, which the other rank reads.
#include <cstddef>
#include <cstdint>
#include <string>

#include <tessera/algorithm/weights/compressed_broadcast.hpp>
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

static_assert(Communicator<taped_rank<cuda>, cuda>);

/// What the second of two ranks has and says.
struct second_rank {
  weight_array<bfloat16> list{0};
  std::string said;
  bool is_sound = true;
  std::size_t left = 0;  ///< messages that it did not read

  second_rank(weight_array<bfloat16> const& given, compressed_collective_options const& options,
              enqueued_damage<cuda> const& damage = {}) {
    using collective = compressed_broadcast<neuzip>;
    cuda exec;
    exec.options.refuses_slower_programs = true;
    side_queue<cuda> const wire(exec, collective::side_marks, true);
    message_tape<cuda> tape;
    workspace_plan const plan = collective::plan(exec, 2, given.count(), options);
    for (int rank = 0; rank < 2; ++rank) {
      taped_rank<cuda> ranks(rank, tape, damage);
      device_weights<bfloat16> own(given.count(), 5);
      if (rank == 0) {
        own.upload(given);
      }
      device_bytes const memory(plan.bytes());
      said = message_of([&] {
        collective::exchange(exec, wire, ranks, 0, own.view(), options, workspace(plan, memory.view()));
        exec.wait();
      });
      cuda_ok(cudaDeviceSynchronize());
      is_sound = is_sound && memory.is_intact_after(plan.bytes()) && own.guards_are_intact();
      is_sound = is_sound && (rank == 1 || own.download() == given);
      list = own.download();
    }
    left = tape.size();
  }
};

}  // namespace

TEST_CASE("on devices compressed_broadcast gives the bits of root's list", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (weight_kind const kind : {weight_kind::gauss, weight_kind::random_bits, weight_kind::mixture}) {
    for (std::int64_t const count : {0, 1, 7, 2048, 8193, 65536, 300007}) {
      INFO("kind " << static_cast<int>(kind) << ", " << count << " weights");
      weight_array<bfloat16> const list(kind, 3, count);
      second_rank const found(list, small_messages());
      CHECK(found.said.empty());
      CHECK(found.list == list);
      CHECK(found.is_sound);
      CHECK(found.left == 0);
    }
  }
  weight_array<bfloat16> const large(weight_kind::gauss, 3, 20'000'003);
  CHECK(second_rank(large, {}).list == large);
  auto options = small_messages();
  options.checksums = true;
  options.body_bits = 10.0F;
  CHECK(second_rank(large, options).list == large);
}

TEST_CASE("on devices damaged messages of compressed_broadcast are refused as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  weight_array<bfloat16> const list(weight_kind::gauss, 3, 40001);
  auto const damaged_at = [&](int which, std::int64_t first, std::int64_t bytes) {
    return second_rank(list, small_messages(), [=](cuda const& exec, int message, array_view<std::byte> of) {
      if (message == which) {
        exec.clear(of.slice(0, first, bytes));
      }
    });
  };
  auto const header = damaged_at(2, 0, 64);  // after the head and a body
  CHECK_THAT(header.said, contains("compressed_weights.decode: the header contradicts itself (code "));
  CHECK(header.is_sound);
  auto const table = damaged_at(3, 8, 8);
  CHECK_THAT(table.said, contains("compressed_broadcast.exchange: chunk 1 of rank 0 has 0 bytes, as the rank's message "
                                  "says, but can have from "));
  CHECK(table.is_sound);
}
