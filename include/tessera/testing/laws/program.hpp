// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a Program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/concepts/program.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/laws/law_report.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

namespace detail {

/// Runs tiles one by one on one thread, in scratch whose bytes are all `filling`, and gives the memory afterwards.
template <class T, class Make>
std::vector<T> run_tiles(std::vector<T> memory, std::int64_t tiles, Make const& make, int filling, bool is_reversed) {
  auto const program = make(array_view<T>(memory));
  using program_type = std::remove_cvref_t<decltype(program)>;
  using scratch_type = scratch_for<program_type, serial_group<program_type::lanes>>;
  std::unique_ptr<scratch_type> const scratch(new scratch_type);
  for (std::int64_t i = 0; i < tiles; ++i) {
    std::memset(static_cast<void*>(scratch.get()), filling, sizeof(scratch_type));
    program(serial_group<program_type::lanes>{}, is_reversed ? tiles - 1 - i : i, *scratch);
  }
  return memory;
}

/// Runs all tiles on an executor, and gives the memory afterwards.
template <class T, class Make, class Exec>
std::vector<T> run_on(Exec const& exec, std::vector<T> memory, std::int64_t tiles, Make const& make) {
  exec.run(make(array_view<T>(memory)), tiles);
  exec.wait();
  return memory;
}

/// Notes the first element that is not what the tiles in order left, if there is one.
template <class T>
void compare_memory(law_report& report, std::vector<T> const& found, std::vector<T> const& expected,
                    std::string const& law) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::memcmp(&found[i], &expected[i], sizeof(T)) != 0) {
      report.expect(false, law, "element " + std::to_string(i) + " of the memory");
      return;
    }
  }
}

}  // namespace detail

/// Checks the program that make(array_view<T>) gives, which works on a copy of `memory` and leaves its results there,
/// with `tiles` tiles. It runs in order, backwards, on several threads, and on testing::adversary with `seeds` orders
/// of tiles and lanes; what it leaves must be the same to the bit.
template <class T, class Make>
requires Program<std::invoke_result_t<Make const&, array_view<T>>> law_report
check_program_laws(std::vector<T> const& memory, std::int64_t tiles, Make const& make, int seeds = 4) {
  law_report report;
  auto const expected = detail::run_tiles(memory, tiles, make, 0, false);
  detail::compare_memory(report, detail::run_tiles(memory, tiles, make, 0, true), expected, "tiles come in any order");
  for (int filling : {0xff, 0xa5}) {
    detail::compare_memory(report, detail::run_tiles(memory, tiles, make, filling, false), expected,
                           "scratch is uninitialised");
  }
  detail::compare_memory(report, detail::run_on(cpu{.threads = 4}, memory, tiles, make), expected,
                         "tiles run at the same time");
  for (int seed = 1; seed <= seeds; ++seed) {
    try {
      adversary const exec{.seed = static_cast<std::uint64_t>(seed)};
      detail::compare_memory(report, detail::run_on(exec, memory, tiles, make), expected,
                             "lanes come in any order, and see each other's writes after a sync");
    } catch (broken_rule const& rule) {
      report.expect(false, "a program keeps the rules of groups", rule.what());
    }
  }
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
