// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/program/weights/detail/count_exponents.cuh>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;

namespace {

template <class T>
std::vector<T> some_weights(std::int64_t count, std::uint64_t seed) {
  std::vector<T> weights(static_cast<std::size_t>(count));
  testing::fill(testing::uniform_bits{}, seed, weights.data(), weights.size());
  return weights;
}

/// The expected counts, by the rule of the codebook's documentation.
template <class T>
std::vector<std::uint64_t> histogram(std::vector<T> const& weights, int log2_block) {
  auto const size = static_cast<std::int64_t>(weights.size());
  std::int64_t const block = std::int64_t{1} << log2_block;
  std::int64_t const stride = histogram_stride((size + block - 1) / block);
  std::vector<std::uint64_t> counts(256);
  for (std::int64_t i = 0; i < size; ++i) {
    if (i / block % stride == 0) {
      ++counts[exponent_split<T>::exponent(to_bits(weights[static_cast<std::size_t>(i)]))];
    }
  }
  return counts;
}

/// Checks tensors of several sizes in one launch, `shift` elements past an aligned address.
template <class T>
void check_counts(std::vector<std::int64_t> const& sizes, int log2_block, int shift) {
  CAPTURE(scalar_traits<T>::name(), log2_block, shift);
  tessera::cuda const exec;
  count_exponents_on_blocks<T> program{};
  std::vector<buffer<T>> weights;
  std::vector<buffer<std::uint64_t>> counts;
  std::vector<std::vector<std::uint64_t>> expected;
  std::int64_t groups = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    auto const values = some_weights<T>(sizes[i], i);
    expected.push_back(histogram(values, log2_block));
    weights.emplace_back(exec, sizes[i] + shift);
    array_view<T> const shifted(weights[i].data() + shift, sizes[i]);
    exec.copy(values, shifted);
    counts.emplace_back(exec, 256);
    exec.clear(counts[i]);
    weight_encoding<T> encoding;
    encoding.spec.log2_block = log2_block;
    encoding.spec.count = sizes[i];
    encoding.weights = shifted.data;
    encoding.counts = counts[i].data();
    program.task[i] = encode_task<T>::of(encoding, nullptr, groups);
    groups += divide_up(encoding.spec.block_count(), histogram_stride(encoding.spec.block_count()));
  }
  program.tasks = static_cast<int>(sizes.size());
  exec.run(program, groups);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::vector<std::uint64_t> found(256);
    exec.copy(counts[i], found);
    exec.wait();
    CHECK(found == expected[i]);
  }
}

}  // namespace

TEST_CASE("exponents are counted in the blocks that the rule names, of all tensors of a launch", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_counts<bfloat16>({1, 1024, 5000, 1'100'001}, 10, 0);  // 1075 blocks, of which every second one counts
  check_counts<bfloat16>({70'001, 33}, 13, 3);
  check_counts<float8_e5m2>({4097, 100'000}, 11, 0);
}
