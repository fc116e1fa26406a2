// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The report's part about caches that keep keys in few directions and read the chunks that a selector chooses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report.hpp"

namespace tessera_examples {

/// One way to choose, over the same text in all layers.
struct shadow_kv_row {
  std::string selector;
  std::int64_t rank = 0;
  std::int64_t chunks = 0;             ///< that a head selects
  std::int64_t device_bytes = 0;       ///< of a layer
  std::int64_t host_bytes = 0;         ///< of a layer
  std::int64_t long_device_bytes = 0;  ///< of a long text
  double attended = 0;                 ///< mean of tokens that a head attends to
  double captured = 0;                 ///< mean share of dense attention that those tokens have
  std::vector<double> errors = {};     ///< of each layer's results, relative to dense attention in double
  double milliseconds = 0;             ///< a step
};

/// A layer of a large model.
struct shadow_kv_plan {
  std::string mode;
  std::int64_t elements;  ///< of keys and values
  std::int64_t plain_bytes;
  std::int64_t device_bytes;
  std::int64_t host_bytes;  ///< pinned
  std::int64_t step_bytes;  ///< workspace
};

struct shadow_kv_report {
  std::string data;
  std::vector<std::string> layers;
  double tokens = 0;                  ///< that there are, mean of steps
  std::int64_t plain_bytes = 0;       ///< of a layer's keys and values
  std::int64_t long_plain_bytes = 0;  ///< of a long text
  std::vector<shadow_kv_row> rows;
  std::string planned_for;
  std::vector<shadow_kv_plan> plans;
};

/// Layers of SmolLM2, on the CPU.
shadow_kv_report measure_shadow_kv(report_options const& options);

void print(shadow_kv_report const& report);

/// For the picture: an element is one of a key or value.
report_rows as_report_rows(shadow_kv_report const& report);

/// Throws a failure where a result is not as exact, or as small, as it should be.
void require_right(shadow_kv_report const& report);

}  // namespace tessera_examples
