// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/subspace/sum_gram_parts.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// A whole number that says which sum it is; sums of parts are exact.
float part_number(std::int64_t part, std::int64_t row, std::int64_t column) {
  return static_cast<float>((part + 1) * 100 + row % 37 * 3 + column % 41);
}

/// Adds parts to a matrix of 0.5. Memory of parts below the diagonal holds what nobody may read. Returns how many
/// elements are wrong.
template <class Executor>
int wrong_sums_of_parts(Executor const& exec, std::int32_t width, std::int32_t tokens) {
  gram_schedule const schedule{64, width, 0, tokens};
  std::vector<float> parts(static_cast<std::size_t>(schedule.count() * gram_schedule::tile_elements), -1e9F);
  for (std::int32_t index = 0; index < schedule.count(); ++index) {
    head_work_item const item = schedule.at(index);
    for (std::int32_t row = 0; row < gram_schedule::tile; ++row) {
      for (std::int32_t column = 0; column < gram_schedule::tile; ++column) {
        std::int64_t const all_row = item.row * gram_schedule::tile + row;
        std::int64_t const all_column = item.column * gram_schedule::tile + column;
        if (all_row <= all_column && all_column < width) {
          parts[static_cast<std::size_t>(schedule.element(item, row, column))] =
              part_number(item.part, all_row, all_column);
        }
      }
    }
  }
  std::vector<float> gram(static_cast<std::size_t>(width) * static_cast<std::size_t>(width), 0.5F);
  add_gram_parts const program{schedule, parts, {gram.data(), {width, width}}};
  exec.run(program, program.groups());
  int wrong = 0;
  for (std::int64_t row = 0; row < width; ++row) {
    for (std::int64_t column = 0; column < width; ++column) {
      float expected = 0.5F;
      for (std::int32_t part = 0; part < schedule.parts(); ++part) {
        expected += row <= column ? part_number(part, row, column) : part_number(part, column, row);
      }
      wrong += gram[static_cast<std::size_t>(row * width + column)] == expected ? 0 : 1;
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("sums of parts are added to both sides of the diagonal, whatever the width", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (auto const& [width, tokens] : {std::pair<int, int>{64, 1}, {64, 2048}, {64, 2049}, {192, 5000}, {320, 4096}}) {
    CAPTURE(width, tokens);
    CHECK(wrong_sums_of_parts(exec, width, tokens) == 0);
  }
}

TEST_CASE("sums of parts keep the rules for programs", "[host]") {
  CHECK(wrong_sums_of_parts(testing::adversary{.seed = 4}, 64, 2049) == 0);
}
