// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Continues a text with the likeliest tokens, one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kept_prompt.hpp"
#include "text_memory.hpp"
#include "text_scores.hpp"
#include "transformer.hpp"

namespace tessera_examples {

/// Writes text as it comes, in lines of at most 100 columns, without what a terminal would obey.
class wrapped_output {
 public:
  void put(std::string_view text) {
    for (char const letter : text) {
      bool const is_control = static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f;
      if (is_control && letter != '\n') {
        continue;
      }
      if (letter == ' ' || letter == '\n') {
        end_word();
      }
      if (letter == '\n') {
        std::fputc('\n', stdout);
        column_ = 0;
      } else {
        word_ += letter;
        width_ += (static_cast<unsigned char>(letter) & 0xc0) != 0x80 ? 1 : 0;
      }
    }
    std::fflush(stdout);
  }
  /// Writes the last word, and ends the line.
  void finish() {
    end_word();
    std::fputc('\n', stdout);
    std::fflush(stdout);
  }

 private:
  void end_word() {
    constexpr std::size_t columns = 100;
    if (column_ > 0 && column_ + width_ > columns) {
      std::fputc('\n', stdout);
      column_ = 0;
      if (!word_.empty() && word_.front() == ' ') {
        word_.erase(0, 1);
        --width_;
      }
    }
    std::fputs(word_.c_str(), stdout);
    column_ += width_;
    word_.clear();
    width_ = 0;
  }

  std::string word_;
  std::size_t width_ = 0;
  std::size_t column_ = 0;
};

/// The likeliest next token after the last of these hidden states.
inline std::int32_t likeliest_next(transformer const& net, hidden_states const& hidden) {
  std::int32_t const any_label = 0;
  hidden_states last(1, hidden.columns);
  last.values.assign(hidden.values.end() - hidden.columns, hidden.values.end());
  return score_text(net.exec(), net.model(), last, {&any_label, 1}).predictions.front();
}

/// Generates `count` tokens after a prompt, which itself is read exactly. `made(token)` is called for each.
inline void continue_text(transformer const& net, std::span<std::int32_t const> prompt, std::int64_t count,
                          make_memory const& make, std::function<void(std::int32_t)> const& made) {
  kept_prompt kept;
  hidden_states hidden = net.forward(prompt, 0, attention_that_keeps(net.exec(), kept));
  auto const memory = make(net, std::ssize(prompt) + count);
  memory->take(kept);
  for (std::int64_t step = 0; step < count; ++step) {
    std::int32_t const token = likeliest_next(net, hidden);
    made(token);
    hidden = net.forward({&token, 1}, std::ssize(prompt) + step, [&](layer_heads const& in) { memory->attend(in); });
    memory->end_token();
  }
}

}  // namespace tessera_examples
