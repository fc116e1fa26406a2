// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/quantize/keep_mantissa.hpp>
#include <tessera/testing/generators.hpp>

#include "quantize/kept_reference.hpp"
#include "support/catch.hpp"

using namespace tessera;
using tessera_test::format;

namespace {

constexpr mantissa_rounding roundings[] = {mantissa_rounding::half_away, mantissa_rounding::half_even,
                                           mantissa_rounding::toward_zero, mantissa_rounding::stochastic};

/// All patterns of 16 bits; of fp32 the ends of each exponent, the neighbourhood of ties, and others.
template <class T>
std::vector<std::uint32_t> patterns() {
  std::vector<std::uint32_t> all;
  if constexpr (sizeof(T) == 2) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      all.push_back(bits);
    }
  } else {
    for (std::uint32_t high = 0; high < 65536; high += 32) {  // sign, exponent, and two bits of mantissa
      for (std::uint32_t low :
           {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu, 0x7ffffu, 0x80000u, 0x80001u, 0x100000u, 0x1fffffu}) {
        all.push_back((high << 16) + low);
      }
    }
    for (std::uint64_t i = 0; i < 30'000; ++i) {
      all.push_back(testing::uniform_bits{}.value(11, i));
    }
  }
  return all;
}

/// What is wrong with what was kept of a finite value, or nothing.
template <class T, int K, mantissa_rounding Rounding>
std::string flaw_of_finite(std::uint32_t bits, std::uint32_t normalizer, std::uint32_t random) {
  using keep = keep_mantissa<K, Rounding>;
  using f = format<T>;
  kept_value const kept = normalizer == 0 ? keep::template quantize<T>(bits, random)
                                          : keep::template quantize_normalized<T>(bits, normalizer, random);
  if (kept.lost_nan || (kept.residual >> (K + 1)) != 0 ||
      kept.exponent >= static_cast<std::uint32_t>(f::largest_exponent)) {
    return "not finite";
  }
  std::uint32_t const back = keep::template restore<T>(kept);
  long double const expected = tessera_test::kept_magnitude<T, K, Rounding>(bits, normalizer, random);
  if (std::fabs(f::value_of(back)) != expected || f::is_negative(back) != f::is_negative(bits)) {
    return "rounded wrongly";
  }
  if (keep::template quantize_normalized<T>(back, 0, 0xffffffffu).exponent != kept.exponent ||
      keep::template restore<T>(keep::template quantize<T>(back, 0xffffffffu)) != back) {
    return "what was kept changes when it is kept once more";
  }
  if (normalizer > 0) {
    long double const product = expected * (256 + normalizer) / 256;
    std::uint32_t const sign = f::is_negative(bits) ? 1u << (scalar_traits<T>::bits - 1) : 0;
    if (keep::template restore_normalized<T>(kept, normalizer) != (sign | tessera_test::nearest_bits<T>(product))) {
      return "multiplied wrongly";
    }
  } else if (keep::template restore_normalized<T>(kept, 0) != back) {
    return "a factor of one changes something";
  }
  return "";
}

template <class T, int K, mantissa_rounding Rounding>
std::string flaw_of_special(std::uint32_t bits, std::uint32_t normalizer) {
  using keep = keep_mantissa<K, Rounding>;
  using f = format<T>;
  kept_value const kept =
      normalizer == 0 ? keep::template quantize<T>(bits) : keep::template quantize_normalized<T>(bits, normalizer);
  std::uint32_t const back = keep::template restore_normalized<T>(kept, normalizer);
  if (f::is_negative(back) != f::is_negative(bits)) {
    return "the sign changes";
  }
  if (!f::is_nan(bits)) {
    return back == bits && !kept.lost_nan ? "" : "an infinity changes";
  }
  if (!f::is_nan(back) || (back >> (f::mantissa_bits - 1) & 1u) == 0) {
    return "a NaN is none any more, or a signalling one";
  }
  return kept.lost_nan == (K == 0) ? "" : "a NaN is lost where there are bits for it";
}

template <class T, int K, mantissa_rounding Rounding>
void check_rounding(std::vector<std::uint32_t> const& all) {
  INFO(scalar_traits<T>::name() << " keeps " << K << " bits, rounding " << static_cast<int>(Rounding));
  for (std::uint32_t bits : all) {
    auto const random = static_cast<std::uint32_t>(testing::hash(K, bits));
    std::uint32_t const normalizer = random % 3 == 0 ? 0 : random % 3 == 1 ? (random >> 8) % 256 : bits % 256;
    std::string const flaw = format<T>::is_special(bits) ? flaw_of_special<T, K, Rounding>(bits, normalizer)
                                                         : flaw_of_finite<T, K, Rounding>(bits, normalizer, random);
    if (!flaw.empty()) {
      FAIL_CHECK("0x" << std::hex << bits << std::dec << ", normalizer " << normalizer << ": " << flaw);
      return;
    }
  }
}

template <class T, int K>
void check_all_roundings() {
  std::vector<std::uint32_t> const all = patterns<T>();
  check_rounding<T, K, roundings[0]>(all);
  check_rounding<T, K, roundings[1]>(all);
  check_rounding<T, K, roundings[2]>(all);
  check_rounding<T, K, roundings[3]>(all);
  SUCCEED("all patterns");
}

/// The largest relative error over normal numbers, without and with a normalizer of their own.
template <class T, int K, mantissa_rounding Rounding>
double largest_error(bool normalized) {
  using keep = keep_mantissa<K, Rounding>;
  std::uint64_t const count = tessera_test::environment_asks_for("TESSERA_THOROUGH") ? 4'000'000 : 100'000;
  double largest = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint32_t const bits = to_bits(testing::sample<T>(testing::gauss{}, K, i));
    if (format<T>::exponent_of(bits) <= 1) {
      continue;  // subnormal, or may be after the division
    }
    auto const random = static_cast<std::uint32_t>(testing::hash(5, i));
    std::uint32_t const normalizer = normalized ? random >> 24 : 0;
    kept_value const kept = normalized ? keep::template quantize_normalized<T>(bits, normalizer, random * 77)
                                       : keep::template quantize<T>(bits, random * 77);
    auto const before = static_cast<double>(format<T>::value_of(bits));
    auto const after = static_cast<double>(format<T>::value_of(keep::template restore_normalized<T>(kept, normalizer)));
    largest = std::fmax(largest, std::fabs(after - before) / std::fabs(before));
  }
  return largest;
}

template <class T, int K>
void check_bounds() {
  INFO(scalar_traits<T>::name() << " keeps " << K << " bits");
  double const half = 1 / (std::exp2(K + 1) + 1);
  double const last_rounding = std::exp2(-scalar_traits<T>::mantissa_bits - 1);
  double const nearest = largest_error<T, K, mantissa_rounding::half_away>(false);
  CHECK(nearest <= half);
  CHECK(nearest > 0.9 * half);  // the bound is the bound, not far above
  CHECK(largest_error<T, K, mantissa_rounding::half_even>(false) <= half);
  CHECK(largest_error<T, K, mantissa_rounding::toward_zero>(false) < std::exp2(-K));
  CHECK(largest_error<T, K, mantissa_rounding::stochastic>(false) < std::exp2(-K));
  CHECK(largest_error<T, K, mantissa_rounding::half_away>(true) <= half + (1 + half) * last_rounding);
}

template <class T, int K>
double mean_of_stochastic(std::uint32_t bits, std::uint32_t normalizer, int count) {
  using keep = keep_mantissa<K, mantissa_rounding::stochastic>;
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    auto const random = static_cast<std::uint32_t>(testing::hash(bits, static_cast<std::uint64_t>(i)));
    kept_value const kept = normalizer == 0 ? keep::template quantize<T>(bits, random)
                                            : keep::template quantize_normalized<T>(bits, normalizer, random);
    sum += static_cast<double>(format<T>::value_of(keep::template restore<T>(kept)));
  }
  return sum / count;
}

}  // namespace

TEST_CASE("bf16 values are kept as exact arithmetic says, all patterns, under every rounding", "[host]") {
  check_all_roundings<bfloat16, 0>();
  check_all_roundings<bfloat16, 1>();
  check_all_roundings<bfloat16, 3>();
}

TEST_CASE("fp16 values are kept as exact arithmetic says, all patterns, under every rounding", "[host][slow]") {
  check_all_roundings<float16, 0>();
  check_all_roundings<float16, 1>();
  check_all_roundings<float16, 3>();
  check_all_roundings<float16, 7>();
}

TEST_CASE("fp32 values are kept as exact arithmetic says under every rounding", "[host][slow]") {
  check_all_roundings<float, 0>();
  check_all_roundings<float, 1>();
  check_all_roundings<float, 3>();
  check_all_roundings<float, 7>();
}

TEST_CASE("errors of random normals stay within the documented bounds, and come near to them", "[host][slow]") {
  check_bounds<bfloat16, 0>();
  check_bounds<bfloat16, 1>();
  check_bounds<bfloat16, 3>();
  check_bounds<float16, 0>();
  check_bounds<float16, 1>();
  check_bounds<float16, 3>();
  check_bounds<float16, 7>();
  check_bounds<float, 0>();
  check_bounds<float, 1>();
  check_bounds<float, 3>();
  check_bounds<float, 7>();
}

namespace {

/// The largest errors of all positive numbers of a format of 16 bits, with every 15th normalizer (0 and 255 among
/// them).
struct range_errors {
  double usual = 0;      ///< relative, from twice the smallest normal number up to the largest that can be kept
  double large = 0;      ///< relative, above that
  double small = 0;      ///< of normal numbers below twice the smallest, in terms of the smallest
  double subnormal = 0;  ///< in terms of the smallest normal number
};
template <class T, int K>
range_errors errors_of_range(int first_normalizer, int last_normalizer) {
  using keep = keep_mantissa<K>;
  constexpr std::uint32_t mantissa_bits = scalar_traits<T>::mantissa_bits;
  constexpr std::uint32_t infinite = exponent_split<T>::largest_exponent << mantissa_bits;
  constexpr std::uint32_t largest_kept = infinite - (1U << (mantissa_bits - K));
  auto const smallest_normal = static_cast<double>(format<T>::value_of(1U << mantissa_bits));
  range_errors found;
  for (int n = first_normalizer; n <= last_normalizer; n += 15) {
    auto const normalizer = static_cast<std::uint32_t>(n);
    for (std::uint32_t bits = 1; bits < infinite; ++bits) {
      kept_value const kept =
          n == 0 ? keep::template quantize<T>(bits) : keep::template quantize_normalized<T>(bits, normalizer);
      auto const before = static_cast<double>(format<T>::value_of(bits));
      auto const after =
          static_cast<double>(format<T>::value_of(keep::template restore_normalized<T>(kept, normalizer)));
      double const moved = std::fabs(after - before);
      double& kind = before < smallest_normal       ? found.subnormal
                     : before < 2 * smallest_normal ? found.small
                     : bits > largest_kept          ? found.large
                                                    : found.usual;
      kind = std::fmax(kind, moved / (before < 2 * smallest_normal ? smallest_normal : before));
    }
  }
  return found;
}

template <class T, int K>
void check_range() {
  INFO(scalar_traits<T>::name() << " keeps " << K << " bits");
  double const half = 1 / (std::exp2(K + 1) + 1);
  double const last_rounding = (1 + half) * std::exp2(-scalar_traits<T>::mantissa_bits - 1);
  double const step = std::exp2(-K);  // of numbers near the smallest normal one, in terms of it
  range_errors const plain = errors_of_range<T, K>(0, 0);
  CHECK(plain.usual <= half);
  CHECK(plain.large < step / 2);
  CHECK(plain.small <= step / 2);
  CHECK(plain.subnormal <= step / 2);
  range_errors const normalized = errors_of_range<T, K>(15, 255);
  CHECK(normalized.usual <= half + last_rounding);
  CHECK(normalized.large <= step / 2 + last_rounding);
  CHECK(normalized.small <= step);
  CHECK(normalized.small > 0.9 * step);  // twice what it is without
  CHECK(normalized.subnormal <= step);
}

}  // namespace

TEST_CASE("errors near both ends of the range are what is documented of them", "[host][slow]") {
  check_range<bfloat16, 0>();
  check_range<bfloat16, 1>();
  check_range<bfloat16, 3>();
  check_range<float16, 0>();
  check_range<float16, 1>();
  check_range<float16, 3>();
  check_range<float16, 7>();
}

TEST_CASE("keeping all bits keeps every pattern, NaN payloads included", "[host]") {
  int changed = 0;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    changed += keep_mantissa<7>::restore<bfloat16>(keep_mantissa<7>::quantize<bfloat16>(bits)) == bits ? 0 : 1;
    changed += keep_mantissa<10>::restore<float16>(keep_mantissa<10>::quantize<float16>(bits)) == bits ? 0 : 1;
  }
  for (std::uint32_t bits = 0; bits < 256; ++bits) {
    changed += keep_mantissa<3>::restore<float8_e4m3>(keep_mantissa<3>::quantize<float8_e4m3>(bits)) == bits ? 0 : 1;
    changed += keep_mantissa<2>::restore<float8_e5m2>(keep_mantissa<2>::quantize<float8_e5m2>(bits)) == bits ? 0 : 1;
  }
  for (std::uint32_t bits : patterns<float>()) {
    changed += keep_mantissa<23>::restore<float>(keep_mantissa<23>::quantize<float>(bits)) == bits ? 0 : 1;
  }
  CHECK(changed == 0);
}

TEST_CASE("a carry runs into the exponent, and the largest values stay finite", "[host]") {
  // 1.9921875 to 2; the largest bf16 would round to infinity and stays 1.5 * 2^127 for one bit, 2^127 for none.
  CHECK(keep_mantissa<1>::restore<bfloat16>(keep_mantissa<1>::quantize<bfloat16>(0x3fff)) == 0x4000);
  CHECK(keep_mantissa<1>::restore<bfloat16>(keep_mantissa<1>::quantize<bfloat16>(0x7f7f)) == 0x7f40);
  CHECK(keep_mantissa<0>::restore<bfloat16>(keep_mantissa<0>::quantize<bfloat16>(0xff7f)) == 0xff00);
  CHECK(keep_mantissa<3>::restore<float16>(keep_mantissa<3>::quantize<float16>(0x7bff)) == 0x7b80);
  // Subnormals: the largest becomes the smallest normal number, the smallest zero with its sign.
  CHECK(keep_mantissa<1>::restore<bfloat16>(keep_mantissa<1>::quantize<bfloat16>(0x007f)) == 0x0080);
  CHECK(keep_mantissa<1>::restore<bfloat16>(keep_mantissa<1>::quantize<bfloat16>(0x8001)) == 0x8000);
}

TEST_CASE("ties go away from zero or to the even neighbour, as the rounding says", "[host]") {
  // 1.25 and 1.75 with one bit: between 1 and 1.5, 1.5 and 2.
  using away = keep_mantissa<1, mantissa_rounding::half_away>;
  using even = keep_mantissa<1, mantissa_rounding::half_even>;
  CHECK(away::restore<bfloat16>(away::quantize<bfloat16>(0x3fa0)) == 0x3fc0);
  CHECK(even::restore<bfloat16>(even::quantize<bfloat16>(0x3fa0)) == 0x3f80);
  CHECK(away::restore<bfloat16>(away::quantize<bfloat16>(0xbfe0)) == 0xc000);
  CHECK(even::restore<bfloat16>(even::quantize<bfloat16>(0xbfe0)) == 0xc000);
}

TEST_CASE("stochastic rounding is right on average, divided or not", "[host]") {
  constexpr int count = 40'000;
  for (std::uint32_t bits : {0x3f93u, 0xbfc1u, 0x3fffu, 0x4035u}) {
    auto const value = static_cast<double>(format<bfloat16>::value_of(bits));
    double const step = std::exp2(std::floor(std::log2(std::fabs(value))) - 1);
    double const five_deviations = 5 * step / 2 / std::sqrt(count);
    CHECK(std::fabs(mean_of_stochastic<bfloat16, 1>(bits, 0, count) - value) < five_deviations);
    double const divided = value / (1 + 77.0 / 256);
    CHECK(std::fabs(mean_of_stochastic<bfloat16, 1>(bits, 77, count) - divided) < five_deviations);
  }
}

namespace {

/// How often rounding the exact product of a kept value and its factor once is not what restoring gives, for exponents
/// so low that no product is infinite. The product has K + 9 bits, which double holds, and fp32 as well for types of 16
/// bits.
template <class T, int K>
std::int64_t wrong_products() {
  std::int64_t wrong = 0;
  for (std::uint32_t exponent = 0; exponent + 3 <= exponent_split<T>::largest_exponent; ++exponent) {
    for (std::uint32_t residual = 0; residual < (2U << K); ++residual) {
      kept_value const kept{exponent, residual, false};
      using bits_type = typename scalar_traits<T>::bits_type;
      T const value = from_bits<T>(static_cast<bits_type>(keep_mantissa<K>::template restore<T>(kept)));
      for (std::uint32_t normalizer = 0; normalizer < 256; ++normalizer) {
        double const product = static_cast<double>(load(value)) * (1.0 + normalizer / 256.0);
        T const rounded = store<T>(static_cast<float>(product));
        wrong += to_bits(rounded) != keep_mantissa<K>::template restore_normalized<T>(kept, normalizer) ? 1 : 0;
      }
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("a normalized value is restored as one multiplication rounds it, which CUDA's decoder relies on", "[host]") {
  CHECK(wrong_products<bfloat16, 0>() == 0);
  CHECK(wrong_products<bfloat16, 1>() == 0);
  CHECK(wrong_products<bfloat16, 3>() == 0);
  CHECK(wrong_products<float16, 3>() == 0);
  CHECK(wrong_products<float16, 7>() == 0);
  CHECK(wrong_products<float, 3>() == 0);
}
