// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tessera/core/bits.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/tile/per_lane.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/message_of.hpp"

using namespace tessera;

namespace cuda_launch_architectures_test {

template <int Words>
struct words_of {
  std::uint32_t values[Words];
};

/// Words of scratch on an architecture: one size each, up to what a thread block may have there.
TESSERA_FN constexpr int words_on(architecture tag, int step) {
  return tag == architecture::host     ? 64
         : tag == architecture::sm_80  ? 96 * step
         : tag == architecture::sm_90  ? 128 * step
         : tag == architecture::sm_90a ? 192 * step
                                       : 64 * step;
}

/// What a tile found: for which architecture it was compiled, the bytes of its scratch, and a hash of all its words.
struct found {
  std::int32_t compiled;
  std::int32_t bytes;
  std::uint32_t hash;
  bool operator==(found const&) const = default;
};

/// Fills all of its scratch with what no other tile writes, and reads it again, so that scratch of two groups that
/// overlaps, or ends before its type does, is seen.
template <int Lanes, int Step>
struct fills_scratch {
  static constexpr int lanes = Lanes;
  template <class G>
  using scratch_for = words_of<words_on(architecture_of<G>, Step)>;
  array_view<found> results;

  template <class G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_for<G>& scratch) const {
    constexpr int words = words_on(architecture_of<G>, Step);
    for (int lane : group) {
      for (int i = lane; i < words; i += lanes) {
        scratch.values[i] = word_of(which, i);
      }
    }
    group.sync();
    per_lane<std::uint32_t, G> hash;
    for (int lane : group) {
      hash[lane] = 0;
      for (int i = lane; i < words; i += lanes) {
        hash[lane] += scratch.values[words - 1 - i] * (2 * static_cast<std::uint32_t>(i) + 1);
      }
    }
    std::uint32_t const all = sum(group, hash);
    for (int lane : group) {
      if (is_first(lane)) {
        results[which] = {static_cast<std::int32_t>(architecture_of<G>), static_cast<std::int32_t>(sizeof(scratch)),
                          all};
      }
    }
  }

  TESSERA_FN static constexpr std::uint32_t word_of(std::int64_t which, int i) {
    return (static_cast<std::uint32_t>(which) * 2654435761U) ^ (static_cast<std::uint32_t>(i) * 40503U);
  }
  /// What a tile is to find in code for an architecture.
  static found expected(architecture tag, std::int64_t which) {
    int const words = words_on(tag, Step);
    std::uint32_t hash = 0;
    for (int i = 0; i < words; ++i) {
      hash += word_of(which, words - 1 - i) * (2 * static_cast<std::uint32_t>(i) + 1);
    }
    return {static_cast<std::int32_t>(tag), 4 * words, hash};
  }
};
using small_warps = fills_scratch<32, 16>;   // 6 KiB on sm_80, 12 on sm_90a: groups of a block differ, too
using large_warps = fills_scratch<32, 200>;  // 75 and 150 KiB: one group a block, and more than 48 KiB
using small_blocks = fills_scratch<256, 16>;
using large_blocks = fills_scratch<256, 280>;  // 105 and 210 KiB
static_assert(DeviceProgram<small_warps> && DeviceProgram<large_blocks>);

/// Leaves garbage in all shared memory that a thread block may have.
struct poisons {
  static constexpr int lanes = 1024;
  using scratch_type = words_of<24'000>;
  array_view<std::uint32_t> sink;
  template <class G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    for (int lane : group) {
      for (int i = lane; i < 24'000; i += lanes) {
        scratch.values[i] = 0xdeadbeefU;
      }
    }
    group.sync();
    for (int lane : group) {
      if (is_first(lane)) {
        sink[0] = scratch.values[which % 24'000];
      }
    }
  }
};

/// The newest architecture of a list that is no newer than the device: whose code it runs.
template <int... Architectures>
int newest_of(arch_list<Architectures...>, int device) {
  int newest = 0;
  ((newest = Architectures <= device && Architectures > newest ? Architectures : newest), ...);
  return newest;
}
template <class Architectures>
int expected_number(basic_cuda<Architectures> const& exec) {
  return newest_of(Architectures{}, exec.state->architecture());
}

template <class P>
void check_program(std::int64_t tiles) {
  tessera::cuda const exec;
  architecture const code = exec.architecture_of_code<P>();
  CHECK(number_of(code) == expected_number(exec));
  CHECK(!exec.lacks<P>());
  buffer<std::uint32_t> sink(exec, 1);
  exec.run(poisons{sink.view()}, 2000);
  buffer<found> results(exec, tiles);
  exec.clear(results);
  exec.run(P{results.view()}, tiles);
  std::vector<found> copied(static_cast<std::size_t>(tiles));
  exec.copy(results, copied);
  exec.wait();
  for (std::int64_t which = 0; which < tiles; ++which) {
    if (copied[static_cast<std::size_t>(which)] != P::expected(code, which)) {
      found const is = copied[static_cast<std::size_t>(which)];
      INFO(which << ": code of " << is.compiled << ", " << is.bytes << " bytes");
      REQUIRE(is == P::expected(code, which));
    }
  }
}

/// An executor of a device that has less shared memory than it has.
tessera::cuda smaller_device(int shared_bytes) {
  tessera::cuda exec;
  exec.state = std::make_shared<tessera::detail::cuda_state>(
      cuda_device_description{.architecture = exec.state->architecture(), .shared_bytes = shared_bytes});
  return exec;
}

}  // namespace cuda_launch_architectures_test

using namespace cuda_launch_architectures_test;

TEST_CASE("groups of CUDA have the architecture of their code", "[cuda]") {
  STATIC_REQUIRE(architecture_of<cuda_warp_on<architecture::sm_90a>> == architecture::sm_90a);
  STATIC_REQUIRE(architecture_of<cuda_block_on<64, architecture::sm_89>> == architecture::sm_89);
  STATIC_REQUIRE(architecture_of<cuda_block<64>> == architecture_of<cuda_warp>);
  STATIC_REQUIRE(architecture_of<cuda_warp> != architecture::host);
}

TEST_CASE("a launch has the shape of the code that runs", "[cuda]") {
  using tessera::detail::numbers_on;
  arch_list<800, 900> const both;
  auto const older = numbers_on<small_warps>(both, architecture::sm_80);
  auto const newer = numbers_on<small_warps>(both, architecture::sm_90a);
  CHECK(older.groups == 8);
  CHECK(older.shared_bytes == 8 * 4 * 96 * 16);
  CHECK(newer.groups == 4);
  CHECK(newer.threads == 128);
  CHECK(newer.shared_bytes == 4 * 4 * 192 * 16);
  CHECK(numbers_on<large_blocks>(both, architecture::sm_90a).shared_bytes == 4 * 192 * 280 + 256);
  CHECK(numbers_on<large_blocks>(both, architecture::sm_90).shared_bytes == 4 * 128 * 280 + 256);
  CHECK(numbers_on<large_blocks>(both, architecture::sm_86).threads == 0);
  CHECK(numbers_on<large_blocks>(tessera::detail::named_architectures{}, architecture::sm_86).threads == 256);
}

TEST_CASE("a described device takes the scratch of its code", "[cuda]") {
  auto const large = cuda::described({.architecture = 900});
  if constexpr (described_cuda::is_compiled_for<900>) {
    CHECK(large.architecture_of_code<large_blocks>() == architecture::sm_90a);
    CHECK(!large.lacks<large_blocks>());
    auto const small = cuda::described({.architecture = 900, .shared_bytes = 99 * 1024});
    CHECK(small.lacks<large_blocks>().text() ==
          "a thread block's shared memory in bytes is 101376 but must be as many as the program needs");
  }
  CHECK(cuda::described({.architecture = 900}).state->shared_bytes() == 227 * 1024);
  CHECK(cuda::described({.architecture = 1000}).state->shared_bytes() == 227 * 1024);
  CHECK(cuda::described({.architecture = 800}).state->shared_bytes() == 163 * 1024);
  for (int const of_geforce : {860, 890, 1200}) {
    CHECK(cuda::described({.architecture = of_geforce}).state->shared_bytes() == 99 * 1024);
  }
  if constexpr (described_cuda::is_compiled_for<800>) {
    CHECK(cuda::described({.architecture = 860}).architecture_of_code<large_blocks>() ==
          (described_cuda::is_compiled_for<860> ? architecture::sm_86 : architecture::sm_80));
  }
}

TEST_CASE("scratch follows the architecture of the code that runs on the device", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const tiles : {std::int64_t{1}, std::int64_t{7}, std::int64_t{9}, std::int64_t{5000}}) {
    check_program<small_warps>(tiles);
    check_program<large_warps>(tiles);
    check_program<small_blocks>(tiles);
    check_program<large_blocks>(tiles);
  }
}

TEST_CASE("scratch that follows the group has the host's size on the host", "[cuda]") {
  std::vector<found> results(3);
  cpu{}.run(large_blocks{results}, 3);
  for (std::int64_t which = 0; which < 3; ++which) {
    CHECK(results[static_cast<std::size_t>(which)] == large_blocks::expected(architecture::host, which));
  }
}

TEST_CASE("a device with less shared memory than the code's scratch refuses the program", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  int const needed = tessera::detail::numbers_on<large_blocks>(tessera::detail::named_architectures{},
                                                               exec.architecture_of_code<large_blocks>())
                         .shared_bytes;
  tessera::cuda const smaller = smaller_device(needed - 1);
  buffer<found> results(exec, 1);
  std::string const text = tessera_test::message_of([&] { smaller.run(large_blocks{results.view()}, 1); });
  CHECK_THAT(text,
             tessera_test::contains(join(" on ", tessera::detail::name_of(exec.architecture_of_code<large_blocks>()),
                                         " needs ", needed, " bytes of shared memory but device 0 has ", needed - 1)));
  CHECK(smaller.lacks<large_blocks>());
}
