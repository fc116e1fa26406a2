// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The command line of real_model.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

#include "../support/failure.hpp"

namespace tessera_examples {

inline constexpr char const* help_text =
    R"(Runs a whole language model, SmolLM2-135M, with tessera's linear layers, attention and loss, and
with each of its methods switched on; prints what that does to the model on a text.

  real_model [options]                   the table: every method against the exact model
  real_model --prompt TEXT [options]     continues a text with the likeliest tokens
  real_model --check [options]           compares the model with the tensors of tests/data
  real_model --made-up [options]         tests the table on a small model of random weights, which
                                         needs no files

  --rows NAME,NAME,...   only these rows: exact, 8bit, 4bit, k4v2, merged16, shadow_32_chunks,
                         sage_int8, weights3, ...; all rows by default
  --method NAME          with --prompt: exact (the default), 8bit, 4bit, 3bit, 2bit, k4v2, merged,
                         shadow_all_chunks, shadow_32_chunks, shadow_8_chunks, sage_int8, sage_int4
  --folder DIR           where make_model.py has put its files (build/real_model by default)
  --text FILE            the text (esther.txt of the folder by default)
  --other-text FILE      the text that aligned merging is fitted to (acts.txt by default)
  --prompt-tokens N      tokens that are compressed (1536 by default, a multiple of 64)
  --later-tokens N       tokens after them, which are predicted (511 by default)
  --json FILE            writes the figures to a file, too, as Google Benchmark does
  --commit NAME          the commit that the file of figures names
  --tokens N             with --prompt: how many tokens follow (48 by default)
  --threads N            threads of the CPU; all by default
  --help

Exit codes: 0: success; 1: wrong usage; 2: a file cannot be read; 3: a file is not what it should be;
4: a file cannot be written.
)";

enum class command_kind { table, help, check, made_up };

struct command_line {
  command_kind command = command_kind::table;
  std::vector<std::string> rows;
  std::string folder = REAL_MODEL_FOLDER;
  std::string text;
  std::string other_text;
  std::string json;
  std::string commit = "unknown";
  std::string prompt;  ///< if not empty, it is continued in place of the table
  std::string method = "exact";
  std::int64_t prompt_tokens = 1536;
  std::int64_t later_tokens = 511;
  std::int64_t tokens = 48;
  int threads = 0;
};

namespace detail {

template <class Number>
Number number_in(std::string const& option, std::string const& text, Number least, Number most) {
  Number value{};
  auto const [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool const is_number = code == std::errc{} && end == text.data() + text.size();
  require(exit_code::usage, is_number && value >= least && value <= most, option, " is ", shown(text),
          " but must be a number from ", least, " to ", most);
  return value;
}

inline std::vector<std::string> names_in(std::string const& list) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= list.size();) {
    std::size_t const end = std::min(list.find(',', begin), list.size());
    names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

inline void take(command_line& line, std::string const& option, std::string const& value) {
  constexpr std::int64_t most = 1 << 20;
  if (option == "--rows") {
    line.rows = names_in(value);
  } else if (option == "--folder") {
    line.folder = value;
  } else if (option == "--text") {
    line.text = value;
  } else if (option == "--other-text") {
    line.other_text = value;
  } else if (option == "--json") {
    line.json = value;
  } else if (option == "--commit") {
    line.commit = value;
  } else if (option == "--method") {
    line.method = value;
  } else if (option == "--prompt") {
    line.prompt = value;
  } else if (option == "--prompt-tokens") {
    line.prompt_tokens = number_in(option, value, std::int64_t{64}, most);
  } else if (option == "--later-tokens") {
    line.later_tokens = number_in(option, value, std::int64_t{1}, most);
  } else if (option == "--tokens") {
    line.tokens = number_in(option, value, std::int64_t{1}, most);
  } else if (option == "--threads") {
    line.threads = number_in(option, value, 1, 4096);
  } else {
    throw failure(exit_code::usage, "there is no option " + shown(option) + "; --help lists them");
  }
}

}  // namespace detail

inline command_line parse_command_line(std::vector<std::string> const& words) {
  command_line line;
  for (std::size_t i = 0; i < words.size(); ++i) {
    bool const is_check = words[i] == "--check";
    if (words[i] == "--help") {
      line.command = command_kind::help;
      return line;
    }
    if (is_check || words[i] == "--made-up") {
      line.command = is_check ? command_kind::check : command_kind::made_up;
      continue;
    }
    require(exit_code::usage, i + 1 < words.size(), words[i], ": a value must follow");
    detail::take(line, words[i], words[i + 1]);
    ++i;
  }
  require(exit_code::usage, line.prompt_tokens % 64 == 0, "--prompt-tokens is ", line.prompt_tokens,
          " but must be a multiple of ", 64);
  return line;
}

}  // namespace tessera_examples
