// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/weights/store_raw.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// A tensor that is stored as it is, and its stream.
struct stored_tensor {
  weight_stream_spec spec;
  std::vector<bfloat16> weights;
  struct alignas(16) unit {
    std::uint8_t bytes[16];
  };
  std::vector<unit> memory;
  std::int64_t bytes = -1;
  std::vector<bfloat16> loaded;

  explicit stored_tensor(std::int64_t count) : weights(static_cast<std::size_t>(count)) {
    spec.coder = weight_coder::stored;
    spec.log2_block = 10;
    spec.count = count;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i].bits = static_cast<std::uint16_t>(testing::hash(1, i));
    }
    memory.resize(static_cast<std::size_t>(spec.largest_bytes() / 16 + 2));
    std::memset(memory.data(), 0xee, memory.size() * sizeof(unit));
  }
  [[nodiscard]] std::uint8_t* stream() { return memory.data()->bytes; }

  template <class Executor>
  void store(Executor const& exec) {
    store_weights<bfloat16> program;
    program.encoding.spec = spec;
    program.encoding.weights = weights.data();
    program.encoding.stream = stream();
    program.encoding.stream_bytes = &bytes;
    exec.run(program, 1);
  }
  /// Loads the weights of some blocks of 1024.
  template <class Executor>
  void load_blocks(Executor const& exec, std::int64_t first, std::int64_t blocks, bool verifies = true) {
    loaded.assign(weights.size() + 1, bfloat16{0x7777});
    load_stored_weights<bfloat16> program;
    program.decoding.spec = spec;
    program.decoding.stream = stream();
    program.decoding.stream_bytes = bytes;
    program.decoding.first_block = first;
    program.decoding.blocks = blocks;
    program.decoding.weights = loaded.data();
    program.decoding.verify_checksums = verifies;
    program.decoding.status = exec.status();
    exec.run(program, 1);
  }
  /// Whether `loaded` begins with the weights from `first` to `last` - 1, and nothing lies behind them.
  [[nodiscard]] bool has_loaded(std::size_t first, std::size_t last) const {
    bool right = loaded[last - first] == bfloat16{0x7777};
    for (std::size_t i = first; i < last; ++i) {
      right = right && loaded[i - first] == weights[i];
    }
    return right;
  }
  [[nodiscard]] bool has_loaded_zeros() const {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (loaded[i].bits != 0) {
        return false;
      }
    }
    return true;
  }
};

}  // namespace

TEST_CASE("a tensor that is stored as it is comes back bit for bit, whole or in blocks", "[host]") {
  cpu const exec{.threads = 1};
  for (std::int64_t const count : {0, 1, 7, 31, 32, 33, 1023, 1024, 1025, 2500}) {
    CAPTURE(count);
    stored_tensor tensor(count);
    tensor.store(exec);
    CHECK(tensor.bytes == 64 + 2 * count);
    CHECK(std::equal(tensor.weights.begin(), tensor.weights.end(),
                     reinterpret_cast<bfloat16 const*>(tensor.stream() + 64)));
    CHECK(tensor.stream()[64 + 2 * count] == 0xee);
    tensor.load_blocks(exec, 0, (count + 1023) / 1024);
    CHECK(tensor.has_loaded(0, static_cast<std::size_t>(count)));
  }
  stored_tensor tensor(2500);
  tensor.store(exec);
  tensor.load_blocks(exec, 1, 1);
  CHECK(tensor.has_loaded(1024, 2048));
  tensor.load_blocks(exec, 2, 1);
  CHECK(tensor.has_loaded(2048, 2500));
  CHECK_NOTHROW(exec.wait());
}

TEST_CASE("a stored stream that was changed reads as zeros and is reported", "[host]") {
  cpu const exec{.threads = 1};
  stored_tensor tensor(100);
  tensor.store(exec);
  tensor.stream()[64 + 199] ^= 1;
  tensor.load_blocks(exec, 0, 1);
  CHECK(tensor.has_loaded_zeros());
  CHECK_THROWS_AS(exec.wait(), corrupt_data);
  tensor.load_blocks(exec, 0, 1, false);
  CHECK_FALSE(tensor.has_loaded_zeros());
  CHECK_NOTHROW(exec.wait());
  tensor.stream()[64 + 199] ^= 1;
  tensor.stream()[9] ^= 4;  // in the header
  tensor.load_blocks(exec, 0, 1, false);
  CHECK(tensor.has_loaded_zeros());
  CHECK_THROWS_AS(exec.wait(), corrupt_data);
}

TEST_CASE("storing tensors as they are keeps the rules for programs", "[host]") {
  testing::adversary const exec{.seed = 3};
  stored_tensor tensor(1100);
  tensor.store(exec);
  tensor.load_blocks(exec, 0, 2);
  CHECK(tensor.has_loaded(0, 1100));
  tensor.load_blocks(exec, 1, 1);
  CHECK(tensor.has_loaded(1024, 1100));
}
