// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/cuda/largest_keys.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;

namespace {

/// A block for each list, of which `take` are taken, twice: what the first time left in scratch is in nobody's way.
template <int Lanes>
struct find_largest {
  static constexpr int lanes = Lanes;
  static constexpr std::int32_t most = 20'000;
  struct scratch_type {
    largest_keys_scratch<Lanes> found;
    std::uint32_t keys[most];
  };
  struct write {
    std::int32_t* to;
    __device__ void operator()(std::uint32_t rank, std::int32_t index) const { to[rank] += index; }
  };

  std::uint32_t const* keys;  ///< of all lists
  std::int32_t count;         ///< of a list
  std::int32_t take;
  std::int32_t* taken;   ///< of all lists; twice the index
  std::int32_t* counts;  ///< of each list

  __device__ void operator()(cuda_block<Lanes> const& group, std::int64_t which, scratch_type& scratch) const {
    key_indices<Lanes> const own(group.lane, count);
    std::uint32_t largest = 0;
    for (std::int32_t index = own.first; index < own.end; index += 32) {
      std::uint32_t const key = keys[which * count + index];
      scratch.keys[index] = key;
      largest = max(largest, key);
    }
    for (int turn = 0; turn < 2; ++turn) {
      std::int32_t const found =
          largest_keys(group, scratch.keys, count, take, largest, scratch.found, write{taken + which * count});
      group.sync();
      if (group.lane == 0) {
        counts[which] = found;
      }
    }
  }
};

std::vector<std::int32_t> expected(std::uint32_t const* keys, std::int32_t count, std::int32_t take) {
  std::vector<std::int32_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  std::erase_if(indices, [&](std::int32_t index) { return keys[index] == 0; });
  std::stable_sort(indices.begin(), indices.end(), [&](std::int32_t a, std::int32_t b) { return keys[a] > keys[b]; });
  indices.resize(std::min(indices.size(), static_cast<std::size_t>(std::max(take, 0))));
  std::sort(indices.begin(), indices.end());
  return indices;
}

/// Lists that differ from what is expected.
template <int Lanes>
int wrong_lists(std::vector<std::uint32_t> const& keys, std::int32_t count, std::int32_t take) {
  auto const lists = static_cast<std::int64_t>(keys.size()) / count;
  tessera::cuda const exec;
  buffer<std::uint32_t> given(exec, static_cast<std::int64_t>(keys.size()));
  buffer<std::int32_t> taken(exec, given.size());
  buffer<std::int32_t> counts(exec, lists);
  exec.copy(keys, given);
  exec.clear(taken);
  exec.run(find_largest<Lanes>{given.data(), count, take, taken.data(), counts.data()}, lists);
  std::vector<std::int32_t> found(keys.size());
  std::vector<std::int32_t> found_counts(static_cast<std::size_t>(lists));
  exec.copy(taken, found);
  exec.copy(counts, found_counts);
  exec.wait();
  int wrong = 0;
  for (std::int64_t list = 0; list < lists; ++list) {
    auto const right = expected(keys.data() + list * count, count, take);
    std::vector<std::int32_t> own(static_cast<std::size_t>(count), 0);
    std::transform(right.begin(), right.end(), own.begin(), [](std::int32_t index) { return 2 * index; });
    bool const is_right = found_counts[static_cast<std::size_t>(list)] == static_cast<std::int32_t>(right.size()) &&
                          std::equal(own.begin(), own.end(), found.begin() + list * count);
    wrong += is_right ? 0 : 1;
  }
  return wrong;
}

/// Of several lists; `make`: a number of 64 random bits.
template <class Make>
std::vector<std::uint32_t> lists_of(std::int32_t count, Make const& make) {
  std::vector<std::uint32_t> keys(static_cast<std::size_t>(3 * count));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    keys[i] = static_cast<std::uint32_t>(make(testing::hash(17, i)));
  }
  return keys;
}

template <class Make>
void check_lists(std::int32_t count, Make const& make) {
  auto const keys = lists_of(count, make);
  for (std::int32_t const take : {0, 1, 5, 256, 1024, 1500, count - 1, count, count + 7}) {
    CAPTURE(count, take);
    CHECK(wrong_lists<1024>(keys, count, take) == 0);
    CHECK(wrong_lists<512>(keys, count, take) == 0);
  }
}

}  // namespace

TEST_CASE("a block takes the largest keys, of equal ones the first", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int32_t const count : {1, 31, 33, 700, 1024, 4099, 16'384, 20'000}) {
    check_lists(count, [](std::uint64_t bits) { return bits; });
    check_lists(count, [](std::uint64_t bits) { return bits % 5; });
    check_lists(count, [](std::uint64_t bits) { return 0x7f000000U + bits % 1000; });
  }
}

TEST_CASE("a block takes the largest of keys that crowd", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int32_t const count : {2000, 16'384}) {
    INFO("all the same");
    check_lists(count, [](std::uint64_t) { return 77U; });
    INFO("a few far from the others, which need more digits");
    check_lists(count, [](std::uint64_t bits) { return bits % 300 == 0 ? bits >> 32 : 1000 + bits % 90'000; });
    INFO("in two heaps at the ends, with ties");
    check_lists(count, [](std::uint64_t bits) { return bits % 2 == 0 ? 0xffffffffU - bits % 16 : 1 + bits % 16; });
    INFO("many that have no key");
    check_lists(count, [](std::uint64_t bits) { return bits % 64 == 0 ? bits >> 32 : 0; });
    check_lists(count, [](std::uint64_t) { return 0U; });
  }
}

TEST_CASE("the largest keys can be neighbours", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  std::int32_t const count = 16'384;
  std::vector<std::uint32_t> keys(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    keys[i] = i / 512 == 7 ? 5'000'000U + static_cast<std::uint32_t>(testing::hash(3, i) % 100'000) : 12U;
  }
  CHECK(wrong_lists<1024>(keys, count, 256) == 0);
  CHECK(wrong_lists<1024>(keys, count, 512) == 0);
  CHECK(wrong_lists<1024>(keys, count, 513) == 0);
}
