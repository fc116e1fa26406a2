// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Named random data: the element at an index depends on a seed and that index alone, on the host and on the device.
///
///     tessera::testing::gauss const weights{.sigma = 0.02};
///     float const w = weights.value(seed, 12345);            // in any order, from any number of threads
///     auto const stored = tessera::testing::sample<tessera::bfloat16>(weights, seed, 12345);
///
/// The arithmetic is in double and uses +, -, * and / only. A device compiler may contract a product and a sum into
/// one operation, so that a value may be rounded to the neighbouring float there, less than once in 10^6 values; `hash`
/// and `uniform_bits` are identical everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/mix_bits.hpp>
#include <tessera/core/precision.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

/// The counter-based generator under all others: the splitmix64 sequence started at `seed`, at position `index`.
TESSERA_FN constexpr std::uint64_t hash(std::uint64_t seed, std::uint64_t index) {
  return mix_bits(seed, index);
}

namespace detail {

constexpr double ln2 = 0.693147180559945309417232121458;
constexpr double half_pi = 1.57079632679489661923132169164;

/// A uniform number: the middle of one of 2^53 equal cells of (0, 1), so that neither end occurs.
TESSERA_FN constexpr double unit(std::uint64_t word) {
  return (static_cast<double>(word >> 11) + 0.5) * (1.0 / 9007199254740992.0);
}

/// The natural logarithm of a positive normal number: the series of the area tangent on [1/sqrt 2, sqrt 2). Series are
/// written out, so that their factors are constants and no divisions, also where nothing is optimised.
TESSERA_FN constexpr double logarithm(double x) {
  int exponent = 0;
  for (; x >= 1.4142135623730951; ++exponent) {
    x *= 0.5;
  }
  for (; x < 0.7071067811865476; --exponent) {
    x *= 2.0;
  }
  double const z = (x - 1.0) / (x + 1.0);
  double const square = z * z;
  double sum = 1.0 / 23;
  sum = sum * square + 1.0 / 21;
  sum = sum * square + 1.0 / 19;
  sum = sum * square + 1.0 / 17;
  sum = sum * square + 1.0 / 15;
  sum = sum * square + 1.0 / 13;
  sum = sum * square + 1.0 / 11;
  sum = sum * square + 1.0 / 9;
  sum = sum * square + 1.0 / 7;
  sum = sum * square + 1.0 / 5;
  sum = sum * square + 1.0 / 3;
  sum = sum * square + 1.0;
  return exponent * ln2 + 2.0 * z * sum;
}

/// e^x for |x| up to some hundreds.
TESSERA_FN constexpr double exponential(double x) {
  int const exponent = static_cast<int>(x / ln2 + (x < 0 ? -0.5 : 0.5));
  double const rest = x - exponent * ln2;
  double sum = 1.0;
  for (int k = 16; k >= 1; --k) {
    sum = 1.0 + sum * rest / k;
  }
  for (int k = exponent; k > 0; --k) {
    sum *= 2.0;
  }
  for (int k = exponent; k < 0; ++k) {
    sum *= 0.5;
  }
  return sum;
}

/// The cosine of `turns` full turns, 0 <= turns < 1.
TESSERA_FN constexpr double cosine_of_turns(double turns) {
  double const quarters = turns * 4.0;
  int const quadrant = static_cast<int>(quarters);
  double const into = quarters - quadrant;
  double const angle = (quadrant % 2 == 0 ? into : 1.0 - into) * half_pi;
  double const square = angle * angle;
  double sum = 1.0 - square * (1.0 / (22 * 21));
  sum = 1.0 - sum * square * (1.0 / (20 * 19));
  sum = 1.0 - sum * square * (1.0 / (18 * 17));
  sum = 1.0 - sum * square * (1.0 / (16 * 15));
  sum = 1.0 - sum * square * (1.0 / (14 * 13));
  sum = 1.0 - sum * square * (1.0 / (12 * 11));
  sum = 1.0 - sum * square * (1.0 / (10 * 9));
  sum = 1.0 - sum * square * (1.0 / (8 * 7));
  sum = 1.0 - sum * square * (1.0 / (6 * 5));
  sum = 1.0 - sum * square * (1.0 / (4 * 3));
  sum = 1.0 - sum * square * (1.0 / (2 * 1));
  return quadrant == 1 || quadrant == 2 ? -sum : sum;
}

/// The square root of a number that is zero or a positive normal one: Newton's iteration from a power of two.
TESSERA_FN constexpr double square_root(double x) {
  if (!(x > 0)) {
    return 0;
  }
  double scale = 1.0;
  for (; x >= 4.0; scale *= 2.0) {
    x *= 0.25;
  }
  for (; x < 1.0; scale *= 0.5) {
    x *= 4.0;
  }
  double root = 1.5;
  for (int k = 0; k < 5; ++k) {
    root = 0.5 * (root + x / root);
  }
  return root * scale;
}

/// Two independent uniform numbers for one index.
struct unit_pair {
  double first;
  double second;
};
TESSERA_FN constexpr unit_pair units(std::uint64_t seed, std::uint64_t index) {
  return {unit(hash(seed, index)), unit(hash(~seed, index))};
}

}  // namespace detail

/// Normally distributed numbers: mean 0, standard deviation `sigma` (the Box-Muller transform).
struct gauss {
  double sigma = 1.0;  ///< standard deviation

  TESSERA_FN constexpr float value(std::uint64_t seed, std::uint64_t index) const {
    auto const u = detail::units(seed, index);
    double const radius = detail::square_root(-2.0 * detail::logarithm(u.first));
    return static_cast<float>(sigma * radius * detail::cosine_of_turns(u.second));
  }
};

/// Numbers of Student's t with `freedom` degrees of freedom (heavy tails when small), times `scale` (Bailey's polar
/// transform).
struct student_t {
  double freedom = 4.0;  ///< above 0; moments below this order are finite
  double scale = 1.0;    ///< factor of the numbers

  TESSERA_FN constexpr float value(std::uint64_t seed, std::uint64_t index) const {
    auto const u = detail::units(seed, index);
    double const growth = detail::exponential(-2.0 / freedom * detail::logarithm(u.first)) - 1.0;
    double const radius = detail::square_root(freedom * growth);
    return static_cast<float>(scale * radius * detail::cosine_of_turns(u.second));
  }
};

/// Numbers of Laplace's distribution: mean 0, mean absolute value `scale`.
struct laplace {
  double scale = 1.0;  ///< mean absolute value

  TESSERA_FN constexpr float value(std::uint64_t seed, std::uint64_t index) const {
    std::uint64_t const word = hash(seed, index);
    double const magnitude = -scale * detail::logarithm(detail::unit(word << 1));
    return static_cast<float>((word >> 63) != 0 ? -magnitude : magnitude);
  }
};

/// Numbers evenly distributed between `low` and `high`.
struct uniform {
  double low = 0.0;   ///< lower end of the interval
  double high = 1.0;  ///< upper end of the interval

  TESSERA_FN constexpr float value(std::uint64_t seed, std::uint64_t index) const {
    return static_cast<float>(low + (high - low) * detail::unit(hash(seed, index)));
  }
};

/// Tokens of an attention head, one after the other, as models have them. Values are normal, and longer in some tokens
/// than in others by a log-normal factor exp(spread * n - spread^2 / 2). Eight of the channels are far from zero, by
/// +-`offset` * U[0.75, 1.25]. Two generators whose `shift` is 0 and 8 have four such channels in common.
struct offset_tokens {
  std::uint64_t channels = 128;  ///< channels of a token
  double offset = 0.0;           ///< how far those channels are from zero
  double spread = 0.5;           ///< standard deviation of the logarithms of tokens' lengths
  std::uint64_t shift = 0;       ///< moves the channels that are far from zero

  /// Whether a channel is far from zero.
  TESSERA_FN constexpr bool is_offset(std::uint64_t channel) const {
    std::uint64_t const every = channels / 8;
    return channel % every == (channel / every % 2 == 0 ? 0 : shift % every);
  }
  TESSERA_FN constexpr float value(std::uint64_t seed, std::uint64_t index) const {
    std::uint64_t const token = index / channels;
    std::uint64_t const channel = index % channels;
    double const n = static_cast<double>(gauss{}.value(hash(seed, 1), token));
    double const factor = detail::exponential(spread * n - spread * spread / 2);
    double const normal = static_cast<double>(gauss{}.value(seed, index)) * factor;
    std::uint64_t const word = hash(hash(seed, 2), channel);
    double const away = offset * (0.75 + 0.5 * detail::unit(word << 1)) * ((word >> 63) != 0 ? -1.0 : 1.0);
    return static_cast<float>(is_offset(channel) ? normal + away : normal);
  }
};

/// Normal values, and for a `fraction` of the channels an offset: normal, of deviation `sigma`, the same for all
/// tokens.
struct offset_channels {
  std::uint64_t channels = 128;  ///< channels of a token
  double fraction = 1.0;         ///< the part of the channels that have an offset
  double sigma = 0.5;            ///< standard deviation of the offsets

  TESSERA_FN constexpr float value(std::uint64_t seed, std::uint64_t index) const {
    std::uint64_t const channel = index % channels;
    bool const is_offset = detail::unit(hash(hash(seed, 3), channel)) < fraction;
    double const away = is_offset ? static_cast<double>(gauss{sigma}.value(hash(seed, 4), channel)) : 0.0;
    return static_cast<float>(static_cast<double>(gauss{}.value(seed, index)) + away);
  }
};

/// Any 32 bits, as an integer: for storage types in which every pattern must survive.
struct uniform_bits {
  TESSERA_FN constexpr std::uint32_t value(std::uint64_t seed, std::uint64_t index) const {
    return static_cast<std::uint32_t>(hash(seed, index) >> 32);
  }
};

/// The generator's value at `index` in storage type `T`: rounded, or, from `uniform_bits`, its low bits unchanged.
template <class T, class Generator>
TESSERA_FN constexpr T sample(Generator const& generator, std::uint64_t seed, std::uint64_t index) {
  auto const value = generator.value(seed, index);
  if constexpr (std::is_integral_v<std::remove_const_t<decltype(value)>>) {
    return from_bits<T>(static_cast<typename scalar_traits<T>::bits_type>(value));
  } else {
    return store<T>(value);
  }
}

/// Writes the first `count` samples on the host.
template <class T, class Generator>
void fill(Generator const& generator, std::uint64_t seed, T* data, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = sample<T>(generator, seed, i);
  }
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
