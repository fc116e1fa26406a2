// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tests that do not depend on the type of weights: the same bytes everywhere, parts of streams, many tensors, and
// errors.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <tessera/neuzip.hpp>
#include <tessera/testing/adversary.hpp>

#include "algorithm/weights/weight_samples.hpp"
#include "support/catch.hpp"
#include "support/codecs.hpp"
#include "support/message_of.hpp"
#include "support/weight_checks.hpp"

using namespace tessera;
using tessera_test::bytes_of;
using tessera_test::check_adversary;
using tessera_test::contains;
using tessera_test::message_of;
using tessera_test::weight_array;
using tessera_test::weight_kind;

namespace {

using bf16_array = weight_array<bfloat16>;

/// Sets TESSERA_SIMD for as long as it lives.
class simd_limit {
 public:
  explicit simd_limit(char const* level) {
    char const* const value = std::getenv("TESSERA_SIMD");
    before_ = value == nullptr ? "" : value;
    ::setenv("TESSERA_SIMD", level, 1);
  }
  simd_limit(simd_limit const&) = delete;
  simd_limit& operator=(simd_limit const&) = delete;
  ~simd_limit() {
    if (before_.empty()) {
      ::unsetenv("TESSERA_SIMD");
    } else {
      ::setenv("TESSERA_SIMD", before_.c_str(), 1);
    }
  }

 private:
  std::string before_;
};

template <class Codec>
void check_everywhere_the_same(weight_kind kind, std::int64_t count, weight_stream_options options) {
  using type = typename Codec::value_type;
  INFO(scalar_traits<type>::name() << ", kind " << static_cast<int>(kind) << ", count " << count);
  weight_array<type> const weights(kind, 3, count);
  auto const expected = bytes_of(Codec::encode(cpu{.threads = 1}, weights.view(), options));
  for (int threads : {2, 5}) {
    REQUIRE(bytes_of(Codec::encode(cpu{.threads = threads}, weights.view(), options)) == expected);
  }
  for (char const* level : {"scalar", "avx2", "avx512"}) {
    simd_limit const limit(level);
    auto const stream = Codec::encode(cpu{.threads = 1}, weights.view(), options);
    REQUIRE(bytes_of(stream) == expected);
    weight_array<type> decoded(count);
    Codec::decode(cpu{.threads = 3}, stream.view(), decoded.view());
    REQUIRE(decoded == weights);
  }
}

/// A stream in an allocation of exactly its size, at an aligned address.
struct encoded {
  weight_stream_spec spec;
  buffer<std::byte> stream;
};
encoded encode(bf16_array const& weights, weight_stream_options options = {}) {
  return {neuzip::spec(weights.count(), options), neuzip::encode(cpu{.threads = 1}, weights.view(), options)};
}

/// A workspace for a plan.
struct space_of {
  buffer<std::byte> memory;
  workspace space;
  explicit space_of(workspace_plan const& plan) : memory(plan.bytes()), space(plan, memory) {}
};

}  // namespace

TEST_CASE("threads and vector instructions do not change a byte of a stream", "[host][threads]") {
  check_everywhere_the_same<neuzip>(weight_kind::gauss, 50'001, {.block = 2048});
  check_everywhere_the_same<neuzip>(weight_kind::mixture, 50'001, {.block = 4096, .checksums = true});
  check_everywhere_the_same<neuzip_of<float>>(weight_kind::a_few_escapes, 50'001, {});
  check_everywhere_the_same<neuzip_of<float8_e5m2>>(weight_kind::sparse, 50'001, {});
  check_everywhere_the_same<neuzip_fixed<bfloat16>>(weight_kind::two_clusters, 50'001, {.block = 1024});
}

TEST_CASE("an adversary writes the bytes and reads the weights that the CPU does", "[host]") {
  check_adversary<neuzip>(weight_kind::gauss, 3001, {.block = 1024, .checksums = true});
  check_adversary<neuzip>(weight_kind::mixture, 9000, {.block = 2048});
  check_adversary<neuzip>(weight_kind::gauss, 100, {});
  check_adversary<neuzip_fixed<bfloat16>>(weight_kind::a_few_escapes, 2100, {.block = 1024});
  check_adversary<neuzip_lossy<0>>(weight_kind::mixture, 2100, {.block = 1024, .normalizer_block = 64});
}

TEST_CASE("a part of the blocks decodes on its own", "[host][threads]") {
  bf16_array const weights(weight_kind::a_few_escapes, 2, 10'100);
  encoded const whole = encode(weights, {.block = 1024, .checksums = true});
  cpu const exec{.threads = 2};
  space_of const scratch(neuzip::plan_decode(exec, whole.spec));
  REQUIRE(whole.spec.block_count() == 10);
  for (auto [first, blocks] : {std::pair<int, int>{0, 1}, {0, 10}, {3, 4}, {9, 1}, {8, 2}, {5, 0}, {10, 0}}) {
    std::int64_t const begin = first * 1024;
    std::int64_t const count =
        std::min<std::int64_t>(10'100, begin + blocks * 1024) - std::min<std::int64_t>(10'100, begin);
    bf16_array part(count);
    neuzip::decode(exec, whole.spec, whole.stream.view(), first, blocks, part.view(), scratch.space);
    exec.wait();
    CHECK((count == 0 || std::memcmp(part.data(), weights.data() + begin, part.size() * 2) == 0));
  }
}

TEST_CASE("a part of the blocks of a tensor that is stored as it is decodes, too", "[host][threads]") {
  bf16_array const weights(weight_kind::gauss, 2, 2040);  // fewer than 4096 bytes
  encoded whole = encode(weights, {.block = 1024});
  REQUIRE(whole.spec.coder == weight_coder::stored);
  cpu const exec{.threads = 2};
  space_of const scratch(neuzip::plan_decode(exec, whole.spec));
  for (auto [first, blocks] : {std::pair<int, int>{0, 1}, {0, 2}, {1, 1}, {1, 0}, {2, 0}}) {
    auto const count = std::min<std::int64_t>(2040, (first + blocks) * 1024) - std::min(2040, first * 1024);
    bf16_array part(count);
    neuzip::decode(exec, whole.spec, whole.stream.view(), first, blocks, part.view(), scratch.space);
    exec.wait();
    CHECK((count == 0 || std::memcmp(part.data(), weights.data() + first * 1024, part.size() * 2) == 0));
  }
  bf16_array part(1016);
  CHECK(message_of([&] { neuzip::decode(exec, whole.spec, whole.stream.view(), 2, 1, part.view(), scratch.space); }) ==
        "compressed_weights.decode: blocks 2 and on, 1 of them, but there are 2");
  whole.stream.data()[64] ^= std::byte{1};  // a byte of the first block; the checksum is that of the tensor
  part.fill_with_rubbish();
  neuzip::decode(exec, whole.spec, whole.stream.view(), 1, 1, part.view(), scratch.space);
  CHECK_THROWS_WITH(exec.wait(), contains("the checksum does not match"));
  CHECK(part == bf16_array(1016));
}

TEST_CASE("a broken block is reported by its number and becomes zeros, the others decode", "[host][threads]") {
  bf16_array const weights(weight_kind::gauss, 2, 8 * 1024);
  encoded whole = encode(weights, {.block = 1024, .checksums = true});
  for (std::int64_t block : {6, 3}) {
    whole.stream.data()[whole.spec.planes_offset() + whole.spec.planes_before(block) + 11] ^= std::byte{1};
  }
  cpu const exec{.threads = 2};
  space_of const scratch(neuzip::plan_decode(exec, whole.spec));
  auto const position_of_failure = [&](std::int64_t first, std::int64_t blocks, bf16_array& into) {
    into.fill_with_rubbish();
    neuzip::decode(exec, whole.spec, whole.stream.view(), first, blocks, into.view(), scratch.space);
    try {
      exec.wait();
    } catch (corrupt_data const& problem) {
      CHECK_THAT(problem.what(), contains("checksum"));
      return problem.position();
    }
    return std::int64_t{-1};
  };
  bf16_array decoded(8 * 1024);
  CHECK(position_of_failure(0, 8, decoded) == 3);
  for (std::int64_t i = 0; i < decoded.count(); ++i) {
    bool const is_broken = i / 1024 == 3 || i / 1024 == 6;
    REQUIRE(decoded[i].bits == (is_broken ? 0 : weights[i].bits));
  }
  bf16_array tail(4 * 1024);
  CHECK(position_of_failure(4, 4, tail) == 6);
  bf16_array sound(2 * 1024);
  CHECK(position_of_failure(4, 2, sound) == -1);
}

TEST_CASE("many tensors of any sizes in one call give the streams and the weights of single ones", "[host][threads]") {
  cpu const exec{.threads = 2};
  std::vector<bf16_array> tensors;
  std::vector<buffer<std::byte>> rooms;
  std::vector<neuzip::source> sources;
  std::vector<std::int64_t> sizes(12);
  for (std::int64_t i = 0; i < 12; ++i) {
    tensors.emplace_back(tessera_test::weight_kinds[i % 9], static_cast<std::uint64_t>(i),
                         i * i * 97 + (i == 7 ? 0 : i * 300));
    weight_stream_spec const spec = neuzip::spec(tensors.back().count(), {.block = 1024 << (i % 4)});
    rooms.emplace_back(neuzip::largest_bytes(spec));
    sources.push_back({spec, tensors.back().view(), rooms.back().view(), {sizes.data() + i, 1}});
  }
  array_view<neuzip::source const> const all_sources(sources.data(), 12);
  neuzip::encode(exec, all_sources, space_of(neuzip::plan_encode(exec, all_sources)).space);
  exec.wait();
  std::vector<bf16_array> decoded;
  std::vector<neuzip::target> targets;
  for (std::size_t i = 0; i < 12; ++i) {
    auto const alone = neuzip::encode(exec, tensors[i].view(), {.block = 1024 << (i % 4)});
    REQUIRE(alone.size() == sizes[i]);
    CHECK(std::equal(alone.begin(), alone.end(), rooms[i].begin()));
    decoded.emplace_back(tensors[i].count());
    targets.push_back({sources[i].spec, {rooms[i].data(), sizes[i]}, decoded.back().view()});
  }
  array_view<neuzip::target const> const all_targets(targets.data(), 12);
  neuzip::decode(exec, all_targets, space_of(neuzip::plan_decode(exec, all_targets)).space);
  exec.wait();
  for (std::size_t i = 0; i < 12; ++i) {
    CHECK(decoded[i] == tensors[i]);
  }
}

TEST_CASE("a stream that does not fit its room is reported with the size it has, and nothing is written past the room",
          "[host][threads]") {
  bf16_array const weights(weight_kind::random_bits, 2, 20'000);
  weight_stream_spec const spec = neuzip::spec(20'000);
  encoded const whole = encode(weights);
  cpu const exec{.threads = 2};
  space_of const scratch(neuzip::plan_encode(exec, spec));
  std::int64_t size = 0;
  auto const encode_into = [&](std::int64_t room) {
    buffer<std::byte> stream(room);
    neuzip::encode(exec, spec, weights.view(), stream, {&size, 1}, scratch.space);
    exec.wait();
    return bytes_of(stream);
  };
  for (std::int64_t room : {spec.smallest_bytes(), whole.stream.size() - 1}) {
    size = 0;
    CHECK_THROWS_AS(encode_into(room), shape_error);
    CHECK(size == whole.stream.size());
    std::string const message = message_of([&] { encode_into(room); });
    CHECK_THAT(message, contains("does not fit into the space given"));
    CHECK_THAT(message, contains(std::to_string(whole.stream.size())));
  }
  CHECK(encode_into(whole.stream.size()) == bytes_of(whole.stream));
  std::string const message = message_of([&] { encode_into(spec.smallest_bytes() - 1); });
  CHECK(message == "compressed_weights.encode: the stream has " + std::to_string(spec.smallest_bytes() - 1) +
                       " bytes but needs at least " + std::to_string(spec.smallest_bytes()));
}

TEST_CASE("options out of range are named with what is in range", "[host]") {
  auto const message = [](std::int64_t count, weight_stream_options options) {
    return message_of([&] { static_cast<void>(neuzip_lossy<3>::spec(count, options)); });
  };
  CHECK(message(1, {.block = 1000}) ==
        "compressed_weights.spec: blocks have 1000 weights but must have a power of two from 1024 to 8192");
  CHECK_THAT(message(1, {.block = 16384}), contains("16384 weights"));
  CHECK_THAT(message(1, {.block = 512}), contains("512 weights"));
  CHECK(message(1, {.normalizer_block = 16}) ==
        "compressed_weights.spec: normalizers belong to 16 weights but must to a power of two from 32 to 1024");
  CHECK_THAT(message(1, {.normalizer_block = 100}), contains("100 weights"));
  CHECK_THAT(message(-1, {}), contains("compressed_weights.spec: the number of weights is -1"));
  CHECK_THAT(message(std::int64_t{1} << 40, {}), contains("must be at least 0 and at most 34359738368"));
  CHECK_THAT(message_of([] { static_cast<void>(neuzip::spec(1, {.normalizer_block = 64})); }),
             contains("normalizers of 64 weights make no sense where all mantissa bits are kept: 7"));
}

TEST_CASE("weights and streams without memory, and workspaces of other plans, are refused by name", "[host]") {
  cpu const exec{.threads = 1};
  auto const spec = neuzip::spec(20'000);
  std::vector<bfloat16> weights(20'000);
  buffer<std::byte> stream(neuzip::largest_bytes(spec));
  std::vector<std::int64_t> size(1);
  auto const plan = neuzip::plan_encode(exec, spec);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  array_view<bfloat16> const nothing(nullptr, 20'000);
  CHECK(message_of([&] { neuzip::encode(exec, spec, nothing, stream, size, space); }) ==
        "compressed_weights.encode: the weights have no memory but 20000 elements");
  CHECK_THAT(message_of([&] {
               neuzip::encode(exec, spec, weights, {nullptr, stream.size()}, size, space);
             }),
             contains("compressed_weights.encode: the bytes of the stream have no memory"));
  CHECK(message_of([&] {
          neuzip::encode(exec, spec, weights, stream, {nullptr, 1}, space);
        }) == "compressed_weights.encode: the sizes of streams have no memory but 1 elements");
  workspace_plan const empty("none");
  CHECK(message_of([&] { neuzip::encode(exec, spec, weights, stream, size, workspace(empty, memory)); }) ==
        "compressed_weights.encode: the workspace is of a plan of 0 bytes but 1 tensors need " +
            std::to_string(plan.bytes()));
  neuzip::encode(exec, spec, weights, stream, size, space);
  exec.wait();
  auto const decode_plan = neuzip::plan_decode(exec, spec);
  CHECK(message_of([&] { neuzip::decode(exec, spec, stream, nothing, workspace(decode_plan, memory)); }) ==
        "compressed_weights.decode: the weights have no memory but 20000 elements");
  CHECK(message_of([&] { neuzip::decode(exec, spec, stream, weights, workspace(empty, memory)); }) ==
        "compressed_weights.decode: the workspace is of a plan of 0 bytes but 1 streams need " +
            std::to_string(decode_plan.bytes()));
}

TEST_CASE("positions of all payloads fit their 32 bits for every number of weights that is accepted", "[host]") {
  std::int64_t most = 0;
  for (int bits = 20; bits < 62; ++bits) {
    std::int64_t const count = std::int64_t{1} << bits;
    if (message_of([&] { static_cast<void>(neuzip::spec(count)); }).empty()) {
      most = count;
    }
  }
  CHECK(most >= std::int64_t{1} << 35);
  for (weight_stream_spec const& spec :
       {neuzip::spec(most), neuzip_lossy<0>::spec(most), neuzip_of<float>::spec(most)}) {
    CHECK((spec.largest_bytes() - spec.payload_offset()) / weight_stream_spec::payload_alignment <= std::int64_t{1}
                                                                                                        << 32);
  }
}

TEST_CASE("weights and streams of the wrong size, stride, alignment or type are named with both values", "[host]") {
  bf16_array const weights(weight_kind::gauss, 2, 5000);
  encoded const whole = encode(weights);
  bf16_array decoded(5000);
  cpu const exec{.threads = 1};
  auto const decode = [&](array_view<std::byte const> stream, array_view<bfloat16> out) {
    return message_of([&] { neuzip::decode(exec, stream, out); });
  };
  CHECK(decode(whole.stream.view(), {decoded.data(), 4999}) ==
        "compressed_weights.decode: there are 4999 weights but the spec is for 5000");
  CHECK(decode(whole.stream.view(), {decoded.data(), {5000}, {2}}) ==
        "compressed_weights.decode: the weights have a stride of 2 but must have a stride of 1");
  CHECK(decode({whole.stream.data(), {whole.stream.size() / 2}, {2}}, decoded.view()) ==
        "compressed_weights.decode: the stream has a stride of 2 but must have a stride of 1");
  buffer<std::byte> shifted(whole.stream.size() + 8);
  std::memcpy(shifted.data() + 8, whole.stream.data(), whole.stream.bytes());
  CHECK(decode({shifted.data() + 8, whole.stream.size()}, decoded.view()) ==
        "compressed_weights.decode: the stream starts 8 bytes past a multiple of 16");

  weight_array<float16> halves(5000);
  CHECK(message_of([&] { neuzip_of<float16>::decode(exec, whole.stream.view(), halves.view()); }) ==
        "compressed_weights.decode: the stream holds elements of type 0 but the codec has type 1");
  CHECK(message_of([&] { neuzip_fixed<bfloat16>::decode(exec, whole.stream.view(), decoded.view()); }) ==
        "compressed_weights.decode: the stream has coder 1 but the codec has 2");
  CHECK(message_of([&] { neuzip_lossy<3>::decode(exec, whole.stream.view(), decoded.view()); }) ==
        "compressed_weights.decode: the stream keeps 7 mantissa bits but the codec 3");

  space_of const scratch(neuzip::plan_encode(exec, whole.spec));
  buffer<std::byte> room(neuzip::largest_bytes(whole.spec));
  std::int64_t size = 0;
  auto const encode_as = [&](array_view<bfloat16 const> from, array_view<std::int64_t> result) {
    return message_of([&] { neuzip::encode(exec, whole.spec, from, room, result, scratch.space); });
  };
  CHECK(encode_as(weights.part(0, 4000), {&size, 1}) ==
        "compressed_weights.encode: there are 4000 weights but the spec is for 5000");
  CHECK(encode_as(weights.view(), {&size, std::int64_t{0}}) ==
        "compressed_weights.encode: stream_bytes has 0 elements but must have 1");
  CHECK(encode_as({weights.data(), {5000}, {0}}, {&size, 1}) ==
        "compressed_weights.encode: the weights have a stride of 0 but must have a stride of 1");
}

TEST_CASE("blocks that do not exist and workspaces too small are named with both values", "[host]") {
  bf16_array const weights(weight_kind::gauss, 2, 5000);
  encoded const whole = encode(weights, {.block = 1024});
  cpu const exec{.threads = 1};
  workspace_plan const plan = neuzip::plan_decode(exec, whole.spec);
  space_of const scratch(plan);
  bf16_array decoded(5000);
  auto const decode_blocks = [&](std::int64_t first, std::int64_t blocks) {
    return message_of(
        [&] { neuzip::decode(exec, whole.spec, whole.stream.view(), first, blocks, decoded.view(), scratch.space); });
  };
  CHECK(decode_blocks(3, 3) == "compressed_weights.decode: blocks 3 and on, 3 of them, but there are 5");
  CHECK_THAT(decode_blocks(-1, 2), contains("blocks -1 and on"));
  CHECK_THAT(decode_blocks(6, 0), contains("blocks 6 and on, 0 of them, but there are 5"));
  CHECK_THAT(decode_blocks(0, 4), contains("there are 5000 weights but the spec is for 4096"));
  buffer<std::byte> small(plan.bytes() - 1);
  CHECK(message_of([&] { workspace(plan, small); }) == "compressed_weights.decode: the workspace has " +
                                                           std::to_string(plan.bytes() - 1) +
                                                           " bytes but the plan needs " + std::to_string(plan.bytes()));
}
