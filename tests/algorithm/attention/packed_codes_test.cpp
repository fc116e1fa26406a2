// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/attention/packed_codes.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/attention_reference.hpp"
#include "support/attention_runs.hpp"
#include "support/catch.hpp"
#include "support/quantized_reference.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using in_bytes = attention<symmetric_quantizer<4, per_thread>, float8_quantizer<float8_e4m3>>;

template <class Executor>
void check_round_trip(Executor const& exec, std::int64_t tokens) {
  auto const p = make_attention_problem<bfloat16>({2, 2, 2, 1, tokens, 48});
  auto const made = make_operands<in_bytes>(cpu{.threads = 1}, p);
  auto const codes = made.heads.keys.codes;
  std::int64_t const padded = padded_tokens(tokens);
  std::vector<int4x2> packed(as_size(2 * 2 * padded * 24 + 1), int4x2{0x5a});
  head_view<int4x2> const half(packed.data(), {2, 2, padded, 24});
  pack_int4_codes(exec, codes, half);
  CHECK(packed.back().bits == 0x5a);
  CHECK((padded == 0 || (low(half(1, 0, 0, 3)) == codes(1, 0, 0, 6) && high(half(1, 0, 0, 3)) == codes(1, 0, 0, 7))));
  std::vector<std::int8_t> back(as_size(2 * 2 * padded * 48), 99);
  widen_int4_codes(exec, half, head_view<std::int8_t>(back.data(), {2, 2, padded, 48}));
  exec.wait();
  CHECK(back == std::vector<std::int8_t>(codes.data, codes.data + codes.size()));
}

}  // namespace

TEST_CASE("codes of 4 bits survive being two in a byte", "[host][threads]") {
  for (std::int64_t const tokens : {0, 1, 129, 300}) {
    check_round_trip(cpu{.threads = 2}, tokens);
  }
  check_round_trip(testing::adversary{.seed = 2}, 70);
}

TEST_CASE("packing says what does not fit together", "[host]") {
  cpu const exec{.threads = 1};
  std::vector<std::int8_t> codes(64);
  std::vector<int4x2> packed(64);
  head_view<std::int8_t> const whole(codes.data(), {1, 1, 2, 32});
  try {
    pack_int4_codes(exec, whole, head_view<int4x2>(packed.data(), {1, 1, 2, 32}));
    FAIL("nothing thrown");
  } catch (shape_error const& e) {
    CHECK_THAT(e.what(),
               contains("pack_int4_codes: dimension 3 of the codes has 32 elements but that of the packed ones 32"));
  }
  CHECK_THROWS_WITH(pack_int4_codes(exec, head_view<std::int8_t>(nullptr, {1, 1, 2, 32}),
                                    head_view<int4x2>(packed.data(), {1, 1, 2, 16})),
                    "pack_int4_codes: the codes have no memory but 64 elements");
  CHECK_THROWS_WITH(widen_int4_codes(exec, head_view<int4x2 const>(nullptr, {1, 1, 2, 16}), whole),
                    "widen_int4_codes: the packed codes have no memory but 32 elements");
  CHECK_THROWS_AS(widen_int4_codes(exec, head_view<int4x2 const>(packed.data(), {1, 1, 2, 16}, {64, 64, 32, 1}), whole),
                  shape_error);
}
