// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tests attention over 8-bit floats with biases and lists of tiles.
#include <cstdint>
#include <vector>

#include <tessera/algorithm/attention/float8_attention.hpp>
#include <tessera/map/linear_bias.hpp>

#include "algorithm/attention/attention_of_float8.cuh"
#include "support/listed_tiles.cuh"
#include "support/score_functions.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("biases and lists of tiles are for 8-bit floats on a GPU, too", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (std::int64_t const channels : {64, 128, 256}) {
    CAPTURE(channels);
    auto p = make_attention_problem<bfloat16>({2, 4, 2, 200, 700, channels});
    p.options.is_causal = true;
    p.key_lengths = {700, 300};
    slope_bias const bias{0.02F};
    auto const found = run_on_device<float8_attention, bfloat16>(exec, p, head_layout::tokens_first, true,
                                                                 attention_functions<slope_bias>{bias});
    auto const expected = run_attention_problem<float8_attention, bfloat16>(cpu{}, p, bias);
    CHECK(found.is_clean);
    CHECK(error_of(found.found.result, expected.result).relative_l1 < 6e-3);
    CHECK(farthest(found.found.log_sum_exp, expected.log_sum_exp) < 0.0607);
    std::vector<float> const slopes{0.5F, 0.1F, 0.02F, 0.0F};
    auto const there = to_device(exec, slopes);
    auto const line = run_on_device<float8_attention, bfloat16>(
        exec, p, head_layout::heads_first, true, attention_functions<linear_bias>{linear_bias{there.view()}});
    auto const of_line = run_attention_problem<float8_attention, bfloat16>(cpu{}, p, linear_bias{slopes});
    CHECK(error_of(line.found.result, of_line.result).relative_l1 < 6e-3);
    for (list_kind const kind : {list_kind::half, list_kind::hostile, list_kind::empty}) {
      set_lists(p, kind);
      check_listed<float8_attention>(p);
    }
  }
}
