// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The report's part about caches that keep keys in a low-rank basis and read only the chunks that a selector chooses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report.hpp"

namespace tessera_examples {

/// One selector with its parameters, over the same text in all layers.
struct shadow_kv_row {
  std::string selector;
  std::int64_t rank = 0;
  std::int64_t chunks = 0;             ///< chunks that a head selects
  std::int64_t device_bytes = 0;       ///< device memory of a layer
  std::int64_t host_bytes = 0;         ///< host memory of a layer
  std::int64_t long_device_bytes = 0;  ///< device memory of a layer with a long text
  double attended = 0;                 ///< mean number of tokens that a head attends to
  double captured = 0;                 ///< mean part of dense attention that those tokens have
  std::vector<double> errors = {};     ///< error of each layer's results, relative to dense attention in double
  double milliseconds = 0;             ///< time of a step
};

/// Planned memory for a layer of a large model.
struct shadow_kv_plan {
  std::string mode;
  std::int64_t elements;  ///< elements of keys and values
  std::int64_t plain_bytes;
  std::int64_t device_bytes;
  std::int64_t host_bytes;  ///< pinned memory
  std::int64_t step_bytes;  ///< workspace of a step
};

struct shadow_kv_report {
  std::string data;
  std::vector<std::string> layers;
  double tokens = 0;                  ///< number of tokens, mean of steps
  std::int64_t plain_bytes = 0;       ///< bytes of a layer's keys and values in bf16
  std::int64_t long_plain_bytes = 0;  ///< the same for a long text
  std::vector<shadow_kv_row> rows;
  std::string planned_for;
  std::vector<shadow_kv_plan> plans;
};

/// Measures layers of SmolLM2 on the CPU.
shadow_kv_report measure_shadow_kv(report_options const& options);

void print(shadow_kv_report const& report);

/// The rows for the picture, whose elements are those of keys and values.
report_rows as_report_rows(shadow_kv_report const& report);

/// Throws a failure where a result is less exact, or larger, than it should be.
void require_right(shadow_kv_report const& report);

}  // namespace tessera_examples
