// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// SmolLM2-135M continues a text by the code of examples/real_model: with a cache in bf16, in pages of 4 bits, and with
/// layers merged as in MiniCache. Each step takes a token of each of them through the layers together.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <tessera/exec/cpu.hpp>

#include "../real_model/continue_text.hpp"
#include "../real_model/files.hpp"
#include "../real_model/kept_memories.hpp"
#include "../support/progress_report.hpp"
#include "../support/text_table.hpp"
#include "shows_colours.hpp"
#include "text_report.hpp"

namespace tessera_examples {
namespace {

constexpr std::int64_t prompt_tokens = 384;
constexpr std::int64_t window = 64;  // newest tokens that stay in bf16
constexpr std::size_t columns = 100;

std::string content_of(std::string const& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<committed_text> committed_figures(std::string const& path) {
  std::vector<committed_text> found;
  nlohmann::json const results = nlohmann::json::parse(content_of(path));
  for (nlohmann::json const& row : results.at("benchmarks")) {
    for (auto const& [name, cache] : {std::pair("real_model/exact", "bf16"), std::pair("real_model/4bit", "4 bits"),
                                      std::pair("real_model/merged16", "MiniCache, merged from layer 16")}) {
      if (row.at("name") == name) {
        found.push_back({cache, row.at("MB"), row.at("perplexity"), row.at("agreement")});
      }
    }
  }
  return found;
}

/// One token of each memory goes through all layers, at the same position.
hidden_states step(transformer const& net, std::span<std::int32_t const> tokens, std::int64_t position,
                   std::span<text_memory* const> memories) {
  auto const attend = [&](layer_heads const& in) {
    for (std::size_t row = 0; row < memories.size(); ++row) {
      auto const at = static_cast<std::int64_t>(row);
      layer_heads of = in;
      of.first = position;
      of.queries = in.queries.slice(2, at, 1);
      of.keys = in.keys.slice(2, at, 1);
      of.values = in.values.slice(2, at, 1);
      of.result = in.result.slice(2, at, 1);
      own_heads queries(of.queries.extent(1), 1, of.queries.extent(3));
      own_heads keys(of.keys.extent(1), 1, of.keys.extent(3));
      rotate(net.rotary(), position, of.queries, queries.view());
      rotate(net.rotary(), position, of.keys, keys.view());
      of.rotated_queries = std::as_const(queries).view();
      of.rotated_keys = std::as_const(keys).view();
      memories[row]->attend(of);
    }
  };
  hidden_states hidden = net.forward(tokens, position, attend);
  for (text_memory* const memory : memories) {
    memory->end_token();
  }
  return hidden;
}

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return text;
}

/// Prints a text in lines that are indented and fit the columns.
void print_wrapped(std::string_view text, std::size_t indent) {
  while (!text.empty()) {
    std::size_t end = text.size();
    if (end > columns - indent) {
      std::size_t const space = text.rfind(' ', columns - indent);
      end = space == std::string_view::npos || space == 0 ? columns - indent : space;
    }
    std::printf("%*s%.*s\n", static_cast<int>(indent), "", static_cast<int>(end), text.data());
    text.remove_prefix(end);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  }
}

/// Fills the rows of a report with what follows a prompt.
void continue_by_all(transformer const& net, model_files const& files, std::vector<std::int32_t> const& prompt,
                     text_report& report) {
  progress_report progress("SmolLM2-135M");
  kept_prompt kept;
  attention_of_layer const keep = attention_that_keeps(net.exec(), kept);
  hidden_states hidden = net.forward(prompt, 0, [&](layer_heads const& in) {
    progress.step(tessera::join("reads ", prompt.size(), " tokens, layer ", in.layer + 1));
    keep(in);
  });
  int const layers = net.extents().layers;
  std::int64_t const most = std::ssize(prompt) + report.tokens;
  exact_memory<tessera::dense_attention> exact(net, most);
  cached_memory coded(net, most, single_layers(layers, 4, 4), window);
  cached_memory merged(net, most, tessera::minicache::half_merged(layers), window);
  std::vector<text_memory*> const memories{&exact, &coded, &merged};
  for (text_memory* const memory : memories) {
    memory->take(kept);
  }
  std::vector<std::int32_t> tokens(memories.size(), likeliest_next(net, hidden));
  std::vector<std::vector<std::int32_t>> made(memories.size());
  std::vector<std::int32_t> const any_labels(memories.size(), 0);
  double const start = progress.seconds();
  for (std::int64_t i = 0; i < report.tokens; ++i) {
    progress.step(tessera::join("token ", i + 1, " of ", report.tokens));
    for (std::size_t row = 0; row < made.size(); ++row) {
      made[row].push_back(tokens[row]);
    }
    hidden = step(net, tokens, std::ssize(prompt) + i, memories);
    tokens = score_text(net.exec(), net.model(), hidden, any_labels).predictions;
  }
  report.milliseconds = 1e3 * (progress.seconds() - start) / static_cast<double>(report.tokens);
  report.rows = {{"cache in bf16", {}, exact.bytes()},
                 {"cache in 4 bits", {}, coded.bytes()},
                 {"MiniCache, half of all layers merged", {}, merged.bytes()}};
  for (std::size_t row = 0; row < made.size(); ++row) {
    report.rows[row].text = one_line(files.words.decode(made[row]));
    report.rows[row].same =
        std::mismatch(made[row].begin(), made[row].end(), made[0].begin()).first - made[row].begin();
  }
}

}  // namespace

text_report measure_text(report_options const& options) {
  text_report report;
  std::string const& folder = options.model_folder;
  if (::access((folder + "/smollm2_135m.safetensors").c_str(), R_OK) != 0 ||
      ::access((folder + "/esther.txt").c_str(), R_OK) != 0) {
    report.why_not = one_line(content_of(folder + "/why_not.txt"));
    report.why_not = report.why_not.empty() ? "its file is not in " + folder : report.why_not;
    report.committed = committed_figures(options.results_folder + "/real_model.json");
    return report;
  }
  model_files const files = read_files(folder);
  transformer const net(tessera::cpu{.threads = options.threads}, files.model);
  std::vector<std::int32_t> const prompt = files.tokens_of(folder + "/esther.txt", prompt_tokens);
  report.prompt_tokens = std::ssize(prompt);
  report.tokens = options.quick ? 4 : 28;
  report.prompt_end = one_line(files.words.decode({prompt.end() - 24, prompt.end()}));
  continue_by_all(net, files, prompt, report);
  return report;
}

void print(text_report const& report) {
  if (!report.why_not.empty()) {
    std::printf("%sNO TEXT WAS GENERATED: there is no SmolLM2-135M to do it.%s\n", shows_colours() ? "\033[1;31m" : "",
                shows_colours() ? "\033[0m" : "");
    print_wrapped(report.why_not, 2);
    std::printf("These are COMMITTED FIGURES of examples/real_model (bench/results), not measured now:\n\n");
    text_table table({"cache of 1536 tokens", "MB", "perplexity of the next 511", "same likeliest token"});
    for (committed_text const& row : report.committed) {
      table.add({row.cache, fixed(row.megabytes, 1), fixed(row.perplexity, 2), fixed(100 * row.agreement, 1) + " %"});
    }
    table.print(stdout);
    std::printf("\n");
    return;
  }
  std::printf("SmolLM2-135M continues %lld tokens of the Book of Esther by examples/real_model's code; they end:\n",
              static_cast<long long>(report.prompt_tokens));
  print_wrapped("..." + report.prompt_end, 4);
  for (text_row const& row : report.rows) {
    std::string head = row.cache + ", " + readable_bytes(row.bytes);
    if (&row != report.rows.data()) {
      std::string const ratio = fixed(static_cast<double>(report.rows[0].bytes) / static_cast<double>(row.bytes), 2);
      head += " (" + ratio + "x smaller); " + (row.same == report.tokens ? "all " : "only ") +
              std::to_string(row.same) + " tokens are the same";
    }
    std::printf("  %s:\n", head.c_str());
    print_wrapped(row.text.substr(std::min(row.text.find_first_not_of(' '), row.text.size())), 4);
  }
  std::printf("The newest %lld tokens stay in bf16 in each. A token of all three takes %s ms.\n\n",
              static_cast<long long>(window), fixed(report.milliseconds, 0).c_str());
}

}  // namespace tessera_examples
