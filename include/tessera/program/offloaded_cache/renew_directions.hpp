// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `renew_directions`: how a step of an offloaded cache finds better directions for a sequence whose short prompt had
/// too few keys. One group computes them from the keys and coefficients in the cache, and waits for nothing.
///
/// Directions are renewed at the end of a step if a chunk to which they were not fitted leaves the ring in the next
/// step (renewal_rule). The ring's tokens are exact. With Q the directions and k a key of the ring:
///
///     k = Q d + W b        W: orthonormal columns, what the ring's keys have beside Q      add_columns
///     C = sum of a a^T over archived keys, whose coefficients are a = (a, 0), and of those of the ring, a = (d, b)
///     V: as many directions as W has columns, of [Q W], in which C is least                 find_least
///     U: the others, by Householder's reflections of V to the last coordinates              make_turn
///     Q <- [Q W] U, a <- a U of the archived chunks                                         turn_rows
///
/// So nothing is lost as long as there are no more tokens than directions. V comes from (C + 1e-7 of its trace)^-1 by
/// subspace iteration; the small matrices are in double. With 160 directions of 1024 channels and 1280 tokens this
/// takes 0.5 GFLOP by one thread block. There is one renewal whenever the text has grown by a quarter, and none after
/// directions were fitted to eight tokens for each of them.
#pragma once

#include <cstdint>
#include <math.h>  // not <cmath>: as in core/math.hpp

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/mix_bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/program/subspace/iterate.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// The rule by which steps renew directions.
struct renewal_rule {
  float growth;  ///< renewal needs so many times the tokens of the last fit
  float until;   ///< renewal needs a last fit to fewer tokens than so many for each direction; 0: never

  /// Whether a cache with these extents can renew directions at all.
  [[nodiscard]] TESSERA_FN constexpr bool can_be(offload_extents const& n) const {
    return until > 0.0F && n.rank < n.width();
  }
  /// Whether directions are to be renewed now: the next step archives a chunk to which they were not fitted.
  [[nodiscard]] TESSERA_FN constexpr bool is_due(offload_extents const& n, cached_sequence const& known) const {
    return can_be(n) && known.archives(n) && (known.chunks + 1) * n.chunk > known.fitted &&
           static_cast<float>(known.fitted) < until * static_cast<float>(n.rank) &&
           static_cast<float>(known.tokens) >= growth * static_cast<float>(known.fitted);
  }
};

/// The memory of one renewal, in doubles, and its matrices. Columns of the same row are neighbours in memory.
struct renewal_memory {
  static constexpr std::int64_t most_added = 64;  ///< the most tokens of the ring that are used, the oldest ones

  std::int64_t columns;          ///< columns of W
  std::int64_t basis;            ///< directions and columns of W
  matrix_view<double> products;  ///< C; then its inverse; then reflections, [coordinate][basis]
  matrix_view<double> least;     ///< V: basis x columns
  matrix_view<double> images;    ///< products of the inverse with V
  matrix_view<double> factor;    ///< Cholesky's factor, first of what directions leave of the tokens, then of V
  matrix_view<float> added;      ///< W: width x tokens of the ring, or fewer
  matrix_view<float> latest;     ///< basis x tokens: (d, b) of the ring's keys, one in each column
  matrix_view<float> turn;       ///< U: basis x rank

  /// The most tokens of the ring that are used.
  [[nodiscard]] TESSERA_FN static constexpr std::int64_t most(offload_extents const& n) {
    return min(n.ring, most_added);
  }
  /// The doubles for a sequence.
  [[nodiscard]] TESSERA_FN static constexpr std::int64_t elements(offload_extents const& n) {
    std::int64_t const tokens = most(n);
    std::int64_t const size = n.rank + tokens;
    std::int64_t const floats = n.width() * tokens + size * tokens + size * n.rank;
    return size * size + 2 * size * tokens + tokens * tokens + divide_up(floats, std::int64_t{2});
  }
  /// The matrices for so many tokens of the ring, which add `columns` columns.
  [[nodiscard]] TESSERA_FN static renewal_memory of(offload_extents const& n, double* room, std::int64_t tokens,
                                                    std::int64_t columns) {
    std::int64_t const most = n.rank + tokens;
    std::int64_t const size = n.rank + columns;
    double* const behind = room + most * most + 2 * most * tokens;
    auto* const floats = reinterpret_cast<float*>(behind + tokens * tokens);
    renewal_memory made;
    made.columns = columns;
    made.basis = size;
    made.products = {room, {size, size}};
    made.least = {room + most * most, {size, columns}};
    made.images = {room + most * most + most * tokens, {size, columns}};
    made.factor = {behind, {columns, columns}};
    made.added = {floats, {n.width(), columns}, {tokens, 1}};
    made.latest = {floats + n.width() * tokens, {size, tokens}};
    made.turn = {floats + (n.width() + most) * tokens, {size, n.rank}};
    return made;
  }
};

template <class T, class E>
struct renew_directions {
  static constexpr int rounds = 4;        ///< rounds of subspace iteration
  static constexpr int rows_at_once = 4;  ///< rows that are turned at once, where there is room for them
  /// The most vectors from which new directions are chosen.
  static constexpr std::int64_t most_basis = key_directions + renewal_memory::most_added;

  struct scratch_type {
    double line[most_basis];  ///< a row or a column that all lanes read
    float rows[most_basis];   ///< rows that are turned
  };

  offload_extents extents;
  offloaded_memory<T, E> memory;
  std::int64_t sequence;  ///< number of the sequence in the batch
  double* room;           ///< renewal_memory::elements() doubles

  /// Renews the directions of a sequence that is due. All lanes of a group, which are more than one, must call it.
  template <Group G>
  TESSERA_FN void run(G const& group, scratch_type& scratch) const {
    cached_sequence const known = memory.sequences[sequence];
    std::int64_t const oldest = known.chunks * extents.chunk;
    std::int64_t const tokens = min(known.in_ring(extents.chunk), renewal_memory::most(extents));
    std::int64_t const columns = add_columns(group, oldest, tokens, scratch);
    renewal_memory const on = renewal_memory::of(extents, room, tokens, columns);
    double const trace = add_products(group, on, known.first * extents.chunk, oldest);
    bool const is_turned = columns > 0 && trace - trace == 0.0;  // not if nothing is new, or sums are not numbers
    if (is_turned) {
      invert(group, on.products, trace * 1e-7, scratch);
      find_least(group, on, scratch);
      make_turn(group, on, scratch);
      turn_rows(group, on, memory.directions[sequence], {on.added}, extents.width(), scratch);
      turn_rows(group, on, memory.coefficients.slice(0, known.first * extents.chunk, oldest), {}, oldest, scratch);
      forget_slots(group, known);
    }
    float const left = is_turned ? left_of_latest(group, on) : known.residual;
    group.sync();  // all lanes have read the state of the sequence
    for (int lane : group) {
      if (is_first(lane)) {
        cached_sequence& now = memory.sequences[sequence];
        now.fitted = static_cast<std::int32_t>(oldest + tokens);
        now.residual = left;
        now.streamed = 0;
        now.streamed_residual = 0.0F;
      }
    }
  }

 private:
  /// Calls act(row, column) for all of a matrix; neighbouring lanes have neighbouring columns. No sync.
  template <Group G, class Act>
  TESSERA_FN static void each(G const& group, std::int64_t rows, std::int64_t columns, Act const& act) {
    constexpr int across = 32;
    static_assert(G::size % across == 0);
    for (int lane : group) {
      for (std::int64_t row = lane / across; row < rows; row += G::size / across) {
        for (std::int64_t column = lane % across; column < columns; column += across) {
          act(row, column);
        }
      }
    }
  }

  /// Calls write(i, j, sum over k of a(i, k) b(k, j)); a lane has eight rows of a column at a time.
  template <class Sum, Group G, class A, class B, class Write>
  TESSERA_FN static void multiply(G const& group, std::int64_t rows, std::int64_t columns, std::int64_t depth,
                                  A const& a, B const& b, Write const& write) {
    constexpr int high = 8;
    each(group, divide_up(rows, std::int64_t{high}), columns, [&](std::int64_t block, std::int64_t column) {
      std::int64_t const row = block * high;
      Sum sums[high] = {};
      for (std::int64_t k = 0; k < depth; ++k) {
        auto const other = static_cast<Sum>(b(k, column));
        for (int i = 0; i < high; ++i) {
          sums[i] += static_cast<Sum>(a(min(row + i, rows - 1), k)) * other;
        }
      }
      for (int i = 0; i < high; ++i) {
        if (row + i < rows) {
          write(row + i, column, sums[i]);
        }
      }
    });
    group.sync();
  }

  TESSERA_FN float direction(std::int64_t channel, std::int64_t k) const {
    return static_cast<float>(load(memory.directions(sequence, channel, k)));
  }

  /// Computes W and the coordinates of the ring's keys in [Q W], and returns the number of W's columns. A key adds none
  /// if the keys before it and Q leave less than a ten-thousandth of it. Q is rounded to T, so that three passes
  /// subtract it.
  template <Group G>
  TESSERA_FN std::int64_t add_columns(G const& group, std::int64_t oldest, std::int64_t tokens,
                                      scratch_type& scratch) const {
    renewal_memory const on = renewal_memory::of(extents, room, tokens, tokens);
    each(group, extents.width(), tokens, [&, this](std::int64_t channel, std::int64_t token) {
      on.added(channel, token) =
          static_cast<float>(load(memory.ring_sources(sequence, (oldest + token) % extents.ring, channel)));
    });
    each(group, on.basis, tokens, [&](std::int64_t k, std::int64_t token) { on.latest(k, token) = 0.0F; });
    group.sync();
    matrix_view<float> const found(on.turn.data, {extents.rank, tokens});
    for (int pass = 0; pass < 3; ++pass) {
      multiply<float>(
          group, extents.rank, tokens, extents.width(),
          [&, this](std::int64_t k, std::int64_t channel) { return direction(channel, k); },
          [&](std::int64_t channel, std::int64_t token) { return on.added(channel, token); },
          [&](std::int64_t k, std::int64_t token, float product) {
            found(k, token) = product;
            on.latest(k, token) += product;
          });
      multiply<float>(
          group, extents.width(), tokens, extents.rank,
          [&, this](std::int64_t channel, std::int64_t k) { return direction(channel, k); },
          [&](std::int64_t k, std::int64_t token) { return found(k, token); },
          [&](std::int64_t channel, std::int64_t token, float product) { on.added(channel, token) -= product; });
    }
    find_factor(group, on.factor, on.added, scratch, [&, this](std::int64_t token) {
      double whole = on.factor(token, token);
      for (std::int64_t k = 0; k < extents.rank; ++k) {
        whole += static_cast<double>(on.latest(k, token)) * static_cast<double>(on.latest(k, token));
      }
      return 1e-8 * whole;
    });
    divide(group, on.factor, on.added);
    std::int64_t columns = 0;
    for (std::int64_t column = 0; column < tokens; ++column) {
      bool const is_kept = on.factor(column, column) > 0.0;
      for (int lane : group) {
        for (std::int64_t token = lane; is_kept && token < tokens; token += G::size) {
          on.latest(extents.rank + columns, token) =
              column <= token ? static_cast<float>(on.factor(token, column)) : 0.0F;
        }
      }
      columns += is_kept ? 1 : 0;
    }
    group.sync();
    return columns;
  }

  /// Computes Cholesky's factor L of the products of columns, on and below the diagonal, with zeros for a column of
  /// which the columns before it leave no more than floor(column).
  template <Group G, class V, class Floor>
  TESSERA_FN static void find_factor(G const& group, matrix_view<double> factor, matrix_view<V> columns,
                                     scratch_type& scratch, Floor const& floor) {
    std::int64_t const n = factor.extent(0);
    multiply<double>(
        group, n, n, columns.extent(0), [&](std::int64_t i, std::int64_t k) { return columns(k, i); },
        [&](std::int64_t k, std::int64_t j) { return columns(k, j); },
        [&](std::int64_t i, std::int64_t j, double product) { factor(i, j) = product; });
    for (int lane : group) {
      for (std::int64_t k = lane; k < n; k += G::size) {
        scratch.line[k] = floor(k);
      }
    }
    group.sync();
    for (std::int64_t k = 0; k < n; ++k) {
      double const pivot = factor(k, k);
      double const root = pivot > scratch.line[k] ? ::sqrt(pivot) : 0.0;
      group.sync();  // all lanes have read the pivot
      for (int lane : group) {
        for (std::int64_t i = k + lane; i < n; i += G::size) {
          factor(i, k) = i == k ? root : (root > 0.0 ? factor(i, k) / root : 0.0);
        }
      }
      group.sync();
      std::int64_t const left = n - k - 1;
      each(group, left, left, [&](std::int64_t row, std::int64_t column) {
        if (column <= row) {
          factor(k + 1 + row, k + 1 + column) -= factor(k + 1 + row, k) * factor(k + 1 + column, k);
        }
      });
      group.sync();
    }
  }

  /// Computes columns <- columns L^-T, which are orthonormal, without those for which the factor has zeros. A lane for
  /// each row.
  template <Group G, class V>
  TESSERA_FN static void divide(G const& group, matrix_view<double> factor, matrix_view<V> columns) {
    for (int lane : group) {
      for (std::int64_t row = lane; row < columns.extent(0); row += G::size) {
        std::int64_t kept = 0;
        for (std::int64_t i = 0; i < factor.extent(0); ++i) {
          if (factor(i, i) > 0.0) {
            auto value = static_cast<double>(columns(row, i));
            std::int64_t before = 0;
            for (std::int64_t k = 0; k < i; ++k) {
              if (factor(k, k) > 0.0) {
                value -= factor(i, k) * static_cast<double>(columns(row, before++));
              }
            }
            columns(row, kept++) = static_cast<V>(value / factor(i, i));
          }
        }
      }
    }
    group.sync();
  }

  /// Computes C of the archived tokens, whose coefficients begin at `row`, and of the ring's tokens. Returns its trace.
  template <Group G>
  TESSERA_FN double add_products(G const& group, renewal_memory const& on, std::int64_t row,
                                 std::int64_t archived) const {
    auto const coordinate = [&, this](std::int64_t i, std::int64_t token) {
      if (token >= archived) {
        return static_cast<double>(on.latest(i, token - archived));
      }
      return i < extents.rank ? static_cast<double>(load(memory.coefficients(row + token, i))) : 0.0;
    };
    multiply<double>(
        group, on.basis, on.basis, archived + on.latest.extent(1), coordinate,
        [&](std::int64_t token, std::int64_t j) { return coordinate(j, token); },
        [&](std::int64_t i, std::int64_t j, double product) { on.products(i, j) = product; });
    per_lane<double, G> own;
    for (int lane : group) {
      own[lane] = 0.0;
      for (std::int64_t i = lane; i < on.basis; i += G::size) {
        own[lane] += on.products(i, i);
      }
    }
    double const trace = sum(group, own);
    group.sync();
    return trace;
  }

  /// Computes matrix <- -(matrix + shift)^-1 of a symmetric matrix without negative eigenvalues, by eliminating row
  /// after row.
  template <Group G>
  TESSERA_FN static void invert(G const& group, matrix_view<double> matrix, double shift, scratch_type& scratch) {
    std::int64_t const n = matrix.extent(0);
    for (std::int64_t k = 0; k < n; ++k) {
      for (int lane : group) {
        for (std::int64_t j = lane; j < n; j += G::size) {
          scratch.line[j] = matrix(k, j) + (j == k ? shift : 0.0);
        }
      }
      group.sync();
      double const inverse = 1.0 / scratch.line[k];
      each(group, n, n, [&](std::int64_t i, std::int64_t j) {
        double const product = scratch.line[i] * scratch.line[j] * inverse;
        double& own = matrix(i, j);
        own = i != k && j != k ? own - product : (i == j ? -inverse : product / scratch.line[k]);
      });
      group.sync();
    }
  }

  /// Computes V, given the inverse. It begins with random columns: added columns alone could span a subspace that
  /// iteration does not leave.
  template <Group G>
  TESSERA_FN static void find_least(G const& group, renewal_memory const& on, scratch_type& scratch) {
    each(group, on.basis, on.columns, [&](std::int64_t i, std::int64_t j) {
      auto const word = mix_bits(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j));
      on.least(i, j) = static_cast<double>(word >> 40) * 0x1p-23 - 1.0;
    });
    group.sync();
    for (int round = 0; round < rounds; ++round) {
      multiply<double>(
          group, on.basis, on.columns, on.basis, [&](std::int64_t i, std::int64_t k) { return on.products(i, k); },
          [&](std::int64_t k, std::int64_t j) { return on.least(k, j); },
          [&](std::int64_t i, std::int64_t j, double product) { on.images(i, j) = product; });
      for (int pass = 0; pass < 2; ++pass) {  // twice, since the first pass gets columns that are nearly equal
        find_factor(group, on.factor, on.images, scratch, [](std::int64_t) { return 0.0; });
        divide(group, on.factor, on.images);
      }
      each(group, on.basis, on.columns, [&](std::int64_t i, std::int64_t j) { on.least(i, j) = on.images(i, j); });
      group.sync();
    }
  }

  /// Computes U: reflections that take V's columns to the last coordinates, one after the other, take the complement of
  /// V to the first ones.
  template <Group G>
  TESSERA_FN void make_turn(G const& group, renewal_memory const& on, scratch_type& scratch) const {
    each(group, on.basis, on.basis, [&](std::int64_t i, std::int64_t j) { on.products(i, j) = i == j ? 1.0 : 0.0; });
    group.sync();
    for (std::int64_t column = on.columns; column-- > 0;) {
      std::int64_t const last = extents.rank + column;
      for (int lane : group) {
        for (std::int64_t i = lane; i <= last; i += G::size) {
          double const own = on.least(i, column);
          scratch.line[i] = i < last ? own : own + (own < 0.0 ? -1.0 : 1.0);
        }
      }
      group.sync();
      double const along = scratch.line[last];
      double const by = 1.0 / (along < 0.0 ? -along : along);
      for (int lane : group) {
        for (std::int64_t i = lane; i < on.basis + column; i += G::size) {
          bool const is_column = i >= on.basis;
          double* const first = is_column ? on.least.data + (i - on.basis) : on.products.data + i;
          reflect(first, is_column ? on.columns : on.basis, last + 1, by, scratch);
        }
      }
      group.sync();
    }
    each(group, on.basis, extents.rank,
         [&](std::int64_t i, std::int64_t k) { on.turn(i, k) = static_cast<float>(on.products(k, i)); });
    group.sync();
  }
  TESSERA_FN static void reflect(double* vector, std::int64_t stride, std::int64_t count, double by,
                                 scratch_type const& scratch) {
    double product = 0.0;
    for (std::int64_t i = 0; i < count; ++i) {
      product += vector[i * stride] * scratch.line[i];
    }
    for (std::int64_t i = 0; i < count; ++i) {
      vector[i * stride] -= by * product * scratch.line[i];
    }
  }

  /// Computes rows <- (rows, beside) U in place; a null `beside` counts as zeros.
  template <Group G>
  TESSERA_FN void turn_rows(G const& group, renewal_memory const& on, matrix_view<T> rows,
                            matrix_view<float const> beside, std::int64_t count, scratch_type& scratch) const {
    std::int64_t const depth = beside.data != nullptr ? on.basis : extents.rank;
    std::int64_t const at_once = clamp(most_basis / depth, std::int64_t{1}, std::int64_t{rows_at_once});
    for (std::int64_t first = 0; first < count; first += at_once) {
      each(group, at_once, depth, [&, this](std::int64_t i, std::int64_t k) {
        std::int64_t const row = min(first + i, count - 1);
        scratch.rows[i * depth + k] =
            k < extents.rank ? static_cast<float>(load(rows(row, k))) : beside(row, k - extents.rank);
      });
      group.sync();
      for (int lane : group) {
        for (std::int64_t k = lane; k < extents.rank; k += G::size) {
          float sums[rows_at_once] = {};
          for (std::int64_t j = 0; j < depth; ++j) {
            float const by = on.turn(j, k);
            for (std::int64_t i = 0; i < rows_at_once; ++i) {
              sums[i] += scratch.rows[min(i, at_once - 1) * depth + j] * by;
            }
          }
          for (std::int64_t i = 0; i < rows_at_once; ++i) {
            if (i < at_once && first + i < count) {
              rows(first + i, k) = store<T>(sums[i]);
            }
          }
        }
      }
      group.sync();
    }
  }

  /// The part of the ring's keys that the new directions do not hold.
  template <Group G>
  TESSERA_FN float left_of_latest(G const& group, renewal_memory const& on) const {
    std::int64_t const tokens = on.latest.extent(1);
    per_lane<double, G> held;
    per_lane<double, G> whole;
    for (int lane : group) {
      held[lane] = whole[lane] = 0.0;
      for (std::int64_t at = lane; at < extents.rank * tokens; at += G::size) {
        double along = 0.0;
        for (std::int64_t j = 0; j < on.basis; ++j) {
          along += static_cast<double>(on.turn(j, at / tokens)) * static_cast<double>(on.latest(j, at % tokens));
        }
        held[lane] += along * along;
      }
      for (std::int64_t at = lane; at < on.latest.size(); at += G::size) {
        whole[lane] += static_cast<double>(on.latest.data[at]) * static_cast<double>(on.latest.data[at]);
      }
    }
    double const all = sum(group, whole);
    double const left = 1.0 - sum(group, held) / (all > 0.0 ? all : 1.0);
    return all > 0.0 && left > 0.0 ? static_cast<float>(left) : 0.0F;
  }

  /// Empties the slots, whose keys were rebuilt with the old directions.
  template <Group G>
  TESSERA_FN void forget_slots(G const& group, cached_sequence const& known) const {
    each(group, extents.key_heads, extents.slots, [&, this](std::int64_t head, std::int64_t slot) {
      std::int32_t& id = memory.slot_ids(sequence, head, slot);
      if (id >= 0) {
        memory.chunk_slots(known.first + id, head) = static_cast<std::int16_t>(chunk_slot::archived);
      }
      id = -1;
    });
  }
};

}  // namespace v0
}  // namespace tessera
