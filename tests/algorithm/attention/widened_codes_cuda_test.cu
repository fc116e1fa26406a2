// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tests attention on a GPU over codes of 4 bits that lie two to a byte: made in the call, or before it.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/attention/widened_codes.hpp>
#include <tessera/exec/explain.hpp>
#include <tessera/map/no_bias.hpp>

#include "support/attention_terms.cuh"
#include "support/score_functions.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using four = sage_attention2_int4;

/// The same with keys' mean alone subtracted.
using four_without_block_means = attention<smoothed<two_to_a_byte<symmetric_quantizer<4, per_thread>>, sampled_mean>,
                                           sampled_range<float8_quantizer<float8_e4m3>>, piecewise_linear_softmax>;

/// An executor that throws where a slower program would run, if the device is one that widens codes.
cuda strict() {
  cuda exec;
  exec.options.refuses_slower_programs = widens(exec);
  return exec;
}

struct later_results {
  std::vector<bfloat16> result;
  std::vector<std::byte> codes;
};

/// Makes codes two to a byte, and attends over them in another call, with memory for widened codes or without.
template <class Method>
later_results attend_later(cuda const& exec, attention_problem<bfloat16> const& p, bool has_memory = true) {
  attention_shape const& s = p.shape;
  device_attention<bfloat16> const in(exec, p, head_layout::heads_first);
  auto const plan = Method::plan_quantize(exec, s);
  auto memory = to_device(exec, std::vector<std::byte>(as_size(plan.bytes()), std::byte{0xa5}));
  workspace const space(plan, memory);
  auto heads = Method::operands(s, space);
  Method::quantize(exec, s, in.inputs(), {}, heads, space);
  auto const codes = to_host(exec, memory);
  auto const result = to_device(exec, std::vector<bfloat16>(as_size(s.batch * s.query_heads * s.queries * s.channels)));
  head_view<bfloat16> const to{const_cast<bfloat16*>(result.data()), {s.batch, s.query_heads, s.queries, s.channels}};
  attention_call<typename Method::method, bfloat16> call{s, p.options, heads, {to}};
  call.query_lengths = in.inputs().query_lengths;
  call.key_lengths = in.inputs().key_lengths;
  call.counters = Method::counters(s, space);
  call.partials = Method::partials(s, space);
  call.work_splits = Method::work_splits(exec, s, space);
  call.widened = has_memory ? Method::widened(exec, s, space) : array_view<std::byte>{};
  Method::forward(exec, call);
  return {to_host(exec, result), codes};
}

template <class Method>
void check_later(attention_problem<bfloat16> const& p) {
  attention_shape const& s = p.shape;
  CAPTURE(s.batch, s.query_heads, s.queries, s.keys, s.channels, p.options.is_causal);
  cuda const exec = strict();
  auto const later = attend_later<Method>(exec, p);
  check_codes<Method>(later.codes, p);
  auto const at_once = run_on_device<Method, bfloat16>(exec, p, head_layout::tokens_first, false);
  CHECK(at_once.is_clean);
  CHECK(as_doubles(later.result) == at_once.found.result);  // codes are the same, and so are results
}

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

TEST_CASE("codes two to a byte take a bias on a GPU, and queries whose mean is kept", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_attention_problem<bfloat16>({1, 2, 1, 300, 264, 128});
  p.options = causal;
  check_against_cpu<four>(p, slope_bias{0.05F}, slope_bias{0.05F});
  check_against_cpu<four_without_block_means>(p, no_bias{}, no_bias{});
  check_later<four_without_block_means>(p);
  check_later<four_without_block_means>(make_attention_problem<bfloat16>({1, 4, 2, 3, 1000, 128}));
}

TEST_CASE("a plan for sm_90 has memory for codes in bytes", "[cuda]") {
  if (!described_cuda::is_compiled_for<900>) {
    SUCCEED("this test is not compiled for sm_90a");
    return;
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
  cuda const exec = strict();
  if (widens(exec)) {
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
