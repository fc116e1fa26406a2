// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs quest_selection and compares it with attention in double to the tokens of the pages with the highest bounds.
#pragma once

#include <algorithm>

#include <tessera/testing/reference.hpp>

#include "../support/exact_attention.hpp"
#include "../support/paper_trial.hpp"
#include "quest_selection.hpp"

namespace tessera_examples {

struct quest_selection_trial {
  struct extents {
    std::int64_t heads, tokens, taken;
  };
  static constexpr char const* name = "quest_selection";
  static constexpr extents usual{3, 1003, 9}, large[] = {{64, 65536, 128}};
  static constexpr double bound = 1e-2;  ///< results and weights are rounded to bf16

  template <class Executor>
  static paper_finding run(Executor const& exec, extents of) {
    constexpr std::int64_t c = quest_heads::channels, page = quest_heads::page;
    auto const made = [&](std::uint64_t seed, std::int64_t tokens) {
      return filled<bfloat16>(exec, testing::offset_tokens{.offset = 2}, seed, of.heads * tokens * c);
    };
    auto const q = made(1, 4), k = made(2, of.tokens), v = made(3, of.tokens);
    std::int64_t const pages = divide_up(of.tokens, page);
    buffer<bfloat16> boxes(exec, of.heads * pages * 2 * c);
    buffer<float> scores(exec, of.heads * pages);
    auto results = poisoned<bfloat16>(exec, q.size());
    quest_heads const all{{q.data(), {of.heads * 4, c}},        {k.data(), {of.heads, of.tokens, c}},
                          {v.data(), {of.heads, of.tokens, c}}, {boxes.data(), {of.heads, pages, 2 * c}},
                          {scores.data(), {of.heads, pages}},   of.taken,
                          {results.data(), {of.heads * 4, c}}};
    exec.run(summarize_pages{all}, of.heads * pages);
    paper_finding found{join(of.heads, " key heads, ", of.taken, " of ", pages, " pages"),
                        seconds_of(exec,
                                   [&] {
                                     exec.run(score_pages{all},
                                              of.heads * divide_up(pages, std::int64_t{score_pages::pages}));
                                     exec.run(attend_pages{all}, of.heads);
                                   }),
                        0};
    found.bytes = static_cast<double>(of.heads * c * 4 * (pages + of.taken * page));
    largest_error error;
    for (std::int64_t head = 0; head < of.heads; head += divide_up(of.heads, std::int64_t{4})) {
      auto const some_q = here(exec, q, head * 4 * c, 4 * c), some = here(exec, results, head * 4 * c, 4 * c);
      auto const some_k = here(exec, k, head * of.tokens * c, of.tokens * c);
      auto const some_v = here(exec, v, head * of.tokens * c, of.tokens * c);
      std::vector<float> bounds;
      for (std::int64_t first = 0; first < of.tokens; first += page) {
        double best = -HUGE_VAL;
        for (std::int64_t h = 0; h < 4; ++h) {
          double bound_of_head = 0;
          for (std::int64_t i = 0; i < c; ++i) {
            double most = -HUGE_VAL;
            for (std::int64_t t = first; t < std::min(first + page, of.tokens); ++t) {
              most = std::max(most, double{load(some_q[h * c + i])} * double{load(some_k[t * c + i])});
            }
            bound_of_head += most;
          }
          best = std::max(best, bound_of_head);
        }
        bounds.push_back(static_cast<float>(best));
      }
      std::vector<bfloat16> taken_k, taken_v;
      for (std::int64_t which : testing::reference_top_k(bounds, std::min(of.taken, pages))) {
        std::int64_t const first = which * page * c, end = std::min((which + 1) * page, of.tokens) * c;
        taken_k.insert(taken_k.end(), some_k.begin() + first, some_k.begin() + end);
        taken_v.insert(taken_v.end(), some_v.begin() + first, some_v.begin() + end);
      }
      std::int64_t const tokens = static_cast<std::int64_t>(taken_k.size()) / c;
      for (std::int64_t h = 0; h < 4; ++h) {
        auto const expected = attend_exactly<bfloat16>({some_q.data() + h * c, c}, {taken_k.data(), {tokens, c}},
                                                       {taken_v.data(), {tokens, c}});
        for (std::int64_t i = 0; i < c; ++i) {
          error.add(double{load(some[h * c + i])}, expected.result[i]);
        }
      }
    }
    found.error = error.relative();
    return found;
  }
};

}  // namespace tessera_examples
