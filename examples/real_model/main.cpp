// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// real_model: what each method does to a whole language model. See README.md and command_line.hpp.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include <tessera/algorithm/attention/dense_attention.hpp>

#include "../support/run_example.hpp"
#include "checks.hpp"
#include "command_line.hpp"
#include "continue_text.hpp"
#include "files.hpp"
#include "made_up_model.hpp"
#include "results.hpp"
#include "rows.hpp"
#include "text_memory.hpp"

namespace tessera_examples {
namespace {

/// The exact model on a text: its prompt, then what follows.
exact_run run_exactly(transformer const& net, std::vector<std::int32_t> tokens, std::int64_t prompt_tokens,
                      std::vector<std::int32_t> other) {
  progress_report report("exact model");
  exact_run exact{net, std::move(tokens), prompt_tokens, std::move(other), {}, {}, {}};
  auto const keep = attention_that_keeps(net.exec(), exact.prompt);
  static_cast<void>(net.forward(exact.prompt_text(), 0, with_progress(report, net.extents().layers, keep)));
  exact.hidden = continued(exact, exact.prompt, report);
  report.step("scoring");
  exact.scores = score_text(net.exec(), net.model(), exact.hidden, exact.next_tokens());
  return exact;
}

method_row exact_row() {
  return {"exact", "exact", "cache", [](exact_run const& exact, progress_report& report) {
            return method_result{.hidden = continued(exact, exact.prompt, report),
                                 .bytes = exact.prompt.bytes(),
                                 .exact_bytes = exact.prompt.bytes()};
          }};
}

std::vector<method_row> all_rows(int layers) {
  std::vector<method_row> rows{exact_row()};
  for (std::vector<method_row> const& more : {cache_rows(layers), shadow_rows(), attention_rows(), weight_rows()}) {
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

/// The rows of these names; all if there are none.
std::vector<method_row> chosen_rows(std::vector<method_row> rows, std::vector<std::string> const& names) {
  for (std::string const& name : names) {
    bool const is_there =
        std::any_of(rows.begin(), rows.end(), [&](method_row const& row) { return row.name == name; });
    require(exit_code::usage, is_there, "there is no row ", shown(name));
  }
  std::erase_if(rows, [&](method_row const& row) {
    return !names.empty() && std::find(names.begin(), names.end(), row.name) == names.end();
  });
  return rows;
}

std::vector<measured_row> measure_all(exact_run const& exact, std::vector<method_row> const& rows) {
  std::vector<measured_row> measured;
  for (method_row const& row : rows) {
    measured.push_back(measure(exact, row));
    print_row(measured.back());
  }
  return measured;
}

void make_table(command_line const& line) {
  model_files const files = read_files(line.folder);
  transformer const net(tessera::cpu{.threads = line.threads}, files.model);
  std::vector<method_row> const rows = chosen_rows(all_rows(net.extents().layers), line.rows);
  std::int64_t const count = line.prompt_tokens + line.later_tokens;
  std::string const text = line.text.empty() ? line.folder + "/esther.txt" : line.text;
  std::string const other = line.other_text.empty() ? line.folder + "/acts.txt" : line.other_text;
  exact_run const exact =
      run_exactly(net, files.tokens_of(text, count + 1), line.prompt_tokens, files.tokens_of(other, count));
  print_titles(text, exact);
  std::vector<measured_row> const measured = measure_all(exact, rows);
  if (!line.json.empty()) {
    write_results(line.json, line.commit, exact, measured);
  }
}

/// The table of a small model of random weights, and requirements on its figures.
void check_table(command_line const& line) {
  constexpr std::int64_t prompt = 704;  // more chunks than the outliers and the selected ones of ShadowKV
  constexpr std::int64_t later = 31;
  language_model const model = made_up_model(2);
  transformer const net(tessera::cpu{.threads = line.threads}, model);
  exact_run const exact =
      run_exactly(net, made_up_tokens(model, prompt + later + 1, 2), prompt, made_up_tokens(model, prompt + later, 3));
  print_titles("a made-up text", exact);
  check_rows(measure_all(exact, all_rows(net.extents().layers)));
}

void check_model(command_line const& line) {
  model_files const files = read_files(line.folder);
  check_real_model(files, transformer(tessera::cpu{.threads = line.threads}, files.model), REAL_MODEL_DATA);
}

void continue_prompt(command_line const& line) {
  model_files const files = read_files(line.folder);
  make_memory const memory = memory_of_method(line.method, files.model.extents.layers);
  transformer const net(tessera::cpu{.threads = line.threads}, files.model);
  std::vector<std::int32_t> const prompt = files.words.encode(line.prompt);
  wrapped_output output;
  output.put(line.prompt);
  std::optional<progress_report> report;
  if (::isatty(STDOUT_FILENO) == 0) {
    report.emplace("continuing");  // on a terminal the text itself is the progress
  }
  std::int64_t made = 0;
  continue_text(net, prompt, line.tokens, memory, [&](std::int32_t token) {
    output.put(files.words.decode({token}));
    if (report) {
      report->step(tessera::join(++made, " of ", line.tokens, " tokens"));
    }
  });
  output.finish();
}

void run(std::vector<std::string> const& words) {
  command_line const line = parse_command_line(words);
  if (line.command == command_kind::help) {
    std::fputs(help_text, stdout);
  } else if (line.command == command_kind::check) {
    check_model(line);
  } else if (line.command == command_kind::made_up) {
    check_table(line);
  } else if (!line.prompt.empty()) {
    continue_prompt(line);
  } else {
    make_table(line);
  }
}

}  // namespace
}  // namespace tessera_examples

int main(int count, char** words) {
  return tessera_examples::run_example("real_model", [&] { tessera_examples::run({words + 1, words + count}); });
}
