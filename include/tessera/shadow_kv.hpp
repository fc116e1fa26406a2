// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// ShadowKV: a key-value cache for long contexts that keeps keys on the GPU in a low-rank basis and values in host
/// memory, and of which each step reads only a small part, chosen by landmarks.
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
///     auto const plan = method::plan<tessera::bfloat16>(exec, {query_heads, key_heads, channels, {131072, 8192}});
///     tessera::buffer<std::byte> device(exec, plan.device.bytes());
///     tessera::buffer<std::byte> host(plan.host.bytes());
///     auto const cache = method::open(exec, plan, device, host, rotary);
///     auto const of_prompt = method::plan_prefill(exec, plan);
///     auto const of_step = method::plan_decode(exec, plan);
///     tessera::buffer<std::byte> memory(exec, tessera::max(of_prompt.bytes(), of_step.bytes()));
///     method::prefill(exec, side, cache, sequence, keys, values, tessera::workspace(of_prompt, memory));
///     tessera::offload_outputs<tessera::bfloat16> const outputs{result};
///     for (std::int64_t step = 0; step < steps; ++step) {    // of a token of each sequence
///       method::decode(exec, side, cache, {queries, new_keys, new_values}, outputs,
///                      tessera::workspace(of_step, memory));
///     }
///     exec.wait();
///
/// On a GPU, in a source for nvcc, only the executor, its side queue and the types of memory differ:
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
///     auto const plan = method::plan<tessera::bfloat16>(exec, {query_heads, key_heads, channels, {131072, 8192}});
///     tessera::buffer<std::byte> device(exec, plan.device.bytes());
///     tessera::pinned_memory pinned;                                             // outlives the buffers in it
///     tessera::buffer<std::byte> host(plan.host.bytes(), pinned);
///     tessera::rotary_tables const tables(tessera::rotary_frequencies(500000.0, 128), 131072 + 64);
///     tessera::buffer<tessera::rotation> within(exec, static_cast<std::int64_t>(tables.within().size()));
///     tessera::buffer<tessera::rotation> blocks(exec, static_cast<std::int64_t>(tables.blocks().size()));
///     exec.copy(tables.within(), within);
///     exec.copy(tables.blocks(), blocks);
///     auto const rotary = tables.embedding(tessera::rotary_pairs::halves, within.data(), blocks.data());
///     auto const cache = method::open(exec, plan, device, host, rotary);
///
/// algorithm/offloaded_cache/offloaded_cache.cuh says what limits the speed of a step.
///
/// Let k be the keys of all heads of a token before their rotation by the token's position, and Q the 160 orthonormal
/// directions that hold most of the prompt's keys. The cache keeps a = k Q. A chunk c of 8 tokens has a landmark L_c,
/// which stands for m_c, the mean of the chunk's keys after their rotation; channel i is kept in 8 bits, with one scale
/// for each chunk and head:
///
///     t_c = max_i |m_ci| / 127,   L_ci = t_c * nearest(m_ci / t_c)
///
/// (shadow_kv_paper: m_c in bf16). A step rotates the query q_h of each head h of a group that shares a key head, with
/// scale s:
///
///     rank of chunk c = max_h (s q_h . L_c - log sum_c' exp(s q_h . L_c'))
///
/// A step attends to the 256 chunks with the highest ranks (of equal ones the earlier), with keys rotation(a Q^T) and
/// values from the host, to the latest tokens, and to the 48 chunks of each head whose mean represents them worst:
/// those with the least cosine between a key and the mean. Attention is exact over all of these.
///
/// Selected chunks stay in slots of the GPU until others need the slots, so that a step fetches and rebuilds only the
/// chunks that were in no slot. Results do not depend on slots: the bits are the same with any number of slots and with
/// none kept.
///
/// Other methods are other template arguments. The first may be exact_keys, which keeps keys uncompressed, or
/// low_rank_keys<P>, which calls a Projector P of yours on the CPU. The second may be landmark_selector,
/// quest_selector, key_code_selector, oracle_selector, recent_selector or random_selector (select/), where group_mean
/// may replace group_max, or given_chunks, for which the caller gives the chunks of each step. A Quantizer as the
/// fourth argument of offloaded_cache codes the values. With value_store::device values stay on the GPU, for machines
/// with too little pinned memory: if memory cannot be pinned, the allocation fails, and plan.host.bytes() says in
/// advance how much is needed.
///
/// docs/papers/shadow_kv.md says what differs from the paper, and has the measured errors by rank, selector and number
/// of chunks. In short: the relative error of a real layer's results is 0.12 with 16 of about 53 chunks, and 0.013 with
/// all of them.
///
/// A limit of the method: a mean hardly shows a single token whose key differs from those of its neighbours (the page
/// says which heads find such a needle). A text of which every token matters needs dense attention, not a fixed number
/// of chunks.
///
/// Memory for 8 key heads of 128 channels and 131072 tokens, in bf16: 71 MB on the GPU instead of 537 (7.59 times less;
/// shadow_kv_paper: 87 MB, 6.17 times), 268 MB on the host. plan.describe() lists all of it.
///
/// Determinism: the same bits each time and for any number of threads. Landmarks, outliers and records of values have
/// the same bits on every executor; directions and results differ by rounding. A NaN among keys makes its sequence's
/// results NaN. A step neither allocates nor waits and can be captured in a CUDA graph: all lengths are on the device,
/// which reports sequences that are full to exec.wait().
#pragma once

#include <tessera/algorithm/offloaded_cache/low_rank_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/select/coded_landmark.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>

namespace tessera {
inline namespace v0 {

/// The paper's method with its parameters, but landmarks in 8 bits. coded_landmark_selector's `chunks` (256) is the
/// number of chunks that a head selects.
using shadow_kv = offloaded_cache<low_rank<160>, coded_landmark_selector<8>, keep_outliers<48>>;

/// The paper's method with its parameters, and landmarks in bfloat16 as in the paper.
using shadow_kv_paper = offloaded_cache<low_rank<160>, landmark_selector<8>, keep_outliers<48>>;

}  // namespace v0
}  // namespace tessera
