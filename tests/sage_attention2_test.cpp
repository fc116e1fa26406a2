// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/sage_attention2.hpp>

#include "support/attention_reference.hpp"
#include "support/catch.hpp"
#include "support/real_tensor.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("figures", "[host]") {
  cpu const exec{.threads = 2};
  auto const show = [](char const* name, attention_error const& e) {
    std::printf("%-30s cos %.6f L1 %.5f rmse %.5f\n", name, e.cosine, e.relative_l1, e.rmse);
  };
  {
    auto const p = make_attention_problem<bfloat16>({1, 2, 2, 256, 4096, 128}, testing::offset_channels{128, 0.06, 2.0},
                                                    testing::offset_channels{128, 0.06, 4.0},
                                                    testing::offset_channels{128, 1.0, 0.5});
    auto const e = attention_by_formula(p);
    auto const f = run_attention_problem<sage_attention2, bfloat16>(exec, p);
    show("anchors d128", error_of(f.result, e.result));
    std::printf("lse %g\n", farthest(f.log_sum_exp, e.log_sum_exp));
    auto const g = run_attention_problem<sage_attention2_int4, bfloat16>(exec, p);
    show("anchors d128 int4", error_of(g.result, e.result));
  }
  {
    using namespace testing;
    auto const p = make_attention_problem<bfloat16>({1, 2, 2, 256, 2048, 128}, offset_tokens{.offset = 10},
                                                    offset_tokens{.offset = 14, .shift = 8},
                                                    offset_tokens{.offset = 8, .spread = 0});
    auto const e = attention_by_formula(p);
    show("outliers", error_of(run_attention_problem<sage_attention2, bfloat16>(exec, p).result, e.result));
    using qk = smoothed<symmetric_quantizer<8, per_thread>>;
    using pv = float8_quantizer<float8_e4m3>;
    show("outliers smooth v", error_of(run_attention_problem<attention<qk, smoothed<pv>>, bfloat16>(exec, p).result, e.result));
    show("outliers smooth q v", error_of(run_attention_problem<attention<smoothed<qk, block_mean>, smoothed<pv>>, bfloat16>(exec, p).result, e.result));
    show("outliers int4", error_of(run_attention_problem<sage_attention2_int4, bfloat16>(exec, p).result, e.result));
  }
  {
    constexpr char const* file = "smollm2_attention.safetensors";
    attention_problem<bfloat16> p{{1, 9, 3, 512, 512, 64}, real_tensor<bfloat16>(file, "layers.15.queries_post_rope"),
      real_tensor<bfloat16>(file, "layers.15.keys_post_rope"), real_tensor<bfloat16>(file, "layers.15.values")};
    p.options.is_causal = true;
    auto const e = attention_by_formula(p);
    auto const f = run_attention_problem<sage_attention2, bfloat16>(exec, p);
    show("real", error_of(f.result, e.result));
    std::printf("lse %g\n", farthest(f.log_sum_exp, e.log_sum_exp));
    show("real int4", error_of(run_attention_problem<sage_attention2_int4, bfloat16>(exec, p).result, e.result));
  }
}
