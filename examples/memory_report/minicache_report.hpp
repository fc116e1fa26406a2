// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The report's part about caches of which neighbouring layers share directions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report.hpp"

namespace tessera_examples {

/// Bytes of keys and values, as the library counts them.
struct minicache_bytes {
  std::int64_t plain = 0;  ///< in bf16
  std::int64_t codes = 0;
  std::int64_t scales = 0;
  std::int64_t norms = 0;
  std::int64_t retained = 0;  ///< tokens that are not merged
  std::int64_t tail = 0;      ///< the newest tokens
  std::int64_t all = 0;       ///< these, headers and counters

  [[nodiscard]] double ratio() const { return static_cast<double>(plain) / static_cast<double>(all); }
};

/// One way to keep pairs of neighbouring layers.
struct minicache_row {
  std::string mode;
  bool is_merged = false;
  std::int64_t elements = 0;  ///< of keys and values
  minicache_bytes bytes = {};
  double retained = 0;              ///< share of tokens
  double cosine = 0;                ///< mean of restored keys and values with the original ones
  std::vector<double> errors = {};  ///< of attention in each pair, mean of both layers, relative to double precision
  double milliseconds = 0;          ///< to compress all tokens of a pair

  [[nodiscard]] double mean_error() const;
};

/// What the original keys and values of two layers have in common.
struct minicache_pair {
  std::string layers = {};
  double key_cosine;  ///< mean of a layer's keys with the next one's
  double value_cosine;
};

/// A whole model.
struct minicache_plan {
  std::string mode;
  minicache_bytes bytes;     ///< of a full sequence
  std::int64_t planned = 0;  ///< memory that a cache for it takes
};

struct minicache_report {
  std::string data;
  std::vector<minicache_pair> pairs;
  std::vector<minicache_row> rows;
  std::string planned_for;
  std::vector<minicache_plan> plans;
};

/// Layers of SmolLM2, on the CPU.
minicache_report measure_minicache(report_options const& options);

void print(minicache_report const& report);

/// For the picture: an element is one of a key or value.
report_rows as_report_rows(minicache_report const& report);

/// Throws a failure where a result is not as exact, or as small, as it should be.
void require_right(minicache_report const& report);

}  // namespace tessera_examples
