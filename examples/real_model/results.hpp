// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The table of figures, as text and as JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "../support/atomic_file.hpp"
#include "../support/text_table.hpp"
#include "measurement.hpp"

namespace tessera_examples {

inline void print_titles(std::string const& text, exact_run const& exact) {
  std::printf("%s: %lld tokens are compressed, the next %lld predicted by %d layers.\n\n", text.c_str(),
              static_cast<long long>(exact.prompt_tokens), static_cast<long long>(exact.hidden.rows),
              exact.net.extents().layers);
  std::printf("%-30s %-8s %10s %6s %10s %9s %7s %7s\n", "row", "bytes of", "bytes", "ratio", "perplexity", "same next",
              "KL", "seconds");
  std::fflush(stdout);
}

inline void print_row(measured_row const& row) {
  double const ratio = static_cast<double>(row.exact_bytes) / static_cast<double>(row.bytes);
  std::printf("%-30s %-8s %10s %6.2f %10.3f %7.1f %% %7.4f %7.1f\n", row.what.c_str(), row.counted.c_str(),
              readable_bytes(row.bytes).c_str(), ratio, row.perplexity, 100 * row.agreement, row.divergence,
              row.seconds);
  std::fflush(stdout);
}

/// Writes the figures to a file in place of an older one: what was run, and a list of rows.
inline void write_results(std::string const& path, exact_run const& exact, std::vector<measured_row> const& rows) {
  using nlohmann::ordered_json;
  ordered_json list = ordered_json::array();
  for (measured_row const& row : rows) {
    list.push_back({{"name", row.name},
                    {"what", row.what},
                    {"counted", row.counted},
                    {"bytes", row.bytes},
                    {"exact_bytes", row.exact_bytes},
                    {"host_bytes", row.host_bytes},
                    {"perplexity", row.perplexity},
                    {"agreement", row.agreement},
                    {"divergence", row.divergence},
                    {"seconds", row.seconds}});
  }
  ordered_json const all{{"model", "SmolLM2-135M-Instruct"},
                         {"prompt_tokens", exact.prompt_tokens},
                         {"later_tokens", exact.hidden.rows},
                         {"layers", exact.net.extents().layers},
                         {"rows", list}};
  std::string const text = all.dump(2) + "\n";
  atomic_file file(path, true);
  file.append(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace tessera_examples
