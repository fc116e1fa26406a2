// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Checks that an offloaded cache selects the same chunks on the device as on the host, by any selector:
/// `check_selector<S>()`.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/algorithm/offloaded_cache/low_rank_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.cuh>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/side_queue.cuh>
#include <tessera/select/keep_outliers.hpp>

#include "support/catch.hpp"
#include "support/offload_problem.hpp"
#include "support/offload_runs.cuh"
#include "support/offload_steps.cuh"
#include "support/vectors.hpp"

namespace tessera_test {

/// The cache has all directions of two heads of 64 channels, and chunks of 8 tokens, of which 12 are selected. The
/// first sequence's step fills its ring.
template <class S>
class selector_check {
  using T = tessera::bfloat16;
  using method = tessera::offloaded_cache<tessera::low_rank<128>, S, tessera::keep_outliers<4>>;
  using problem_type = step_problem<method, T>;
  using E = typename problem_type::element;
  using blocks = typename problem_type::blocks_type;

 public:
  void run() {
    check_summaries();
    check_step();
    std::vector<std::int32_t> const selected(p_.found->step.selected.data,
                                             p_.found->step.selected.data + p_.found->step.selected.size());
    check_programs();
    auto const& here = p_.here->step.selected;
    std::int64_t differing = 0;
    for (std::int64_t i = 0; i < here.size(); ++i) {
      differing += here.data[i] == selected[static_cast<std::size_t>(i)] ? 0 : 1;
    }
    CHECK(differing <= 2);  // chunks whose scores differ by rounding
  }

 private:
  /// Checks what is kept of a prompt's chunks, and the cosines of their keys to their means.
  void check_summaries() {
    auto const& s = p_.sequence(0);
    std::int64_t const chunks = setup_.prompts[0] / 8;
    std::int64_t const elements = tessera::chunk_landmarks<S>::elements(p_.here->cache.selector, 64);
    std::vector<E> kept(static_cast<std::size_t>(chunks * 2 * elements), E{});
    std::vector<float> cosines(static_cast<std::size_t>(2 * chunks), -77.0F);
    std::vector<E> found_kept = kept;
    std::vector<float> found_cosines = cosines;
    auto const program = [&](tessera::rotary_embedding const& rotary, T const* keys, E* to, float* cosines_to) {
      return tessera::summarize_prompt<T, S>{
          {keys, {2, s.tokens, 64}}, rotary, p_.here->cache.selector, 0, 0, chunks, {to, {chunks, 2, elements}},
          {cosines_to, {2, chunks}}};
    };
    tessera::run(tessera::cpu{}, program(p_.here->cache.rotary, s.keys.data(), kept.data(), cosines.data()));
    tessera::buffer<T> keys(p_.exec(), static_cast<std::int64_t>(s.keys.size()));
    tessera::buffer<E> to(p_.exec(), static_cast<std::int64_t>(kept.size()));
    tessera::buffer<float> cosines_to(p_.exec(), 2 * chunks);
    p_.exec().copy(s.keys, keys);
    p_.exec().clear(to);
    tessera::run(p_.exec(), program(p_.there->cache.rotary, keys.data(), to.data(), cosines_to.data()));
    p_.exec().copy(to.view(), found_kept);
    p_.exec().copy(cosines_to.view(), found_cosines);
    p_.exec().wait();
    CHECK(same_bytes(kept, found_kept));
    CHECK(same_bytes(cosines, found_cosines));
  }

  /// Checks that a whole step on the device is attention, in double, over the ring, the exact chunks and the chunks
  /// that it reports as selected.
  void check_step() {
    tessera::offload_extents const n = p_.extents();
    tessera::side_queue<tessera::cuda> const side(p_.exec(), method::side_marks);
    p_.upload();
    auto const found = p_.decode_there(side, setup_.steps_before);
    p_.download();
    auto const& before = p_.here->cache.memory;
    std::size_t const size = 8 * 64;
    for (std::size_t i = 0; i < setup_.prompts.size(); ++i) {
      auto const at = static_cast<std::int64_t>(i);
      CHECK(p_.found->cache.memory.sequences[at].tokens == before.sequences[at].tokens + 1);
      std::int64_t const chunks = before.sequences[at].chunks;
      auto const attended = [&](std::int64_t head, std::int64_t token) {
        bool is_read = token / 8 >= chunks;
        for (std::int64_t index = 0; index < n.exact(); ++index) {
          is_read = is_read || before.exact_ids(at, head, index) == token / 8;
        }
        for (std::int64_t rank = 0; rank < n.budget; ++rank) {
          is_read = is_read || p_.found->step.selected(at, head, rank) == token / 8;
        }
        return is_read;
      };
      auto const expected = dense_attention({8, 2, 64}, p_.sequence(i), setup_.prompts[i] + setup_.steps_before,
                                            p_.embedding(), 0, nullptr, attended);
      auto const first = found.begin() + static_cast<std::ptrdiff_t>(i * size);
      CHECK(relative_error({first, first + static_cast<std::ptrdiff_t>(size)}, expected) < 0.004);
    }
    CHECK(p_.found->step.selected_counts(0, 0) == 12);
  }

  /// Checks the programs of a step that depend on the selector, each on the same memory on host and device.
  void check_programs() {
    tessera::offload_extents const n = p_.extents();
    auto const in = p_.tokens(setup_.steps_before);
    auto const& host = p_.here->cache;
    tessera::run(tessera::cpu{}, tessera::append_tokens<T, E>{n, host.memory, p_.here->step, host.rotary, in.queries,
                                                              in.keys, in.values, nullptr});
    p_.run([&](blocks const& b) {
      return tessera::score_chunks<T, S>{n, b.cache.memory, b.step, b.cache.selector, b.cache.scale};
    });
    CHECK(p_.differing(2) == -1);
    CHECK(score_error() < 1e-5);
    p_.run([&](blocks const& b) { return tessera::select_chunks<T, S>{n, b.cache.memory, b.step, b.cache.selector}; });
    CHECK(p_.differing() == -1);
    tessera::run(tessera::cpu{}, tessera::project_archived<T, E>{n, host.memory, p_.here->step});
    REQUIRE(p_.here->step.residuals[0] >= 0.0F);  // a chunk leaves the ring
    p_.run([&](blocks const& b) {
      return tessera::archive_chunks<T, S, tessera::exact_values>{n, b.cache.memory, b.step, b.cache.selector, 3.0F};
    });
    CHECK(p_.differing() == -1);
  }

  /// The largest difference of scores of archived chunks; 0 for two infinite scores, a large number for NaN.
  double score_error() {
    tessera::offload_extents const n = p_.extents();
    double error = 0;
    for (std::int64_t at = 0; at < p_.steps(); ++at) {
      tessera::cached_sequence const known = p_.here->cache.memory.sequences[at];
      for (std::int64_t i = 0; i < known.chunks * n.query_heads; ++i) {
        std::int64_t const row = known.first + i / n.query_heads;
        std::int64_t const head = i % n.query_heads;
        float const a = p_.here->step.scores(row, head / n.group(), head % n.group());
        float const b = p_.found->step.scores(row, head / n.group(), head % n.group());
        if (std::isnan(a) || std::isnan(b)) {
          return 1e30;
        }
        error = a == b ? error : std::max(error, std::abs(double{a} - double{b}));
      }
    }
    return error;
  }

  template <class U>
  static bool same_bytes(std::vector<U> const& a, std::vector<U> const& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(U)) == 0);
  }

  step_setup setup_{{8, 2, 64}, {394, 90}, 5, 12, 0, 64, tessera::rotary_pairs::halves, {}};
  problem_type p_{setup_};
};

/// Checks what is kept of chunks, the selection, what is kept of a chunk that leaves the ring, and a whole step.
template <class S>
void check_selector() {
  selector_check<S>().run();
}

}  // namespace tessera_test
