// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The report's part about the loss of a language model's classifier.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report.hpp"

namespace tessera_examples {

/// One way to compute the loss, beside the dense way. Bytes are those beyond inputs and gradients.
struct loss_row {
  std::string mode;
  std::int64_t logit_bytes = 0;  ///< bytes of the logits that are never in memory
  std::int64_t bytes = 0;        ///< the most memory of the loss at any time, measured
  std::int64_t dense_bytes = 0;  ///< the most memory of the dense way at any time, measured
  double milliseconds = 0;
  double dense_milliseconds = 0;
  double loss_error = 0;  ///< relative to double precision, as are the errors below
  double hidden_error = -1;
  double classifier_error = -1;
};

/// Planned memory for the classifier of a large model.
struct loss_plan {
  std::string model;
  std::int64_t logit_bytes;
  std::int64_t forward_bytes;
  std::int64_t backward_bytes;
};

struct loss_report {
  std::string data;
  std::vector<loss_row> rows;
  std::vector<loss_plan> plans;
};

/// Measures the loss of SmolLM2's hidden states on the CPU.
loss_report measure_loss(report_options const& options);

void print(loss_report const& report);

/// The rows for the picture, whose elements are logits.
report_rows as_report_rows(loss_report const& report);

/// Throws a failure where a result is less exact than it should be.
void require_right(loss_report const& report);

}  // namespace tessera_examples
