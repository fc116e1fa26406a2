// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/concepts/program.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/map/add_matrix.hpp>
#include <tessera/program/gemm/gemm_tiles.hpp>
#include <tessera/program/gemm/store_sums.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/program.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/source/dense.hpp>

#include "support/catch.hpp"

using namespace tessera;
using tessera::testing::check_program_laws;

namespace program_test {

/// The common parts of programs of 32 lanes over a list.
template <class Scratch>
struct over_values {
  static constexpr int lanes = 32;
  using scratch_type = Scratch;
  array_view<float> values;
};

struct nothing {};
struct numbers {
  float values[32];
  bool is_known;
};

struct doubled : over_values<nothing> {
  template <class Lanes>
  TESSERA_FN void operator()(Lanes const& group, std::int64_t which, nothing&) const {
    for (int lane : group) {
      values[which * lanes + lane] *= 2.0F;
    }
  }
};

/// Reads what the tile before it has written.
struct running : over_values<nothing> {
  template <class Lanes>
  TESSERA_FN void operator()(Lanes const& group, std::int64_t which, nothing&) const {
    for (int lane : group) {
      values[which * lanes + lane] += which > 0 ? values[(which - 1) * lanes + lane] : 0.0F;
    }
  }
};

/// Takes scratch to begin as zeros.
struct trusting : over_values<numbers> {
  template <class Lanes>
  TESSERA_FN void operator()(Lanes const& group, std::int64_t which, numbers& scratch) const {
    for (int lane : group) {
      scratch.values[lane] += values[which * lanes + lane];
      values[which * lanes + lane] = scratch.values[lane];
    }
  }
};

/// Sets scratch before it is used, as `trusting` does not.
struct careful : over_values<numbers> {
  template <class Lanes>
  TESSERA_FN void operator()(Lanes const& group, std::int64_t which, numbers& scratch) const {
    for (int lane : group) {
      scratch.values[lane] = values[which * lanes + lane];
    }
    group.sync();
    for (int lane : group) {
      values[which * lanes + lane] = scratch.values[lanes - 1 - lane];
    }
  }
};

/// Reads what the next lane may not have written yet.
struct hasty : over_values<numbers> {
  template <class Lanes>
  TESSERA_FN void operator()(Lanes const& group, std::int64_t which, numbers& scratch) const {
    for (int lane : group) {
      scratch.values[lane] = values[which * lanes + lane];
    }
    for (int lane : group) {
      values[which * lanes + lane] = scratch.values[lanes - 1 - lane];
    }
  }
};

/// Two lanes write different values to one address.
struct quarrelling : over_values<numbers> {
  template <class Lanes>
  TESSERA_FN void operator()(Lanes const& group, std::int64_t which, numbers& scratch) const {
    for (int lane : group) {
      scratch.values[0] = static_cast<float>(lane / 31);
    }
    group.sync();
    for (int lane : group) {
      values[which * lanes + lane] += scratch.values[0];
    }
  }
};

template <class P>
testing::law_report check_program() {
  std::vector<float> memory;
  for (int i = 0; i < 8 * 32; ++i) {
    memory.push_back(static_cast<float>(i % 37) + 1.0F);
  }
  return check_program_laws(memory, 8, [](array_view<float> values) { return P{{values}}; });
}

/// Programs of so many lanes, with so many bytes of scratch and of its own.
template <int Lanes, int ScratchBytes, int OwnBytes = 1>
struct sized_program {
  static constexpr int lanes = Lanes;
  struct scratch_type {
    unsigned char bytes[ScratchBytes];
  };
  unsigned char bytes[OwnBytes];
  template <class G>
  TESSERA_FN void operator()(G const&, std::int64_t, scratch_type&) const {}
};
static_assert(DeviceProgram<doubled> && DeviceProgram<sized_program<1024, 1, 4000>>);
static_assert(Program<sized_program<1, 1>> && !DeviceProgram<sized_program<1, 1>>);
static_assert(!DeviceProgram<sized_program<48, 1>> && !DeviceProgram<sized_program<1056, 1>>);
static_assert(!DeviceProgram<sized_program<32, 1, 4001>>);
static_assert(DeviceProgram<sized_program<32, 227 * 1024>> && !DeviceProgram<sized_program<32, 227 * 1024 + 1>>);
static_assert(DeviceProgram<sized_program<256, 227 * 1024 - 256>>);
static_assert(!DeviceProgram<sized_program<256, 227 * 1024 - 255>>);  // blocks exchange values in shared memory, too
static_assert(!DeviceProgram<nothing>);

template <int Bytes>
struct bytes_of {
  unsigned char values[Bytes];
};
/// A program whose scratch has so many bytes in code for one architecture, and one byte elsewhere.
template <architecture Large, int Bytes>
struct follows_group {
  static constexpr int lanes = 32;
  template <class G>
  using scratch_for = bytes_of<architecture_of<G> == Large ? Bytes : 1>;
  template <class G>
  TESSERA_FN void operator()(G const&, std::int64_t, scratch_for<G>&) const {}
};
/// The same for sm_90a alone.
template <architecture Large, int Bytes>
struct follows_group_of_new : follows_group<Large, Bytes> {
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;
};
/// Has both kinds of scratch.
struct follows_and_has_one : follows_group<architecture::host, 2> {
  using scratch_type = nothing;
};
using on_host = tessera::detail::group_archetype<32>;
using on_sm_90a = tessera::detail::group_archetype_on<32, architecture::sm_90a>;
static_assert(std::is_same_v<tessera::scratch_for<doubled, on_sm_90a>, nothing>);
static_assert(sizeof(tessera::scratch_for<follows_group<architecture::sm_90a, 9>, on_sm_90a>) == 9);
static_assert(sizeof(tessera::scratch_for<follows_group<architecture::sm_90a, 9>, on_host>) == 1);
static_assert(Program<follows_group<architecture::host, 1 << 20>> && !Program<follows_and_has_one>);
static_assert(DeviceProgram<follows_group<architecture::host, 1 << 20>>);  // a CPU's scratch is memory
static_assert(DeviceProgram<follows_group<architecture::sm_80, 163 * 1024>>);
static_assert(!DeviceProgram<follows_group<architecture::sm_80, 163 * 1024 + 1>>);
static_assert(DeviceProgram<follows_group<architecture::sm_86, 99 * 1024>>);
static_assert(!DeviceProgram<follows_group<architecture::sm_86, 99 * 1024 + 1>>);
static_assert(!DeviceProgram<follows_group<architecture::sm_89, 99 * 1024 + 1>>);
static_assert(!DeviceProgram<follows_group<architecture::sm_120, 99 * 1024 + 1>>);
static_assert(DeviceProgram<follows_group<architecture::sm_90a, 227 * 1024>>);
static_assert(!DeviceProgram<follows_group<architecture::sm_90a, 227 * 1024 + 1>>);
static_assert(!DeviceProgram<follows_group<architecture::sm_100, 227 * 1024 + 1>>);
static_assert(DeviceProgram<follows_group_of_new<architecture::sm_86, 200 * 1024>>);  // not for sm_86
static_assert(!DeviceProgram<follows_group_of_new<architecture::sm_90a, 228 * 1024>>);

/// Reverses the values of each tile through stages of scratch, of which the architecture has so many.
struct reversed_by_stages {
  static constexpr int lanes = 32;
  template <int Stages>
  struct stages_of {
    static constexpr int count = Stages;
    float values[Stages][32];
  };
  template <class G>
  using scratch_for = stages_of<architecture_of<G> == architecture::host     ? 1
                                : architecture_of<G> == architecture::sm_90a ? 4
                                                                             : 2>;
  array_view<float> values;

  template <class G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_for<G>& scratch) const {
    for (int step = 0; step < 2; ++step) {
      auto& stage = scratch.values[step % scratch_for<G>::count];
      group.sync();  // the step before has been read
      for (int lane : group) {
        stage[lane] = values[which * lanes + lane];
      }
      group.sync();
      for (int lane : group) {
        values[which * lanes + lane] = stage[lanes - 1 - lane] + static_cast<float>(step);
      }
    }
  }
};
static_assert(DeviceProgram<reversed_by_stages>);
static_assert(sizeof(tessera::scratch_for<reversed_by_stages, serial_group<32>>) == 128);
static_assert(sizeof(tessera::scratch_for<reversed_by_stages, testing::adversary_group<32>>) == 128);
static_assert(sizeof(tessera::scratch_for<reversed_by_stages, on_sm_90a>) == 512);

}  // namespace program_test

using namespace program_test;

TEST_CASE("programs that keep the laws are not accused", "[host]") {
  CHECK(check_program<doubled>().text() == "");
  CHECK(check_program<careful>().text() == "");
}

TEST_CASE("a program whose scratch follows the group keeps the laws", "[host]") {
  std::vector<float> memory;
  for (int i = 0; i < 3 * 32; ++i) {
    memory.push_back(static_cast<float>(i));
  }
  auto const make = [](array_view<float> values) { return reversed_by_stages{values}; };
  CHECK(check_program_laws(memory, 3, make).text() == "");
  std::vector<float> values = memory;
  cpu{}.run(make(values), 3);
  for (std::size_t i = 0; i < values.size(); ++i) {
    CHECK(values[i] == memory[i] + 1);
  }
}

TEST_CASE("a program that breaks a law is caught", "[host]") {
  CHECK(check_program<running>().mentions("tiles come in any order"));
  CHECK(check_program<trusting>().mentions("scratch is uninitialised"));
  CHECK(check_program<hasty>().mentions("see each other's writes after a sync"));
  CHECK(check_program<quarrelling>().mentions("a program keeps the rules of groups"));
}

TEST_CASE("the program of matrix products keeps the laws of programs", "[host]") {
  constexpr std::int64_t rows = 70;
  constexpr std::int64_t columns = 130;
  constexpr std::int64_t depth = 40;
  std::vector<bfloat16> a(static_cast<std::size_t>(rows * depth));
  std::vector<bfloat16> b(static_cast<std::size_t>(columns * depth));
  testing::fill(testing::gauss(), 1, a.data(), a.size());
  testing::fill(testing::gauss(), 2, b.data(), b.size());
  using source = dense<bfloat16>;
  using epilogue = store_sums<float, add_matrix<float>>;
  auto const make = [&](array_view<float> memory) {
    matrix_view<float> const result(memory.data, {rows, columns});
    return gemm_tiles<bfloat16, source, source, epilogue>{
        source{{a.data(), {rows, depth}}}, source{{b.data(), {columns, depth}}}, {result, {result}}};
  };
  std::vector<float> const memory(static_cast<std::size_t>(rows * columns), 1.5F);
  std::int64_t const tiles = make(array_view<float>{}).tiles();
  CHECK(tiles == 6);
  CHECK(check_program_laws(memory, tiles, make, 2).text() == "");
}
