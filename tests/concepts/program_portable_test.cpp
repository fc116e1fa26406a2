// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Portable programs of every family are DevicePrograms: what the host compiles, nvcc does not refuse, and their scratch
// fits on each architecture that they are for.
#include <cstdint>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/map/linear_bias.hpp>
#include <tessera/minicache.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/program/attention/channel_statistics.hpp>
#include <tessera/program/attention/compare_heads.hpp>
#include <tessera/program/attention/decode_dense.hpp>
#include <tessera/program/attention/detail/dense_tiles.hpp>
#include <tessera/program/attention/pack_codes.hpp>
#include <tessera/program/attention/quantized_forward.hpp>
#include <tessera/program/gemm/fit_groups.hpp>
#include <tessera/program/gemm/gemm_tiles.hpp>
#include <tessera/program/gemm/reduce_rows.hpp>
#include <tessera/program/gemm/store_sums.hpp>
#include <tessera/program/loss/block_lists.hpp>
#include <tessera/program/loss/entry_order.hpp>
#include <tessera/program/loss/gradient_products.hpp>
#include <tessera/program/loss/logit_pairs.hpp>
#include <tessera/program/loss/reduce_logits.hpp>
#include <tessera/program/offloaded_cache/append_tokens.hpp>
#include <tessera/program/offloaded_cache/archive_chunks.hpp>
#include <tessera/program/offloaded_cache/attend_chunks.hpp>
#include <tessera/program/offloaded_cache/fetch_values.hpp>
#include <tessera/program/offloaded_cache/prefill.hpp>
#include <tessera/program/offloaded_cache/score_chunks.hpp>
#include <tessera/program/offloaded_cache/select_chunks.hpp>
#include <tessera/program/paged_cache/attend_pages.hpp>
#include <tessera/program/paged_cache/finish_pages.hpp>
#include <tessera/program/paged_cache/measure_pages.hpp>
#include <tessera/program/paged_cache/restore_pages.hpp>
#include <tessera/program/paged_cache/write_pages.hpp>
#include <tessera/program/subspace/iterate.hpp>
#include <tessera/program/subspace/iterate_in_blocks.hpp>
#include <tessera/program/weights/decode.hpp>
#include <tessera/program/weights/encode.hpp>
#include <tessera/program/weights/sgd_step.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/select/quest.hpp>
#include <tessera/shadow_kv.hpp>

#include "../../examples/papers/distillation_loss.hpp"
#include "../../examples/papers/group_scaled_linear.hpp"
#include "../../examples/papers/kivi_decode.hpp"
#include "../../examples/papers/policy_gradient_loss.hpp"
#include "../../examples/papers/preference_loss.hpp"
#include "../../examples/papers/quest_selection.hpp"
#include "support/catch.hpp"

using namespace tessera;

namespace {

/// A wrong one is named by the compiler.
template <DeviceProgram... P>
inline constexpr int device_programs = sizeof...(P);

/// As many lanes as are asked for, and no more memory than the CPU has.
template <int Lanes, int Bytes>
struct planted {
  static constexpr int lanes = Lanes;
  struct scratch_type {
    char bytes[Bytes];
  };
  template <class G>
  TESSERA_FN void operator()(G const&, std::int64_t, scratch_type&) const {}
};
template <class P>
inline constexpr bool is_device_program = DeviceProgram<P>;

constexpr int of_attention =
    device_programs<summarize_heads<head_source<bfloat16>>, finish_summaries<>, compare_heads<bfloat16, float>,
                    finish_comparison, pack_codes, widen_codes, decode_heads<bfloat16, bfloat16>,
                    dense_tiles<bfloat16, bfloat16, no_bias, 128>, dense_tiles<float, float, linear_bias, 256>,
                    attention_tiles<sage_attention2::method, bfloat16, no_bias, 128>,
                    attention_tiles<sage_attention2_int4::method, bfloat16, linear_bias, 256>>;
constexpr int of_gemm =
    device_programs<fit_groups<symmetric_quantizer<8, 64>, bfloat16>,
                    gemm_tiles<bfloat16, dense<bfloat16>, dense<bfloat16>, store_sums<float, plain_sum>>,
                    gemm_tiles<float, dense<float>, dense<float>, store_sums<float, plain_sum>>,
                    reduce_rows<lse_reducer<float>, bfloat16, keep_pieces<scaled_exponentials<float>>>>;
constexpr int of_loss =
    device_programs<list_loss_blocks, list_loss_tiles, mark_labels, class_entries, scatter_entries, choose_order,
                    gather_entries<bfloat16>, prepare_loss_gradients, scale_loss_gradients, clear_logit_pairs,
                    loss_tiles<loss_gemm_tile<bfloat16>, lse_reducer<float>>>;
constexpr int of_weights =
    device_programs<read_codebook<bfloat16>, encode_weights<bfloat16, keep_mantissa<7>>,
                    decode_weights<bfloat16, keep_mantissa<3>>, verify_blocks<float>, sgd_step<bfloat16, float>>;
constexpr int of_offloaded_cache =
    device_programs<append_tokens<bfloat16, bfloat16>, attend_chunks<bfloat16, bfloat16>, finish_prompt,
                    archive_chunks<bfloat16, landmark_selector<8>, exact_values>,
                    fetch_values<bfloat16, bfloat16, exact_values>, score_chunks<bfloat16, quest_selector<8>>,
                    select_chunks<bfloat16, landmark_selector<8>>, choose_outliers<bfloat16, bfloat16>>;
constexpr int of_paged_cache =
    device_programs<cached_attention<bfloat16, bfloat16, 128, direction_codec<>>, encode_pages<bfloat16, 128>,
                    measure_pages<slerp_merger<float>, bfloat16>, finish_pages<bfloat16>,
                    restore_pages<bfloat16, bfloat16, direction_codec<>>>;
constexpr int of_subspace = device_programs<start_subspace, multiply_gram, inner_products, factor_products, solve_rows,
                                            diagonalize, start_rounds, solve_blocks, finish_rounds>;
constexpr int of_papers =
    device_programs<tessera_examples::kivi_decode<2>, tessera_examples::summarize_pages, tessera_examples::score_pages,
                    tessera_examples::attend_pages, tessera_examples::quantize_blocks, tessera_examples::distil_rows,
                    tessera_examples::clip_policy, tessera_examples::prefer, tessera_examples::add_up>;

}  // namespace

TEST_CASE("portable programs and those of papers are programs for devices, and planted ones are not", "[host]") {
  CHECK(of_attention + of_gemm + of_loss + of_weights + of_offloaded_cache + of_paged_cache + of_subspace >= 50);
  CHECK(of_papers == 9);
  CHECK(is_device_program<planted<64, 1024>>);
  CHECK_FALSE(is_device_program<planted<48, 1024>>);
  CHECK_FALSE(is_device_program<planted<64, 228 * 1024>>);
}
