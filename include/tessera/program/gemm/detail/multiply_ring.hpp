// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `multiply_ring<M>`: adds the product a b^T of two operands that pass through a ring of stages in scratch to the sums
/// of a TileMma. While a stage is multiplied, later ones are on their way, and the operands of the next product are
/// loaded to where they are multiplied from.
///
/// The ring is an `operand_ring` in scratch; begin(step, stage) starts to fill a stage by AsyncSources, as that of
/// pipelined() does (tile/pipelined.hpp).
///
/// It is pipelined() with multiply_staged() as its body, but that a step's first operands are loaded before the last
/// product of the step before, so that no warp waits for them behind the sync. That takes twice the registers for
/// operands.
#pragma once

#include <tessera/concepts/tile_mma.hpp>
#include <tessera/config.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/tile/copies_in_flight.hpp>
#include <tessera/tile/multiply_staged.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Stages of two operands. A, B: tiles in scratch, as multiply_staged() takes them.
template <class A, class B, int Stages>
struct operand_ring {
  static_assert(Stages >= 2, "tessera: a ring has at least two stages: one is used while another is filled");

  A a[Stages];  ///< rows of a
  B b[Stages];  ///< rows of b, the columns of the product
};

/// The operands of a product.
template <class M>
struct operand_tiles {
  typename M::a_tile a;
  typename M::b_tile b;

  /// Loads those from column `column` of a stage on.
  template <class A, class B>
  TESSERA_FN void load(typename M::group_type const& group, A const& from_a, B const& from_b, int column) {
    load_a_of<M>(group, a, from_a, column);
    load_b_transposed_of<M>(group, b, from_b, column);
  }
};

/// All lanes reach this call. begin(step, stage) starts to fill a stage; beyond the last step, too, where a source
/// fills zeros, so that no warp branches. Products are added from the first to the last column of each step. After the
/// call scratch may still be read by other lanes, and zeros may be on their way to it.
template <TileMma M, class A, class B, int Stages, class Begin>
TESSERA_FN void multiply_ring(typename M::group_type const& group, operand_ring<A, B, Stages> const& ring, int steps,
                              Begin const& begin, typename M::sum_tile& sums) {
  using copies = copies_in_flight<typename M::group_type>;
  static_assert(
      A::rows == M::rows && B::rows == M::columns && A::columns == B::columns && A::columns % (2 * M::depth) == 0,
      "tessera: the ring's tiles have the extents of the product, and an even number of its depths");
  constexpr int products = A::columns / M::depth;  // of a step
  auto const fill = [&](int step, int stage) {
    begin(step, stage);
    copies::commit();
  };
  auto const await_step = [&] {
    copies::template await<Stages - 2>();
    group.sync();  // other lanes' copies have come, too, and all have loaded what the stage before has
  };
  for (int step = 0; step < Stages - 1; ++step) {
    fill(step, step);
  }
  await_step();
  operand_tiles<M> operands[2];
  if (steps > 0) {
    operands[0].load(group, ring.a[0], ring.b[0], 0);
  }
  int stage = 0;
  for (int step = 0; step < steps; ++step) {
    int const next = stage + 1 < Stages ? stage + 1 : 0;
    fill(step + Stages - 1, stage > 0 ? stage - 1 : Stages - 1);
    each_constant<products>([&](auto i) {
      if constexpr (i.value + 1 < products) {
        operands[(i.value + 1) % 2].load(group, ring.a[stage], ring.b[stage], (i.value + 1) * M::depth);
      } else {
        await_step();
        if (step + 1 < steps) {
          operands[0].load(group, ring.a[next], ring.b[next], 0);
        }
      }
      M::multiply(group, operands[i.value % 2].a, operands[i.value % 2].b, sums);
    });
    stage = next;
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
