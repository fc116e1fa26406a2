// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The loss of SmolLM2's classifier on the CPU: real hidden states, the rows of the likeliest tokens, real next tokens.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>

#include "../support/classifier_problem.hpp"
#include "../support/distance.hpp"
#include "../support/loss_reference.hpp"
#include "../support/text_table.hpp"
#include "dense_loss.hpp"
#include "loss_report.hpp"
#include "seconds_of.hpp"

namespace tessera_examples {
namespace {

using tessera::bfloat16;
using tessera::cpu;
using tessera::cut_cross_entropy;
using tessera::exact_cross_entropy;
using tessera::linear_loss_options;
using tessera::linear_loss_shape;

/// How many times hidden states are repeated, so that a thread's tile is small beside the logits.
constexpr std::size_t repeats = 8;

/// Host memory that counts how many bytes are in use, and the most that were.
class counting_memory {
 public:
  void* allocate(std::size_t bytes, std::size_t alignment, tessera::stream_handle) {
    live_ += static_cast<std::int64_t>(bytes);
    peak_ = std::max(peak_, live_);
    return tessera::host_memory::allocate(bytes, alignment);
  }
  void deallocate(void* pointer, std::size_t bytes, std::size_t alignment, tessera::stream_handle) noexcept {
    live_ -= static_cast<std::int64_t>(bytes);
    tessera::host_memory::deallocate(pointer, bytes, alignment);
  }
  void reset_peak() { peak_ = live_; }
  [[nodiscard]] std::int64_t live() const { return live_; }
  [[nodiscard]] std::int64_t peak() const { return peak_; }

 private:
  std::int64_t live_ = 0;
  std::int64_t peak_ = 0;
};

/// The memory of one measurement, which counts.
class loss_measurement {
 public:
  loss_measurement(classifier_problem const& problem, report_options const& report)
      : problem_(problem), reference_(problem), report_(report), exec_{.threads = report.threads, .memory = memory_} {
    for (std::size_t i = 0; i < repeats; ++i) {
      std::copy(problem.hidden.begin(), problem.hidden.end(), hidden_.begin() + i * problem.hidden.size());
      std::copy(problem.labels.begin(), problem.labels.end(), labels_.begin() + i * problem.labels.size());
    }
    exec_.copy(problem.classifier, classifier_);
  }

  [[nodiscard]] linear_loss_shape shape() const {
    return {labels_.size(), static_cast<std::int64_t>(problem_.vocabulary),
            static_cast<std::int64_t>(problem_.channels)};
  }

  template <class Loss>
  loss_row measure(std::string mode, bool with_gradients, linear_loss_options const& options) {
    loss_row row{.mode = std::move(mode)};
    row.logit_bytes = shape().tokens * shape().vocabulary * std::int64_t{sizeof(float)};
    measure_dense(row, with_gradients);
    tessera::buffer<float> value(exec_, 1);
    std::int64_t const before = start();
    auto const plan = with_gradients ? Loss::template plan_backward<float>(exec_, shape(), options)
                                     : Loss::plan_forward(exec_, shape());
    tessera::buffer<std::byte> block(exec_, plan.bytes());
    tessera::workspace const space(plan, block);
    row.milliseconds = 1e3 * seconds_of(
                                 [&] {
                                   Loss::forward(exec_, inputs(), options, {.loss = value.view()}, space);
                                   if (with_gradients) {
                                     Loss::backward(exec_, inputs(), options, {}, gradients(), space);
                                   }
                                 },
                                 [&] { exec_.wait(); }, report_.quick);
    row.bytes = memory_.peak() - before;
    row.loss_error = std::abs(static_cast<double>(value[0]) / reference_.loss - 1);
    if (with_gradients) {
      row.hidden_error = error_of(hidden_gradient_, reference_.hidden, repeats);
      row.classifier_error = error_of(classifier_gradient_, reference_.classifier, 1);
    }
    return row;
  }

 private:
  std::int64_t start() {
    memory_.reset_peak();
    return memory_.live();
  }
  void measure_dense(loss_row& row, bool with_gradients) {
    std::int64_t const before = start();
    dense_loss dense(exec_, inputs(), with_gradients);
    row.dense_milliseconds = 1e3 * seconds_of(
                                       [&] {
                                         dense.forward();
                                         if (with_gradients) {
                                           dense.backward(gradients());
                                         }
                                       },
                                       [&] { exec_.wait(); }, report_.quick);
    row.dense_bytes = memory_.peak() - before;
  }
  [[nodiscard]] cut_cross_entropy::inputs<std::int32_t> inputs() const {
    return {{hidden_.data(), {shape().tokens, shape().channels}},
            {classifier_.data(), {shape().vocabulary, shape().channels}},
            labels_.view()};
  }
  [[nodiscard]] tessera::linear_loss_gradients<float> gradients() {
    return {{hidden_gradient_.data(), {shape().tokens, shape().channels}},
            {classifier_gradient_.data(), {shape().vocabulary, shape().channels}}};
  }
  /// The relative length of the difference. The expected values repeat `times` times, divided by `times`.
  static double error_of(tessera::buffer<float> const& found, std::vector<double> const& expected, std::size_t times) {
    distance apart;
    for (std::size_t i = 0; i < expected.size() * times; ++i) {
      apart.add(static_cast<double>(found[static_cast<std::int64_t>(i)]),
                expected[i % expected.size()] / static_cast<double>(times));
    }
    return apart.relative();
  }

  classifier_problem const& problem_;
  loss_reference reference_;
  report_options const& report_;
  counting_memory memory_;
  cpu exec_;
  tessera::buffer<bfloat16> hidden_{exec_, std::ssize(problem_.hidden) * std::int64_t{repeats}};
  tessera::buffer<bfloat16> classifier_{exec_, std::ssize(problem_.classifier)};
  tessera::buffer<std::int32_t> labels_{exec_, std::ssize(problem_.labels) * std::int64_t{repeats}};
  tessera::buffer<float> hidden_gradient_{exec_, hidden_.size()};
  tessera::buffer<float> classifier_gradient_{exec_, classifier_.size()};
};

loss_plan loss_plan_of(std::string model, linear_loss_shape const& shape) {
  cpu const exec;
  return {std::move(model), shape.tokens * shape.vocabulary * std::int64_t{sizeof(bfloat16)},
          cut_cross_entropy::plan_forward(exec, shape).bytes(), cut_cross_entropy::plan_backward(exec, shape).bytes()};
}

std::string error_text(double error) {
  return error < 0 ? "-" : fixed(100 * error, 2) + " %";
}
std::string small_number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1e", value);
  return text;
}

}  // namespace

loss_report measure_loss(report_options const& options) {
  classifier_problem const problem = read_classifier(options.data_folder + "/smollm2_classifier.safetensors");
  loss_measurement measurement(problem, options);
  linear_loss_shape const shape = measurement.shape();
  loss_report report;
  report.data = tessera::join(problem.tokens, " tokens (", repeats, " times) x ", shape.vocabulary, " entries x ",
                              shape.channels, " channels");
  // The smallest budget for gradients: room for one column of tiles.
  linear_loss_options const small{.workspace_budget = std::int64_t{1} << 20};
  report.rows = {measurement.measure<cut_cross_entropy>("loss", false, {}),
                 measurement.measure<cut_cross_entropy>("loss and gradients", true, small),
                 measurement.measure<exact_cross_entropy>("loss and gradients, exact", true, small)};
  report.plans = {loss_plan_of("Gemma 2 2B", {8192, 256000, 2304}), loss_plan_of("Llama 3 8B", {8192, 128256, 4096})};
  return report;
}

void print(loss_report const& report) {
  text_table table(
      {"cut cross-entropy", "memory", "dense", "ratio", "ms", "dense ms", "error", "hidden", "classifier"});
  for (loss_row const& row : report.rows) {
    table.add({row.mode, readable_bytes(row.bytes), readable_bytes(row.dense_bytes),
               fixed(static_cast<double>(row.dense_bytes) / static_cast<double>(row.bytes), 1),
               fixed(row.milliseconds, 1), fixed(row.dense_milliseconds, 1), small_number(row.loss_error),
               error_text(row.hidden_error), error_text(row.classifier_error)});
  }
  table.print(stdout);
  std::printf(
      "\nThe classifier of SmolLM2-135M on real hidden states (tests/data), on the CPU:\n"
      "%s. Inputs are bf16, gradients fp32.\n"
      "The logits (%s) are never in memory. Memory is the measured peak beyond inputs and gradients,\n"
      "dense that of the same loss with its logits in memory; the tiles that threads work in are counted\n"
      "for neither. Errors are relative to double precision: of the loss, and of both gradients.\n\n",
      report.data.c_str(), readable_bytes(report.rows.front().logit_bytes).c_str());
  text_table plans({"8192 tokens, bf16", "logits", "loss", "loss and gradients"});
  for (loss_plan const& plan : report.plans) {
    plans.add({plan.model, readable_bytes(plan.logit_bytes), readable_bytes(plan.forward_bytes),
               readable_bytes(plan.backward_bytes)});
  }
  plans.print(stdout);
  std::printf(
      "\nMemory for classifiers of large models, as planned; workspace_budget gives gradients less or more.\n\n");
}

report_rows as_report_rows(loss_report const& report) {
  report_rows rows;
  for (loss_row const& row : report.rows) {
    rows.push_back({.algorithm = "Cut cross-entropy",
                    .data = "SmolLM2",
                    .mode = row.mode,
                    .setting = "beside a dense loss",
                    .elements = row.logit_bytes / std::int64_t{sizeof(float)},
                    .bytes_before = row.dense_bytes,
                    .bytes_after = row.bytes});
  }
  return rows;
}

void require_right(loss_report const& report) {
  for (loss_row const& row : report.rows) {
    bool const is_right = row.loss_error <= 1e-6 && row.hidden_error <= 0.02 && row.classifier_error <= 0.02;
    require(exit_code::unsound, is_right, row.mode, ": errors are ", row.loss_error, ", ", row.hidden_error, " and ",
            row.classifier_error);
    require(exit_code::unsound, row.bytes < row.dense_bytes, row.mode, ": takes ", row.bytes,
            " bytes but the dense way ", row.dense_bytes);
  }
}

}  // namespace tessera_examples
