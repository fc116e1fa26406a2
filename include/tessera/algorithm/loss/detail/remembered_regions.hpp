// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What a thread remembers of its last calls of a loss: `remembered_search` the number of entries of a part, and
/// `remembered_regions` the regions of a workspace.
#pragma once

#include <cstdint>
#include <optional>

#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// What a backward pass knows of the vocabulary's entries beforehand: nothing, since all of them are used; the same for
/// a map of logits, which knows tokens by their numbers among all; marks of those that may matter; or marks, by which
/// the executor takes entries in another order.
enum class loss_entry_use { all, mapped, marked, ordered };

/// Whether there are marks.
constexpr bool has_marks(loss_entry_use use) {
  return use == loss_entry_use::marked || use == loss_entry_use::ordered;
}

/// Entries whose softmaxes are kept, and where the references of these lie (program/loss/kept_softmaxes.hpp).
struct kept_entries {
  std::int64_t count;
  bool in_signs;  ///< in the signs of softmaxes, which take no memory

  constexpr kept_entries(std::int64_t number = 0, bool has_references_in_signs = false)
      : count(number), in_signs(has_references_in_signs) {}
  friend constexpr bool operator==(kept_entries const&, kept_entries const&) = default;
};

/// The parameters of the search for the number of entries in a part.
struct loss_part_search {
  linear_loss_shape shape;
  kept_entries kept;
  std::int64_t budget;  ///< bytes that the workspace may have
  loss_entry_use use;   ///< which memory there is for entries that may matter

  /// Whether all members are equal.
  friend bool operator==(loss_part_search const& a, loss_part_search const& b) {
    return a.shape.tokens == b.shape.tokens && a.shape.vocabulary == b.shape.vocabulary &&
           a.shape.channels == b.shape.channels && a.kept == b.kept && a.budget == b.budget && a.use == b.use;
  }
};

/// The result of a thread's last search. Both passes of all steps of a training loop repeat it, and it plans a
/// workspace a dozen times.
struct remembered_search {
  loss_part_search of = {};
  std::int64_t found = -1;  ///< -1: there was no search

  /// The result of `search`, a function of `what` alone.
  template <class Search>
  std::int64_t get(loss_part_search const& what, Search const& search) {
    if (found < 0 || !(of == what)) {
      found = -1;  // stays, where the search throws
      std::int64_t const result = search();
      of = what;
      found = result;
    }
    return found;
  }
};

/// The regions of a thread's last call, as they follow from `what` and the type alone. Without it planning
/// is nearly half of what a call does on the host beside its launches, and all steps of a training loop repeat it.
template <class Regions>
class remembered_regions {
 public:
  /// A copy of the regions that `plan()` makes for `what`, so that calls made within this call change nothing of it.
  template <class Plan>
  Regions get(loss_part_search const& what, Plan const& plan) {
    if (!found_ || !(of_ == what)) {
      found_.reset();  // stays so, where the plan throws
      found_.emplace(plan());
      of_ = what;
    }
    return *found_;
  }

 private:
  loss_part_search of_ = {};
  std::optional<Regions> found_;
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
