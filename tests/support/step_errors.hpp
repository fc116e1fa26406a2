// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `error_of_steps`: the steps of an offloaded cache of one sequence against attention in double over what they read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>

#include "support/offload_problem.hpp"
#include "support/vectors.hpp"

namespace tessera_test {

/// The heads of the caches: three query heads for each of two key heads.
inline constexpr offload_heads heads_of_steps{6, 2, 16};

/// The tokens of which a step reads a chunk that it selected, and those that it reads in any case.
struct token_sets {
  std::vector<std::vector<bool>> selected;
  std::vector<std::vector<bool>> always;
};

/// What the latest step read of the first sequence, whose chunks before the step were `chunks`.
template <class Cache>
token_sets tokens_read(Cache& cache, std::int64_t position, std::int64_t chunks,
                       std::vector<std::vector<std::int64_t>> const& exact) {
  auto const& n = cache.plan().extents;
  auto const size = static_cast<std::size_t>(position + 1);
  token_sets found{{2, std::vector<bool>(size)}, {2, std::vector<bool>(size)}};
  auto const add = [&](std::vector<bool>& tokens, std::int64_t chunk) {
    for (std::int64_t t = chunk * n.chunk; chunk >= 0 && t < (chunk + 1) * n.chunk; ++t) {
      tokens[static_cast<std::size_t>(t)] = true;
    }
  };
  auto const step = cache.step(1);
  for (std::size_t head = 0; head < 2; ++head) {
    auto const h = static_cast<std::int64_t>(head);
    std::fill(found.always[head].begin() + static_cast<std::ptrdiff_t>(chunks * n.chunk), found.always[head].end(),
              true);
    for (std::int64_t const id : exact[head]) {
      add(found.always[head], id);
    }
    for (std::int64_t rank = 0; rank < step.selected_counts(0, h); ++rank) {
      add(found.selected[head], step.selected(0, h, rank));
    }
  }
  return found;
}

/// The chunks that the cache has as they were, of each key head; -1 where a place has none.
template <class Cache>
std::vector<std::vector<std::int64_t>> exact_ids(Cache const& cache) {
  std::vector<std::vector<std::int64_t>> ids(2);
  for (std::int64_t head = 0; head < 2; ++head) {
    for (std::int64_t place = 0; place < cache.plan().extents.exact(); ++place) {
      ids[static_cast<std::size_t>(head)].push_back(cache.memory().exact_ids(0, head, place));
    }
  }
  return ids;
}

/// Takes the steps of a cache of heads_of_steps from the token `prompt` to the sequence's last. Returns their largest
/// relative error against attention in double, over the chosen chunks with the keys in `rebuilt` and over the others
/// with exact keys.
template <class Method>
double error_of_steps(host_cache<Method, float>& cache, offload_sequence<float> const& s, std::int64_t prompt,
                      std::vector<float> const& rebuilt) {
  tessera::cpu const exec{.threads = 2};
  double worst = 0;
  for (std::int64_t position = prompt; position < s.tokens; ++position) {
    std::int64_t const chunks = cache.memory().sequences[0].chunks;
    auto const exact = exact_ids(cache);
    auto const found = cache.decode(exec, {&s}, {position});
    exec.wait();
    token_sets const read = tokens_read(cache, position, chunks, exact);
    offload_sequence<float> mixed = s;  // each head has the rebuilt keys of the chunks that it has selected
    for (std::int64_t head = 0; head < 2; ++head) {
      auto const& own = read.selected[static_cast<std::size_t>(head)];
      for (std::int64_t token = 0; token <= position; ++token) {
        if (own[static_cast<std::size_t>(token)]) {
          std::int64_t const first = (head * s.tokens + token) * 16;
          std::copy_n(rebuilt.begin() + static_cast<std::ptrdiff_t>(first), 16,
                      mixed.keys.begin() + static_cast<std::ptrdiff_t>(first));
        }
      }
    }
    auto const is_read = [&](std::int64_t head, std::int64_t token) {
      auto const h = static_cast<std::size_t>(head);
      auto const at = static_cast<std::size_t>(token);
      return read.selected[h][at] || read.always[h][at];
    };
    auto const expected = dense_attention<float>(heads_of_steps, mixed, position, embedding(), 0, nullptr, is_read);
    worst = std::max(worst, relative_error(found, expected));
  }
  return worst;
}

}  // namespace tessera_test
