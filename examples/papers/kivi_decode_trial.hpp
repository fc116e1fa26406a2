// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs kivi_decode and compares it with attention in double over the values that its codes stand for.
#pragma once

#include <tessera/algorithm/gemm/materialize.hpp>

#include "../support/exact_attention.hpp"
#include "../support/paper_trial.hpp"
#include "kivi_decode.hpp"
#include "pack_codes.hpp"

namespace tessera_examples {

/// Attends over random keys and values, some of whose channels are far from zero.
struct kivi_decode_trial {
  struct extents {
    std::int64_t heads, coded, newest;
  };
  static constexpr char const* name = "kivi_decode";
  static constexpr extents usual{4, 512, 33}, large[] = {{384, 8192, 64}};
  static constexpr double bound = 1e-2;  ///< results and weights are rounded to bf16

  template <class Executor, int Bits = 2>
  static paper_finding run(Executor const& exec, extents of) {
    using program = kivi_decode<Bits>;
    constexpr std::int64_t c = program::channels;
    auto const tensor = [&](std::uint64_t seed, std::int64_t tokens) {
      return filled<bfloat16>(exec, testing::offset_tokens{.offset = 4}, seed, of.heads * tokens * c);
    };
    auto const q = tensor(1, 4), k = tensor(2, of.coded), v = tensor(3, of.coded);
    auto const newest_k = tensor(4, of.newest), newest_v = tensor(5, of.newest);
    view<bfloat16 const, 3> const all_k(k.data(), {of.heads, of.coded, c}), all_v(v.data(), {of.heads, of.coded, c});
    packed_memory<Bits> const keys(exec, all_k.transposed(1, 2)), values(exec, all_v);
    auto results = poisoned<bfloat16>(exec, q.size());
    program const attend{{q.data(), {of.heads * 4, c}},
                         keys.heads,
                         values.heads,
                         {newest_k.data(), {of.heads, of.newest, c}},
                         {newest_v.data(), {of.heads, of.newest, c}},
                         {results.data(), {of.heads * 4, c}}};
    paper_finding found{join(of.heads, " key heads, ", of.coded + of.newest, " tokens"),
                        seconds_of(exec, [&] { exec.run(attend, of.heads); }), 0};
    found.bytes = static_cast<double>(of.heads * c) *
                  (static_cast<double>(of.coded) * 2 * (Bits / 8.0 + 4 / 32.0) + static_cast<double>(of.newest) * 4);
    largest_error error;
    for (std::int64_t head = 0; head < of.heads; head += divide_up(of.heads, std::int64_t{16})) {
      auto const all = [&](packed_codes<Bits> const& source, auto const& newest, bool is_turned) {
        buffer<bfloat16> there(exec, (of.coded + of.newest) * c);
        matrix_view<bfloat16> const coded(there.data(), {of.coded, c});
        materialize(exec, source, is_turned ? coded.transposed() : coded);
        exec.copy(array_view<bfloat16 const>{newest.data() + head * of.newest * c, of.newest * c},
                  array_view<bfloat16>{there.data() + of.coded * c, of.newest * c});
        return here(exec, there, 0, there.size());
      };
      auto const some_k = all(keys.heads[head], newest_k, true), some_v = all(values.heads[head], newest_v, false);
      auto const some_q = here(exec, q, head * 4 * c, 4 * c), some = here(exec, results, head * 4 * c, 4 * c);
      for (std::size_t h = 0; h < 4; ++h) {
        auto const expected =
            attend_exactly<bfloat16>({some_q.data() + h * c, c}, {some_k.data(), {of.coded + of.newest, c}},
                                     {some_v.data(), {of.coded + of.newest, c}});
        for (std::size_t i = 0; i < c; ++i) {
          error.add(static_cast<double>(load(some[h * c + i])), expected.result[i]);
        }
      }
    }
    found.error = error.relative();
    return found;
  }
};

}  // namespace tessera_examples
