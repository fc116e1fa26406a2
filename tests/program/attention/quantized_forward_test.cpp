// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The portable program of attention, on codes and scales that are made here, against softmax(scores) * values in
// double over what these codes stand for.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/float16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/attention/quantized_forward.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/testing/adversary.hpp>

#include "program/attention/coded_heads.hpp"
#include "support/catch.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

template <class Method, class Bias = no_bias>
using heads_of = coded_heads<attention_tiles, Method, Bias>;

}  // namespace

TEST_CASE("attention over codes is that over what they stand for, whatever the lengths", "[host][threads]") {
  heads_of<half_method> heads;
  check_coded_heads(heads, cpu{.threads = 2});
  heads_of<byte_method> bytes;
  bytes.run(cpu{.threads = 2});
  CHECK(bytes.error().of_results < 5e-2);  // weights are rounded to a 127th of the largest
  CHECK(bytes.error().of_sums < 1e-5);
}

TEST_CASE("queries see the keys of their window and of their list", "[host][threads]") {
  cpu const exec{.threads = 2};
  heads_of<half_method> window;
  window.left = 20;
  window.right = 3;
  check_coded_heads(window, exec);
  heads_of<half_method> listed;
  listed.counts = {1, 2, 0, 1, 1, 1, 2, 1};
  listed.tiles = {1, 7, 0, 1, 7, 7, 0, 7, 0, 7, 9, 7, 1, 0, -1, 7};  // 9 and -1 are no tiles
  check_coded_heads(listed, exec);
}

TEST_CASE("sinks, corrections and a reader's own bias are part of scores", "[host][threads]") {
  cpu const exec{.threads = 2};
  heads_of<half_method, sloping_bias> heads;
  heads.sinks = {0.5F, -2.0F};
  for (std::int64_t i = 0; i < 2 * 2 * 2 * 256; ++i) {
    heads.corrections.push_back(0.1F * static_cast<float>(i % 13 - 6));
  }
  check_coded_heads(heads, exec);
}

TEST_CASE("where all values are equal the result is that value", "[host]") {
  heads_of<half_method> heads;
  std::fill(heads.values.begin(), heads.values.end(), store<float16>(100.0F));
  std::fill(heads.value_scales.begin(), heads.value_scales.end(), 0.25F);
  std::fill(heads.value_mean.begin(), heads.value_mean.end(), 0.0F);
  heads.run(cpu{.threads = 1});
  for (std::size_t i = 0; i < 70 * 40; i += 37) {
    CHECK(heads.results[i] == Approx(25.0F).epsilon(1e-6));
  }
}

TEST_CASE("splits of keys leave rows and sums that merge to the whole", "[host]") {
  cpu const exec{.threads = 1};
  heads_of<half_method> heads;
  auto whole = heads.program();
  using row_type = decltype(whole)::row_type;
  std::vector<float> totals(2 * 2 * 2 * 70 * 40, -777.0F);
  std::vector<row_type> rows(2 * 2 * 2 * 70);
  whole.partials = {{totals.data(), {2, 2, 2, 70, 40}}, {rows.data(), {2, 2, 2, 70}}};
  exec.run(whole, whole.groups());
  CHECK(heads.results[0] == -777.0F);  // they are merge_attention's
  merge_attention<half_method, float> const merge{whole.partials, whole.results};
  exec.run(merge, merge.groups());
  CHECK(heads.error().of_results < 1e-3);
  CHECK(heads.error().of_sums < 1e-5);
}

TEST_CASE("the portable program of attention keeps the rules for programs", "[host]") {
  heads_of<half_method> heads;
  heads.right = 0;
  check_coded_heads(heads, testing::adversary{.seed = 81});
}
