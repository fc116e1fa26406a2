// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Weights of many kinds, easy and hostile, for tests of compressed weights on any executor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <tessera/core/precision.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera_test {

enum class weight_kind {
  gauss,
  all_equal,
  all_nan,
  sparse,         ///< nine of ten are zero
  random_bits,    ///< raw blocks, since there is nothing to gain
  mixture,        ///< changes its kind every 3000 weights
  two_clusters,   ///< exponents at both ends of the format
  many_escapes,   ///< one of ten exponents is anywhere: more escapes than a block may list
  a_few_escapes,  ///< one of two hundred exponents is anywhere
};
inline constexpr weight_kind weight_kinds[] = {
    weight_kind::gauss,        weight_kind::all_equal,    weight_kind::all_nan,
    weight_kind::sparse,       weight_kind::random_bits,  weight_kind::mixture,
    weight_kind::two_clusters, weight_kind::many_escapes, weight_kind::a_few_escapes};

template <class T>
T weight_of(weight_kind kind, std::uint64_t seed, std::int64_t i) {
  using namespace tessera;
  using traits = scalar_traits<T>;
  using bits_type = typename traits::bits_type;
  auto const index = static_cast<std::uint64_t>(i);
  std::uint64_t const random = testing::hash(seed + 17, index);
  constexpr std::uint64_t exponents = std::uint64_t{1} << traits::exponent_bits;
  constexpr std::uint64_t residual_mask = ~((exponents - 1) << traits::mantissa_bits);
  auto const with_exponent = [&](std::uint64_t exponent) {
    return from_bits<T>(static_cast<bits_type>((random & residual_mask) | (exponent << traits::mantissa_bits)));
  };
  std::uint64_t const any_exponent = (random >> 40) % exponents;
  switch (kind) {
    case weight_kind::all_equal:
      return from_bits<T>(static_cast<bits_type>(testing::hash(seed, 0)));
    case weight_kind::all_nan:
      return with_exponent(exponents - 1);
    case weight_kind::sparse:
      return (random >> 32) % 10 != 0
                 ? from_bits<T>(static_cast<bits_type>((random >> 60) == 0 ? ~(~bits_type{0} >> 1) : 0))
                 : testing::sample<T>(testing::gauss{.sigma = 0.5}, seed, index);
    case weight_kind::random_bits:
      return from_bits<T>(static_cast<bits_type>(random));
    case weight_kind::mixture:
      return weight_of<T>(weight_kinds[(i / 3000 * 5 + 1) % 9 == 5 ? 0 : (i / 3000 * 5 + 1) % 9], seed, i);
    case weight_kind::two_clusters:
      return with_exponent((random >> 40) % 2 == 0 ? (random >> 50) % 3 : exponents - 1 - (random >> 50) % 3);
    case weight_kind::many_escapes:
      return (random >> 32) % 10 == 0 ? with_exponent(any_exponent) : testing::sample<T>(testing::gauss{}, seed, index);
    case weight_kind::a_few_escapes:
      return (random >> 32) % 200 == 0 ? with_exponent(any_exponent)
                                       : testing::sample<T>(testing::gauss{}, seed, index);
    default:
      return testing::sample<T>(testing::gauss{.sigma = 0.02}, seed, index);
  }
}

/// `count` weights at the very end of an allocation, so that a sanitizer finds the first byte too many.
template <class T>
class weight_array {
 public:
  explicit weight_array(std::int64_t count)
      : values_(std::make_unique<T[]>(static_cast<std::size_t>(count))), count_(count) {}
  weight_array(weight_kind kind, std::uint64_t seed, std::int64_t count) : weight_array(count) {
    for (std::int64_t i = 0; i < count; ++i) {
      (*this)[i] = weight_of<T>(kind, seed, i);
    }
  }

  T& operator[](std::int64_t i) { return values_[static_cast<std::size_t>(i)]; }
  T const& operator[](std::int64_t i) const { return values_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] T* data() { return values_.get(); }
  [[nodiscard]] T const* data() const { return values_.get(); }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(count_); }
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] tessera::array_view<T> view() { return {data(), count_}; }
  [[nodiscard]] tessera::array_view<T const> view() const { return {data(), count_}; }
  [[nodiscard]] tessera::array_view<T const> part(std::int64_t first, std::int64_t count) const {
    return {data() + first, count};
  }
  void fill_with_rubbish() { std::memset(static_cast<void*>(data()), 0xcd, size() * sizeof(T)); }

  friend bool operator==(weight_array const& a, weight_array const& b) {
    return a.count_ == b.count_ && (a.count_ == 0 || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
  }

 private:
  std::unique_ptr<T[]> values_;
  std::int64_t count_;
};

}  // namespace tessera_test
