// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Classifiers of a distillation that are sources: what the source reads, in an executor's memory, and the rows that it
/// gives, for formulas and for the distillation of matrices.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include <tessera/algorithm/gemm/materialize.hpp>
#include <tessera/algorithm/loss/with_classifier.hpp>
#include <tessera/algorithm/loss/with_teacher_classifier.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/generators.hpp>

#include "support/distillation_runs.hpp"
#include "support/gemm_reference.hpp"
#include "support/stored_classifiers.hpp"

namespace tessera_test {

/// A classifier of `rows` x `columns`.
template <class Source>
struct stored_rows {
  using memory = source_memory<Source>;
  using value_type = typename Source::value_type;

  std::int64_t rows;
  std::int64_t columns;
  std::vector<typename memory::params_type> params;
  std::vector<typename memory::code_type> codes;
  std::vector<value_type> given;  ///< what the source gives

  stored_rows(std::int64_t row_count, std::int64_t column_count, std::uint64_t seed)
      : rows(row_count), columns(column_count), given(static_cast<std::size_t>(row_count * column_count)) {
    double const sigma = 2.0 / std::sqrt(static_cast<double>(columns));
    std::vector<float> values;
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      values.push_back(tessera::testing::gauss{.sigma = sigma}.value(seed, static_cast<std::uint64_t>(i)));
    }
    codes = memory::codes_of(values, rows, columns, params);
    tessera::cpu const exec{.threads = 1};
    tessera::materialize(exec, memory::source(codes.data(), params.data(), rows, columns),
                         tessera::matrix_view<value_type>(given.data(), {rows, columns}));
    exec.wait();
  }

  /// Makes the source for run_distillation().
  template <class Exec>
  struct placed {
    stored_rows const& of;
    tessera::buffer<typename memory::code_type> codes;
    tessera::buffer<typename memory::params_type> params;

    placed(Exec const& exec, stored_rows const& stored)
        : of(stored), codes(exec, std::ssize(stored.codes)), params(exec, std::ssize(stored.params)) {
      exec.copy(stored.codes, codes);
      if (!stored.params.empty()) {
        exec.copy(stored.params, params);
      }
    }
    template <class Rows>
    Source operator()(Rows const&) const {
      return memory::source(codes.data(), params.data(), of.rows, of.columns);
    }
  };
};

/// Compares both passes with the formulas, for the rows that the sources give, and with the distillation of those rows,
/// bit for bit where parts have as many entries.
template <class Student, class Teacher, class Gradient, class Exec, class D = tessera::forward_kl>
void check_stored_distillation(Exec const& exec, distillation_problem<typename Student::value_type> p,
                               double tolerance) {
  using value_type = typename Student::value_type;
  using plain = tessera::linear_distillation<value_type, D>;
  using loss = tessera::with_teacher_classifier<tessera::with_classifier<plain, Student>, Teacher>;
  CAPTURE(p.shape.tokens, p.shape.vocabulary, p.shape.channels, p.shape.teacher_channels);
  stored_rows<Student> const student(p.shape.vocabulary, p.shape.channels, 28);
  stored_rows<Teacher> const teacher(p.shape.vocabulary, p.shape.teacher_channels, 29);
  p.classifier = student.given;
  p.teacher_classifier = teacher.given;
  typename stored_rows<Student>::template placed<Exec> const of_student(exec, student);
  typename stored_rows<Teacher>::template placed<Exec> const of_teacher(exec, teacher);
  auto const found = run_distillation<loss, Gradient>(exec, p, {}, 1, of_student, of_teacher);
  auto const expected = reference_distillation(p, divergence_kind_of<D>);
  CHECK(worst_divergence(p, found, expected) <= 1e-5);
  CHECK(relative_distance(found.hidden, expected.hidden) <= tolerance);
  CHECK(relative_distance(found.classifier, expected.classifier) <= tolerance);
  if (!p.bias.empty()) {
    CHECK(relative_distance(found.bias, expected.bias) <= 2 * tolerance);
  }
  if (p.options.workspace_budget == 1) {
    auto const of_rows = run_distillation<plain, Gradient>(exec, p);
    CHECK(found.loss == of_rows.loss);
    CHECK(found.divergence == of_rows.divergence);
    CHECK(relative_distance(found.hidden, doubles_of(of_rows.hidden)) == 0);
    CHECK(relative_distance(found.classifier, doubles_of(of_rows.classifier)) == 0);
  }
}

}  // namespace tessera_test
