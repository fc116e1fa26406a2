// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The gradients of a distillation of some tokens in double, on the device, with all logits in memory, and how far
/// others are from them.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/view/matrix_view.hpp>

#include "device.cuh"
#include "loss_check.cuh"

namespace bench {

/// The divergences that are known in double.
enum class known_divergence { forward_kl, reverse_kl, jensen_shannon };

__device__ inline double as_double(double value) {
  return value;
}
__device__ inline double as_double(tessera::bfloat16 value) {
  return static_cast<double>(tessera::load(value));
}

/// product(i, j) = sum over k of a(i, k) b(k, j), with blocks of 16 x 16 threads, one for each element.
template <class A, class B, class To>
__global__ void multiply_in_double(tessera::matrix_view<A const> a, tessera::matrix_view<B const> b,
                                   tessera::matrix_view<To> product) {
  __shared__ double rows[16][17];
  __shared__ double columns[16][17];
  std::int64_t const row = std::int64_t{blockIdx.y} * 16 + threadIdx.y;
  std::int64_t const column = std::int64_t{blockIdx.x} * 16 + threadIdx.x;
  double sum = 0;
  for (std::int64_t first = 0; first < a.extent(1); first += 16) {
    std::int64_t const of_a = first + threadIdx.x;
    std::int64_t const of_b = first + threadIdx.y;
    rows[threadIdx.y][threadIdx.x] = row < a.extent(0) && of_a < a.extent(1) ? as_double(a(row, of_a)) : 0.0;
    columns[threadIdx.y][threadIdx.x] = column < b.extent(1) && of_b < b.extent(0) ? as_double(b(of_b, column)) : 0.0;
    __syncthreads();
    for (int k = 0; k < 16; ++k) {
      sum += rows[threadIdx.y][k] * columns[k][threadIdx.x];
    }
    __syncthreads();
  }
  if (row < product.extent(0) && column < product.extent(1)) {
    product(row, column) = static_cast<To>(sum);
  }
}

__device__ inline double of_block(double value, bool is_sum) {
  __shared__ double all[256];
  all[threadIdx.x] = value;
  __syncthreads();
  for (unsigned step = 128; step > 0; step /= 2) {
    if (threadIdx.x < step) {
      double const other = all[threadIdx.x + step];
      all[threadIdx.x] = is_sum ? all[threadIdx.x] + other : fmax(all[threadIdx.x], other);
    }
    __syncthreads();
  }
  double const found = all[0];
  __syncthreads();
  return found;
}

__device__ inline double log_sum_exp_of(double const* row, std::int64_t count) {
  double largest = -HUGE_VAL;
  for (std::int64_t j = threadIdx.x; j < count; j += 256) {
    largest = fmax(largest, row[j]);
  }
  largest = of_block(largest, false);
  double sum = 0;
  for (std::int64_t j = threadIdx.x; j < count; j += 256) {
    sum += exp(row[j] - largest);
  }
  return largest + log(of_block(sum, true));
}

/// The derivative of a divergence by log q.
__device__ inline double slope_of(known_divergence kind, double log_p, double log_q) {
  double const p = exp(log_p);
  double const q = exp(log_q);
  return kind == known_divergence::forward_kl   ? -p
         : kind == known_divergence::reverse_kl ? q * (log_q - log_p + 1)
                                                : 0.5 * q * (log_q - log(0.5 * (p + q)));
}

/// Makes gradients by logits of the student's logits, in place. A block of 256 threads takes a token.
template <class Number>
__global__ void differentiate_in_double(known_divergence kind, tessera::matrix_view<Number> student,
                                        tessera::matrix_view<Number> teacher, double factor) {
  std::int64_t const count = student.extent(1);
  double* const a = &student(blockIdx.x, 0);
  double const* const b = &teacher(blockIdx.x, 0);
  double const of_student = log_sum_exp_of(a, count);
  double const of_teacher = log_sum_exp_of(b, count);
  double sum = 0;
  for (std::int64_t j = threadIdx.x; j < count; j += 256) {
    sum += slope_of(kind, b[j] - of_teacher, a[j] - of_student);
  }
  sum = of_block(sum, true);
  for (std::int64_t j = threadIdx.x; j < count; j += 256) {
    double const log_q = a[j] - of_student;
    a[j] = factor * (slope_of(kind, b[j] - of_teacher, log_q) - exp(log_q) * sum);
  }
}

/// The gradients of the mean divergence of all tokens of `hidden`.
struct distillation_in_double {
  device_array<float> hidden;      ///< gradient, tokens x channels
  device_array<float> classifier;  ///< gradient, vocabulary x channels

  using operands = tessera::matrix_view<tessera::bfloat16 const>;

  distillation_in_double(device_memory& memory, known_divergence kind, operands states, operands rows,
                         operands teacher_states, operands teacher_rows)
      : hidden(memory, static_cast<std::size_t>(states.size())),
        classifier(memory, static_cast<std::size_t>(rows.size())) {
    std::int64_t const tokens = states.extent(0);
    std::int64_t const entries = rows.extent(0);
    device_array<double> of_student(memory, static_cast<std::size_t>(tokens * entries));
    device_array<double> of_teacher(memory, static_cast<std::size_t>(tokens * entries));
    tessera::matrix_view<double> const student(of_student.data(), {tokens, entries});
    tessera::matrix_view<double> const teacher(of_teacher.data(), {tokens, entries});
    multiply(memory, states, rows.transposed(), student);
    multiply(memory, teacher_states, teacher_rows.transposed(), teacher);
    differentiate_in_double<<<static_cast<unsigned>(tokens), 256, 0, memory.stream()>>>(
        kind, student, teacher, 1.0 / static_cast<double>(tokens));
    check(cudaGetLastError(), "differentiate_in_double");
    multiply(memory, tessera::matrix_view<double const>(student), rows,
             tessera::matrix_view<float>(hidden.data(), {tokens, states.extent(1)}));
    multiply(memory, tessera::matrix_view<double const>(student.transposed()), states,
             tessera::matrix_view<float>(classifier.data(), {entries, states.extent(1)}));
    memory.wait();
  }

 private:
  template <class A, class B, class To>
  static void multiply(device_memory& memory, tessera::matrix_view<A const> a, tessera::matrix_view<B const> b,
                       tessera::matrix_view<To> product) {
    dim3 const blocks(static_cast<unsigned>((product.extent(1) + 15) / 16),
                      static_cast<unsigned>((product.extent(0) + 15) / 16));
    multiply_in_double<<<blocks, dim3(16, 16), 0, memory.stream()>>>(a, b, product);
    check(cudaGetLastError(), "multiply_in_double");
  }
};

}  // namespace bench
