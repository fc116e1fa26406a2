// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Programs that reduce the logits of a student and of its teacher, which are in memory for a part of the vocabulary:
/// `reduce_logit_pairs` finds both log-sum-exps and, of divergences that are a mean of log-ratios, the divergence;
/// `add_divergences` sums the values of others, once log-sum-exps are known; `finish_distillation` makes the loss.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/map/divergence.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/map/scaled_sum.hpp>
#include <tessera/program/loss/logits.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/row_chunks.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Logits of a part's tokens and entries, made of what the options made of sums of products.
template <LogitMap Map>
struct mapped_logits {
  [[no_unique_address]] Map map = {};  ///< not last, where nvcc 13.0 miscounts sizes
  std::int64_t first = 0;              ///< the entry of the part's first column
  std::int64_t first_token = 0;        ///< the token of the part's first row

  /// The logit of a row and a column, which the map is not called for where it is minus infinity.
  [[nodiscard]] TESSERA_FN float operator()(float scaled, std::int64_t row, std::int64_t column) const {
    if constexpr (leaves_logits<Map>) {
      return scaled;
    } else {
      return scaled == -infinity ? scaled : map(scaled, first_token + row, first + column);
    }
  }
  /// The derivative of the logit by what the map was given.
  [[nodiscard]] TESSERA_FN float slope(float scaled, std::int64_t row, std::int64_t column) const {
    if constexpr (leaves_logits<Map>) {
      return 1.0F;
    } else {
      return scaled == -infinity ? 1.0F : map.slope(scaled, first_token + row, first + column);
    }
  }
};

/// The map of sums (concepts/sum_map.hpp) that makes logits of them.
template <class T, LogitMap Map = identity_logits>
struct scaled_logits {
  static constexpr bool operands_lie_along = true;  ///< as those of the losses do
  logit_scaling<T> scaling;                         ///< with the biases of the columns, if there are some
  mapped_logits<Map> map = {};                      ///< what logits go through then

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("biases", scaling.bias);
  }
  /// The logit of a sum.
  TESSERA_FN float operator()(float sum, std::int64_t row, std::int64_t column) const {
    return map(scaling(sum, column), row, column);
  }
};
/// The same of logits that are only multiplied.
struct multiplied_logits : scaled_sum {
  static constexpr bool operands_lie_along = true;  ///< as those of the losses do
};

/// What is known of a token's logits after some parts of the vocabulary.
struct logit_pair_state {
  scaled_exponentials<float> student;  ///< of the student's logits
  scaled_exponentials<float> teacher;  ///< of the teacher's logits
  /// The sum of a side's exponentials, relative to its largest logit, times by how much its logits exceed the other's.
  float weighted;
};

/// What a token's gradients depend on.
struct divergence_row {
  float student;    ///< log-sum-exp of the student's logits
  float teacher;    ///< log-sum-exp of the teacher's logits
  float value;      ///< the divergence
  float slope_sum;  ///< the sum of slopes
};

/// The Reducer of pairs of logits, with the sum that the Ratio of a divergence needs.
template <mean_log_ratio Ratio>
struct logit_pair_reducer {
  using state_type = logit_pair_state;
  /// Logits of an entry.
  struct input_type {
    float student;  ///< the student's logit
    float teacher;  ///< the teacher's logit
  };

  TESSERA_FN constexpr state_type identity() const { return {{-infinity, 0.0F}, {-infinity, 0.0F}, 0.0F}; }
  TESSERA_FN void push(state_type& state, input_type pair) const {
    input_type const one[1] = {pair};
    push_some(state, one);
  }
  TESSERA_FN void merge(state_type& into, state_type const& other) const {
    state_type const before = into;
    lse_reducer<float>{}.merge(into.student, other.student);
    lse_reducer<float>{}.merge(into.teacher, other.teacher);
    into.weighted = before.weighted * power::of_state(before, into) + other.weighted * power::of_state(other, into);
  }
  /// Pushes a few pairs, whose sums become relative to the largest logits only once.
  template <int Count>
  TESSERA_FN void push_some(state_type& state, input_type const (&pairs)[Count]) const {
    state_type const before = state;
    for (int i = 0; i < Count; ++i) {
      state.student.largest = maximum(state.student.largest, pairs[i].student);
      state.teacher.largest = maximum(state.teacher.largest, pairs[i].teacher);
    }
    state.student.scaled *= power::relative(before.student.largest, state.student.largest);
    state.teacher.scaled *= power::relative(before.teacher.largest, state.teacher.largest);
    state.weighted *= power::of_state(before, state);
    for (int i = 0; i < Count; ++i) {
      float const of_student = power::relative(pairs[i].student, state.student.largest);
      float const of_teacher = power::relative(pairs[i].teacher, state.teacher.largest);
      state.student.scaled += of_student;
      state.teacher.scaled += of_teacher;
      float const apart = pairs[i].teacher - pairs[i].student;
      if constexpr (Ratio == mean_log_ratio::teacher) {
        state.weighted += of_teacher == 0.0F ? 0.0F : of_teacher * apart;
      } else if constexpr (Ratio == mean_log_ratio::student) {
        state.weighted -= of_student == 0.0F ? 0.0F : of_student * apart;
      }
    }
  }

 private:
  struct power {
    TESSERA_FN static float relative(float value, float largest) {
      return detail::relative_power<detail::natural_power>(value, largest);
    }
    /// What the weighted sum of a state is multiplied by to be relative to another's largest logits.
    TESSERA_FN static float of_state(state_type const& state, state_type const& other) {
      return Ratio == mean_log_ratio::student ? relative(state.student.largest, other.student.largest)
                                              : relative(state.teacher.largest, other.teacher.largest);
    }
  };
};

/// Reduces the rows of a part and adds them to the states of tokens. A group takes a token. Map: what the student's
/// logits go through; the teacher's have gone through theirs.
template <mean_log_ratio Ratio, LogitMap Map = identity_logits>
struct reduce_logit_pairs {
  static constexpr int lanes = 128;
  struct scratch_type {};

  matrix_view<float const> student;     ///< tokens x entries of the part
  matrix_view<float const> teacher;     ///< tokens x entries of the part
  array_view<logit_pair_state> states;  ///< one for each token
  bool is_first_part;                   ///< whether states have nothing yet
  mapped_logits<Map> map = {};          ///< of the student

  TESSERA_FN constexpr std::int64_t groups() const { return states.size(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t token, scratch_type&) const {
    per_lane<logit_pair_state, G> own;
    for (int lane : group) {
      own[lane] = reducer{}.identity();
      push_row(own[lane], token, lane * size);
    }
    logit_pair_state const total = merged(group, own);
    for (int lane : group) {
      if (is_first(lane)) {
        if (is_first_part) {
          states[token] = total;
        } else {
          reducer{}.merge(states[token], total);
        }
      }
    }
  }

 private:
  using reducer = logit_pair_reducer<Ratio>;
  using pair = typename reducer::input_type;
  /// Sums of lanes that are relative to the same largest logits.
  struct sums {
    float student;
    float teacher;
    float weighted;
    TESSERA_FN friend constexpr sums operator+(sums const& a, sums const& b) {
      return {a.student + b.student, a.teacher + b.teacher, a.weighted + b.weighted};
    }
  };

  /// The states of all lanes together. The largest logits are found first, so that no step of the sums has a power.
  template <Group G>
  TESSERA_FN static logit_pair_state merged(G const& group, per_lane<logit_pair_state, G> const& own) {
    per_lane<float, G> student;
    per_lane<float, G> teacher;
    for (int lane : group) {
      student[lane] = own[lane].student.largest;
      teacher[lane] = own[lane].teacher.largest;
    }
    logit_pair_state total{{maximum(group, student), 0.0F}, {maximum(group, teacher), 0.0F}, 0.0F};
    per_lane<sums, G> scaled;
    for (int lane : group) {
      logit_pair_state state = total;
      reducer{}.merge(state, own[lane]);
      scaled[lane] = {state.student.scaled, state.teacher.scaled, state.weighted};
    }
    sums const of_all = reduce(group, scaled, detail::plus{});
    total.student.scaled = of_all.student;
    total.teacher.scaled = of_all.teacher;
    total.weighted = of_all.weighted;
    return total;
  }
  static constexpr int size = row_chunks<float const>::size;

  /// Pushes a lane's pairs of a row, from a column on: of two chunks together as long as there are two, so that more is
  /// on its way from memory, and sums change their largest logits less often.
  TESSERA_FN void push_row(logit_pair_state& state, std::int64_t token, std::int64_t column) const {
    constexpr std::int64_t step = std::int64_t{lanes} * size;
    std::int64_t const end = student.extent(1);
    for (; column + step + size <= end; column += 2 * step) {
      pair pairs[2 * size];
      take<0>(pairs, token, column);
      take<size>(pairs, token, column + step);
      reducer{}.push_some(state, pairs);
    }
    for (; column + size <= end; column += step) {
      pair pairs[size];
      take<0>(pairs, token, column);
      reducer{}.push_some(state, pairs);
    }
    for (; column < end; ++column) {  // at most one lane has the rest of the row
      reducer{}.push(state, {map(student(token, column), token, column), teacher(token, column)});
    }
  }
  /// Loads the pairs of a chunk that lies inside of the row.
  template <int First, int Count>
  TESSERA_FN void take(pair (&pairs)[Count], std::int64_t token, std::int64_t column) const {
    auto const of_student = row_chunks<float const>{student}.load(token, column);
    auto const of_teacher = row_chunks<float const>{teacher}.load(token, column);
    for (int i = 0; i < size; ++i) {
      pairs[First + i] = {map(of_student.values[i], token, column + i), of_teacher.values[i]};
    }
  }
};

/// Gives tokens states of no entries.
struct clear_logit_pairs {
  static constexpr int lanes = 256;
  struct scratch_type {};

  array_view<logit_pair_state> states;  ///< one for each token

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(states.size(), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    each_index<lanes>(group, which, states.size(), [&, this](std::int64_t token) {
      states[token] = logit_pair_reducer<mean_log_ratio::none>{}.identity();
    });
  }
};

/// Merges the states of tokens over ranks, in the order of these. Merge: what merges them, as a Reducer does.
template <class Merge>
struct merge_over_ranks {
  using state_type = typename Merge::state_type;
  static constexpr int lanes = 256;
  struct scratch_type {};

  matrix_view<state_type const> from;  ///< ranks x tokens
  array_view<state_type> states;       ///< the result, one for each token

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(states.size(), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    each_index<lanes>(group, which, states.size(), [&, this](std::int64_t token) {
      state_type merged = from(0, token);
      for (std::int64_t rank = 1; rank < from.extent(0); ++rank) {
        Merge{}.merge(merged, from(rank, token));
      }
      states[token] = merged;
    });
  }
};

/// Makes rows of the states of tokens, after the last part. Where there is no mean of log-ratios, values and sums of
/// slopes begin at 0, and add_divergences adds to them.
template <mean_log_ratio Ratio>
struct finish_logit_pairs {
  static constexpr int lanes = 256;
  struct scratch_type {};

  array_view<logit_pair_state const> states;  ///< one for each token
  array_view<divergence_row> rows;            ///< the result, one for each token

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(rows.size(), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    each_index<lanes>(group, which, rows.size(),
                      [&, this](std::int64_t token) { rows[token] = row_of(states[token]); });
  }

 private:
  TESSERA_FN static divergence_row row_of(logit_pair_state const& state) {
    // Differences first: largest logits may be far above the divergence.
    float const apart =
        (state.student.largest - state.teacher.largest) + (log(state.student.scaled) - log(state.teacher.scaled));
    divergence_row row{lse_reducer<float>{}.value(state.student), lse_reducer<float>{}.value(state.teacher), 0.0F,
                       0.0F};
    if constexpr (Ratio == mean_log_ratio::teacher) {
      row.value = state.weighted / state.teacher.scaled + apart;
      row.slope_sum = -1.0F;
    } else if constexpr (Ratio == mean_log_ratio::student) {
      row.value = state.weighted / state.student.scaled - apart;
      row.slope_sum = row.value + 1.0F;
    }
    return row;
  }
};

/// Adds the values and slopes of a part's entries to the rows of tokens. A group takes a token. Map: see
/// reduce_logit_pairs.
template <Divergence D, LogitMap Map = identity_logits>
struct add_divergences {
  static constexpr int lanes = 256;
  struct scratch_type {};

  D divergence;                      ///< of the teacher's and the student's distributions
  matrix_view<float const> student;  ///< tokens x entries of the part
  matrix_view<float const> teacher;  ///< tokens x entries of the part
  array_view<divergence_row> rows;   ///< one for each token
  mapped_logits<Map> map = {};       ///< of the student

  TESSERA_FN constexpr std::int64_t groups() const { return rows.size(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t token, scratch_type&) const {
    divergence_row const row = rows[token];
    per_lane<float, G> values;
    per_lane<float, G> slopes;
    for (int lane : group) {
      row_sums own{0.0F, 0.0F};
      std::int64_t column = std::int64_t{lane} * size;
      for (; column + size <= student.extent(1); column += lanes * size) {
        add_chunk<size>(own, row, token, column);
      }
      if (column < student.extent(1)) {
        add_chunk<0>(own, row, token, column);
      }
      values[lane] = own.value;
      slopes[lane] = own.slope;
    }
    float const value = sum(group, values);
    float const slope = sum(group, slopes);
    group.sync();  // all lanes have read the row
    for (int lane : group) {
      if (is_first(lane)) {
        rows[token].value += value;
        rows[token].slope_sum += slope;
      }
    }
  }

 private:
  static constexpr int size = row_chunks<float const>::size;
  struct row_sums {
    float value;
    float slope;
  };

  /// Adds the entries of a chunk, 16 bytes of each side. Count: how many there are; 0: up to the end of the row.
  template <int Count>
  TESSERA_FN void add_chunk(row_sums& sums, divergence_row const& row, std::int64_t token, std::int64_t column) const {
    auto const of_student = row_chunks<float const>{student}.load(token, column);
    auto const of_teacher = row_chunks<float const>{teacher}.load(token, column);
    for (int i = 0; i < size; ++i) {
      if (Count == size || column + i < student.extent(1)) {
        float const log_p = of_teacher.values[i] - row.teacher;
        float const log_q = map(of_student.values[i], token, column + i) - row.student;
        sums.value += divergence.value(log_p, log_q);
        sums.slope += divergence.slope(log_p, log_q);
      }
    }
  }
};

/// What adds up the values and slopes of a token's rows, of which all ranks have the same log-sum-exps.
struct divergence_row_merger {
  using state_type = divergence_row;

  /// Adds those of another rank.
  TESSERA_FN constexpr void merge(state_type& into, state_type const& other) const {
    into.value += other.value;
    into.slope_sum += other.slope_sum;
  }
};

/// Makes the loss of the rows of tokens, and the scale of gradients. Run with one group. Sums over tokens are in
/// double, in an order that depends on the number of tokens alone. Tokens of weight 0 do not count, whatever their rows
/// hold.
struct finish_distillation {
  static constexpr int lanes = 256;
  struct scratch_type {};

  array_view<divergence_row const> rows;  ///< one for each token
  array_view<float const> weights;        ///< a value for each token, or null for ones
  bool is_reduced;                        ///< whether there is one loss, else one for each token
  bool is_mean;                           ///< whether that loss is the mean by weight
  array_view<float> loss;                 ///< the result
  array_view<float> divergence;           ///< a value for each token, or null
  array_view<float> scale;                ///< one element: 1 / total weight for a mean, else 1

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    per_lane<double, G> losses;
    per_lane<double, G> of_weights;
    for (int lane : group) {
      losses[lane] = of_weights[lane] = 0.0;
      for (std::int64_t token = lane; token < rows.size(); token += lanes) {
        float const weight = weights.data != nullptr ? weights[token] : 1.0F;
        float const own = weight == 0.0F ? 0.0F : weight * rows[token].value;
        losses[lane] += static_cast<double>(own);
        of_weights[lane] += static_cast<double>(weight);
        if (!is_reduced) {
          loss[token] = own;
        }
        detail::write_if_asked(divergence, token, rows[token].value);
      }
    }
    double const total = sum(group, losses);
    double const weight = sum(group, of_weights);
    double const factor = !is_mean ? 1.0 : weight != 0.0 ? 1.0 / weight : 0.0;
    for (int lane : group) {
      if (is_first(lane)) {
        scale[0] = static_cast<float>(factor);
        if (is_reduced) {
          loss[0] = static_cast<float>(is_mean && weight == 0.0 ? 0.0 : total * factor);
        }
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
