// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/attention/head_source.hpp>
#include <tessera/program/attention/quantize_heads.hpp>
#include <tessera/quantize/granularity.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using source_type = head_source<bfloat16>;
using bytes = symmetric_quantizer<8, per_token>;
using of_tensor = std::remove_const_t<decltype(per_tensor)>;
using of_block = std::remove_const_t<decltype(per_block)>;
using of_warp = std::remove_const_t<decltype(per_warp)>;
using of_thread = std::remove_const_t<decltype(per_thread)>;
using of_token = std::remove_const_t<decltype(per_token)>;

/// Heads of two sequences, the second shorter, and their means.
struct quantized_problem {
  static constexpr std::int64_t batch = 2;
  static constexpr std::int64_t heads = 2;
  static constexpr std::int64_t channels = 6;
  std::int64_t tokens;
  std::int64_t padded;
  std::vector<std::int32_t> lengths;
  std::vector<bfloat16> values;
  std::vector<float> means;  ///< batch x heads x 1 x channels
  std::vector<std::uint32_t> magnitudes = std::vector<std::uint32_t>(batch * heads, 0x1234);
  std::vector<std::int8_t> codes;
  std::vector<float> scales;

  explicit quantized_problem(std::int64_t of_tokens)
      : tokens(of_tokens),
        padded((tokens + 127) / 128 * 128),
        lengths{static_cast<std::int32_t>(tokens), static_cast<std::int32_t>(tokens / 3)},
        values(static_cast<std::size_t>(batch * heads * tokens * channels)),
        means(batch * heads * channels),
        codes(static_cast<std::size_t>(batch * heads * padded * channels), 99) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = store<bfloat16>(3.0F * testing::gauss{}.value(1, i) + 0.5F);
    }
    testing::fill(testing::gauss(), 2, means.data(), means.size());
  }
  [[nodiscard]] smoothed_heads<source_type> source() const {
    return {{{{values.data(), {batch, heads, tokens, channels}}, lengths}},
            {means.data(), {batch, heads, 1, channels}},
            tokens + 1};
  }
  [[nodiscard]] double element(std::int64_t list, std::int64_t token, std::int64_t channel) const {
    auto const at = static_cast<std::size_t>((list * tokens + token) * channels + channel);
    return static_cast<double>(load(values[at]) - means[static_cast<std::size_t>(list * channels + channel)]);
  }
  [[nodiscard]] std::int64_t length(std::int64_t list) const { return lengths[static_cast<std::size_t>(list / heads)]; }
  /// The largest magnitude of the tokens of a head that are in a group.
  template <class Groups>
  [[nodiscard]] double largest(std::int64_t list, std::int64_t group) const {
    double found = 0;
    for (std::int64_t token = 0; token < length(list); ++token) {
      for (std::int64_t channel = 0; Groups::group_of(token) == group && channel < channels; ++channel) {
        found = std::fmax(found, std::fabs(element(list, token, channel)));
      }
    }
    return found;
  }

  template <class Executor>
  void measure(Executor const& exec) {
    measure_heads<source_type> const program{source(), {magnitudes.data(), {batch, heads}}};
    exec.run(program, program.groups());
  }
  template <class Groups, class Executor>
  void encode(Executor const& exec) {
    scales.assign(static_cast<std::size_t>(batch * heads * Groups::count(padded)), -777.0F);
    encode_tokens<bytes, Groups, source_type> const program{source(),
                                                            {magnitudes.data(), {batch, heads}},
                                                            0.25F,
                                                            {codes.data(), {batch, heads, padded, channels}},
                                                            {scales.data(), {batch, heads, Groups::count(padded)}}};
    exec.run(program, program.groups());
  }
  /// How many codes and scales are not those of a loop in double. A code may be a neighbour where it is a tie nearly.
  template <class Groups>
  [[nodiscard]] int wrong() const {
    int count = 0;
    std::int64_t const groups = Groups::count(padded);
    for (std::int64_t list = 0; list < batch * heads; ++list) {
      for (std::int64_t group = 0; group < groups; ++group) {
        double const scale = largest<Groups>(list, group) / bytes::highest;
        auto const found = static_cast<double>(scales[static_cast<std::size_t>(list * groups + group)]);
        count += std::fabs(found - 0.25 * scale) <= 1e-6 * scale ? 0 : 1;
      }
      for (std::int64_t token = 0; token < padded; ++token) {
        double const scale = largest<Groups>(list, Groups::group_of(token)) / bytes::highest;
        for (std::int64_t channel = 0; channel < channels; ++channel) {
          double const found = codes[static_cast<std::size_t>((list * padded + token) * channels + channel)];
          bool const exists = token < length(list) && scale > 0;
          double const exact = exists ? element(list, token, channel) / scale : 0.0;
          count += std::fabs(found - exact) <= (exists ? 0.5001 : 0.0) ? 0 : 1;
        }
      }
    }
    return count;
  }
};

template <class Groups>
void check_codes(std::int64_t tokens) {
  CAPTURE(tokens);
  cpu const exec{.threads = 2};
  quantized_problem problem(tokens);
  problem.measure(exec);
  problem.encode<Groups>(exec);
  CHECK(problem.wrong<Groups>() == 0);
}

}  // namespace

TEST_CASE("the largest magnitude of a head is that of its tokens, and the bits of a NaN where one is not finite",
          "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const tokens : {1, 7, 127, 128, 129}) {
    quantized_problem problem(tokens);
    for (std::int64_t list = 0; list < 4; ++list) {
      std::int64_t const last = std::max<std::int64_t>(problem.length(list) - 1, 0);  // of the head's tokens
      problem.values[static_cast<std::size_t>((list * tokens + last) * 6 + 2)] = store<bfloat16>(-50.0F);
    }
    problem.measure(exec);
    for (std::int64_t list = 0; list < 4; ++list) {
      float const found = bit_cast<float>(problem.magnitudes[static_cast<std::size_t>(list)]);
      CHECK(static_cast<double>(found) == problem.largest<of_tensor::keys>(list, 0));
    }
  }
  quantized_problem problem(9);
  problem.values[5] = store<bfloat16>(std::numeric_limits<float>::infinity());
  problem.measure(exec);
  CHECK(std::isnan(absolute_maximum_or_nan_reducer{}.value(problem.magnitudes[0])));
  CHECK(std::isfinite(absolute_maximum_or_nan_reducer{}.value(problem.magnitudes[1])));
}

TEST_CASE("codes of queries and keys are the nearest ones for every granularity, and zeros where there is no token",
          "[host][threads]") {
  for (std::int64_t const tokens : {1, 127, 128, 129}) {
    check_codes<of_tensor::keys>(tokens);
    check_codes<of_block::queries>(tokens);
    check_codes<of_warp::queries>(tokens);
    check_codes<of_thread::queries>(tokens);
    check_codes<of_thread::keys>(tokens);
    check_codes<of_token::keys>(tokens);
  }
}

TEST_CASE("values are coded channel after channel by the scales that are given", "[host][threads]") {
  cpu const exec{.threads = 2};
  quantized_problem problem(200);
  std::vector<float> scales;
  for (std::size_t i = 0; i < 24; ++i) {
    scales.push_back(i == 5 ? 0.0F : 0.05F * static_cast<float>(1 + i % 4));
  }
  std::vector<std::int8_t> codes(2 * 2 * 2 * 6 * 128, 99);
  using quantizer = symmetric_quantizer<8>;
  encode_values<quantizer, source_type> const program{
      problem.source(), {scales.data(), {2, 2, 6}}, {codes.data(), {2, 2, 2, 6, 128}}};
  exec.run(program, program.groups());
  int wrong = 0;
  for (std::int64_t list = 0; list < 4; ++list) {
    for (std::int64_t token = 0; token < 256; ++token) {
      for (std::int64_t channel = 0; channel < 6; ++channel) {
        std::int64_t const index = ((list * 2 + token / 128) * 6 + channel) * 128 + value_slot(token % 128);
        double const found = codes[static_cast<std::size_t>(index)];
        auto const scale = static_cast<double>(scales[static_cast<std::size_t>(list * 6 + channel)]);
        bool const exists = token < problem.length(list) && scale > 0;
        double const highest = quantizer::highest;
        double const exact =
            exists ? std::clamp(problem.element(list, token, channel) / scale, -highest, highest) : 0.0;
        wrong += std::fabs(found - exact) <= (exists ? 0.5001 : 0.0) ? 0 : 1;
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("quantizing heads keeps the rules for programs", "[host]") {
  testing::adversary const exec{.seed = 25};
  quantized_problem problem(140);
  problem.measure(exec);
  problem.encode<of_thread::keys>(exec);
  CHECK(problem.wrong<of_thread::keys>() == 0);
}
