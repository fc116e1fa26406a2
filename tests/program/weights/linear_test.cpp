// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The program of compressed layers with uncompressed weights: blocks of a plain array.
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/weights/linear.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"
#include "support/linear_reference.hpp"

using namespace tessera;

namespace {

/// "Decodes" blocks of 48 weights, which rows of any other length straddle, and counts the calls.
struct plain_reader {
  using value_type = float;
  struct scratch_type {};
  static constexpr int lanes = 32;
  static constexpr int largest_block = 48;
  array_view<float const> weights;

  TESSERA_FN static constexpr std::int64_t block_weights() { return largest_block; }
  template <class Group>
  TESSERA_FN bool decode(Group const& group, std::int64_t block, float* values, scratch_type&) const {
    std::int64_t const first = block * largest_block;
    for (int lane : group) {
      for (std::int64_t i = lane; i < largest_block && first + i < weights.size(); i += lanes) {
        values[i] = weights[first + i];
      }
    }
    group.sync();
    return true;
  }
};
using program_type = compressed_linear_rows<plain_reader, float, float>;

std::vector<float> gaussian(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  testing::fill(testing::gauss{}, seed, values.data(), values.size());
  return values;
}

template <class Executor>
void check_product(Executor const& exec, std::int64_t tokens, std::int64_t rows, std::int64_t columns,
                   std::int64_t band_rows) {
  CAPTURE(tokens, rows, columns, band_rows);
  auto const weights = gaussian(rows * columns, 1);
  auto const inputs = gaussian(tokens * columns, 2);
  auto const bias = gaussian(rows, 3);
  std::vector<float> outputs(static_cast<std::size_t>(tokens * rows), 77.0F);
  program_type const program{{weights},
                             matrix_view<float const>(inputs.data(), {tokens, columns}),
                             bias,
                             matrix_view<float>(outputs.data(), {tokens, rows}),
                             band_rows};
  exec.run(program, program.groups());
  CHECK(outputs == tessera_test::linear_reference<float>(inputs, weights, bias, tokens, rows, columns));
}

}  // namespace

TEST_CASE("products do not depend on where blocks, bands and tiles of tokens begin", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const tokens : {1, 16, 17}) {
    for (std::int64_t const columns : {1, 31, 48, 100}) {
      for (std::int64_t const band_rows : {1, 2, 5}) {
        check_product(exec, tokens, 5, columns, band_rows);
      }
    }
  }
}

TEST_CASE("the product of a compressed layer keeps the rules for programs", "[host]") {
  check_product(testing::adversary{.seed = 3}, 17, 5, 33, 2);
}

TEST_CASE("with no columns the outputs are the bias, and without a bias zeros", "[host]") {
  std::vector<float> const bias{1.0F, 2.0F, 3.0F};
  std::vector<float> outputs(6, 77.0F);
  program_type program{
      {}, matrix_view<float const>(nullptr, {2, 0}), bias, matrix_view<float>(outputs.data(), {2, 3}), 2};
  cpu const exec{.threads = 1};
  exec.run(program, program.groups());
  CHECK(outputs == std::vector<float>{1.0F, 2.0F, 3.0F, 1.0F, 2.0F, 3.0F});
  program.bias = {};
  exec.run(program, program.groups());
  CHECK(outputs == std::vector<float>(6, 0.0F));
}

TEST_CASE("a band has at least four blocks of weights, so few blocks are decoded twice", "[host]") {
  CHECK(program_type::rows_of_band(1024, 64) == 64);
  CHECK(program_type::rows_of_band(1024, 65) == 64);
  CHECK(program_type::rows_of_band(1024, 63) == 66);
  CHECK(program_type::rows_of_band(1024, 1'000'000) == 1);
  CHECK(program_type::rows_of_band(1024, 0) == 4096);
}
