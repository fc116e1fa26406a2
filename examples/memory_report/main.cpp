// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// memory_report: the memory that the library's algorithms save on real data, and their speed, as a table and as
/// memory_report.svg.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "../support/atomic_file.hpp"
#include "../support/failure.hpp"
#include "../support/progress_report.hpp"
#include "../support/run_example.hpp"
#include "../support/text_table.hpp"
#include "attention_report.hpp"
#include "gains.hpp"
#include "loss_report.hpp"
#include "minicache_report.hpp"
#include "report.hpp"
#include "report_svg.hpp"
#include "shadow_kv_report.hpp"
#include "text_report.hpp"

namespace tessera_examples {
namespace {

/// The functions that make rows; each algorithm has a line.
using row_source = report_rows (*)(report_options const&);
constexpr row_source sources[] = {&neuzip_rows, &neuzip_cuda_rows};

constexpr char const* help_text =
    R"(Runs each algorithm of the library on real data and reports memory, errors and speed.

  memory_report [--data FOLDER] [--model FOLDER] [--svg FILE] [--threads N] [--tensors] [--quick]

  --data FOLDER   where minilm_{fp32,bf16,fp16}.safetensors and smollm2_{classifier,attention}.safetensors are;
                  tests/data of the source tree by default
  --model FOLDER  where examples/real_model/make_model.py has put SmolLM2-135M; build/real_model by default.
                  Without it no text is generated
  --svg FILE      the picture; memory_report.svg in the build folder by default
  --threads N     CPU threads; all of them by default
  --tensors       a line for each tensor, too
  --quick         the same numbers but for times, which are rough
)";

struct arguments {
  report_options options{.data_folder = TESSERA_REPORT_DATA,
                         .model_folder = TESSERA_REPORT_MODEL,
                         .results_folder = TESSERA_REPORT_RESULTS};
  std::string svg = std::string(TESSERA_REPORT_FOLDER) + "/memory_report.svg";
  bool help = false;
};

arguments parse(std::vector<std::string> const& words) {
  arguments result;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string const& word = words[i];
    auto const value = [&]() -> std::string const& {
      require(exit_code::usage, i + 1 < words.size(), word, " needs a value");
      return words[++i];
    };
    if (word == "--help" || word == "-h") {
      result.help = true;
    } else if (word == "--data") {
      result.options.data_folder = value();
    } else if (word == "--model") {
      result.options.model_folder = value();
    } else if (word == "--svg") {
      result.svg = value();
    } else if (word == "--threads") {
      std::string const& text = value();
      result.options.threads = std::atoi(text.c_str());
      require(exit_code::usage, result.options.threads >= 1 && result.options.threads <= 4096, "--threads is ",
              shown(text), " but must be a number from 1 to ", 4096);
    } else if (word == "--tensors") {
      result.options.by_tensor = true;
    } else if (word == "--quick") {
      result.options.quick = true;
    } else {
      throw failure(exit_code::usage, "unknown argument " + shown(word) + " (--help explains)");
    }
  }
  return result;
}

std::string largest_error_text(double error) {
  return error < 0 ? "-" : error == 0 ? "0, every bit" : fixed(100 * error, 2) + " %";
}
std::string speed_text(double gbps) {
  return gbps < 0 ? "-" : fixed(gbps, gbps < 10 ? 2 : 0);
}

/// Says that something is being measured until the result is there.
template <class Measure>
auto measured(char const* what, Measure const& measure) {
  progress_report report(what);
  report.step("measuring");
  return measure();
}

void print(report_rows const& rows, bool quick) {
  text_table table({"NeuZip", "on", "before", "after", "ratio", "bits", "over", "max error", "encode", "decode"}, 2);
  for (report_row const& row : rows) {
    bool const has_bound = row.bound_bits > 0;
    table.add({row.mode, row.setting.substr(0, row.setting.find(',')), readable_bytes(row.bytes_before),
               readable_bytes(row.bytes_after), fixed(row.ratio(), 2), fixed(row.bits_after(), 2),
               has_bound ? fixed(100 * (row.bits_after() / row.bound_bits - 1), 2) + " %" : "-",
               largest_error_text(row.largest_error), speed_text(row.encode_gbps), speed_text(row.decode_gbps)});
  }
  table.print(stdout);
  std::printf(
      "\nReal weights of all-MiniLM-L6-v2 (tests/data). Bits are those of a weight; over is by how much they\n"
      "exceed the zeroth-order entropy of all exponents of the file, plus sign and mantissa. Errors are\n"
      "relative: |before - after| / |before|. Encode and decode are GB/s of uncompressed weights, timed\n"
      "%s, with %s.\n",
      quick ? "once, which is rough" : "on the same weights repeated to 32 MiB (GPU: 512 MiB)",
      rows.front().setting.c_str());
}

void run(std::vector<std::string> const& words) {
  arguments const given = parse(words);
  if (given.help) {
    std::fputs(help_text, stdout);
    return;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 12);  // whoever reads a pipe sees each result at once
  report_rows const rows = measured("NeuZip", [&] {
    report_rows all;
    for (row_source source : sources) {
      report_rows const more = source(given.options);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  });
  print(rows, given.options.quick);
  loss_report const loss = measured("Cut Cross-Entropy", [&] { return measure_loss(given.options); });
  std::printf("\n");
  print(loss);
  attention_report const attention = measured("SageAttention2", [&] { return measure_attention(given.options); });
  print(attention);
  minicache_report const merged = measured("MiniCache", [&] { return measure_minicache(given.options); });
  print(merged);
  shadow_kv_report const offloaded = measured("ShadowKV", [&] { return measure_shadow_kv(given.options); });
  print(offloaded);
  print(measure_text(given.options));
  report_rows pictured = rows;
  for (report_rows const& more :
       {as_report_rows(loss), as_report_rows(attention), as_report_rows(merged), as_report_rows(offloaded)}) {
    pictured.insert(pictured.end(), more.begin(), more.end());
  }
  std::string const svg = report_svg(pictured);
  atomic_file file(given.svg, true);
  file.append(std::as_bytes(std::span(svg)));
  file.commit();
  for (report_row const& row : rows) {
    bool const is_right = row.bound_bits < 0 || row.largest_error == 0;
    require(exit_code::unsound, is_right, row.mode, " on ", row.setting, ": is lossless but an error is ",
            row.largest_error);
  }
  require_right(loss);
  require_right(attention);
  require_right(merged);
  require_right(offloaded);
  std::printf("The picture: %s\n\nWhat was gained on these data, and what it cost:\n", given.svg.c_str());
  print_gains(
      {gain_of(rows), gain_of(loss), gain_of(attention), gain_of(merged), gain_of(offloaded)});  // all are right
}

}  // namespace
}  // namespace tessera_examples

int main(int count, char** words) {
  using namespace tessera_examples;
  remove_temporary_file_on_signals();
  return run_example("memory_report", [&] { run(std::vector<std::string>(words + 1, words + count)); });
}
