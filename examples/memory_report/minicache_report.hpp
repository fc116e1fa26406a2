// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The report's part about caches in which neighbouring layers share directions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report.hpp"

namespace tessera_examples {

/// Bytes of keys and values, as the library counts them.
struct minicache_bytes {
  std::int64_t plain = 0;  ///< bytes in bf16
  std::int64_t codes = 0;
  std::int64_t scales = 0;
  std::int64_t norms = 0;
  std::int64_t retained = 0;  ///< bytes of tokens that are not merged
  std::int64_t tail = 0;      ///< bytes of the newest tokens
  std::int64_t all = 0;       ///< all of these, with headers and counters

  [[nodiscard]] double ratio() const { return static_cast<double>(plain) / static_cast<double>(all); }
};

/// One way to keep pairs of neighbouring layers.
struct minicache_row {
  std::string mode;
  bool is_merged = false;
  std::int64_t elements = 0;  ///< elements of keys and values
  minicache_bytes bytes = {};
  double retained = 0;  ///< the part of the tokens that are retained
  double cosine = 0;    ///< mean cosine of restored keys and values with the original ones
  /// Errors of attention in each pair, mean of both layers, relative to double precision.
  std::vector<double> errors = {};
  double milliseconds = 0;  ///< time to compress all tokens of a pair

  [[nodiscard]] double mean_error() const;
};

/// How alike the original keys and values of two layers are.
struct minicache_pair {
  std::string layers = {};
  double key_cosine;  ///< mean cosine of a layer's keys with the next one's
  double value_cosine;
};

/// Planned memory for a whole model.
struct minicache_plan {
  std::string mode;
  minicache_bytes bytes;     ///< bytes of a full sequence
  std::int64_t planned = 0;  ///< memory of a cache with room for it
};

struct minicache_report {
  std::string data;
  std::vector<minicache_pair> pairs;
  std::vector<minicache_row> rows;
  std::string planned_for;
  std::vector<minicache_plan> plans;
};

/// Measures layers of SmolLM2 on the CPU.
minicache_report measure_minicache(report_options const& options);

void print(minicache_report const& report);

/// The rows for the picture, whose elements are those of keys and values.
report_rows as_report_rows(minicache_report const& report);

/// Throws a failure where a result is less exact, or larger, than it should be.
void require_right(minicache_report const& report);

}  // namespace tessera_examples
