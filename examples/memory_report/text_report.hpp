// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The report's part about a whole model: a text that it continues with exact and with compressed caches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report.hpp"

namespace tessera_examples {

/// One continuation.
struct text_row {
  std::string cache;
  std::string text;
  std::int64_t bytes = 0;  ///< bytes of the cache after the last token
  std::int64_t same = 0;   ///< number of tokens before the first that differs from the exact continuation's
};

/// Figures of examples/real_model that are committed in bench/results, not measured now.
struct committed_text {
  std::string cache;
  double megabytes = 0;
  double perplexity = 0;
  double agreement = 0;  ///< part of the tokens whose likeliest next token is the exact model's
};

struct text_report {
  std::string why_not;  ///< why there is no model to continue a text with; empty if there is one
  std::int64_t prompt_tokens = 0;
  std::int64_t tokens = 0;  ///< number of tokens of each continuation
  std::string prompt_end;
  std::vector<text_row> rows;  ///< the first is exact
  double milliseconds = 0;     ///< time of a step, which makes a token of each row
  std::vector<committed_text> committed;
};

/// Continues a text, or reads the committed figures where the model's file is missing.
text_report measure_text(report_options const& options);

void print(text_report const& report);

}  // namespace tessera_examples
