// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tests lists of tiles of the type: the program for sm_90a against the portable ones.
#include <cmath>
#include <cstdint>
#include <vector>

#include "support/listed_tiles.cuh"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

attention_problem<bfloat16> make_listed(attention_shape const& shape, list_kind kind, bool is_causal = false) {
  auto p = make_attention_problem<bfloat16>(shape);
  p.options.is_causal = is_causal;
  set_lists(p, kind);
  return p;
}

constexpr list_kind all_kinds[] = {list_kind::half,  list_kind::shuffled,  list_kind::hostile,
                                   list_kind::empty, list_kind::all_tiles, list_kind::last};

}  // namespace

TEST_CASE("lists of tiles of any kind on a GPU mean what they mean on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (list_kind const kind : all_kinds) {
    for (std::int64_t const channels : {64, 128, 256}) {
      for (bool const is_causal : {false, true}) {
        CAPTURE(static_cast<int>(kind));
        check_listed(make_listed({2, 4, 2, 260, 1100, channels}, kind, is_causal));
      }
    }
  }
}

TEST_CASE("lists of tiles on a GPU, at every edge of blocks and tiles", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const queries : {1, 7, 63, 64, 65, 128, 191, 192, 193, 257}) {
    for (std::int64_t const keys : {1, 127, 128, 129, 700}) {
      bool const is_causal = (queries + keys) % 2 == 0;
      check_listed(make_listed({1, 2, 1, queries, keys, queries % 3 == 0 ? 64 : 128}, list_kind::half, is_causal));
    }
  }
  check_listed(make_listed({1, 2, 1, 257, 1000, 80}, list_kind::hostile));
  auto p = make_listed({2, 2, 1, 200, 900, 128}, list_kind::half);
  p.options.window_left = 150;
  p.options.window_right = 100;
  check_listed(p);
  p.options.is_causal = true;
  p.query_lengths = {200, 70};
  p.key_lengths = {333, 900};
  p.sinks = {1.0F, -2.0F};
  check_listed(p);
  p.query_lengths = {0, 1};
  p.key_lengths = {900, 0};
  check_listed(p);
}

TEST_CASE("lists of tiles on a GPU are those of the formula, a tile that is there twice counts twice", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (list_kind const kind : {list_kind::half, list_kind::hostile}) {
    for (std::int64_t const channels : {64, 128, 256}) {
      auto const p = make_listed({1, 4, 2, 300, 1300, channels}, kind, true);
      auto const found = device_codes<sage_attention2, bfloat16, listed_tiles<>>(p).whole();
      auto const expected =
          attention_by_formula(p, [&](std::int64_t b, std::int64_t head, std::int64_t query, std::int64_t key) {
            return list_bias(p, b, head, query, key);
          });
      CHECK(error_of(found.result, expected.result).relative_l1 < 0.06);
      CHECK(farthest(found.log_sum_exp, expected.log_sum_exp) < 0.2);
    }
  }
}

TEST_CASE("multiprocessors share the keys of blocks of queries with lists of tiles", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (list_kind const kind : {list_kind::half, list_kind::hostile, list_kind::empty, list_kind::last}) {
    for (std::int64_t const channels : {64, 128, 256}) {
      CAPTURE(static_cast<int>(kind));
      CHECK(check_listed(make_listed({1, 2, 1, 200, 6000, channels}, kind, channels == 128)) == is_hopper());
    }
  }
}

TEST_CASE("NaN and scales beyond those of integers' weights keep to their rows with lists of tiles on a GPU",
          "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_listed({1, 2, 1, 260, 700, 128}, list_kind::half);
  for (std::size_t i = 0; i < p.queries.size() / 2; ++i) {
    p.queries[i] = store<bfloat16>(200.0F * load(p.queries[i]));
  }
  check_listed(p);
  p.queries[100 * 128] = store<bfloat16>(std::nanf(""));
  check_listed(p);
  p.values[300 * 128 + 5] = store<bfloat16>(std::nanf(""));
  check_listed(p);
}

TEST_CASE("lists of tiles on a GPU repeat bit for bit, and their forward() is that over codes", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const p = make_listed({1, 2, 1, 1000, 1000, 128}, list_kind::half, true);
  device_codes<sage_attention2, bfloat16, listed_tiles<>> const codes(p);
  auto const expected = codes.shared();
  CHECK(codes.shared().result == expected.result);
  tessera::cuda const exec;
  device_attention<bfloat16> in(exec, p, head_layout::heads_first);
  attention_inputs<bfloat16> inputs = in.inputs();
  attention_functions<listed_tiles<>> const functions{{inputs.block_list}};
  device_heads<bfloat16> const result(exec, {1, 2, 1000, 128}, head_layout::heads_first);
  auto const plan = sage_attention2::plan_forward(exec, p.shape);
  buffer<std::byte> memory(exec, plan.bytes());
  attention_outputs<bfloat16> const out{result.view()};
  CHECK(message_of([&] {
          sage_attention2::forward(exec, inputs, p.options, out, workspace(plan, memory), functions);
        }) == "attention.forward: there are two block lists, one of listed_tiles and one of the inputs");
  inputs.block_list = {};
  sage_attention2::forward(exec, inputs, p.options, out, workspace(plan, memory), functions);
  bool is_clean = false;
  CHECK(as_doubles(result.values(exec, is_clean)) == expected.result);
  CHECK(is_clean);
}
