// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `aligned_merger`: one fixed rotation that turns the vectors of one layer towards those of another, so that a Merger
/// finds their directions nearer to each other. It is a variant of MiniCache's merging (arXiv 2405.14366) for models
/// whose neighbouring layers have little in common as they are.
///
///     tessera::aligned_merger merger(192);                   // channels of all key heads together
///     merger.add(first, second);                             // samples: tokens x channels each; any number of calls
///     merger.fit();                                          // once, on some text; keep merger.rotation()
///     merger.align(second, aligned);                         // before the cache gets them: second R
///     merger.restore(restored, as_before);                   // after the cache restored them: restored R^T
///
/// With samples x_i of the first layer and y_i of the second, R is the orthogonal matrix for which the sum of
/// |x_i - y_i R|^2 is least: with sum of y_i^T x_i = U S V^T, R = U V^T (the orthogonal Procrustes problem).
///
/// Rotations keep scalar products: queries that are aligned in the same way have the same scores over aligned keys,
/// which therefore need no restore(). But R does not commute with RoPE. Keys must be aligned and merged before their
/// rotation by the position, and be rotated after they were restored. Values need no such care.
///
/// Where all samples lie in fewer dimensions than there are channels, R maps the others in some way that keeps it
/// orthogonal. Everything runs in double on the host and gives the same bits each time. Cost: tokens * channels^2
/// multiply-adds for add(), and some 60 * channels^3 for fit(); align() and restore() tokens * channels^2.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/concepts/scalar.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/project/symmetric_eigen.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Fits a rotation and applies it. It begins as the identity.
class aligned_merger {
 public:
  /// For vectors of so many channels. Throws shape_error unless there are 1 to 4096.
  explicit aligned_merger(std::int64_t channels) : channels_(channels) {
    check<shape_error>(channels >= 1 && channels <= 4096, "aligned_merger: vectors have ", channels,
                       " channels but must have from 1 to ", 4096);
    products_.resize(static_cast<std::size_t>(channels * channels));
    rotation_.resize(products_.size());
    for (std::int64_t i = 0; i < channels; ++i) {
      rotation_[index(i, i)] = 1.0;
    }
  }

  /// Adds samples: tokens x channels of both layers. Throws shape_error unless they fit together, and value_error for
  /// values that are not finite.
  template <class T, class U>
  requires(Scalar<std::remove_const_t<T>>&& std::is_same_v<std::remove_const_t<T>, std::remove_const_t<U>>) void add(
      matrix_view<T> first, matrix_view<U> second) {
    constexpr char const* where = "aligned_merger.add";
    check_channels(where, "first vectors", first);
    check_channels(where, "second vectors", second);
    check<shape_error>(first.extent(0) == second.extent(0), where, ": there are ", first.extent(0),
                       " first vectors but ", second.extent(0), " second ones");
    samples_ += first.extent(0);
    for (std::int64_t token = 0; token < first.extent(0); ++token) {
      add_products<std::remove_const_t<T>>(where, token, first, second);
    }
  }

  /// Finds the rotation for all samples so far. Throws value_error where there is no sample, or only zeros.
  void fit() {
    double largest = 0;
    for (double const product : products_) {
      largest = std::max(largest, std::fabs(product));
    }
    check<value_error>(largest > 0, "aligned_merger.fit: there are ", samples_,
                       " samples, and 0 of their products are not zero but at least ", 1, " must be");
    std::vector<double> scaled = products_;
    for (double& product : scaled) {
      product /= largest;
    }
    rotation_ = polar_factor(scaled);
  }

  /// The number of channels.
  [[nodiscard]] std::int64_t channels() const { return channels_; }
  /// R, channels x channels: row i is where channel i of the second layer goes.
  [[nodiscard]] matrix_view<double const> rotation() const { return {rotation_.data(), {channels_, channels_}}; }

  /// aligned = second R, tokens x channels, rounded to T. Both may be the same matrix. Throws shape_error unless they
  /// fit together.
  template <Scalar T>
  void align(matrix_view<std::type_identity_t<T> const> second, matrix_view<T> aligned) const {
    apply<T>("aligned_merger.align", rotation(), second, aligned);
  }
  /// second = aligned R^T, tokens x channels, rounded to T. Both may be the same matrix. Throws shape_error unless they
  /// fit together.
  template <Scalar T>
  void restore(matrix_view<std::type_identity_t<T> const> aligned, matrix_view<T> second) const {
    apply<T>("aligned_merger.restore", rotation().transposed(), aligned, second);
  }

 private:
  [[nodiscard]] std::size_t index(std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(row * channels_ + column);
  }
  template <class T>
  void check_channels(char const* where, char const* what, matrix_view<T> matrix) const {
    check<shape_error>(matrix.extent(1) == channels_, where, ": the ", what, " have ", matrix.extent(1),
                       " channels but the merger has ", channels_);
    check_memory(where, what, matrix);
  }
  template <class T>
  void add_products(char const* where, std::int64_t token, matrix_view<T const> first, matrix_view<T const> second) {
    for (std::int64_t i = 0; i < channels_; ++i) {
      auto const y = static_cast<double>(load(second(token, i)));
      for (std::int64_t j = 0; j < channels_; ++j) {
        auto const x = static_cast<double>(load(first(token, j)));
        check<value_error>(std::isfinite(x * y), where, ": token ", token, " has the product ", x * y,
                           " but all must be finite, as in channels ", i, " and ", j);
        products_[index(i, j)] += y * x;
      }
    }
  }

  /// U V^T of M = U S V^T, by M^T M = V S^2 V^T: columns M v / |M v|, and where M v is nearly zero any directions that
  /// are orthogonal to the others.
  [[nodiscard]] std::vector<double> polar_factor(std::vector<double> const& m) const {
    std::vector<double> gram(m.size());
    for (std::int64_t k = 0; k < channels_; ++k) {
      for (std::int64_t i = 0; i < channels_; ++i) {
        for (std::int64_t j = 0; j < channels_; ++j) {
          gram[index(i, j)] += m[index(k, i)] * m[index(k, j)];
        }
      }
    }
    detail::symmetric_eigen const eigen = detail::decompose_symmetric(std::move(gram), static_cast<int>(channels_));
    std::vector<double> factor(m.size());
    std::vector<double> left;  // directions u, one after the other
    for (std::int64_t k = 0; k < channels_; ++k) {
      double const* const v = eigen.vectors.data() + index(k, 0);
      std::vector<double> const u = next_direction(left, image_of(m, v));
      left.insert(left.end(), u.begin(), u.end());
      for (std::int64_t i = 0; i < channels_; ++i) {
        for (std::int64_t j = 0; j < channels_; ++j) {
          factor[index(i, j)] += u[static_cast<std::size_t>(i)] * v[j];
        }
      }
    }
    return factor;
  }
  /// M v.
  [[nodiscard]] std::vector<double> image_of(std::vector<double> const& m, double const* v) const {
    std::vector<double> image(static_cast<std::size_t>(channels_));
    for (std::int64_t i = 0; i < channels_; ++i) {
      for (std::int64_t j = 0; j < channels_; ++j) {
        image[static_cast<std::size_t>(i)] += m[index(i, j)] * v[j];
      }
    }
    return image;
  }
  /// The direction of `wanted` beside those that were taken; where nothing is left of it, that of the first unit vector
  /// of which something is left.
  [[nodiscard]] std::vector<double> next_direction(std::vector<double> const& taken, std::vector<double> wanted) const {
    double const before = length(wanted);
    for (std::int64_t unit = -1;; ++unit) {
      if (unit >= 0) {
        wanted.assign(static_cast<std::size_t>(channels_), 0.0);
        wanted[static_cast<std::size_t>(unit)] = 1.0;
      }
      remove(taken, wanted);
      remove(taken, wanted);  // again, for what rounding left
      double const rest = length(wanted);
      double const least = unit >= 0 ? 0.5 / std::sqrt(static_cast<double>(channels_)) : 1e-6 * before + 1e-12;
      if (rest > least) {
        for (double& element : wanted) {
          element /= rest;
        }
        return wanted;
      }
    }
  }
  [[nodiscard]] static double length(std::vector<double> const& vector) {
    double sum = 0;
    for (double const element : vector) {
      sum += element * element;
    }
    return std::sqrt(sum);
  }
  void remove(std::vector<double> const& taken, std::vector<double>& vector) const {
    for (auto of = taken.begin(); of != taken.end(); of += channels_) {
      double product = 0;
      for (std::int64_t i = 0; i < channels_; ++i) {
        product += of[i] * vector[static_cast<std::size_t>(i)];
      }
      for (std::int64_t i = 0; i < channels_; ++i) {
        vector[static_cast<std::size_t>(i)] -= product * of[i];
      }
    }
  }

  template <class T>
  void apply(char const* where, matrix_view<double const> by, matrix_view<T const> from, matrix_view<T> to) const {
    check_channels(where, "vectors", from);
    check_channels(where, "results", to);
    check<shape_error>(from.extent(0) == to.extent(0), where, ": there are ", from.extent(0), " vectors but ",
                       to.extent(0), " results");
    std::vector<double> sums(static_cast<std::size_t>(channels_));
    for (std::int64_t token = 0; token < from.extent(0); ++token) {
      std::fill(sums.begin(), sums.end(), 0.0);
      for (std::int64_t i = 0; i < channels_; ++i) {
        auto const element = static_cast<double>(load(from(token, i)));
        for (std::int64_t j = 0; j < channels_; ++j) {
          sums[static_cast<std::size_t>(j)] += element * by(i, j);
        }
      }
      for (std::int64_t j = 0; j < channels_; ++j) {
        to(token, j) = store<T>(static_cast<float>(sums[static_cast<std::size_t>(j)]));
      }
    }
  }

  std::int64_t channels_;
  std::int64_t samples_ = 0;
  std::vector<double> products_;  ///< the sum of y^T x
  std::vector<double> rotation_;
};

}  // namespace v0
}  // namespace tessera
