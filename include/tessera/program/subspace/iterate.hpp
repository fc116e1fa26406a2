// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The programs by which algorithm/subspace/factorize_keys.hpp finds the directions that hold most of some rows, from
/// the products of the rows' columns: block subspace iteration, followed by the Rayleigh-Ritz method.
///
///     Z = (G + m) Y        multiply_gram         m: a little, so that no column vanishes
///     W = Z^T Z = R^T R    inner_products, factor_products
///     Y = Z R^-1           solve_rows            orthonormal columns again
///     ...
///     H = Y^T G Y = V^T D V    diagonalize: Jacobi's rotations, as many at a time as there are pairs
///     directions: the columns of Y V^T whose values in D are largest
///
/// Sums over rows are in double and in a fixed order, so that they have the same bits each time.
#pragma once

#include <cstdint>
#include <math.h>  // not <cmath>: as in core/math.hpp

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/mix_bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// The most directions of a search.
inline constexpr int key_directions = 1024;

/// Measures of the products, and of the directions that were found.
struct subspace_measures {
  double trace;        ///< the sum of the squares of all rows
  double held;         ///< the part of this sum that the directions hold
  float shift;         ///< the number that is added to the diagonal
  float scale = 1.0F;  ///< the factor of rows in their products
};

/// Writes the columns with which iteration begins: numbers between -1 and 1, or the unit matrix if there are as many
/// columns as rows.
struct start_subspace {
  static constexpr int lanes = 64;
  struct scratch_type {};

  matrix_view<float const> gram;           ///< products of the rows' columns: width x width
  matrix_view<float> columns;              ///< the first directions: width x columns
  array_view<subspace_measures> measures;  ///< measures of the rows

  TESSERA_FN constexpr std::int64_t groups() const { return columns.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    bool const is_square = columns.extent(0) == columns.extent(1);
    for (int lane : group) {
      for (std::int64_t k = lane; k < columns.extent(1); k += lanes) {
        auto const word = mix_bits(static_cast<std::uint64_t>(which), static_cast<std::uint64_t>(k));
        float const lot = static_cast<float>(word >> 40) * 0x1p-23F - 1.0F;
        columns(which, k) = is_square ? (which == k ? 1.0F : 0.0F) : lot;
      }
      if (which == 0 && is_first(lane)) {
        double const trace = trace_of_gram();
        measures[0].trace = trace;
        measures[0].held = 0.0;
        measures[0].shift = shift_of(trace);
      }
    }
  }

 private:
  TESSERA_FN double trace_of_gram() const {
    double trace = 0.0;
    for (std::int64_t i = 0; i < gram.extent(0); ++i) {
      trace += static_cast<double>(gram(i, i));
    }
    return trace;
  }
  /// The shift for a trace: a millionth of the trace bounds the condition number of Z by a million, whose square sums
  /// in double can hold.
  TESSERA_FN static float shift_of(double trace) {
    auto const shift = static_cast<float>(trace * 1e-6);
    return shift > 0.0F ? shift : 1.0F;
  }
};

/// Computes target = (gram + shift) columns.
struct multiply_gram {
  static constexpr int lanes = 64;
  struct scratch_type {};

  matrix_view<float const> gram;                 ///< products of the rows' columns: width x width
  array_view<subspace_measures const> measures;  ///< null: no shift
  matrix_view<float const> columns;              ///< directions: width x columns
  matrix_view<float> target;                     ///< their products with gram

  TESSERA_FN constexpr std::int64_t groups() const { return columns.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    float const shift = measures.data != nullptr ? measures[0].shift : 0.0F;
    for (int lane : group) {
      for (std::int64_t k = lane; k < columns.extent(1); k += lanes) {
        double sum = static_cast<double>(shift) * static_cast<double>(columns(which, k));
        for (std::int64_t i = 0; i < columns.extent(0); ++i) {
          sum += static_cast<double>(gram(which, i)) * static_cast<double>(columns(i, k));
        }
        target(which, k) = static_cast<float>(sum);
      }
    }
  }
};

/// Computes products = first^T second.
struct inner_products {
  static constexpr int lanes = 64;
  struct scratch_type {};

  matrix_view<float const> first;   ///< width x columns
  matrix_view<float const> second;  ///< width x columns
  matrix_view<double> products;     ///< products of all pairs of columns

  TESSERA_FN constexpr std::int64_t groups() const { return first.extent(1); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      for (std::int64_t k = lane; k < second.extent(1); k += lanes) {
        double sum = 0.0;
        for (std::int64_t i = 0; i < first.extent(0); ++i) {
          sum += static_cast<double>(first(i, which)) * static_cast<double>(second(i, k));
        }
        products(which, k) = sum;
      }
    }
  }
};

/// Replaces products by Cholesky's factor R, on and above the diagonal. One group.
struct factor_products {
  static constexpr int lanes = 256;
  struct scratch_type {};

  matrix_view<double> products;  ///< replaced by their factor R, upper triangular

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    std::int64_t const n = products.extent(0);
    for (std::int64_t k = 0; k < n; ++k) {
      double const pivot = products(k, k);
      double const root = ::sqrt(pivot > 1e-280 ? pivot : 1e-280);
      group.sync();  // all lanes have read the pivot
      for (int lane : group) {
        for (std::int64_t j = k + lane; j < n; j += lanes) {
          products(k, j) = j == k ? root : products(k, j) / root;
        }
      }
      group.sync();
      std::int64_t const left = n - k - 1;
      for (int lane : group) {
        for (std::int64_t at = lane; at < left * left; at += lanes) {
          std::int64_t const i = k + 1 + at / left;
          std::int64_t const j = k + 1 + at % left;
          if (j >= i) {
            products(i, j) -= products(k, i) * products(k, j);
          }
        }
      }
      group.sync();
    }
  }
};

/// Computes columns = columns R^-1, a lane for each row.
struct solve_rows {
  static constexpr int lanes = 32;
  struct scratch_type {};

  matrix_view<double const> factor;  ///< R
  matrix_view<float const> source;   ///< Z
  matrix_view<float> target;         ///< Y; may be the source

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(source.extent(0), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      std::int64_t const row = which * lanes + lane;
      for (std::int64_t j = 0; row < source.extent(0) && j < source.extent(1); ++j) {
        double value = static_cast<double>(source(row, j));
        for (std::int64_t k = 0; k < j; ++k) {
          value -= static_cast<double>(target(row, k)) * factor(k, j);
        }
        target(row, j) = static_cast<float>(value / factor(j, j));
      }
    }
  }
};

/// Finds eigenvalues of a symmetric matrix, which are on its diagonal afterwards, and eigenvectors as rows. It rotates
/// n / 2 pairs of columns at a time; pairs are chosen as in a round-robin tournament. One group; n up to
/// key_directions.
struct diagonalize {
  static constexpr int lanes = 256;
  static constexpr int most_pairs = key_directions / 2;  ///< the most pairs of directions
  /// The most rounds, in each of which all pairs are rotated once.
  static constexpr int most_rounds = 12;

  /// The rotation of two columns; if `high` is n, `low` has no partner.
  struct turn {
    double cosine;      ///< cosine of the angle
    double sine;        ///< sine of the angle
    std::int32_t low;   ///< the first column
    std::int32_t high;  ///< the second column
  };
  struct scratch_type {
    turn turns[most_pairs];  ///< rotations that run at the same time
  };

  matrix_view<double> matrix;   ///< diagonal afterwards
  matrix_view<double> vectors;  ///< its eigenvectors

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type& scratch) const {
    std::int64_t const n = matrix.extent(0);
    for (int lane : group) {
      for (std::int64_t at = lane; at < n * n; at += lanes) {
        vectors(at / n, at % n) = at / n == at % n ? 1.0 : 0.0;
      }
    }
    group.sync();
    auto const players = static_cast<std::int32_t>(n + n % 2);
    for (int sweep = 0; sweep < most_rounds && !is_diagonal(group); ++sweep) {
      for (std::int32_t round = 0; round + 1 < players; ++round) {
        turn_pairs(group, round, players, scratch);
      }
    }
  }

 private:
  /// The pairs of a round: the last column stays, the others go round.
  TESSERA_FN static turn couple(std::int32_t i, std::int32_t round, std::int32_t players) {
    std::int32_t const others = players - 1;
    std::int32_t const a = i == 0 ? others : (round + i) % others;
    std::int32_t const b = (round + others - i) % others;
    return a < b ? turn{1.0, 0.0, a, b} : turn{1.0, 0.0, b, a};
  }

  template <Group G>
  TESSERA_FN bool is_diagonal(G const& group) const {
    std::int64_t const n = matrix.extent(0);
    per_lane<double, G> beside;
    per_lane<double, G> whole;
    for (int lane : group) {
      beside[lane] = whole[lane] = 0.0;
      for (std::int64_t at = lane; at < n * n; at += lanes) {
        double const square = matrix(at / n, at % n) * matrix(at / n, at % n);
        whole[lane] += square;
        beside[lane] += at / n == at % n ? 0.0 : square;
      }
    }
    double const rest = sum(group, beside);
    return !(rest > 1e-24 * sum(group, whole));
  }

  template <Group G>
  TESSERA_FN void turn_pairs(G const& group, std::int32_t round, std::int32_t players, scratch_type& scratch) const {
    auto const n = static_cast<std::int32_t>(matrix.extent(0));
    std::int32_t const pairs = players / 2;
    for (int lane : group) {
      for (std::int32_t i = lane; i < pairs; i += lanes) {
        scratch.turns[i] = turn_of(couple(i, round, players));
      }
    }
    group.sync();
    for (int lane : group) {
      for (std::int32_t at = lane; at < pairs * n; at += lanes) {
        turn const t = scratch.turns[at / n];
        if (t.high < n) {
          apply(t, matrix(at % n, t.low), matrix(at % n, t.high));
        }
      }
    }
    group.sync();
    for (int lane : group) {
      for (std::int32_t at = lane; at < pairs * n; at += lanes) {
        turn const t = scratch.turns[at / n];
        if (t.high < n) {
          apply(t, matrix(t.low, at % n), matrix(t.high, at % n));
          apply(t, vectors(t.low, at % n), vectors(t.high, at % n));
        }
      }
    }
    group.sync();
  }

  TESSERA_FN turn turn_of(turn t) const {
    double const beside = t.high < matrix.extent(0) ? matrix(t.low, t.high) : 0.0;
    if (beside == 0.0) {
      return t;
    }
    double const ratio = (matrix(t.high, t.high) - matrix(t.low, t.low)) / (2.0 * beside);
    double const size = ratio < 0.0 ? -ratio : ratio;
    double const tangent = (ratio < 0.0 ? -1.0 : 1.0) / (size + ::sqrt(1.0 + ratio * ratio));
    t.cosine = 1.0 / ::sqrt(1.0 + tangent * tangent);
    t.sine = tangent * t.cosine;
    return t;
  }

  TESSERA_FN static void apply(turn const& t, double& first, double& second) {
    double const before = first;
    first = t.cosine * before - t.sine * second;
    second = t.sine * before + t.cosine * second;
  }
};

/// Finds the indices of the largest values on a diagonal, in order, and their sum. One group.
struct order_values {
  static constexpr int lanes = 64;
  struct scratch_type {};

  matrix_view<double const> values;        ///< a matrix with the values on its diagonal
  array_view<std::int32_t> order;          ///< indices by falling value
  array_view<subspace_measures> measures;  ///< measures of the rows

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    for (int lane : group) {
      for (std::int64_t i = lane; i < values.extent(0); i += lanes) {
        std::int64_t before = 0;
        for (std::int64_t j = 0; j < values.extent(0); ++j) {
          before += values(j, j) > values(i, i) || (!(values(j, j) < values(i, i)) && j < i) ? 1 : 0;
        }
        if (before < order.size()) {
          order[before] = static_cast<std::int32_t>(i);
        }
      }
    }
    group.sync();
    for (int lane : group) {
      if (is_first(lane)) {
        double held = 0.0;
        for (std::int64_t k = 0; k < order.size(); ++k) {
          held += values(order[k], order[k]);
        }
        measures[0].held = held;
      }
    }
  }
};

/// Writes the best columns of columns * vectors^T: directions(i, k) is element i of the k-th best.
template <class T>
struct write_directions {
  static constexpr int lanes = 64;
  struct scratch_type {};

  matrix_view<float const> columns;      ///< the subspace: width x columns
  matrix_view<double const> vectors;     ///< eigenvectors of the subspace's products
  array_view<std::int32_t const> order;  ///< the best vectors, by falling eigenvalue
  matrix_view<T> directions;             ///< width x rank

  TESSERA_FN constexpr std::int64_t groups() const { return columns.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      for (std::int64_t k = lane; k < order.size(); k += lanes) {
        double sum = 0.0;
        for (std::int64_t j = 0; j < columns.extent(1); ++j) {
          sum += static_cast<double>(columns(which, j)) * vectors(order[k], j);
        }
        directions(which, k) = store<T>(static_cast<float>(sum));
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
