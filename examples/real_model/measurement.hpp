// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What every row of the table is measured against: the exact model on a text, whose first tokens are a prompt that
/// methods may compress, and whose later tokens are predicted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/exec/cpu.hpp>

#include "../support/progress_report.hpp"
#include "divergence.hpp"
#include "kept_prompt.hpp"
#include "language_model.hpp"
#include "text_scores.hpp"
#include "transformer.hpp"

namespace tessera_examples {

/// A text in two parts, and what the exact model makes of it.
struct exact_run {
  transformer const& net;
  std::vector<std::int32_t> tokens;  ///< the text, and the token that follows it
  std::int64_t prompt_tokens;        ///< the tokens of the first part
  std::vector<std::int32_t> other;   ///< another text, for methods that fit something
  kept_prompt prompt;                ///< exact keys and values of the first part
  hidden_states hidden;              ///< of the second part, exactly
  text_scores scores;                ///< of the second part, exactly

  [[nodiscard]] tessera::cpu const& exec() const { return net.exec(); }
  /// The tokens that the model reads.
  [[nodiscard]] std::span<std::int32_t const> text() const { return std::span(tokens).first(tokens.size() - 1); }
  [[nodiscard]] std::span<std::int32_t const> prompt_text() const {
    return text().first(static_cast<std::size_t>(prompt_tokens));
  }
  [[nodiscard]] std::span<std::int32_t const> later_text() const {
    return text().subspan(static_cast<std::size_t>(prompt_tokens));
  }
  /// The tokens that follow those of the second part.
  [[nodiscard]] std::span<std::int32_t const> next_tokens() const {
    return std::span(tokens).subspan(static_cast<std::size_t>(prompt_tokens) + 1);
  }
};

/// What a method gives: hidden states of the second part of the text, and the bytes of what it makes smaller.
struct method_result {
  hidden_states hidden;
  std::int64_t bytes = 0;
  std::int64_t exact_bytes = 0;  ///< of the same in 16 bits
  std::int64_t host_bytes = 0;   ///< further bytes in memory of the host, where a GPU would have the others
  std::shared_ptr<language_model const> changed = {};  ///< whose classifier belongs to `hidden`; null: the exact one
};

/// A row of the table.
struct method_row {
  std::string name;     ///< what the command line and the JSON call it
  std::string what;     ///< what the table calls it
  std::string counted;  ///< what its bytes are of
  std::function<method_result(exact_run const&, progress_report&)> run;
};

/// The figures of a row.
struct measured_row {
  std::string name;
  std::string what;
  std::string counted;
  std::int64_t bytes = 0;
  std::int64_t exact_bytes = 0;
  std::int64_t host_bytes = 0;
  double perplexity = 0;
  double agreement = 0;   ///< part of the tokens whose likeliest next token is the exact model's
  double divergence = 0;  ///< nats a token
  double seconds = 0;

  /// How many times larger the same is in 16 bits.
  [[nodiscard]] double ratio() const { return static_cast<double>(exact_bytes) / static_cast<double>(bytes); }
};

/// Attention that says which layer it is at.
inline attention_of_layer with_progress(progress_report& report, int layers, attention_of_layer attend) {
  return [&report, layers, attend = std::move(attend)](layer_heads const& in) {
    report.step("layer " + std::to_string(in.layer + 1) + " of " + std::to_string(layers));
    attend(in);
  };
}

/// Hidden states of the second part of the text after a prompt that may have been changed.
inline hidden_states continued(exact_run const& exact, kept_prompt const& prompt, progress_report& report) {
  return exact.net.forward(exact.later_text(), exact.prompt_tokens,
                           with_progress(report, exact.net.extents().layers, attention_after(exact.exec(), prompt)));
}

/// The hidden states of the last tokens.
inline hidden_states last_of(hidden_states const& all, std::int64_t count) {
  hidden_states last(count, all.columns);
  last.values.assign(all.values.end() - static_cast<std::ptrdiff_t>(last.values.size()), all.values.end());
  return last;
}

/// Runs a row and scores it.
inline measured_row measure(exact_run const& exact, method_row const& row) {
  progress_report report(row.name);
  method_result const result = row.run(exact, report);
  measured_row found{row.name, row.what, row.counted, result.bytes, result.exact_bytes, result.host_bytes};
  found.seconds = report.seconds();
  report.step("scoring");
  language_model const& model = result.changed != nullptr ? *result.changed : exact.net.model();
  text_scores const scores = score_text(exact.exec(), model, result.hidden, exact.next_tokens());
  found.perplexity = scores.perplexity();
  found.agreement = scores.agreement(exact.scores);
  found.divergence = divergence_from(exact.exec(), exact.net.model(), exact.hidden, model, result.hidden);
  return found;
}

}  // namespace tessera_examples
