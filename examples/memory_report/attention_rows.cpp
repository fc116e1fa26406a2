// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Causal attention of a layer of SmolLM2 on the CPU: real queries, keys and values.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

#include "../support/distance.hpp"
#include "../support/exact_attention.hpp"
#include "../support/failure.hpp"
#include "../support/input_file.hpp"
#include "../support/safetensors.hpp"
#include "../support/tensor_elements.hpp"
#include "../support/text_table.hpp"
#include "attention_report.hpp"
#include "seconds_of.hpp"

namespace tessera_examples {
namespace {

using tessera::attention_shape;
using tessera::bfloat16;
using tessera::cpu;
using tessera::head_view;

constexpr std::int64_t channels = 64;
constexpr char const* layer = "layers.15";

/// Queries, keys and values, heads x tokens x channels, and the exact result.
struct layer_problem {
  std::vector<bfloat16> queries;
  std::vector<bfloat16> keys;
  std::vector<bfloat16> values;
  attention_shape shape{};
  std::vector<double> expected;
};

head_view<bfloat16 const> heads_of(std::vector<bfloat16> const& data, std::int64_t tokens) {
  auto const heads = static_cast<std::int64_t>(data.size()) / (tokens * channels);
  return {data.data(), {1, heads, tokens, channels}};
}

layer_problem read_layer(std::string const& path) {
  input_file const file(path);
  safetensors_reader const model(file, path);
  std::string const name = layer;
  layer_problem problem;
  problem.queries = elements_of<bfloat16>(model, path, name + ".queries_post_rope", "BF16");
  problem.keys = elements_of<bfloat16>(model, path, name + ".keys_post_rope", "BF16");
  problem.values = elements_of<bfloat16>(model, path, name + ".values", "BF16");
  auto const tokens = static_cast<std::int64_t>(elements_of<std::int32_t>(model, path, "token_ids", "I32").size());
  std::int64_t const head_elements = tokens * channels;
  problem.shape = {
      1,       std::ssize(problem.queries) / head_elements, std::ssize(problem.keys) / head_elements, tokens, tokens,
      channels};
  bool const fits = problem.shape.key_heads > 0 && problem.keys.size() == problem.values.size() &&
                    problem.shape.query_heads % problem.shape.key_heads == 0 &&
                    std::ssize(problem.queries) == problem.shape.query_heads * head_elements;
  require(exit_code::unsound, fits, path, ": queries, keys and values of ", layer, " do not fit together");
  for (std::int64_t head = 0; head < problem.shape.query_heads; ++head) {
    for (std::int64_t query = 0; query < tokens; ++query) {
      std::int64_t const key_head = head / (problem.shape.query_heads / problem.shape.key_heads);
      auto const exact = attend_exactly<bfloat16>(heads_of(problem.queries, tokens)[0][head][query],
                                                  heads_of(problem.keys, tokens)[0][key_head].slice(0, 0, query + 1),
                                                  heads_of(problem.values, tokens)[0][key_head].slice(0, 0, query + 1));
      problem.expected.insert(problem.expected.end(), exact.result.begin(), exact.result.end());
    }
  }
  return problem;
}

/// Bytes of codes, scales and means of keys and values.
template <class Attention>
std::int64_t kept_bytes(attention_shape const& shape) {
  typename Attention::regions const layout("memory_report", shape, {false, true, true, false});
  return layout.key_codes.count + layout.value_codes.count +
         std::int64_t{sizeof(float)} *
             (layout.key_scales.count + layout.key_mean.count + layout.value_scales.count + layout.value_mean.count);
}

std::int64_t key_value_elements(attention_shape const& shape) {
  return 2 * shape.batch * shape.key_heads * shape.keys * shape.channels;
}

template <class Attention>
attention_row measure(std::string mode, layer_problem const& problem, report_options const& report) {
  attention_shape const& shape = problem.shape;
  cpu const exec{.threads = report.threads};
  std::vector<float> found(problem.expected.size());
  tessera::attention_options const options{.is_causal = true};
  tessera::attention_inputs<bfloat16> const inputs{heads_of(problem.queries, shape.queries),
                                                   heads_of(problem.keys, shape.keys),
                                                   heads_of(problem.values, shape.keys)};
  tessera::attention_outputs<float> const outputs{
      {found.data(), {1, shape.query_heads, shape.queries, shape.channels}}};
  auto const plan = Attention::plan_forward(exec, shape);
  tessera::buffer<std::byte> block(exec, plan.bytes());
  tessera::workspace const space(plan, block);
  auto const wait = [&] { exec.wait(); };
  attention_row row{.mode = std::move(mode),
                    .elements = key_value_elements(shape),
                    .plain_bytes = key_value_elements(shape) * std::int64_t{sizeof(bfloat16)},
                    .bytes = kept_bytes<Attention>(shape)};
  row.milliseconds =
      1e3 * seconds_of([&] { Attention::forward(exec, inputs, options, outputs, space); }, wait, report.quick);
  auto const operands = Attention::operands(shape, space);
  tessera::attention_call<typename Attention::method, float> const over_codes{
      .shape = shape, .options = options, .heads = operands, .out = outputs};
  row.kept_milliseconds = 1e3 * seconds_of([&] { Attention::forward(exec, over_codes); }, wait, report.quick);
  double apart = 0;
  double length = 0;
  double squares = 0;
  distance between;
  for (std::size_t i = 0; i < found.size(); ++i) {
    auto const value = static_cast<double>(found[i]);
    apart += std::abs(value - problem.expected[i]);
    length += std::abs(problem.expected[i]);
    squares += (value - problem.expected[i]) * (value - problem.expected[i]);
    between.add(value, problem.expected[i]);
  }
  row.relative_l1 = apart / length;
  row.cosine = between.cosine();
  row.rmse = std::sqrt(squares / static_cast<double>(found.size()));
  return row;
}

attention_plan plan_of(std::string model, attention_shape const& shape) {
  return {std::move(model), key_value_elements(shape) * std::int64_t{sizeof(bfloat16)},
          kept_bytes<tessera::sage_attention2>(shape)};
}

}  // namespace

attention_report measure_attention(report_options const& options) {
  layer_problem const problem = read_layer(options.data_folder + "/smollm2_attention.safetensors");
  attention_report report;
  report.data = tessera::join(problem.shape.query_heads, " and ", problem.shape.key_heads, " heads x ",
                              problem.shape.keys, " tokens x ", channels);
  report.rows = {measure<tessera::sage_attention2>("INT8 and e4m3", problem, options),
                 measure<tessera::sage_attention2_int4>("INT4 and e4m3", problem, options)};
  report.plans = {plan_of("Llama 3 8B, a layer", {1, 32, 8, 131072, 131072, 128}),
                  plan_of("Gemma 2 2B, a layer", {1, 8, 4, 131072, 131072, 256})};
  return report;
}

void print(attention_report const& report) {
  text_table table(
      {"SageAttention2", "keys and values", "codes", "ratio", "ms", "codes kept, ms", "error: L1", "cosine", "RMSE"});
  for (attention_row const& row : report.rows) {
    table.add({row.mode, readable_bytes(row.plain_bytes), readable_bytes(row.bytes),
               fixed(static_cast<double>(row.plain_bytes) / static_cast<double>(row.bytes), 2),
               fixed(row.milliseconds, 1), fixed(row.kept_milliseconds, 1), fixed(100 * row.relative_l1, 2) + " %",
               fixed(row.cosine, 5), fixed(row.rmse, 5)});
  }
  table.print(stdout);
  std::printf(
      "\nCausal attention of layer 15 of SmolLM2-135M on real text (tests/data), on the CPU:\n"
      "%s. Keys and values are those in bf16, codes what is kept\n"
      "of them: codes, scales and means (INT4 is of keys; values have e4m3's 8 bits). Errors are relative\n"
      "to double precision.\n\n",
      report.data.c_str());
  text_table plans({"131072 tokens", "keys and values, bf16", "codes"});
  for (attention_plan const& plan : report.plans) {
    plans.add({plan.model, readable_bytes(plan.plain_bytes), readable_bytes(plan.bytes)});
  }
  plans.print(stdout);
  std::printf("\n");
}

report_rows as_report_rows(attention_report const& report) {
  report_rows rows;
  for (attention_row const& row : report.rows) {
    rows.push_back({.algorithm = "SageAttention2",
                    .data = "SmolLM2",
                    .mode = row.mode,
                    .setting = "keys and values",
                    .elements = row.elements,
                    .bytes_before = row.plain_bytes,
                    .bytes_after = row.bytes});
  }
  return rows;
}

void require_right(attention_report const& report) {
  double const bounds[] = {0.04, 0.2};
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    attention_row const& row = report.rows[i];
    require(exit_code::unsound, row.relative_l1 <= bounds[i], row.mode, ": the relative error is ", row.relative_l1,
            " but must be at most ", bounds[i]);
    require(exit_code::unsound, row.bytes < row.plain_bytes, row.mode, ": codes take ", row.bytes,
            " bytes but keys and values ", row.plain_bytes);
  }
}

}  // namespace tessera_examples
