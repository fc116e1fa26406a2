// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `end_loss_forward`: all that a loss's forward pass does once the losses of tokens are known, in one launch: the loss
/// of all tokens, the check of marks, and the stamp. Three launches would take the host more time.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/program/loss/entry_marks.hpp>
#include <tessera/program/loss/finish_loss.hpp>
#include <tessera/program/loss/stamp.hpp>

namespace tessera {
inline namespace v0 {

/// Runs `finish_loss` and `stamp_loss` with a group each, and `check_loss_marks` with a group for each block of tokens.
/// None of them reads what another writes.
template <class T, class Label, class Classifier = matrix_view<T const>>
struct end_loss_forward {
  static constexpr int lanes = finish_loss::lanes;
  struct scratch_type {};
  /// The program that writes the identity of the forward pass.
  using stamp_type = stamp_loss<T, Label, Classifier>;
  static_assert(stamp_type::lanes == lanes && check_loss_marks::lanes == lanes);

  finish_loss finish;      ///< the loss of all tokens
  stamp_type stamp;        ///< the identity of the forward pass
  check_loss_marks check;  ///< the check of marks; of no blocks where there are none

  TESSERA_FN constexpr std::int64_t groups() const { return 2 + check.groups(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    if (which == 0) {
      finish_loss::scratch_type none;
      finish(group, 0, none);
    } else if (which == 1) {
      typename stamp_type::scratch_type none;
      stamp(group, 0, none);
    } else {
      check_loss_marks::scratch_type none;
      check(group, which - 2, none);
    }
  }
};

}  // namespace v0
}  // namespace tessera
