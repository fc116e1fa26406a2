// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// fuzz target: the decoder of weight streams, all types and coders, on valid streams that were changed.
//
// Whatever the bytes are, decoding gives weights or throws; the portable steps, AVX2's and AVX-512's (where the machine
// has them) make the same weights and say the same of them, also where checksums were put right; and where blocks have
// checksums, a small change never gives other weights without an exception.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tessera/core/cpu_features.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/testing/generators.hpp>

#include "fuzz/edits.hpp"

namespace {

using namespace tessera_fuzz;
using tessera::bfloat16;
using tessera::float16;
using tessera::float8_e4m3;
using tessera::float8_e5m2;
using whole_exponents =
    tessera::compressed_weights<tessera::exponent_split<bfloat16>, tessera::tans_coder, tessera::keep_mantissa<7>>;

/// How a valid stream is made.
struct recipe {
  int codec = 0;
  tessera::weight_stream_options options;
  std::int64_t count = 0;
  int values = 0;

  explicit recipe(input& from) {
    constexpr std::int64_t counts[] = {0, 1, 31, 1024, 3000, 4096, 8192, 8193};
    codec = from.below(15);
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
tessera::weight_stream_options options_of(recipe const& how) {
  tessera::weight_stream_options options = how.options;
  if (Codec::is_lossless) {
    options.normalizer_block = 0;
  }
  return options;
}

template <class Codec>
bytes const& valid_stream(recipe const& how) {
  static std::map<std::vector<std::int64_t>, bytes> known;
  auto const found = known.find(how.key());
  if (found != known.end()) {
    return found->second;
  }
  auto const weights = make_weights<typename Codec::value_type>(how);
  auto const stream = Codec::encode(executor(), tessera::as_array(weights), options_of<Codec>(how));
  auto const* first = reinterpret_cast<std::uint8_t const*>(stream.data());
  return known[how.key()] = bytes(first, first + stream.size());
}

/// What became of a stream: the bits of the weights, and what was said. Without bits: it was refused at first sight.
struct outcome {
  std::optional<bytes> weights;
  std::string message;
  friend bool operator==(outcome const&, outcome const&) = default;
};

/// `read` gives the weights of a copy that is exactly as large as the stream, so that a read past its end is found.
template <class Read>
outcome outcome_of(bytes const& stream, Read&& read) {
  tessera::buffer<std::byte> copy(static_cast<std::int64_t>(stream.size()));
  if (!stream.empty()) {
    std::memcpy(copy.data(), stream.data(), stream.size());
  }
  outcome result;
  try {
    read(copy, result);
  } catch (tessera::corrupt_data const& problem) {
    result.message = problem.what();
  } catch (tessera::value_error const& problem) {
    result.message = problem.what();
  } catch (tessera::shape_error const& problem) {
    result.message = problem.what();
  }
  return result;
}
template <class T>
bytes bits_of(tessera::buffer<T> const& weights) {
  auto const* first = reinterpret_cast<std::uint8_t const*>(weights.data());
  return bytes(first, first + weights.bytes());
}

/// By one who knows no more than what the stream says.
template <class Codec>
outcome decode(bytes const& stream) {
  return outcome_of(stream, [](tessera::buffer<std::byte> const& copy, outcome& result) {
    auto const found = tessera::inspect_weight_stream(copy.data(), copy.size());
    tessera::buffer<typename Codec::value_type> weights(found.spec().count);
    Codec::decode(executor(), copy.view(), weights.view());
    result.weights = bits_of(weights);
  });
}

/// By one who knows the layout that was encoded. What is not sound reads as zeros.
template <class Codec>
outcome decode_as_encoded(bytes const& stream, recipe const& how) {
  return outcome_of(stream, [&](tessera::buffer<std::byte> const& copy, outcome& result) {
    auto const spec = Codec::spec(how.count, options_of<Codec>(how));
    tessera::buffer<typename Codec::value_type> weights(spec.count);
    auto const plan = Codec::plan_decode(executor(), spec);
    tessera::buffer<std::byte> memory(plan.bytes());
    Codec::decode(executor(), spec, copy.view(), weights.view(), tessera::workspace(plan, memory));
    try {
      executor().wait();
    } catch (tessera::corrupt_data const& problem) {
      result.message = problem.what();
    }
    result.weights = bits_of(weights);
  });
}

/// Lets changes get past the checksums: of the header alone, of the codebook or a stored tensor as well, of blocks.
enum class refit_of { none, header, contents, blocks };
void refit(bytes& stream, tessera::weight_stream_spec const& spec, refit_of what) {
  tessera::weight_stream_header header;
  if (stream.size() < sizeof(header) || what == refit_of::none) {
    return;
  }
  std::memcpy(&header, stream.data(), sizeof(header));
  bool const is_stored = spec.coder == tessera::weight_coder::stored;
  std::size_t const contents =
      is_stored ? stream.size() - sizeof(header) : std::size_t{tessera::weight_stream_spec::codebook_bytes};
  if (what >= refit_of::contents && stream.size() >= sizeof(header) + contents) {
    header.content_checksum = tessera::crc32c(stream.data() + sizeof(header), contents);
  }
  header.header_checksum = tessera::checksum_of(header);
  std::memcpy(stream.data(), &header, sizeof(header));
  if (what == refit_of::blocks && spec.block_checksums &&
      static_cast<std::int64_t>(stream.size()) >= spec.smallest_bytes()) {
    tessera::weight_encoding<bfloat16> finished;  // of any type: where parts lie is in the spec
    finished.spec = spec;
    finished.stream = stream.data();
    finished.capacity = static_cast<std::int64_t>(stream.size());
    executor().run(tessera::checksum_blocks<bfloat16>{finished}, spec.block_count());
  }
}

template <class Codec>
void run(recipe const& how, input& from) {
  bytes const& valid = valid_stream<Codec>(how);
  auto const spec = Codec::spec(how.count, options_of<Codec>(how));
  bytes changed = valid;
  auto const refits = static_cast<refit_of>(from.below(4));
  edit_summary const summary = apply_edits(from, changed);
  refit(changed, spec, refits);
  ::unsetenv("TESSERA_SIMD");
  outcome const fastest = decode<Codec>(changed);
  outcome const fastest_as_encoded = decode_as_encoded<Codec>(changed, how);
  for (char const* level : {"scalar", "avx2"}) {
    ::setenv("TESSERA_SIMD", level, 1);
    must(decode<Codec>(changed) == fastest);
    must(decode_as_encoded<Codec>(changed, how) == fastest_as_encoded);
  }
  if (summary.edits == 0) {
    must(fastest.weights.has_value());
    must(fastest == fastest_as_encoded);
  }
  bool const is_guarded = how.options.checksums || spec.coder == tessera::weight_coder::stored;
  if (is_guarded && refits == refit_of::none && summary.edits == 1 && summary.all_small && fastest.weights) {
    must(fastest == decode<Codec>(valid));
  }
}

}  // namespace

/// Says which steps are compared on this machine.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  ::unsetenv("TESSERA_SIMD");
  tessera::simd_level const best = tessera::supported_simd_level();
  std::fprintf(stderr, "weight_stream: compares scalar%s\n",
               best == tessera::simd_level::avx512 ? ", avx2 and avx512"
               : best == tessera::simd_level::avx2
                   ? " and avx2; the machine has no avx512, which is not tried"
                   : " alone; the machine has no avx2 and no avx512, which are not tried");
  return 0;
}

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
    case 13:
      run<tessera::neuzip_lossy<7, float>>(how, from);
      break;
    default:
      run<whole_exponents>(how, from);
      break;
  }
  return 0;
}
