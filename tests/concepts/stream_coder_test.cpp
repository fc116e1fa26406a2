// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/concepts/stream_coder.hpp>
#include <tessera/entropy/fixed_coder.hpp>
#include <tessera/entropy/rans_coder.hpp>
#include <tessera/testing/laws/stream_coder.hpp>

#include "algorithm/weights/own_coders.hpp"
#include "support/catch.hpp"

using namespace tessera;
using tessera::testing::check_stream_laws;
using tessera_test::four_bit_coder;
using tessera_test::six_bit_coder;

static_assert(StreamCoder<six_bit_coder>);
static_assert(StreamCoder<four_bit_coder>);
static_assert(EntropyCoder<rans_coder<12>> && !StreamCoder<rans_coder<12>>);  // its streams hold pairs of codes
static_assert(EntropyCoder<fixed_coder> && !StreamCoder<fixed_coder>);

namespace stream_coder_test {

using counts_type = std::vector<std::uint64_t>;

counts_type counts_from(std::size_t lowest, std::size_t used) {
  counts_type counts(256);
  for (std::size_t i = 0; i < used; ++i) {
    counts[lowest + i] = 1 + i % 7;
  }
  return counts;
}

/// Spills as late as it can, which its reader does not know.
struct late_spills : four_bit_coder {
  static constexpr spilled push(encode_state& state, symbol_type symbol, encode_table) {
    spilled out;
    if (state >= 1U << 31) {
      out = {true, static_cast<std::uint16_t>(state)};
      state >>= 16;
    }
    state = (state << 4) | symbol;
    return out;
  }
  static constexpr encode_state start() { return 1; }
  static constexpr bool is_state(std::uint32_t) { return true; }
  static constexpr bool finished(decode_state state) { return state == 1; }
};

struct forgetful : six_bit_coder {
  static constexpr bool load_model(std::uint8_t const*, model_type& model) {
    model.lowest = 0;
    return true;
  }
};

struct missing_the_most_frequent : six_bit_coder {
  static constexpr void fit_model(std::uint64_t const*, model_type& model) { model.lowest = 0; }
};

struct denying_its_states : six_bit_coder {
  static constexpr bool is_state(std::uint32_t state) { return state < 1U << 20; }
};

}  // namespace stream_coder_test

using namespace stream_coder_test;

TEST_CASE("a user's own coders of streams keep the laws", "[host]") {
  CHECK(check_stream_laws<six_bit_coder>(counts_from(100, 30)).text() == "");
  CHECK(check_stream_laws<six_bit_coder>(counts_from(0, 256)).text() == "");
  CHECK(check_stream_laws<six_bit_coder>(counts_from(255, 1)).text() == "");
  CHECK(check_stream_laws<four_bit_coder>(counts_from(0, 16)).text() == "");
}

TEST_CASE("a coder whose reader does not want a word where one was spilled is caught", "[host]") {
  CHECK(check_stream_laws<late_spills>(counts_from(0, 16)).mentions("wants a word"));
}

TEST_CASE("a coder that does not store its model is caught", "[host]") {
  auto const report = check_stream_laws<forgetful>(counts_from(100, 30));
  CHECK(report.mentions("a model that was loaded is stored as it was"));
}

TEST_CASE("a coder that cannot code the most frequent symbol is caught", "[host]") {
  CHECK(check_stream_laws<missing_the_most_frequent>(counts_from(100, 30))
            .mentions("the most frequent symbol can be coded: 106"));
}

TEST_CASE("a coder that denies its own states is caught", "[host]") {
  CHECK(check_stream_laws<denying_its_states>(counts_from(100, 30)).mentions("is_state() holds after every push"));
}
