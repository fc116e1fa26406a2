// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/neuzip.hpp>
#include <tessera/program/weights/reader.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"
#include "support/codecs.hpp"

using namespace tessera;

namespace {

using reader_type = weight_reader<bfloat16, keep_mantissa<7>>;

/// Decodes a block for each group, from the last one to the first, and says which were sound.
struct copy_blocks {
  static constexpr int lanes = reader_type::lanes;
  struct scratch_type {
    bfloat16 weights[reader_type::largest_block];
    reader_type::scratch_type reader;
  };
  reader_type reader;
  bfloat16* to;
  std::int32_t* sound;
  std::int64_t blocks;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type& scratch) const {
    std::int64_t const block = blocks - 1 - which;
    bool const is_sound = reader.decode(group, block, scratch.weights, scratch.reader);
    std::int64_t const first = block * reader.block_weights();
    std::int64_t const left = reader.count() - first;
    for (int lane : group) {
      for (std::int64_t i = lane; i < left && i < reader.block_weights(); i += lanes) {
        to[first + i] = scratch.weights[i];
      }
      if (is_first(lane)) {
        sound[block] = is_sound ? 1 : 0;
      }
    }
  }
};

/// Weights and their stream, in blocks of 1024.
struct readable_stream {
  cpu exec{.threads = 2};
  std::vector<bfloat16> weights;
  weight_stream_options options;
  buffer<std::byte> stream;
  std::unique_ptr<weight_decode_table> table = std::make_unique<weight_decode_table>();
  std::vector<bfloat16> found;
  std::vector<std::int32_t> sound;

  explicit readable_stream(std::int64_t count) : weights(static_cast<std::size_t>(count)) {
    options.block = 1024;
    options.checksums = true;
    testing::fill(testing::gauss{}, 7, weights.data(), weights.size());
    stream = neuzip::encode(exec, weights, options);
  }
  [[nodiscard]] std::int64_t blocks() const { return (static_cast<std::int64_t>(weights.size()) + 1023) / 1024; }

  template <class Executor>
  void read(Executor const& by) {
    weight_decoding<bfloat16> decoding;
    decoding.spec = neuzip::spec(static_cast<std::int64_t>(weights.size()), options);
    decoding.stream = reinterpret_cast<std::uint8_t const*>(stream.data());
    decoding.stream_bytes = stream.size();
    decoding.blocks = decoding.spec.block_count();
    decoding.table = table.get();
    decoding.status = by.status();
    found.assign(weights.size(), bfloat16{0x7777});
    sound.assign(static_cast<std::size_t>(blocks()), -1);
    by.run(open_weights<bfloat16>{decoding}, 1);
    by.run(copy_blocks{{decoding}, found.data(), sound.data(), blocks()}, blocks());
  }
  [[nodiscard]] bool is_stored() const {
    return neuzip::spec(static_cast<std::int64_t>(weights.size()), options).coder == weight_coder::stored;
  }
};

}  // namespace

TEST_CASE("any block of a stream is read by itself, whether it is coded or stored", "[host][threads]") {
  int stored = 0;
  for (std::int64_t const count : {1, 7, 31, 1023, 1024, 1025, 5000}) {
    CAPTURE(count);
    readable_stream at(count);
    at.read(at.exec);
    CHECK(at.found == at.weights);
    CHECK(at.sound == std::vector<std::int32_t>(at.sound.size(), 1));
    stored += at.is_stored() ? 1 : 0;
    CHECK_NOTHROW(at.exec.wait());
  }
  CHECK(stored > 0);
  CHECK(stored < 7);
}

TEST_CASE("a corrupt block reads as zeros and the others as they are", "[host][threads]") {
  readable_stream at(5000);
  auto const spec = neuzip::spec(5000, at.options);
  at.stream[spec.planes_offset() + spec.planes_before(3) + 5] ^= std::byte{0x10};
  at.read(at.exec);
  CHECK(at.sound == std::vector<std::int32_t>{1, 1, 1, 0, 1});
  int wrong = 0;
  for (std::size_t i = 0; i < 5000; ++i) {
    bool const is_corrupt = i / 1024 == 3;
    wrong += at.found[i] == (is_corrupt ? bfloat16{0} : at.weights[i]) ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK_THROWS_AS(at.exec.wait(), corrupt_data);
}

TEST_CASE("of a stream with another header nothing is read", "[host][threads]") {
  for (std::int64_t const count : {20, 3000}) {
    readable_stream at(count);
    at.stream[5] ^= std::byte{0x02};
    at.read(at.exec);
    CHECK(at.found == std::vector<bfloat16>(at.found.size(), bfloat16{0}));
    CHECK(at.sound == std::vector<std::int32_t>(at.sound.size(), 0));
    CHECK_THROWS_AS(at.exec.wait(), corrupt_data);
  }
}

TEST_CASE("reading blocks of weights keeps the rules for programs", "[host][threads]") {
  readable_stream at(1100);
  at.read(testing::adversary{.seed = 14});
  CHECK(at.found == at.weights);
}
