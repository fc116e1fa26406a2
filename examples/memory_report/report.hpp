// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The rows that algorithms give the report. An algorithm adds a file that makes its rows, and a line in main.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera_examples {

struct report_options {
  std::string data_folder;
  std::string model_folder = {};    ///< where make_model.py of examples/real_model puts its files
  std::string results_folder = {};  ///< the committed results of benchmarks
  int threads = 0;                  ///< threads of the CPU; 0 means all
  bool by_tensor = false;           ///< print a table for each file, too
  bool quick = false;               ///< take times once, on little data
};

/// What is smaller by less gains nothing, and what is off by more is no longer the same attention.
inline constexpr double least_gain = 1.05;
inline constexpr double most_error = 1.0 / 3;

/// One measurement. Numbers below zero stand for "does not apply" or "not measured".
struct report_row {
  std::string algorithm;
  std::string data;
  std::string mode;
  std::string setting;
  std::int64_t elements = 0;
  std::int64_t bytes_before = 0;
  std::int64_t bytes_after = 0;
  double bound_bits = -1;     ///< in bits for each element
  double largest_error = -1;  ///< relative error; 0 means that every bit is the same
  double encode_gbps = -1;    ///< GB of uncompressed data a second
  double decode_gbps = -1;
  bool pays = true;  ///< false: it keeps too little of what it was to keep

  [[nodiscard]] double bits_before() const {
    return 8.0 * static_cast<double>(bytes_before) / static_cast<double>(elements);
  }
  [[nodiscard]] double bits_after() const {
    return 8.0 * static_cast<double>(bytes_after) / static_cast<double>(elements);
  }
  [[nodiscard]] double ratio() const { return static_cast<double>(bytes_before) / static_cast<double>(bytes_after); }
};

using report_rows = std::vector<report_row>;

/// NeuZip on the weights of MiniLM in three precisions, on the CPU and, if there is one, on a GPU.
report_rows neuzip_rows(report_options const& options);
report_rows neuzip_cuda_rows(report_options const& options);

}  // namespace tessera_examples
