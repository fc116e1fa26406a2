// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <cstring>

#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/mix_bits.hpp>
#include <tessera/program/attention/detail/weigh_by_vectors.hpp>
#include <tessera/quantize/scaled_float.hpp>

#include "support/catch.hpp"

using namespace tessera;

#if defined(TESSERA_HAS_VECTORS)

namespace {

using quantizer = float8_quantizer<float8_e4m3>;

struct plain_tile {
  float values[8][16];
};

/// Scores of eight rows in two tiles, every eleventh of them hidden, and all of row 5.
template <int Scales>
struct problem {
  plain_tile scores[2];
  float of_rows[8];
  float of_columns[32];

  problem(std::uint64_t seed, float largest_scale) {
    for (int i = 0; i < 256; ++i) {
      std::uint64_t const random = mix_bits(seed, static_cast<std::uint64_t>(i));
      auto const sum = static_cast<float>(static_cast<int>(random % 200001) - 100000);
      float const score = Scales == 0 ? sum * 0.0001F : sum;
      scores[i / 128].values[i / 16 % 8][i % 16] = i % 11 == 3 || i / 16 % 8 == 5 ? -infinity : score;
    }
    for (int i = 0; i < 32; ++i) {
      of_columns[i] = largest_scale / static_cast<float>(1 + i % 7);
      of_rows[i % 8] = 1.0F / static_cast<float>(1 + i % 8);
    }
  }
  [[nodiscard]] float scale(int row, int column) const {
    return Scales == 0 ? 1.0F : of_rows[row] * of_columns[column % (Scales == 0 ? 1 : Scales)];
  }
};

template <int Scales>
void check(float largest_scale, bool is_first) {
  CAPTURE(Scales, largest_scale, is_first);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    problem<Scales> p(seed, largest_scale);
    problem<Scales> const given = p;
    detail::vector_weights<16, Scales> const by_vectors{p.of_rows, p.of_columns};
    detail::score_range range{true, Scales == 0};
    float sums[8] = {};
    float expected[8] = {};
    float largest[8];
    bool are_small = true;
    for (int row = 0; row < 8; ++row) {
      largest[row] = -infinity;
      for (int i = 0; i < 32; ++i) {
        largest[row] = maximum(largest[row], given.scale(row, i) * given.scores[i / 16].values[row][i % 16]);
        are_small = are_small && given.scale(row, i) < piecewise_linear_softmax::most_scale;
      }
      CHECK(by_vectors.largest(p.scores, row, range) == largest[row]);
    }
    CHECK(range.scores_are_numbers == (Scales == 0));
    CHECK((Scales == 0 || range.scales_are_small == are_small));
    for (int row = 0; row < 8; ++row) {
      float const reference = largest[row] + (row % 2 == 0 ? 0.0F : 0.3F);
      by_vectors.weigh(p.scores, row, reference, is_first, Scales != 0 && are_small);
      for (int i = 0; i < 32; ++i) {
        float const score = given.scores[i / 16].values[row][i % 16];
        auto const weighed = piecewise_linear_softmax::weigh_number<quantizer>({reference, reference, 0.0F},
                                                                               given.scale(row, i), score, is_first);
        CHECK(std::memcmp(&weighed.number, &p.scores[i / 16].values[row][i % 16], sizeof(float)) == 0);
        expected[row] += weighed.number;
      }
    }
    by_vectors.add_numbers(p.scores, 0, sums);
    CHECK(std::memcmp(sums, expected, sizeof sums) == 0);
  }
}

}  // namespace

TEST_CASE("numbers of weights are those of the softmax, whatever scales are", "[host]") {
  if (!detail::has_vectors()) {
    return;
  }
  for (bool is_first : {false, true}) {
    check<8>(0.0001F, is_first);
    check<8>(0.1F, is_first);
    check<32>(0.0002F, is_first);
    check<32>(1.0F, is_first);
    check<0>(1.0F, is_first);
  }
}

TEST_CASE("a score of infinity or NaN among scaled scores is seen", "[host]") {
  if (!detail::has_vectors()) {
    return;
  }
  for (float odd : {infinity, bit_cast<float>(0x7fffffffU)}) {
    problem<0> p(1, 1.0F);
    p.scores[1].values[2][7] = odd;
    detail::score_range range{true, true};
    static_cast<void>(detail::vector_weights<16, 0>{}.largest(p.scores, 1, range));
    CHECK(range.scores_are_numbers);
    static_cast<void>(detail::vector_weights<16, 0>{}.largest(p.scores, 2, range));
    CHECK(!range.scores_are_numbers);
  }
}

#endif
