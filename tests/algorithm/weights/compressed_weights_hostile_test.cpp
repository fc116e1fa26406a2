// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Streams that no encoder wrote: decoding them gives weights or throws corrupt_data, and with checksums never other
// weights than the encoded ones.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tessera/neuzip.hpp>
#include <tessera/testing/broken_weight_streams.hpp>

#include "algorithm/weights/own_coders.hpp"
#include "algorithm/weights/weight_samples.hpp"
#include "support/catch.hpp"
#include "support/codecs.hpp"

using namespace tessera;
using tessera_test::contains;
using tessera_test::weight_array;
using tessera_test::weight_kind;

namespace {

using stream_bytes = std::vector<std::uint8_t>;

cpu const& executor() {
  static cpu const exec{.threads = 1};
  return exec;
}

template <class Codec>
stream_bytes encode(weight_kind kind, std::int64_t count, weight_stream_options options) {
  weight_array<typename Codec::value_type> const weights(kind, 8, count);
  auto const stream = Codec::encode(executor(), weights.view(), options);
  stream_bytes bytes(static_cast<std::size_t>(stream.size()));
  std::memcpy(bytes.data(), stream.data(), bytes.size());
  return bytes;
}

/// The weights of a stream; nothing if the stream is refused. Stream and output end where their allocations do.
template <class Codec>
std::optional<weight_array<typename Codec::value_type>> decode(stream_bytes const& bytes) {
  buffer<std::byte> stream(static_cast<std::int64_t>(bytes.size()));
  if (!bytes.empty()) {
    std::memcpy(stream.data(), bytes.data(), bytes.size());
  }
  try {
    weight_stream_spec const spec = inspect_weight_stream(stream.data(), stream.size());
    weight_array<typename Codec::value_type> weights(spec.count);
    Codec::decode(executor(), stream.view(), weights.view());
    return weights;
  } catch (corrupt_data const&) {
    return std::nullopt;
  } catch (value_error const&) {  // a stream of another type or codec
    return std::nullopt;
  }
}

/// Makes the checksums of header and codebook fit their bytes again.
void refit(stream_bytes& bytes, bool codebook_too) {
  weight_stream_header header;
  constexpr std::size_t codebook = sizeof(header);
  if (bytes.size() < codebook + weight_stream_spec::codebook_bytes) {
    return;
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (codebook_too) {
    header.content_checksum = crc32c(bytes.data() + codebook, weight_stream_spec::codebook_bytes);
  }
  header.header_checksum = checksum_of(header);
  std::memcpy(bytes.data(), &header, sizeof(header));
}

template <class Codec>
void check_every_byte(weight_kind kind, std::int64_t count, weight_stream_options options) {
  constexpr int changes_of_a_byte = TESSERA_LONG_TESTS ? 4 : 1;
  options.checksums = true;
  stream_bytes const sound = encode<Codec>(kind, count, options);
  auto const expected = decode<Codec>(sound);
  REQUIRE(expected.has_value());
  int silent = 0;
  int refused = 0;
  for (std::size_t position = 0; position < sound.size(); ++position) {
    unsigned const changes[] = {static_cast<unsigned>(testing::hash(5, position) | 2) & 0xffu, 1u, 0x80u, 0xffu};
    for (unsigned change : std::span(changes).first(changes_of_a_byte)) {
      stream_bytes broken = sound;
      broken[position] = static_cast<std::uint8_t>(broken[position] ^ change);
      auto const decoded = decode<Codec>(broken);
      refused += decoded.has_value() ? 0 : 1;
      silent += decoded.has_value() && !(*decoded == *expected) ? 1 : 0;
    }
  }
  CHECK(silent == 0);
  // All bytes but those of gaps between sections are checked.
  CHECK(refused > changes_of_a_byte * static_cast<int>(sound.size()) * 3 / 4);
}

template <class Codec>
void check_truncation(weight_kind kind, std::int64_t count, weight_stream_options options) {
  stream_bytes const sound = encode<Codec>(kind, count, options);
  int accepted = 0;
  for (std::size_t length = 0; length < sound.size(); ++length) {
    accepted += decode<Codec>({sound.begin(), sound.begin() + static_cast<std::ptrdiff_t>(length)}).has_value() ? 1 : 0;
  }
  CHECK(accepted == 0);
}

stream_bytes broken_with(stream_bytes const& sound, std::uint64_t seed) {
  auto const* const first = reinterpret_cast<std::byte const*>(sound.data());
  std::vector<std::byte> bytes(first, first + sound.size());
  testing::break_weight_stream(bytes, seed);
  auto const* const broken = reinterpret_cast<std::uint8_t const*>(bytes.data());
  return {broken, broken + bytes.size()};
}

template <class Codec>
void check_mutations(weight_kind kind, std::int64_t count, weight_stream_options options) {
  stream_bytes const sound = encode<Codec>(kind, count, options);
  int refused = 0;
  constexpr int mutations = TESSERA_LONG_TESTS ? 1500 : 300;
  for (int i = 0; i < mutations; ++i) {
    stream_bytes const broken = broken_with(sound, static_cast<std::uint64_t>(i));
    auto const fastest = decode<Codec>(broken);
    ::setenv("TESSERA_SIMD", "scalar", 1);
    auto const portable = decode<Codec>(broken);
    ::unsetenv("TESSERA_SIMD");
    REQUIRE(fastest == portable);
    refused += fastest.has_value() ? 0 : 1;
  }
  CHECK(refused > mutations / 3);
  CHECK(refused < mutations);
}

/// Weights in a stream whose coder makes a table of 256 symbols for each decode(), which sanitizers make slow.
constexpr std::int64_t weights_of_tables = TESSERA_LONG_TESTS ? 2100 : 1100;

template <class Codec>
void check_all(weight_kind kind, std::int64_t count, weight_stream_options options) {
  check_every_byte<Codec>(kind, count, options);
  check_truncation<Codec>(kind, count, options);
  check_mutations<Codec>(kind, count, options);
  options.checksums = true;
  check_mutations<Codec>(kind, count, options);
}

/// The number of flips of one bit in the payloads that changed the weights, and of those among them that were not
/// noticed.
struct flips {
  int changing = 0;
  int unnoticed = 0;
};
template <class Codec>
flips flip_payload_bits(bool checksums) {
  stream_bytes const sound = encode<Codec>(weight_kind::gauss, 16'384, {.checksums = checksums});
  auto const payload = static_cast<std::size_t>(Codec::spec(16'384, {.checksums = checksums}).payload_offset());
  auto const expected = decode<Codec>(sound);
  flips result;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    stream_bytes broken = sound;
    std::uint64_t const random = testing::hash(77, i);
    std::size_t const position = payload + static_cast<std::size_t>((random >> 8) % (sound.size() - payload));
    broken[position] = static_cast<std::uint8_t>(broken[position] ^ (1u << (random % 8)));
    auto const decoded = decode<Codec>(broken);
    if (!decoded.has_value() || !(*decoded == *expected)) {
      ++result.changing;
      result.unnoticed += decoded.has_value() ? 1 : 0;
    }
  }
  return result;
}

template <class Codec>
void check_flips() {
  flips const without = flip_payload_bits<Codec>(false);
  CHECK(without.changing > 2500);
  CHECK(without.unnoticed * 100 <= without.changing);
  flips const with = flip_payload_bits<Codec>(true);
  CHECK(with.changing > 2500);
  CHECK(with.unnoticed == 0);
}

/// The message with which a changed header is refused.
template <class Change>
std::string refusal_of(Change&& change) {
  stream_bytes bytes = encode<neuzip_lossy<3>>(weight_kind::gauss, 5000, {.block = 1024, .normalizer_block = 64});
  weight_stream_header header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  change(header);
  header.header_checksum = checksum_of(header);
  std::memcpy(bytes.data(), &header, sizeof(header));
  try {
    inspect_weight_stream(reinterpret_cast<std::byte const*>(bytes.data()), static_cast<std::int64_t>(bytes.size()));
  } catch (corrupt_data const& problem) {
    return problem.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("bf16 streams of the rANS coder, broken anywhere, are refused or decode safely", "[host]") {
  check_all<neuzip>(weight_kind::a_few_escapes, 2100, {.block = 1024});
}

TEST_CASE("fp32 streams of fixed codes, broken anywhere, are refused or decode safely", "[host]") {
  check_all<neuzip_fixed<float>>(weight_kind::a_few_escapes, 1100, {.block = 1024});
}

TEST_CASE("e5m2 streams with raw blocks, broken anywhere, are refused or decode safely", "[host]") {
  check_all<neuzip_of<float8_e5m2>>(weight_kind::mixture, 4200, {.block = 1024});
}

TEST_CASE("lossy streams with normalizers, broken anywhere, are refused or decode safely", "[host]") {
  check_all<neuzip_lossy<0>>(weight_kind::a_few_escapes, 2100, {.block = 1024, .normalizer_block = 32});
}

TEST_CASE("streams of whole exponents, broken anywhere, are refused or decode safely", "[host]") {
  using bf16_codec = compressed_weights<exponent_split<bfloat16>, tans_coder, keep_mantissa<7>>;
  using fp16_codec = compressed_weights<exponent_split<float16>, tans_coder, keep_mantissa<10>>;
  using lossy_codec = compressed_weights<exponent_split<bfloat16>, tans_coder, keep_mantissa<0>>;
  check_all<bf16_codec>(weight_kind::a_few_escapes, weights_of_tables, {.block = 1024});
  check_mutations<fp16_codec>(weight_kind::a_few_escapes, 2100, {.block = 1024});
  check_mutations<lossy_codec>(weight_kind::mixture, 4200, {.block = 1024, .normalizer_block = 32});
}

TEST_CASE("streams of a user's coder, broken anywhere, are refused or decode safely", "[host]") {
  check_all<compressed_weights<exponent_split<bfloat16>, tessera_test::six_bit_coder, keep_mantissa<7>>>(
      weight_kind::a_few_escapes, weights_of_tables, {.block = 1024});
}

TEST_CASE("stored streams, broken anywhere, are refused or decode safely", "[host]") {
  check_every_byte<neuzip>(weight_kind::random_bits, 300, {});
  check_truncation<neuzip>(weight_kind::random_bits, 300, {});
}

TEST_CASE("without checksums 99 of 100 flipped bits in states and words are noticed, with them all", "[host][long]") {
  check_flips<neuzip>();
  check_flips<compressed_weights<exponent_split<bfloat16>, tans_coder, keep_mantissa<7>>>();
}

TEST_CASE("a header that says what cannot be is refused with both values", "[host]") {
  using header_type = weight_stream_header;
  CHECK(refusal_of([](header_type&) {}) == "accepted");
  CHECK_THAT(refusal_of([](header_type& h) { h.magic = 7; }),
             contains("the stream starts with 7 but should with 1095914324"));
  CHECK_THAT(refusal_of([](header_type& h) { h.version = 2; }), contains("version 2 but this library reads version 1"));
  CHECK_THAT(refusal_of([](header_type& h) { h.type = 5; }), contains("the element type is 5 but must be below 5"));
  CHECK_THAT(refusal_of([](header_type& h) { h.coder = 4; }),
             contains("the coder is 4 but must be below 4, or a user's coder from 128 on"));
  CHECK_THAT(refusal_of([](header_type& h) { h.coder = 127; }), contains("the coder is 127 but must be below 4"));
  CHECK_THAT(refusal_of([](header_type& h) { h.coder = 3; }),
             contains("the header says 0 times 64 bytes of codebook but coder 3 has 8"));
  CHECK_THAT(refusal_of([](header_type& h) { h.coder = 200, h.codebook_units = 256; }),
             contains("the header says 256 times 64 bytes of codebook but there are at most 255"));
  CHECK_THAT(refusal_of([](header_type& h) { h.codebook_units = 8; }),
             contains("the header says 8 times 64 bytes of codebook but coder 1 has 0"));
  CHECK_THAT(refusal_of([](header_type& h) { h.flags = 2; }), contains("the flags are 2 but only these are known: 1"));
  CHECK_THAT(refusal_of([](header_type& h) { h.log2_block = 9; }), contains("blocks have 2^9 weights"));
  CHECK_THAT(refusal_of([](header_type& h) { h.log2_block = 200; }), contains("blocks have 2^200 weights"));
  CHECK_THAT(refusal_of([](header_type& h) { h.mantissa_kept = 2; }),
             contains("2 mantissa bits are kept but the format has 7"));
  CHECK_THAT(refusal_of([](header_type& h) { h.mantissa_kept = 255; }), contains("255 mantissa bits"));
  CHECK_THAT(refusal_of([](header_type& h) { h.type = 3, h.mantissa_kept = 7; }),
             contains("7 mantissa bits are kept but the format has 3"));
  CHECK_THAT(refusal_of([](header_type& h) { h.log2_normalizer_block = 4; }), contains("normalizers belong to 2^4"));
  CHECK_THAT(refusal_of([](header_type& h) { h.log2_normalizer_block = 63; }), contains("normalizers belong to 2^63"));
  CHECK_THAT(refusal_of([](header_type& h) { h.mantissa_kept = 7; }), contains("nothing is dropped"));
  CHECK_THAT(refusal_of([](header_type& h) { h.count = ~std::uint64_t{0}; }), contains("18446744073709551615 weights"));
  CHECK_THAT(refusal_of([](header_type& h) { h.count += 1024; }),
             contains("the header says 5 blocks but the weights make 6"));
  CHECK_THAT(refusal_of([](header_type& h) { h.block_count = 4; }),
             contains("the header says 4 blocks but the weights make 5"));
  CHECK_THAT(refusal_of([](header_type& h) { h.total_bytes += 1; }), contains("bytes but the stream has"));
  CHECK_THAT(refusal_of([](header_type& h) { h.total_bytes = 64; }),
             contains("the header says 64 bytes but its sections take"));
}

TEST_CASE("bytes that should be zero and windows that do not fit the type are refused", "[host]") {
  stream_bytes const sound = encode<neuzip_of<float8_e5m2>>(weight_kind::gauss, 5000, {});
  for (std::size_t position : {std::size_t{13}, std::size_t{15}, std::size_t{44}, std::size_t{59}}) {
    stream_bytes broken = sound;
    broken[position] = 1;
    refit(broken, false);
    CHECK_FALSE(decode<neuzip_of<float8_e5m2>>(broken).has_value());
  }
  for (std::size_t position : {std::size_t{11}, std::size_t{12}}) {
    stream_bytes broken = sound;
    broken[position] = 32;
    refit(broken, false);
    CHECK_FALSE(decode<neuzip_of<float8_e5m2>>(broken).has_value());
  }
}

TEST_CASE("frequencies that do not add up, or are one symbol's alone, are refused", "[host]") {
  stream_bytes const sound = encode<neuzip>(weight_kind::gauss, 5000, {});
  stream_bytes broken = sound;
  broken[64] = static_cast<std::uint8_t>(broken[64] + 1);
  refit(broken, true);
  CHECK_FALSE(decode<neuzip>(broken).has_value());
  broken = sound;
  std::fill(broken.begin() + 64, broken.begin() + 576, std::uint8_t{0});
  broken[65] = 16;  // 4096
  refit(broken, true);
  CHECK_FALSE(decode<neuzip>(broken).has_value());
}

namespace {

/// The outcome for a stream that contradicts its own rules, decoded with its layout known: the message, and whether
/// block `block` became zeros.
struct planned_outcome {
  std::string message;
  int zeros = 0;
};
template <class Codec>
planned_outcome decode_as_planned(stream_bytes const& bytes, std::int64_t count, weight_stream_options options,
                                  std::int64_t block) {
  using type = typename Codec::value_type;
  weight_stream_spec const spec = Codec::spec(count, options);
  buffer<std::byte> stream(static_cast<std::int64_t>(bytes.size()));
  std::memcpy(stream.data(), bytes.data(), bytes.size());
  weight_array<type> weights(count);
  weights.fill_with_rubbish();
  workspace_plan const plan = Codec::plan_decode(executor(), spec);
  buffer<std::byte> memory(plan.bytes());
  planned_outcome result;
  try {
    Codec::decode(executor(), spec, stream.view(), weights.view(), workspace(plan, memory));
    executor().wait();
  } catch (corrupt_data const& problem) {
    result.message = problem.what();
  }
  for (std::int64_t i = block * spec.block_weights(); i < min(count, (block + 1) * spec.block_weights()); ++i) {
    result.zeros += to_bits(weights[i]) == 0 ? 1 : 0;
  }
  return result;
}

/// The outcome for the same stream after changes to the escapes of its first block: change(list, count).
template <class Codec, class Change>
planned_outcome with_escapes(std::int64_t count, weight_stream_options options, Change&& change) {
  stream_bytes bytes = encode<Codec>(weight_kind::a_few_escapes, count, options);
  weight_stream_spec const spec = Codec::spec(count, options);
  weight_block_index entry;
  std::memcpy(&entry, bytes.data() + spec.index_offset(), sizeof(entry));
  REQUIRE(entry.words != weight_block_index::raw);
  REQUIRE(entry.escapes >= 2);
  std::vector<std::uint32_t> list(entry.escapes);
  std::uint8_t* const at = bytes.data() + spec.payload_offset() + spec.escapes_offset(spec.coded_in(0), entry.words);
  std::memcpy(list.data(), at, 4 * list.size());
  change(list);
  std::memcpy(at, list.data(), 4 * list.size());
  return decode_as_planned<Codec>(bytes, count, options, 0);
}

template <class Codec>
void check_escape_rules(std::int64_t count, weight_stream_options options) {
  using list_type = std::vector<std::uint32_t>;
  constexpr int zeros = 1024;
  CHECK(with_escapes<Codec>(count, options, [](list_type&) {}).message.empty());
  planned_outcome const swapped = with_escapes<Codec>(count, options, [](list_type& l) { std::swap(l[0], l[1]); });
  CHECK_THAT(swapped.message, contains("encoded bytes are corrupt"));
  CHECK(swapped.zeros == zeros);
  planned_outcome const twice = with_escapes<Codec>(
      count, options, [](list_type& l) { l[1] = (l[1] & ~std::uint32_t{0xffff}) | (l[0] & 0xffff); });
  CHECK_THAT(twice.message, contains("encoded bytes are corrupt"));
  CHECK(twice.zeros == zeros);
  planned_outcome const marked = with_escapes<Codec>(count, options, [](list_type& l) { l[0] |= 1u << 24; });
  CHECK_THAT(marked.message, contains("encoded bytes are corrupt"));
  CHECK(marked.zeros == zeros);
}

}  // namespace

TEST_CASE("escapes that do not ascend, come twice or are marked without need make a block zeros", "[host]") {
  check_escape_rules<neuzip>(2100, {.block = 1024});
  check_escape_rules<neuzip_of<float>>(1100, {.block = 1024});
  check_escape_rules<neuzip_fixed<bfloat16>>(2100, {.block = 1024});
  check_escape_rules<neuzip_lossy<3>>(2100, {.block = 1024});
}

TEST_CASE("a wrong checksum of header or codebook is what is reported, and all weights become zeros", "[host]") {
  stream_bytes const sound = encode<neuzip>(weight_kind::gauss, 5000, {.block = 1024});
  for (std::size_t position : {std::size_t{60}, std::size_t{40}}) {  // a byte of the header, a byte of the codebook
    stream_bytes broken = sound;
    broken[position] ^= 1;
    if (position == 40) {
      refit(broken, false);
    }
    for (std::int64_t block = 0; block < 5; ++block) {
      planned_outcome const found = decode_as_planned<neuzip>(broken, 5000, {.block = 1024}, block);
      CHECK_THAT(found.message, contains("the header contradicts itself"));
      CHECK(found.zeros == min(1024, 5000 - static_cast<int>(block) * 1024));
    }
  }
}
