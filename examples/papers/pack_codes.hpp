// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `pack_codes`: a user's own program, which makes packed_codes of matrices, and `packed_memory`, which keeps them.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/buffer.hpp>

#include "packed_codes.hpp"

namespace tessera_examples {

/// Makes codes, one group of 32 columns for each lane.
template <int Bits>
struct pack_codes {
  using codes = packed_codes<Bits>;
  static constexpr int lanes = 32;
  struct scratch_type {};
  view<bfloat16 const, 3> values;  ///< head x row x column, of any strides; columns are a multiple of 32
  packed_heads<Bits> to;
  [[nodiscard]] std::int64_t groups() const { return divide_up(to.params.size(), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      if (std::int64_t const i = which * lanes + lane; i < to.params.size()) {
        std::int64_t const row = i / to.params.extent(2), in_head = row % values.extent(1);
        std::int64_t const part = i % to.params.extent(2);
        codes const into = to[row / values.extent(1)];
        codes::group_type::encode(values[row / values.extent(1)][in_head], 32 * part, into.params(in_head, part),
                                  {&into.words(in_head, part * Bits), Bits});
      }
    }
  }
};

/// Codes of matrices in an executor's memory.
template <int Bits>
struct packed_memory {
  buffer<std::uint32_t> words;
  buffer<typename packed_codes<Bits>::params_type> params;
  packed_heads<Bits> heads;  ///< views of both

  /// Makes them. `values`: head x row x column, of any strides; columns are a multiple of 32.
  template <class Executor>
  packed_memory(Executor const& exec, view<bfloat16 const, 3> values)
      : words(exec, values.size() * Bits / 32),
        params(exec, values.size() / 32),
        heads{{words.data(), {values.extent(0), values.extent(1), values.extent(2) * Bits / 32}},
              {params.data(), {values.extent(0), values.extent(1), values.extent(2) / 32}}} {
    check<shape_error>(values.extent(2) % 32 == 0, "packed_memory: there are ", values.extent(2),
                       " columns but must be a multiple of 32");
    pack_codes<Bits> const pack{values, heads};
    exec.run(pack, pack.groups());
  }
};

}  // namespace tessera_examples
