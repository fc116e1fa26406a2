// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The table of figures, as text and as JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "../support/atomic_file.hpp"
#include "../support/text_table.hpp"
#include "measurement.hpp"

namespace tessera_examples {

/// The processor as the system calls it.
inline std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos) {
      return line.substr(line.find(": ") + 2);
    }
  }
  return "unknown processor";
}

/// The compiler of this program.
inline std::string compiler_name() {
#if defined(__clang__)
  return tessera::join("clang ", __clang_major__);
#else
  return tessera::join("gcc ", __GNUC__);
#endif
}

inline void print_titles(std::string const& text, exact_run const& exact) {
  std::size_t const name = text.rfind('/') + 1;
  std::printf("%s: %lld tokens are compressed, the next %lld predicted by %d layers.\n\n", text.c_str() + name,
              static_cast<long long>(exact.prompt_tokens), static_cast<long long>(exact.hidden.rows),
              exact.net.extents().layers);
  std::printf("%-30s %-8s %10s %6s %10s %9s %7s %7s\n", "row", "bytes of", "bytes", "ratio", "perplexity", "same next",
              "KL", "seconds");
  std::fflush(stdout);
}

inline void print_row(measured_row const& row) {
  std::printf("%-30s %-8s %10s %6.2f %10.3f %7.1f %% %7.4f %7.1f\n", row.what.c_str(), row.counted.c_str(),
              readable_bytes(row.bytes).c_str(), row.ratio(), row.perplexity, 100 * row.agreement, row.divergence,
              row.seconds);
  std::fflush(stdout);
}

/// The figures in the form of Google Benchmark's results, which bench/report.py reads.
inline nlohmann::ordered_json results_of(std::vector<measured_row> const& rows) {
  using nlohmann::ordered_json;
  ordered_json list = ordered_json::array();
  for (measured_row const& row : rows) {
    list.push_back({{"name", "real_model/" + row.name},
                    {"run_name", "real_model/" + row.name},
                    {"run_type", "iteration"},
                    {"iterations", 1},
                    {"real_time", row.seconds},
                    {"cpu_time", row.seconds},
                    {"time_unit", "s"},
                    {"MB", 1e-6 * static_cast<double>(row.bytes)},
                    {"host_MB", 1e-6 * static_cast<double>(row.host_bytes)},
                    {"ratio", row.ratio()},
                    {"perplexity", row.perplexity},
                    {"agreement", row.agreement},
                    {"divergence", row.divergence},
                    {"seconds", row.seconds}});
  }
  return list;
}

/// Writes the figures to a file in place of an older one. `commit`: of the source, as the caller says.
inline void write_results(std::string const& path, std::string const& commit, exact_run const& exact,
                          std::vector<measured_row> const& rows) {
  char date[32];
  std::time_t const now = std::time(nullptr);
  std::strftime(date, sizeof(date), "%FT%T+00:00", std::gmtime(&now));
  nlohmann::ordered_json const all{{"context",
                                    {{"date", date},
                                     {"executable", "real_model"},
                                     {"cpu", cpu_name()},
                                     {"compiler", compiler_name()},
                                     {"commit", commit},
                                     {"model", "SmolLM2-135M-Instruct"},
                                     {"prompt_tokens", exact.prompt_tokens},
                                     {"later_tokens", exact.hidden.rows},
                                     {"threads", exact.exec().threads}}},
                                   {"benchmarks", results_of(rows)}};
  std::string const text = all.dump(1) + "\n";
  atomic_file file(path, true);
  file.append(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace tessera_examples
