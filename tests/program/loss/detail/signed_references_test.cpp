// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/loss/detail/signed_references.hpp>
#include <tessera/program/loss/kept_softmaxes.hpp>
#include <tessera/testing/generators.hpp>

#include "program/loss/softmax_problem.hpp"
#include "support/catch.hpp"

using namespace tessera;
using namespace tessera_test::softmaxes;
using tessera::detail::signed_reference;

namespace {

struct words_of_part {
  std::uint32_t words[16];
};

/// Values with a reference in their signs.
words_of_part part_with(float reference) {
  words_of_part part{};
  for (int k = 0; k < 16; ++k) {
    auto const word = static_cast<std::uint32_t>(testing::hash(3, static_cast<std::uint64_t>(k)));
    part.words[k] = signed_reference::put(word, signed_reference::bits_of(reference), k);
  }
  return part;
}

using signs_problem = softmax_problem<references_in_signs>;

}  // namespace

TEST_CASE("any reference comes out of the signs of values as it went in, and leaves the values", "[host]") {
  for (float const reference : {1.0F, -1.0F, 1e30F, -1e-30F, 1e-45F, 123456.78F, -INFINITY, INFINITY, -0.0F}) {
    words_of_part part = part_with(reference);
    CAPTURE(reference);
    CHECK(bit_cast<std::uint32_t>(references_in_signs::settle(part, 5.0F)) == bit_cast<std::uint32_t>(reference));
    for (int k = 0; k < 16; ++k) {
      auto const word = static_cast<std::uint32_t>(testing::hash(3, static_cast<std::uint64_t>(k)));
      CHECK(part.words[k] == (word & 0x7fff7fffU));
    }
  }
  words_of_part nan = part_with(NAN);
  CHECK(std::isnan(references_in_signs::settle(nan, 5.0F)));
  words_of_part zero = part_with(0.0F);
  CHECK(references_in_signs::settle(zero, 5.0F) == 0.0F);  // not the one of clear signs
}

TEST_CASE("values whose signs are clear have the shared reference", "[host]") {
  words_of_part part = part_with(7.0F);
  for (std::uint32_t& word : part.words) {
    word &= 0x7fff7fffU;
  }
  words_of_part const before = part;
  CHECK(references_in_signs::settle(part, 5.0F) == 5.0F);
  for (int k = 0; k < 16; ++k) {
    CHECK(part.words[k] == before.words[k]);
  }
  std::vector<float> shared{1.0F, 2.0F};
  kept_softmaxes<bfloat16> const wide{{}, {}, shared, {}, {}};
  kept_softmaxes<float16> const narrow{{}, {}, shared, {}, {}};
  CHECK(references_in_signs::find(wide, 1, 40) == 2.0F);
  CHECK(references_in_signs::find(narrow, 1, 40) == 0.0F);  // they share none
}

TEST_CASE("softmaxes with references in signs become gradients", "[host][slow][threads]") {
  for (std::int64_t const vocabulary : {1, 7, 8, 31, 32, 33, 63, 64, 65, 127, 129, 8193, 20000}) {
    for (float const cap : {0.0F, 30.0F}) {
      for (bool const shares : {false, true}) {
        CAPTURE(vocabulary, cap, shares);
        signs_problem problem(vocabulary, cap, cap > 0 ? 0.5F : 1.0F, shares);
        problem.run(cpu{.threads = 2});
        CHECK(count_wrong(problem, vocabulary, 1.0 / 256, 1.1 / 128) == 0);
      }
    }
  }
}

TEST_CASE("a token may have tiles with the shared reference, and others with one in their signs", "[host][threads]") {
  signs_problem problem(600, 0.0F, 1.0F, true);
  for (std::size_t token = 0; token < static_cast<std::size_t>(tokens); token += 2) {
    if (problem.row_of[token] >= 0) {
      problem.is_uneven[token] = 1;
      problem.shares = false;
      std::vector<bfloat16> const before = problem.values;
      problem.keep(static_cast<std::int64_t>(token));
      for (std::int64_t entry = 0; entry < problem.stride; ++entry) {  // every other tile keeps the shared one
        std::size_t const at = token * static_cast<std::size_t>(problem.stride) + static_cast<std::size_t>(entry);
        problem.values[at] = entry / 64 % 2 == 0 ? before[at] : problem.values[at];
      }
    }
  }
  problem.run(cpu{.threads = 2});
  CHECK(count_wrong(problem, 600, 1.1 / 128, 1.1 / 128) == 0);
}

TEST_CASE("softmaxes with references in signs become gradients wherever logits lie, and with masked entries",
          "[host][threads]") {
  for (float const offset : {-300.0F, 300.0F, -50000.0F, 50000.0F}) {
    CAPTURE(offset);
    signs_problem problem(600, 0.0F, 1.0F, false, offset);
    problem.run(cpu{.threads = 2});
    // Rounded twice, and half a unit of log-sum-exps of 50000 is 1/512.
    CHECK(count_wrong(problem, 600, 1.5 / 128, 1.5 / 128) == 0);
  }
}
