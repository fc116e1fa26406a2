// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Lists of chunks that the caller of an offloaded cache's step gives: those without fault, and one for each fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera_test {

/// Lists for two steps of two key heads with four entries each, and what a step says of them.
struct given_lists {
  std::vector<std::int32_t> chunks;
  std::vector<std::int32_t> counts;  ///< empty: all entries count
  std::string said;                  ///< part of the message; empty: there is no fault
  std::vector<bool> is_taken;        ///< whether each step is taken
};

/// Lists for sequences with 40 and 3 archived chunks.
inline std::vector<given_lists> lists_with_faults() {
  return {
      {{9, 3, -1, 39, 0, 1, 2, 3, 2, -1, 0, -1, -1, -1, -1, -1}, {}, "", {true, true}},
      {{9, 3, 99, 99, 0, 0, 0, 0, 2, 1, 0, 0, -7, -7, -7, -7}, {2, 1, 3, 0}, "", {true, true}},
      {{9, 3, 40, 39, 0, 1, 2, 3, 2, -1, 0, -1, -1, -1, -1, -1},
       {},
       "an index is out of range (code 7) at given chunk 2: it is 40, and there are 40",
       {false, true}},
      {{9, 3, -2, 39, 0, 1, 2, 3, 2, -1, 0, -1, -1, -1, -1, -1}, {}, "given chunk 2", {false, true}},
      {{9, 3, -1, 39, 0, 1, 2, 3, 2, -1, 0, -1, -1, 3, -1, -1}, {}, "given chunk 13", {true, false}},
      {{9, 3, -1, 9, 0, 1, 2, 3, 2, -1, 0, -1, -1, -1, -1, -1},
       {},
       "an index is given twice (code 9) at given chunk 3: it is 9, and there are 40",
       {false, true}},
      {{9, 3, -1, 39, 0, 1, 2, 1, 2, 2, 0, -1, -1, -1, -1, -1}, {}, "given chunk 7", {false, false}},
      {{9, 3, 5, 39, 0, 1, 2, 3, 2, 1, 0, 0, 0, 0, 0, 0}, {4, 5, 1, 1}, "list of chunks 1", {false, true}},
      {{9, 3, 5, 39, 0, 1, 2, 3, 2, 1, 0, 0, 0, 0, 0, 0}, {4, 4, 1, -1}, "list of chunks 3", {true, false}},
  };
}

}  // namespace tessera_test
