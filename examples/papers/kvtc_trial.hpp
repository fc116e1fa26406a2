// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs KVTC: whether its streams decode to the coefficients that were encoded, rounded to codes, whether these are
/// those of the definition in double, and how far values are from those before.
#pragma once

#include <algorithm>
#include <cmath>

#include "../support/paper_trial.hpp"
#include "kvtc_codec.hpp"

namespace tessera_examples {

struct kvtc_trial {
  struct extents {
    std::int64_t tokens;
    bool is_encoded;  ///< in the call that is timed; else it is decoded
  };
  static constexpr int channels = 128;
  static constexpr char const* name = "kvtc";
  static constexpr extents usual{700, true}, large[] = {{524288, true}, {524288, false}};
  static constexpr double bound = 0.1;  ///< the length of what values are apart, over their own
  static constexpr double bits = 2;     ///< of a value, before codes are entropy-coded

  template <class Executor>
  static paper_finding run(Executor const& exec, extents of) {
    // Values that are sums of few directions, whose lengths fall, and something of their own.
    auto const sources = filled<bfloat16>(exec, testing::gauss{}, 1, of.tokens * directions);
    std::vector<bfloat16> mixed;
    for (std::uint64_t i = 0; i < channels * directions; ++i) {
      float const length = 2.0F / static_cast<float>(1 + i % directions);
      mixed.push_back(store<bfloat16>(length * testing::gauss{}.value(2, i)));
    }
    buffer<bfloat16> mixing(exec, channels * directions);
    exec.copy(mixed, mixing);
    auto values = poisoned<bfloat16>(exec, of.tokens * channels), decoded = poisoned<bfloat16>(exec, values.size());
    linear<bfloat16>::forward(exec, {sources.data(), {of.tokens, directions}}, {mixing.data(), {channels, directions}},
                              matrix_view<bfloat16>(values.data(), {of.tokens, channels}));
    auto const some = here(exec, values, 0, std::min(of.tokens, std::int64_t{2048}) * channels);
    std::vector<double> samples;
    for (bfloat16 const value : some) {
      samples.push_back(double{load(value)});
    }
    kvtc_calibration const calibration(samples, channels, bits);
    kvtc_codec<channels> codec(exec, calibration, of.tokens);
    matrix_view<bfloat16 const> const in(values.data(), {of.tokens, channels});
    matrix_view<bfloat16> const out(decoded.data(), {of.tokens, channels});
    auto const rows = [&](matrix_view<bfloat16 const> matrix) {  // of some tokens that stand for all
      std::vector<std::vector<bfloat16>> copies;
      for (std::int64_t t = 0; t < of.tokens; t += divide_up(of.tokens, std::int64_t{64})) {
        exec.copy(matrix[t], copies.emplace_back(channels));
      }
      exec.wait();
      return copies;
    };
    codec.encode(exec, in);
    auto const x = rows(in), y = rows(codec.stream().coefficients);
    std::vector<std::int32_t> ends(static_cast<std::size_t>(codec.stream().ends.size()));
    exec.copy(array_view<std::int32_t const>(codec.stream().ends.data, std::ssize(ends)), ends);
    double const seconds = of.is_encoded ? seconds_of(exec, [&] { codec.encode(exec, in); }) : 0;
    codec.decode(exec, out);
    auto const decoded_y = rows(codec.stream().coefficients), decoded_x = rows(out);
    largest_error of_product, of_codes;
    double apart = 0, length = 0, words = 0;
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t k = 0; k < channels; ++k) {
        double exact = 0;
        for (std::size_t i = 0; i < channels; ++i) {
          exact += calibration.basis[k * channels + i] * double{load(x[t][i])};
        }
        kvtc_component const& by = calibration.components[k];
        of_product.add(double{load(y[t][k])}, exact);
        of_codes.add(double{load(decoded_y[t][k])},
                     double{load(store<bfloat16>(by.decode(by.bits == 0 ? 0 : by.encode(load(y[t][k])))))});
        apart += std::pow(double{load(decoded_x[t][k])} - double{load(x[t][k])}, 2);
        length += std::pow(double{load(x[t][k])}, 2);
      }
    }
    for (std::size_t i = channels - 1; i < ends.size(); i += channels) {
      words += ends[i];
    }
    double const bytes = 2 * words + 6 * static_cast<double>(ends.size());  // of which are 6 a lane's state and end
    bool const are_right = of_product.relative() <= 1e-2 && of_codes.relative() == 0;
    paper_finding found{join(of.tokens, " tokens of ", channels, of.is_encoded ? ", encoded" : ", decoded"), seconds,
                        are_right ? std::sqrt(apart / std::max(length, 1e-30)) : HUGE_VAL,
                        bytes + 2 * static_cast<double>(values.size())};
    found.bits = 8 * bytes / static_cast<double>(std::max(values.size(), std::int64_t{1}));
    if (!of.is_encoded) {
      found.seconds = seconds_of(exec, [&] { codec.decode(exec, out); });
    }
    return found;
  }

 private:
  static constexpr std::int64_t directions = 32;
};

}  // namespace tessera_examples
