// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The report's last lines: what each algorithm gained on these data, and what it cost. Where it gained nothing, or
/// lost what it was to keep, its line says so, in red on a terminal.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "../support/failure.hpp"
#include "../support/text_table.hpp"
#include "attention_report.hpp"
#include "loss_report.hpp"
#include "minicache_report.hpp"
#include "percent_text.hpp"
#include "report.hpp"
#include "shadow_kv_report.hpp"
#include "shows_colours.hpp"

namespace tessera_examples {

struct gain_line {
  std::string algorithm;
  bool pays = true;
  std::string text;
};

namespace detail {

inline double ratio_of(std::int64_t before, std::int64_t after) {
  return static_cast<double>(before) / static_cast<double>(after);
}
template <class Rows, class Is>
auto const& row_that(Rows const& rows, Is const& is, char const* what) {
  auto const found = std::find_if(rows.begin(), rows.end(), is);
  require(exit_code::unsound, found != rows.end(), "the report has no row of ", what, ", which its last lines name");
  return *found;
}

}  // namespace detail

inline gain_line gain_of(report_rows const& neuzip) {
  report_row const& row = detail::row_that(
      neuzip, [](report_row const& each) { return each.mode == "bf16 lossless"; }, "bf16 lossless");
  return {"NeuZip", row.ratio() > least_gain && row.largest_error == 0,
          fixed(row.ratio(), 2) + "x smaller weights, every bit is the same; decoding reaches " +
              fixed(row.decode_gbps, 1) + " GB/s"};
}
inline gain_line gain_of(loss_report const& report) {
  loss_row const& row = report.rows.back();  // exact
  double const gain = detail::ratio_of(row.dense_bytes, row.bytes);
  return {"Cut Cross-Entropy", gain > least_gain,
          fixed(gain, 1) + "x less memory with gradients, off by " + percent_text(row.hidden_error) + "; " +
              fixed(row.milliseconds / row.dense_milliseconds, 2) + "x the dense time"};
}
inline gain_line gain_of(attention_report const& report) {
  attention_row const& row = report.rows.front();
  double const gain = detail::ratio_of(row.plain_bytes, row.bytes);
  return {"SageAttention2", gain > least_gain && row.relative_l1 < most_error,
          fixed(gain, 2) + "x smaller keys and values in 8 bits; attention is off by " + percent_text(row.relative_l1)};
}
inline gain_line gain_of(minicache_report const& report) {
  minicache_row const& merged = detail::row_that(
      report.rows, [](minicache_row const& each) { return each.is_merged; }, "merged layers");
  minicache_row const& alone = report.rows.front();
  bool const pays = merged.bytes.ratio() > least_gain && merged.mean_error() < most_error;
  return {"MiniCache", pays,
          fixed(merged.bytes.ratio(), 2) + "x smaller, off by " + percent_text(merged.mean_error()) + "; unmerged " +
              fixed(alone.bytes.ratio(), 2) + "x, off by " + percent_text(alone.mean_error())};
}
inline gain_line gain_of(shadow_kv_report const& report) {
  shadow_kv_row const& row = detail::row_that(
      report.rows, [](shadow_kv_row const& each) { return each.rank == 160 && each.chunks == 16; }, "16 chunks");
  double const gain = detail::ratio_of(report.plain_bytes, row.device_bytes);
  double const error = *std::max_element(row.errors.begin(), row.errors.end());
  shadow_kv_plan const& plan = report.plans.front();
  return {"ShadowKV", gain > least_gain && error < most_error,
          fixed(gain, 2) + "x smaller at 512 tokens (" +
              fixed(detail::ratio_of(plan.plain_bytes, plan.device_bytes), 2) + "x at 128K), off by " +
              percent_text(error)};
}

inline void print_gains(std::vector<gain_line> const& lines) {
  bool const is_coloured = shows_colours();
  for (gain_line const& line : lines) {
    std::string const verdict = line.pays ? "pays" : "DOES NOT PAY HERE";
    std::string const text = line.algorithm + std::string(18 - line.algorithm.size(), ' ') + verdict + ": " + line.text;
    std::printf("%s%s%s\n", is_coloured ? (line.pays ? "\033[32m" : "\033[1;31m") : "", text.c_str(),
                is_coloured ? "\033[0m" : "");
  }
}

}  // namespace tessera_examples
