// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tests attention on a GPU over codes of 4 bits that lie two to a byte: made in the call, or before it.
#include <cstdint>
#include <string>

#include <tessera/algorithm/attention/widened_codes.hpp>
#include <tessera/exec/explain.hpp>
#include <tessera/map/no_bias.hpp>

#include "algorithm/attention/attention_of_pairs.cuh"
#include "support/attention_terms.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

using four = sage_attention2_int4;

}  // namespace

TEST_CASE("codes two to a byte attend on a GPU as on the host, in the fast programs", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (attention_shape const& shape :
       {attention_shape{1, 2, 1, 200, 264, 64}, attention_shape{2, 1, 1, 129, 127, 128},
        attention_shape{1, 2, 2, 65, 300, 256}, attention_shape{1, 4, 2, 700, 700, 80}}) {
    for (attention_options const& options : {attention_options{}, causal}) {
      auto p = make_attention_problem<bfloat16>(shape);
      p.options = options;
      check_against_cpu<four>(p, no_bias{}, no_bias{});
      check_later<four>(p);
    }
  }
  auto p = make_attention_problem<bfloat16>({3, 2, 1, 200, 500, 128});
  p.query_lengths = {200, 77, 0};
  p.key_lengths = {500, 130, 500};
  check_against_cpu<four>(p, no_bias{}, no_bias{});
  check_later<four>(p);
}

TEST_CASE("a plan for sm_90 has memory for codes in bytes", "[cuda]") {
  if (!described_cuda::is_compiled_for<900>) {
    TESSERA_SKIP("this test is not compiled for sm_90a");
  }
  described_cuda const hopper = cuda::described({.architecture = 900, .multiprocessors = 132});
  described_cuda const ampere =
      cuda::described({.architecture = 800, .multiprocessors = 108, .shared_bytes = 163 * 1024});
  attention_shape const s{2, 4, 2, 1000, 2000, 128};
  auto const bytes_of = [&](workspace_plan const& plan) {
    std::int64_t bytes = -1;
    for (workspace_plan::entry const& entry : plan.entries()) {
      bytes = entry.name == "codes of queries and keys in bytes" ? entry.bytes : bytes;
    }
    return bytes;
  };
  std::int64_t const rows = 2 * 4 * 1024 + 2 * 2 * 2048;
  CHECK(bytes_of(four::plan_forward(hopper, s)) == rows * 128 + 4 * (2 * 4 * 512 + 2 * 2 * 64));
  CHECK(bytes_of(four::plan_forward(ampere, s)) == 0);
  CHECK(bytes_of(four::plan_quantize(hopper, s, {.parts = {.queries = false}})) == 0);
  CHECK(bytes_of(sage_attention2::plan_forward(hopper, s)) == -1);
  using in_bytes = attention<widened_quantizer<four::method::score_quantizer>,
                             sampled_range<float8_quantizer<float8_e4m3>>, piecewise_linear_softmax>;
  for (std::int64_t const tokens : {1, 128, 129, 5000}) {
    attention_shape const small{1, 3, 1, tokens, tokens, 16};  // forward() uses it for the method in bytes
    CHECK(four::plan_forward(hopper, small).bytes() >= in_bytes::plan_forward(hopper, small).bytes());
  }
}

TEST_CASE("without memory for codes in bytes pairs run portably on a GPU, unless that is refused", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const p = make_attention_problem<bfloat16>({1, 2, 2, 130, 260, 64});
  cuda const exec = strict_where_it_widens();
  if (is_hopper()) {
    std::string message;
    try {
      static_cast<void>(attend_later<four>(exec, p, false));
    } catch (slower_program const& error) {
      message = error.what();
    }
    CHECK_THAT(message, contains("there is no memory for codes in bytes"));
  }
  auto const slow = attend_later<four>(cuda{}, p, false);
  auto const expected = run_attention_problem<four, bfloat16>(cpu{}, p);
  CHECK(error_of(as_doubles(slow.result), expected.result).relative_l1 < 5e-3);
}
