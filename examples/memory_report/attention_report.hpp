// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The report's part about attention with quantized operands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report.hpp"

namespace tessera_examples {

/// One way to compute a layer's attention.
struct attention_row {
  std::string mode;
  std::int64_t elements = 0;     ///< elements of keys and values
  std::int64_t plain_bytes = 0;  ///< bytes of keys and values in bf16
  std::int64_t bytes = 0;        ///< bytes of their codes, scales and means
  double milliseconds = 0;       ///< time with all quantization
  double kept_milliseconds = 0;  ///< time over keys and values that are quantized already
  double relative_l1 = 0;        ///< error of the result, against double precision
  double cosine = 0;             ///< cosine of the result with the one in double precision
  double rmse = 0;               ///< root of the result's mean squared error, against double precision
};

/// The keys and values of one layer of a large model.
struct attention_plan {
  std::string model;
  std::int64_t plain_bytes;
  std::int64_t bytes;
};

struct attention_report {
  std::string data;
  std::vector<attention_row> rows;
  std::vector<attention_plan> plans;
};

/// Measures a layer of SmolLM2 on the CPU.
attention_report measure_attention(report_options const& options);

void print(attention_report const& report);

/// The rows for the picture, whose elements are those of keys and values.
report_rows as_report_rows(attention_report const& report);

/// Throws a failure where a result is less exact than it should be.
void require_right(attention_report const& report);

}  // namespace tessera_examples
