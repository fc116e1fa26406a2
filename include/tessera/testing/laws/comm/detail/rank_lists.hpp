// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What the laws of a Communicator compare: lists that every rank can name, their reductions, and memory of an executor
/// between guards.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {
namespace detail {

/// An element that no reduction takes and no word holds.
struct three_bytes {
  std::uint8_t bytes[3];
};

/// Whether T is a floating point type that ranks reduce.
template <class T>
inline constexpr bool is_float_of_ranks =
    std::is_floating_point_v<T> || std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

template <class T>
double as_double(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else {
    return static_cast<double>(load(value));
  }
}

template <class T>
T from_double(double value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(value);
  } else {
    return store<T>(static_cast<float>(value));
  }
}

/// The element `index` of a rank: of magnitudes that differ, so that the order of a sum shows. One place in 16 has a
/// special value on one or two of the ranks.
template <class T>
T number_of_rank(std::uint64_t seed, int rank, int ranks, std::int64_t index) {
  auto const at = static_cast<std::uint64_t>(index);
  std::uint64_t const bits = hash(hash(seed, static_cast<std::uint64_t>(rank)), at);
  if constexpr (is_float_of_ranks<T>) {
    std::uint64_t const place = hash(~seed, at);
    auto const is_chosen = [&](int shift) {
      return static_cast<int>((place >> shift) % static_cast<std::uint64_t>(ranks)) == rank % ranks;
    };
    bool const has_special = place % 16 == 0 && (is_chosen(8) || (place % 32 == 0 && is_chosen(32)));
    double const infinity = std::numeric_limits<double>::infinity();
    double const special[] = {infinity, -infinity, std::numeric_limits<double>::quiet_NaN(), 0.0, -0.0};
    double const number = (unit(bits) - 0.5) * std::ldexp(1.0, static_cast<int>(bits % 9));
    return from_double<T>(has_special ? special[bits % 5] : number);
  } else {
    T value{};
    std::uint64_t const wide[] = {bits};
    static_assert(sizeof(T) <= sizeof(wide));
    std::memcpy(&value, wide, sizeof(T));
    return value;
  }
}

template <class T>
std::vector<T> numbers_of_rank(std::uint64_t seed, int rank, int ranks, std::int64_t count) {
  std::vector<T> numbers;
  numbers.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    numbers.push_back(number_of_rank<T>(seed, rank, ranks, i));
  }
  return numbers;
}

/// Whether two elements have the same bits.
template <class T>
bool is_same(T const& a, T const& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// Whether two elements have the same bits, or are NaN both.
template <class T>
bool is_same_or_nan(T const& a, T const& b) {
  if constexpr (is_float_of_ranks<T>) {
    if (std::isnan(as_double(a)) && std::isnan(as_double(b))) {
      return true;
    }
  }
  return is_same(a, b);
}

/// The first element whose bits differ, or the shorter size where sizes differ; -1 where lists are the same.
template <class T>
std::int64_t first_difference(std::vector<T> const& a, std::vector<T> const& b) {
  std::size_t at = 0;
  while (at < a.size() && at < b.size() && is_same(a[at], b[at])) {
    ++at;
  }
  return at == a.size() && at == b.size() ? -1 : static_cast<std::int64_t>(at);
}

template <class T>
std::vector<T> part_of(std::vector<T> const& list, std::int64_t first, std::int64_t count) {
  return std::vector<T>(list.begin() + first, list.begin() + first + count);
}

inline std::string name_of(rank_reduction reduction) {
  return reduction == rank_reduction::sum ? "sum" : reduction == rank_reduction::maximum ? "maximum" : "minimum";
}

/// What a reduction in rank order gives, and how far another order may be from it.
template <class T>
struct reduced_list {
  std::vector<T> values;
  std::vector<double> slack;  ///< negative: anything is taken

  /// Whether `found` is what an order of its own may give at `at`.
  [[nodiscard]] bool takes(std::size_t at, T found) const {
    if constexpr (is_float_of_ranks<T>) {
      double const a = as_double(found);
      double const b = as_double(values[at]);
      return slack[at] < 0 || (std::isnan(a) && std::isnan(b)) || a == b || std::fabs(a - b) <= slack[at];
    } else {
      return found == values[at];
    }
  }
};

/// ((x0 + x1) + x2) + ... in the type that T is added in.
template <class T>
T sum_in_rank_order(std::vector<T> const& elements) {
  if constexpr (std::is_integral_v<T>) {
    std::make_unsigned_t<T> sum = 0;
    for (T element : elements) {
      sum += static_cast<std::make_unsigned_t<T>>(element);
    }
    return static_cast<T>(sum);
  } else {
    using wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    wide sum = static_cast<wide>(as_double(elements[0]));
    for (std::size_t rank = 1; rank < elements.size(); ++rank) {
      sum += static_cast<wide>(as_double(elements[rank]));
    }
    return from_double<T>(static_cast<double>(sum));
  }
}

/// The first of the largest or smallest elements; NaN where one is.
template <class T>
T extreme_in_rank_order(std::vector<T> const& elements, bool is_maximum) {
  T best = elements[0];
  for (T const& element : elements) {
    if constexpr (is_float_of_ranks<T>) {
      double const a = as_double(element);
      double const b = as_double(best);
      best = std::isnan(a) || (!std::isnan(b) && (is_maximum ? a > b : a < b)) ? element : best;
    } else {
      best = (is_maximum ? element > best : element < best) ? element : best;
    }
  }
  return best;
}

/// The reduction of all ranks' lists. Where the order is free each addition may be off by the rounding of T, and
/// maxima of NaN are anything.
template <class T>
reduced_list<T> reduce_numbers(std::uint64_t seed, int ranks, std::int64_t count, rank_reduction reduction) {
  reduced_list<T> reduced;
  reduced.values.reserve(static_cast<std::size_t>(count));
  reduced.slack.reserve(static_cast<std::size_t>(count));
  std::vector<T> elements;
  for (std::int64_t i = 0; i < count; ++i) {
    elements.clear();
    double magnitude = 0;
    bool has_nan = false;
    for (int rank = 0; rank < ranks; ++rank) {
      elements.push_back(number_of_rank<T>(seed, rank, ranks, i));
      if constexpr (is_float_of_ranks<T>) {
        magnitude += std::fabs(as_double(elements.back()));
        has_nan = has_nan || std::isnan(as_double(elements.back()));
      }
    }
    double const rounding = sizeof(T) == 2 ? 1.0 / 256 : sizeof(T) == 4 ? 1.0 / 8388608 : 1.0 / 4503599627370496.0;
    bool const is_sum = reduction == rank_reduction::sum;
    reduced.values.push_back(is_sum ? sum_in_rank_order(elements)
                                    : extreme_in_rank_order(elements, reduction == rank_reduction::maximum));
    bool const is_finite = std::isfinite(magnitude);
    reduced.slack.push_back(is_sum ? (is_finite ? magnitude * ranks * rounding : 0) : has_nan ? -1 : 0);
  }
  return reduced;
}

/// A list in an executor's memory, between guards of 16 elements.
template <class T, Executor Exec>
class rank_list {
 public:
  rank_list(Exec const& exec, std::vector<T> const& values)
      : exec_(&exec),
        size_(static_cast<std::int64_t>(values.size())),
        memory_(exec, size_ + 2 * guard),
        initial_(values.size() + 2 * guard) {
    if (!initial_.empty()) {
      std::memset(static_cast<void*>(initial_.data()), 0x5a, initial_.size() * sizeof(T));
    }
    std::copy(values.begin(), values.end(), initial_.begin() + guard);
    exec.copy(array_view<T const>(initial_.data(), memory_.size()), memory_.view());
  }

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] array_view<T> view() { return part(0, size_); }
  [[nodiscard]] array_view<T> part(std::int64_t first, std::int64_t count) {
    return {memory_.data() + guard + first, count};
  }

  /// The elements, when the executor's stream is done.
  [[nodiscard]] std::vector<T> read() const { return part_of(read_all(), guard, size_); }

  /// Whether the guards are as they were.
  [[nodiscard]] bool is_intact() const {
    auto const all = read_all();
    return first_difference(part_of(all, 0, guard), part_of(initial_, 0, guard)) < 0 &&
           first_difference(part_of(all, guard + size_, guard), part_of(initial_, guard + size_, guard)) < 0;
  }

 private:
  static constexpr std::int64_t guard = 16;

  [[nodiscard]] std::vector<T> read_all() const {
    std::vector<T> all(initial_.size());
    exec_->copy(memory_.view(), array_view<T>(all.data(), memory_.size()));
    exec_->wait();
    return all;
  }

  Exec const* exec_;
  std::int64_t size_;
  buffer<T> memory_;
  std::vector<T> initial_;
};

}  // namespace detail
}  // namespace testing
}  // namespace v0
}  // namespace tessera
