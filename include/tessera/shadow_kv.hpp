// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// ShadowKV: a KV cache for long contexts whose keys stay on the GPU in few directions, whose values wait in memory of
/// the host, and of which each step reads a small part, chosen by landmarks.
///
/// Sun, Chang, Bao, Zheng, Zheng, Liu, Dong, Chi, Chen: "ShadowKV: KV Cache in Shadows for High-Throughput Long-Context
/// LLM Inference" (arXiv 2410.21465).
///
///     #include <tessera/exec/buffer.hpp>
///     #include <tessera/exec/cpu.hpp>
///     #include <tessera/exec/side_queue.hpp>
///     #include <tessera/shadow_kv.hpp>
///
///     using method = tessera::shadow_kv;
///     tessera::cpu exec;
///     tessera::side_queue<tessera::cpu> side(exec, method::side_marks, true);
///     auto const plan = method::plan<tessera::bfloat16>({query_heads, key_heads, channels, {131072, 8192}});
///     tessera::buffer<std::byte> device(exec, plan.device.bytes());
///     tessera::buffer<std::byte> host(plan.host.bytes());
///     tessera::buffer<std::byte> memory(exec, tessera::max(plan.prompt.bytes(), plan.step.bytes()));
///     auto const cache = method::open(plan, device.view(), host.view(), rotary);
///     method::prefill(exec, side, cache, sequence, keys, values, tessera::workspace(plan.prompt, memory));
///     tessera::offload_outputs<tessera::bfloat16> const outputs{result};
///     for (std::int64_t step = 0; step < steps; ++step) {    // of a token of each sequence
///       method::decode(exec, side, cache, {queries, new_keys, new_values}, outputs,
///                      tessera::workspace(plan.step, memory));
///     }
///     exec.wait();
///
/// On a GPU, in a source for nvcc, the executor, its side and what memory is of are others; the rest is the same:
///
///     #include <tessera/exec/buffer.hpp>
///     #include <tessera/exec/cuda_memory.cuh>
///     #include <tessera/exec/side_queue.hpp>
///     #include <tessera/project/rotary_tables.hpp>
///     #include <tessera/shadow_kv.hpp>
///
///     using method = tessera::shadow_kv;
///     tessera::cuda exec;
///     tessera::side_queue<tessera::cuda> side(exec, method::side_marks, true);   // a second stream, which goes first
///     auto const plan = method::plan<tessera::bfloat16>({query_heads, key_heads, channels, {131072, 8192}});
///     tessera::buffer<std::byte> device(exec, plan.device.bytes());
///     tessera::pinned_memory pinned;                                             // outlives the buffers in it
///     tessera::buffer<std::byte> host(plan.host.bytes(), pinned);
///     tessera::rotary_tables const tables(tessera::rotary_frequencies(500000.0, 128), 131072 + 64);
///     tessera::buffer<tessera::rotation> within(exec, static_cast<std::int64_t>(tables.within().size()));
///     tessera::buffer<tessera::rotation> blocks(exec, static_cast<std::int64_t>(tables.blocks().size()));
///     exec.copy(tables.within(), within);
///     exec.copy(tables.blocks(), blocks);
///     auto const rotary = tables.embedding(tessera::rotary_pairs::halves, within.data(), blocks.data());
///     auto const cache = method::open(plan, device.view(), host.view(), rotary);
///
/// algorithm/offloaded_cache/offloaded_cache.cuh says what limits a step.
///
/// Of the keys of all heads of a token, k, before their rotation by the token's position, a = k Q is kept, with Q the
/// 160 orthonormal directions that hold most of the prompt's keys. A chunk c of 8 tokens has a landmark L_c, which
/// stands for m_c, the mean of its keys after their rotation, channel i in 8 bits with a scale of the chunk and head:
///
///     t_c = max_i |m_ci| / 127,   L_ci = t_c * nearest(m_ci / t_c)
///
/// (shadow_kv_paper: m_c in bf16). A step rotates the query q_h of each head h of a group that shares a key head, with
/// scale s:
///
///     rank of chunk c = max_h (s q_h . L_c - log sum_c' exp(s q_h . L_c'))
///
/// and the 256 chunks with the highest ranks (of equal ones the earlier) are attended to, with keys rotation(a Q^T) and
/// values from the host, along with the latest tokens and with 48 chunks of each head that their mean does not stand
/// for: those with the least cosine between a key and the mean. Attention is exact over all of these.
///
/// Chunks that are selected stay in slots of the GPU until others need those, so that only what is new is fetched and
/// rebuilt. Results depend on no slot: the same bits with any number of slots and with none kept.
///
/// What differs from the paper or its authors' code on purpose: landmarks are in 8 bits, half as much to keep and to
/// read; directions come from the products of channels by subspace iteration, not from a singular value decomposition;
/// ranks are not rounded to 16 bits, so that chunks do not tie; keys of selected chunks are always rebuilt, never at
/// times exact, so that results do not depend on history; rotations are in fp32 with one rounding; tokens that are
/// generated become chunks like those of the prompt when they leave the ring, so that sequences grow without bound;
/// directions that a short prompt had too few keys for are renewed by the steps after it (renewal_growth of
/// offload_options: at each quarter more tokens, up to eight for each direction;
/// program/offloaded_cache/renew_directions.hpp); what they leave is watched (cached_sequence), chunks of which they
/// leave much are kept exactly, and refit() finds other directions when it is asked to; keys of fewer channels than
/// 160, of all heads, have as many directions; lengths differ within a batch; any number of query heads up to 16 shares
/// a key head; values may be coded (fourth argument of offloaded_cache: a Quantizer), or stay on the GPU
/// (value_store::device), where pinned memory is short: what cannot be pinned is an error of the allocation, and
/// plan.host.bytes() says before how much it is.
///
/// Other methods are other arguments: landmark_selector, quest_selector, key_code_selector, oracle_selector,
/// recent_selector and random_selector (select/) in the second place, group_mean instead of group_max in theirs.
///
/// Accuracy, relative error of the attention output of a real layer (SmolLM2-135M, layers 14, 15 and 16; 64 steps after
/// 448 tokens of text, ring of 32, 4 outliers, no strays, chunks of 8 for all; tests/shadow_kv_test.cpp), by the CPU.
/// Keys of 192 channels of all heads, left out by rank (of the keys before / after their rotation), and results when
/// all chunks are attended to:
///
///     rank   keys, layer 14    layer 15          layer 16          results
///       32   0.186 / 0.286     0.180 / 0.280     0.160 / 0.276     0.132   0.094   0.034
///       64   0.104 / 0.179     0.103 / 0.183     0.094 / 0.176     0.046   0.049   0.018
///       96   0.060 / 0.119     0.059 / 0.123     0.056 / 0.116     0.033   0.033   0.012
///      128   0.033 / 0.074     0.031 / 0.077     0.032 / 0.071     0.020   0.021   0.008
///      160   0.015 / 0.039     0.013 / 0.040     0.015 / 0.035     0.012   0.013   0.007
///
/// Rank 160, some of about 53 chunks selected, by selector:
///
///     chunks   layer   landmarks   in bf16   mean share   Quest   2-bit keys   oracle   recent   random   in slots
///        8       14      0.200      0.200      0.196      0.250     0.206      0.179    0.335    0.385     62 %
///        8       15      0.203      0.203      0.202      0.243     0.244      0.180    0.305    0.393     66 %
///       16       14      0.126      0.126      0.127      0.150     0.134      0.100    0.257    0.312     68 %
///       16       15      0.119      0.119      0.122      0.147     0.131      0.100    0.246    0.310     72 %
///       32       14      0.045      0.045      0.044      0.056     0.074      0.035    0.086    0.214     82 %
///       32       15      0.045      0.045      0.045      0.058     0.049      0.038    0.096    0.183     83 %
///
/// With 16 chunks of layer 15 (0.119), values in e4m3 give 0.119, in 4 bits 0.124. Tokens that are attended to have
/// 87.3, 92.3 and 97.4 % of dense attention's weight with 8, 16 and 32 chunks, mean of the three layers; Quest's 85.3,
/// 90.5 and 96.6 % (examples/memory_report).
///
/// What it does not do: a token that is alone in its chunk and unlike nothing around it is not seen by a mean
/// (tests/shadow_kv_needle_test.cpp: where keys of neighbours point in all directions, 3 of 12 heads find a needle of
/// one token, 12 of 12 with two bits a channel; needles of whole chunks are found by means and by codes alike). Text
/// that must be read densely is not for a fixed budget.
///
/// Memory for 8 key heads of 128 channels and 131072 tokens, in bf16: 71 MB on the GPU instead of 537 (7.59 times less;
/// shadow_kv_paper: 87 MB, 6.17 times), 268 MB on the host. plan.describe() lists it all. Determinism: the same bits
/// each time and for any number of threads; landmarks, outliers and records of values have the same bits on every
/// executor, directions and results differ by rounding. A NaN among keys makes its sequence's results NaN. A step
/// neither allocates nor waits and can be captured in a CUDA graph: all lengths are on the device, which reports
/// sequences that are full to exec.wait().
#pragma once

#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/project/low_rank.hpp>
#include <tessera/select/coded_landmark.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>

namespace tessera {
inline namespace v0 {

/// The paper's method with its parameters, landmarks in 8 bits; coded_landmark_selector's `chunks` (256) is how many
/// chunks a head selects.
using shadow_kv = offloaded_cache<low_rank_projector<160>, coded_landmark_selector<8>, keep_outliers<48>>;

/// The paper's method with its parameters, and landmarks in bfloat16 as in the paper.
using shadow_kv_paper = offloaded_cache<low_rank_projector<160>, landmark_selector<8>, keep_outliers<48>>;

}  // namespace v0
}  // namespace tessera
