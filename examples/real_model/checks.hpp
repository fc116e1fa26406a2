// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The program's tests of itself: of the table's figures on a made-up model, and of the real model against the tensors
/// of tests/data, which a forward pass in double has made.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <tessera/algorithm/attention/dense_attention.hpp>

#include "../support/distance.hpp"
#include "../support/failure.hpp"
#include "../support/input_file.hpp"
#include "../support/tensor_elements.hpp"
#include "files.hpp"
#include "measurement.hpp"

namespace tessera_examples {

inline measured_row const& row_named(std::vector<measured_row> const& rows, std::string name) {
  auto const found = std::find_if(rows.begin(), rows.end(), [&](measured_row const& row) { return row.name == name; });
  require(exit_code::unsound, found != rows.end(), "there is no row ", name);
  return *found;
}

/// Throws unless each row is further from the exact model than the one before, and the first nearer than `limit`.
inline void check_order(std::vector<measured_row> const& rows, std::vector<std::string> const& names, double limit) {
  double least = -1e-6;
  for (std::string const& name : names) {
    double const found = row_named(rows, name).divergence;
    require(exit_code::unsound, found > least, name, " has a divergence of ", found,
            " but must have more than the row before it, ", least);
    require(exit_code::unsound, least >= 0 || found < limit, name, " has a divergence of ", found,
            " but must have less than ", limit);
    least = found;
  }
}

/// What must hold whatever the model is.
inline void check_rows(std::vector<measured_row> const& rows) {
  for (measured_row const& row : rows) {
    require(exit_code::unsound, std::isfinite(row.perplexity) && row.bytes > 0, row.name, " has a perplexity of ",
            row.perplexity, " and ", row.bytes, " bytes");
  }
  measured_row const& exact = row_named(rows, "exact");
  require(exit_code::unsound, std::fabs(exact.divergence) < 1e-6 && exact.agreement == 1, "the exact row diverges by ",
          exact.divergence, " and agrees in ", exact.agreement);
  check_order(rows, {"8bit", "4bit", "3bit", "2bit"}, 1e-2);
  check_order(rows, {"4bit", "k4v2", "2bit"}, 5e-2);
  check_order(rows, {"weights7", "weights3", "weights1", "weights0"}, 1e-3);
  check_order(rows, {"sage_int8", "sage_int4"}, 1e-2);
  check_order(rows, {"shadow_all_chunks", "shadow_32_chunks", "shadow_8_chunks"}, 2e-2);
}

inline void check_near(char const* what, double found, double limit) {
  std::printf("%-70s %.5f\n", what, found);
  std::fflush(stdout);
  require(exit_code::unsound, found < limit, what, " is ", found, " but must be less than ", limit);
}

/// The relative distance of heads from a tensor of the same extents.
inline double distance_of(head_view<bfloat16 const> heads, std::vector<bfloat16> const& expected) {
  distance apart;
  head_view<bfloat16 const> const other(expected.data(), {1, heads.extent(1), heads.extent(2), heads.extent(3)});
  for (std::int64_t head = 0; head < heads.extent(1); ++head) {
    for (std::int64_t token = 0; token < heads.extent(2); ++token) {
      for (std::int64_t channel = 0; channel < heads.extent(3); ++channel) {
        apart.add(static_cast<double>(tessera::load(heads(0, head, token, channel))),
                  static_cast<double>(tessera::load(other(0, head, token, channel))));
      }
    }
  }
  return apart.relative();
}

/// Compares the keys and values of a text with those of tests/data.
inline void check_heads(std::string const& data, kept_prompt const& kept) {
  std::string const path = data + "/smollm2_attention.safetensors";
  input_file const file(path);
  safetensors_reader const tensors(file, path);
  for (std::size_t const layer : {14, 15, 16}) {
    std::string const prefix = "layers." + std::to_string(layer) + ".";
    kept_layer const& found = kept.layers[layer];
    auto const expected = [&](char const* name) { return elements_of<bfloat16>(tensors, path, prefix + name, "BF16"); };
    std::string const of = "relative error of layer " + std::to_string(layer) + "'s ";
    check_near((of + "keys").c_str(), distance_of(found.keys.view(), expected("keys_pre_rope")), 0.03);
    check_near((of + "rotated keys").c_str(), distance_of(found.rotated_keys.view(), expected("keys_post_rope")), 0.03);
    check_near((of + "values").c_str(), distance_of(found.values.view(), expected("values")), 0.03);
  }
}

/// Runs the real model on chapter 1 of Pride and Prejudice, and compares with tests/data.
inline void check_real_model(model_files const& files, transformer const& net, std::string const& data) {
  std::string const path = data + "/smollm2_classifier.safetensors";
  input_file const file(path);
  safetensors_reader const tensors(file, path);
  auto const tokens = elements_of<std::int32_t>(tensors, path, "token_ids", "I32");
  require(exit_code::unsound, files.tokens_of(data + "/pride_and_prejudice_1.txt", std::ssize(tokens)) == tokens, path,
          ": the tokenizer has other tokens for the text");
  std::printf("%zu tokens of the text are those of tests/data.\n", tokens.size());
  progress_report report("check");
  kept_prompt kept;
  auto const attend = with_progress(report, net.extents().layers, attention_that_keeps(net.exec(), kept));
  hidden_states const hidden = net.forward(std::span(tokens).first(tokens.size() - 1), 0, attend);
  check_heads(data, kept);
  auto const expected = elements_of<float>(tensors, path, "loss_all_rows", "F32");
  text_scores const scores = score_text(net.exec(), net.model(), hidden, std::span(tokens).subspan(1));
  double apart = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    std::size_t const token = scores.losses.size() - expected.size() + i;
    apart += std::fabs(static_cast<double>(scores.losses[token]) - static_cast<double>(expected[i]));
  }
  check_near("mean difference of losses from those in double, nats", apart / static_cast<double>(expected.size()),
             0.02);
  check_near("difference of the perplexity from 17.44", std::fabs(scores.perplexity() - 17.44), 0.1);
}

}  // namespace tessera_examples
