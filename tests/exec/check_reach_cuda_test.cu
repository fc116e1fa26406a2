// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/neuzip.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;
using tessera_test::contains;

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
