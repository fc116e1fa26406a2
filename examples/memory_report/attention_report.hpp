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
  std::int64_t elements = 0;     ///< of keys and values
  std::int64_t plain_bytes = 0;  ///< of keys and values in bf16
  std::int64_t bytes = 0;        ///< of their codes, scales and means
  double milliseconds = 0;       ///< with all quantization
  double kept_milliseconds = 0;  ///< over keys and values that are quantized already
  double relative_l1 = 0;        ///< of the result, against double precision
  double cosine = 0;             ///< of the result, against double precision
  double rmse = 0;               ///< of the result, against double precision
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

/// A layer of SmolLM2, on the CPU.
attention_report measure_attention(report_options const& options);

void print(attention_report const& report);

/// For the picture: an element is one of a key or value.
report_rows as_report_rows(attention_report const& report);

/// Throws a failure where a result is not as exact as it should be.
void require_right(attention_report const& report);

}  // namespace tessera_examples
