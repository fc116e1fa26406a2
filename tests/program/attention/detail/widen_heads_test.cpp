// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/attention/detail/widen_heads.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using piece = widen_heads::piece;

/// Codes and scales of queries or of keys, and memory for what they become, with a guard behind it.
struct lists {
  std::vector<piece> pairs;
  std::vector<piece> codes;
  std::vector<float> scales;
  std::vector<float> found;

  lists(std::int64_t pieces, std::int64_t scale_count)
      : pairs(static_cast<std::size_t>(pieces)),
        codes(static_cast<std::size_t>(2 * pieces + 1), piece{{7, 7, 7, 7}}),
        scales(static_cast<std::size_t>(scale_count)),
        found(static_cast<std::size_t>(scale_count + 1), -7.0F) {
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      for (std::size_t word = 0; word < 4; ++word) {
        pairs[i].words[word] = static_cast<std::uint32_t>(testing::hash(3, 4 * i + word));
      }
    }
    testing::fill(testing::gauss{}, 4, scales.data(), scales.size());
  }
  widen_heads::list view() {
    return {pairs.data(),  codes.data(), static_cast<std::int64_t>(pairs.size()),
            scales.data(), found.data(), static_cast<std::int64_t>(scales.size())};
  }
  [[nodiscard]] int wrong() const {
    std::vector<std::int8_t> bytes(codes.size() * sizeof(piece));
    std::memcpy(bytes.data(), codes.data(), bytes.size());
    std::vector<int4x2> packed(pairs.size() * sizeof(piece));
    if (!pairs.empty()) {
      std::memcpy(packed.data(), pairs.data(), packed.size());
    }
    int wrong = 0;
    for (std::size_t i = 0; i < packed.size(); ++i) {
      wrong += bytes[2 * i] == 16 * low(packed[i]) && bytes[2 * i + 1] == 16 * high(packed[i]) ? 0 : 1;
    }
    for (std::size_t i = 0; i < scales.size(); ++i) {
      wrong += 16.0F * found[i] == scales[i] ? 0 : 1;
    }
    return wrong + (codes.back().words[0] == 7 && found.back() == -7.0F ? 0 : 1);
  }
};

template <class Executor>
int wrong_codes(Executor const& exec, std::int64_t pieces, std::int64_t scales) {
  lists queries(pieces, scales);
  lists keys(pieces / 2, scales / 2 + 1);
  widen_heads const program{queries.view(), keys.view()};
  exec.run(program, program.groups());
  return queries.wrong() + keys.wrong();
}

}  // namespace

TEST_CASE("pairs of codes become bytes of sixteen times the codes", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const pieces : {0, 1, 7, 1023, 1024, 1025, 2300}) {
    for (std::int64_t const scales : {0, 1, 65, 3000}) {
      CAPTURE(pieces, scales);
      CHECK(wrong_codes(exec, pieces, scales) == 0);
    }
  }
  CHECK(wrong_codes(testing::adversary{.seed = 5}, 1100, 70) == 0);
}
