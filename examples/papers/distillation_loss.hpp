// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Distillation (arXiv 1503.02531): a student's divergence from its teacher, with the gradient by hidden states.
///
///     loss_i = sum_j p_ij (log p_ij - log q_ij)      p = softmax(t): the teacher's logits      q = softmax(h C^T)
///     gradient by h_i = (q_i - p_i) C
///
/// `divergence` is a user's own Reducer of pairs of logits, with which `distil_rows` goes through both rows once, and
/// once more for the gradient by logits. The products are the library's `linear`. Bytes, beside the products: 2 reads
/// of t (bf16) and h C^T (fp32), a write of gradients (bf16). FLOPs: 4 tokens vocabulary channels.
#pragma once

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/algorithm/gemm/materialize.hpp>
#include <tessera/core/math.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/tile/source/dense.hpp>

namespace tessera_examples {

using namespace tessera;

/// sum_j p_j (log p_j - log q_j) of pairs of logits, by one pass.
struct divergence {
  struct input_type {
    float student, teacher;
  };
  struct state_type {
    scaled_exponentials<float> student, teacher;
    float weighted;  ///< sum of exp(teacher - largest teacher) * (teacher - student)
  };
  using lse = lse_reducer<float>;

  TESSERA_FN constexpr state_type identity() const { return {lse{}.identity(), lse{}.identity(), 0.0F}; }
  TESSERA_FN void push(state_type& state, input_type logits) const {
    float const apart = logits.teacher == -infinity ? 0.0F : logits.teacher - logits.student;  // p log p is then 0
    merge(state, {{logits.student, 1.0F}, {logits.teacher, 1.0F}, apart});
  }
  TESSERA_FN void merge(state_type& into, state_type const& other) const {
    float const before = into.teacher.largest;
    lse{}.merge(into.student, other.student);
    lse{}.merge(into.teacher, other.teacher);
    float const now = into.teacher.largest;
    auto const moved = [=](float sum, float from) { return from == now ? sum : sum * tessera::exp(from - now); };
    into.weighted = moved(into.weighted, before) + moved(other.weighted, other.teacher.largest);
  }
  TESSERA_FN float value(state_type const& state) const {
    return state.weighted / state.teacher.scaled - lse{}.value(state.teacher) + lse{}.value(state.student);
  }
};
static_assert(Reducer<divergence>);

/// The loss of each token, and `factor` times its gradient by the student's logits. A group of lanes takes a token.
struct distil_rows {
  static constexpr int lanes = 512;
  struct scratch_type {};
  matrix_view<float const> student;     ///< tokens x vocabulary
  matrix_view<bfloat16 const> teacher;  ///< tokens x vocabulary
  array_view<float> loss;               ///< a value for each token
  matrix_view<bfloat16> gradient;       ///< tokens x vocabulary
  float factor;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t token, scratch_type&) const {
    per_lane<divergence::state_type, G> states;
    for (int lane : group) {
      states[lane] = divergence{}.identity();
      for (std::int64_t j = lane; j < student.extent(1); j += lanes) {
        divergence{}.push(states[lane], {student(token, j), load(teacher(token, j))});
      }
    }
    auto const row = reduce(group, states, [](divergence::state_type a, divergence::state_type const& b) {
      divergence{}.merge(a, b);
      return a;
    });
    float const q = lse_reducer<float>{}.value(row.student), p = lse_reducer<float>{}.value(row.teacher);
    for (int lane : group) {
      loss[token] = divergence{}.value(row);
      for (std::int64_t j = lane; j < student.extent(1); j += lanes) {
        float const difference = tessera::exp(student(token, j) - q) - tessera::exp(load(teacher(token, j)) - p);
        gradient(token, j) = store<bfloat16>(factor * difference);
      }
    }
  }
};

/// Enqueues the losses of tokens, and `factor` times the gradient by hidden states. `logits` and `gradient`: memory for
/// tokens x vocabulary; `turned`: for the transposed classifier.
template <class Executor>
void distillation_loss(Executor const& exec, matrix_view<bfloat16 const> hidden, matrix_view<bfloat16 const> classifier,
                       distil_rows const& rows, matrix_view<float> logits, matrix_view<bfloat16> turned,
                       matrix_view<bfloat16> hidden_gradient) {
  linear<bfloat16>::forward(exec, hidden, classifier, logits);
  exec.run(rows, hidden.extent(0));
  materialize(exec, dense<bfloat16>{classifier.transposed()}, turned);
  linear<bfloat16>::forward(exec, matrix_view<bfloat16 const>(rows.gradient), matrix_view<bfloat16 const>(turned),
                            hidden_gradient);
}

}  // namespace tessera_examples
