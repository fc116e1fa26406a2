// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Caches with 8 to 2 bits, and MiniCache's merged layers, as they are and aligned before they are merged.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/minicache.hpp>

#include "aligned_prompt.hpp"
#include "compressed_prompt.hpp"
#include "rows.hpp"

namespace tessera_examples {
namespace {

using parts_type = std::vector<tessera::cache_layers>;

method_result result_of(exact_run const& exact, compressed_prompt const& prompt, progress_report& report) {
  return {
      .hidden = continued(exact, prompt.restored, report), .bytes = prompt.bytes, .exact_bytes = exact.prompt.bytes()};
}

compressed_prompt compressed(exact_run const& exact, kept_prompt const& prompt, parts_type const& parts,
                             progress_report& report) {
  report.step("compressing the prompt");
  return compress_prompt(exact.exec(), prompt, parts);
}

method_row cache_row(std::string name, std::string what, parts_type parts) {
  return {std::move(name), std::move(what), "cache", [parts = std::move(parts)](auto const& exact, auto& report) {
            return result_of(exact, compressed(exact, exact.prompt, parts, report), report);
          }};
}

/// Alignments of all pairs, which are fitted when the first row needs them.
using shared_alignments = std::shared_ptr<pair_alignments>;

method_row aligned_row(int layers, int first, int first_pair, shared_alignments const& all) {
  return {"merged" + std::to_string(first) + "_aligned", "aligned, merged from layer " + std::to_string(first), "cache",
          [=](exact_run const& exact, progress_report& report) {
            if (all->empty()) {
              *all = fit_alignments(exact.net, exact.other, first_pair, report);
            }
            auto const pairs = std::span(std::as_const(*all)).subspan(static_cast<std::size_t>(first - first_pair) / 2);
            kept_prompt const aligned = align_prompt(exact.prompt, pairs);
            compressed_prompt prompt = compressed(exact, aligned, merged_layers(layers, first), report);
            undo_alignment(prompt.restored, pairs, exact.net.rotary());
            return result_of(exact, prompt, report);
          }};
}

}  // namespace

std::vector<method_row> cache_rows(int layers) {
  std::vector<method_row> rows;
  for (int const bits : {8, 4, 3, 2}) {
    std::string const number = std::to_string(bits);
    rows.push_back(cache_row(number + "bit", number + " bits", single_layers(layers, bits, bits)));
  }
  rows.push_back(cache_row("k4v2", "keys 4 bits, values 2", single_layers(layers, 4, 2)));
  int const first_pair = std::max(layers - 14, layers % 2);
  auto const alignments = std::make_shared<pair_alignments>();
  for (int const first : {layers - 14, layers - 6, layers - 2}) {
    if (first >= first_pair) {
      std::string const number = std::to_string(first);
      rows.push_back(cache_row("merged" + number, "merged from layer " + number, merged_layers(layers, first)));
      rows.push_back(aligned_row(layers, first, first_pair, alignments));
    }
  }
  return rows;
}

}  // namespace tessera_examples
