// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs eight_bit_adam, compares its last step with the definition, and its weights with those of Adam, in double.
#pragma once

#include <algorithm>
#include <cmath>

#include "../support/paper_trial.hpp"
#include "adam_reference.hpp"
#include "eight_bit_adam.hpp"

namespace tessera_examples {

struct eight_bit_adam_trial {
  struct extents {
    std::int64_t parameters;
    int steps;
  };
  static constexpr char const* name = "eight_bit_adam";
  static constexpr extents usual{9004, 30}, large[] = {{std::int64_t{1} << 28, 30}};
  static constexpr double bound = 0.1;  ///< the length of what weights are apart, over that of the way they went

  template <class Program = eight_bit_adam<>, class Executor>
  static paper_finding run(Executor const& exec, extents of) {
    constexpr std::int64_t block = Program::block;
    adam_options const options{.weight_decay = 0.01F};
    auto weights = filled<float>(exec, testing::gauss{.sigma = 0.02}, 1, of.parameters);
    moments_memory<typename Program::first_quantizer> first(exec, of.parameters);
    moments_memory<typename Program::second_quantizer> second(exec, of.parameters);
    Program adam{{}, chunks_of(weights), first.moments(), second.moments(), options};

    std::vector<std::int64_t> some;  // the blocks that are compared
    for (std::int64_t at = 0; at < of.parameters; at += divide_up(of.parameters, std::int64_t{4})) {
      some.push_back(at / block);
    }
    auto const weights_of = [&](std::int64_t which) {
      auto const w = here(exec, weights, which * block, std::min(block, of.parameters - which * block));
      return std::vector<double>(w.begin(), w.end());
    };
    std::vector<exact_adam> exact, last;
    for (std::int64_t const which : some) {
      auto const begun = weights_of(which);
      exact.push_back({begun, std::vector<double>(begun.size()), std::vector<double>(begun.size())});
    }
    auto const begun = exact;
    buffer<float> gradients;
    for (int t = 1; t <= of.steps; ++t) {
      gradients = filled<float>(exec, testing::student_t{.freedom = 3, .scale = 1e-3}, 10 + t, of.parameters);
      adam.gradients = chunks_of(gradients);
      last.clear();
      for (std::size_t i = 0; i < some.size(); ++i) {
        auto const w = weights_of(some[i]);
        auto const slopes = here(exec, gradients, some[i] * block, std::ssize(w));
        last.push_back({w, decoded_moments(exec, first, some[i], w.size()).values,
                        decoded_moments(exec, second, some[i], w.size()).values});
        last.back().step(slopes, options, t);
        exact[i].step(slopes, options, t);
      }
      adam.step(exec, t);
    }
    double apart = 0, way = 0;
    largest_error of_last;
    bool are_codes_right = true;
    for (std::size_t i = 0; i < some.size(); ++i) {
      auto const w = weights_of(some[i]);
      are_codes_right &= decoded_moments(exec, first, some[i], w.size()).are_near(last[i].first) &&
                         decoded_moments(exec, second, some[i], w.size()).are_near(last[i].second);
      for (std::size_t j = 0; j < w.size(); ++j) {
        of_last.add(w[j], last[i].weights[j]);
        apart += std::pow(w[j] - exact[i].weights[j], 2);
        way += std::pow(exact[i].weights[j] - begun[i].weights[j], 2);
      }
    }
    bool const are_right = are_codes_right && of_last.relative() <= 1e-6;
    double const error = are_right ? std::sqrt(apart / std::max(way, 1e-30)) : HUGE_VAL;
    return {join(of.parameters, " parameters"), seconds_of(exec, [&] { adam.step(exec, of.steps); }), error,
            16 * static_cast<double>(of.parameters)};
  }

 private:
  static array_view<tile_chunk<float>> chunks_of(buffer<float>& memory) {
    return {reinterpret_cast<tile_chunk<float>*>(memory.data()), memory.size() / 4};
  }
};

}  // namespace tessera_examples
