// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// fuzz target: the decoder of weight streams, all types and coders, on valid streams that were changed.
//
// Whatever the bytes are, decoding gives weights or throws; the portable steps and the fastest ones do the same; and
// where blocks have checksums, a small change never gives other weights without an exception.
#include <cstdlib>
#include <map>
#include <optional>
#include <vector>

#include <tessera/neuzip.hpp>
#include <tessera/testing/generators.hpp>

#include "fuzz/edits.hpp"

namespace {

using namespace tessera_fuzz;
using tessera::bfloat16;
using tessera::float16;
using tessera::float8_e4m3;
using tessera::float8_e5m2;

/// How a valid stream is made.
struct recipe {
  int codec = 0;
  tessera::weight_stream_options options;
  std::int64_t count = 0;
  int values = 0;

  explicit recipe(input& from) {
    constexpr std::int64_t counts[] = {0, 1, 31, 1024, 3000, 4096, 8192, 8193};
    codec = from.below(14);
    options.block = 1024 << from.below(4);
    options.checksums = from.below(2) == 1;
    options.normalizer_block = 16 << from.below(7);
    count = counts[from.below(8)];
    values = from.below(4);
    if (options.normalizer_block == 16) {
      options.normalizer_block = 0;
    }
  }
  [[nodiscard]] auto key() const {
    return std::vector<std::int64_t>{codec, options.block, options.checksums, options.normalizer_block, count, values};
  }
};

template <class T>
std::vector<T> make_weights(recipe const& how) {
  using bits_type = typename tessera::scalar_traits<T>::bits_type;
  std::vector<T> weights(static_cast<std::size_t>(how.count));
  for (std::int64_t i = 0; i < how.count; ++i) {
    std::uint64_t const any = tessera::testing::hash(7, static_cast<std::uint64_t>(i));
    bool const is_any_pattern = how.values == 1 || (how.values == 2 && i % 50 == 0);
    T& weight = weights[static_cast<std::size_t>(i)];
    weight = is_any_pattern    ? tessera::from_bits<T>(static_cast<bits_type>(any))
             : how.values == 3 ? tessera::from_bits<T>(0)
                               : tessera::testing::sample<T>(tessera::testing::gauss{.sigma = 0.02}, 1,
                                                             static_cast<std::uint64_t>(i));
  }
  return weights;
}

tessera::cpu const& executor() {
  static tessera::cpu const exec{.threads = 1};
  return exec;
}

using bytes = std::vector<std::uint8_t>;

template <class Codec>
bytes const& valid_stream(recipe const& how) {
  static std::map<std::vector<std::int64_t>, bytes> known;
  auto const found = known.find(how.key());
  if (found != known.end()) {
    return found->second;
  }
  tessera::weight_stream_options options = how.options;
  if (Codec::is_lossless) {
    options.normalizer_block = 0;
  }
  auto const weights = make_weights<typename Codec::value_type>(how);
  auto const stream = Codec::encode(executor(), tessera::as_array(weights), options);
  auto const* first = reinterpret_cast<std::uint8_t const*>(stream.data());
  return known[how.key()] = bytes(first, first + stream.size());
}

/// The bits of the weights, or nothing after one of the exceptions that may come.
template <class Codec>
std::optional<bytes> decode(bytes const& stream) {
  using value_type = typename Codec::value_type;
  try {
    // Exactly as large as the stream, so that a read past its end is found.
    tessera::buffer<std::byte> copy(static_cast<std::int64_t>(stream.size()));
    if (!stream.empty()) {
      std::memcpy(copy.data(), stream.data(), stream.size());
    }
    auto const spec = tessera::inspect_weight_stream(copy.data(), copy.size()).spec();
    tessera::buffer<value_type> weights(spec.count);
    Codec::decode(executor(), copy.view(), weights.view());
    auto const* first = reinterpret_cast<std::uint8_t const*>(weights.data());
    return bytes(first, first + weights.bytes());
  } catch (tessera::corrupt_data const&) {
  } catch (tessera::value_error const&) {
  }
  return std::nullopt;
}

/// Lets changes get past the checksums of header and codebook.
void refit(bytes& stream, bool also_codebook) {
  tessera::weight_stream_header header;
  if (stream.size() < sizeof(header)) {
    return;
  }
  std::memcpy(&header, stream.data(), sizeof(header));
  constexpr std::size_t codebook_end = sizeof(header) + tessera::weight_stream_spec::codebook_bytes;
  if (also_codebook && stream.size() >= codebook_end) {
    header.content_checksum =
        tessera::crc32c(stream.data() + sizeof(header), tessera::weight_stream_spec::codebook_bytes);
  }
  header.header_checksum = tessera::checksum_of(header);
  std::memcpy(stream.data(), &header, sizeof(header));
}

template <class Codec>
void run(recipe const& how, input& from) {
  bytes const& valid = valid_stream<Codec>(how);
  bytes changed = valid;
  int const refits = from.below(3);
  edit_summary const summary = apply_edits(from, changed);
  if (refits > 0) {
    refit(changed, refits == 2);
  }
  ::unsetenv("TESSERA_SIMD");
  std::optional<bytes> const fastest = decode<Codec>(changed);
  ::setenv("TESSERA_SIMD", "scalar", 1);
  must(decode<Codec>(changed) == fastest);
  if (summary.edits == 0 && refits == 0) {
    must(fastest.has_value());
  }
  bool const is_guarded =
      how.options.checksums || tessera::inspect_weight_stream(reinterpret_cast<std::byte const*>(valid.data()),
                                                              static_cast<std::int64_t>(valid.size()))
                                       .spec()
                                       .coder == tessera::weight_coder::stored;
  if (is_guarded && refits == 0 && summary.edits == 1 && summary.all_small && fastest) {
    must(fastest == decode<Codec>(valid));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  input from(data, size);
  recipe const how(from);
  switch (how.codec) {
    case 0:
      run<tessera::neuzip_of<bfloat16>>(how, from);
      break;
    case 1:
      run<tessera::neuzip_of<float16>>(how, from);
      break;
    case 2:
      run<tessera::neuzip_of<float>>(how, from);
      break;
    case 3:
      run<tessera::neuzip_of<float8_e4m3>>(how, from);
      break;
    case 4:
      run<tessera::neuzip_of<float8_e5m2>>(how, from);
      break;
    case 5:
      run<tessera::neuzip_fixed<bfloat16>>(how, from);
      break;
    case 6:
      run<tessera::neuzip_fixed<float16>>(how, from);
      break;
    case 7:
      run<tessera::neuzip_fixed<float>>(how, from);
      break;
    case 8:
      run<tessera::neuzip_fixed<float8_e4m3>>(how, from);
      break;
    case 9:
      run<tessera::neuzip_fixed<float8_e5m2>>(how, from);
      break;
    case 10:
      run<tessera::neuzip_lossy<0, bfloat16>>(how, from);
      break;
    case 11:
      run<tessera::neuzip_lossy<1, float16>>(how, from);
      break;
    case 12:
      run<tessera::neuzip_lossy<3, float>>(how, from);
      break;
    default:
      run<tessera::neuzip_lossy<7, float>>(how, from);
      break;
  }
  return 0;
}
