// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The order in which a filtered backward pass on sm_90a takes the entries of a vocabulary, found on the CPU by the
/// library's own programs (program/loss/entry_order.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include <tessera/core/bits.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/loss/entry_order.hpp>

namespace tessera_examples {

/// The entries in that order. `matters` (blocks of 128 tokens x vocabulary, at least one block) is not 0 where an
/// element of the block in the entry's column reaches the filter's threshold.
inline std::vector<std::int32_t> entries_in_order(tessera::cpu const& exec, std::vector<unsigned char> const& matters,
                                                  std::int64_t vocabulary) {
  using tessera::loss_entry_order;
  std::int64_t const blocks = std::ssize(matters) / vocabulary;
  std::int64_t const words = tessera::divide_up(vocabulary, std::int64_t{32});
  std::vector<std::uint32_t> live(static_cast<std::size_t>(blocks * words));
  for (std::int64_t i = 0; i < blocks * vocabulary; ++i) {
    if (matters[static_cast<std::size_t>(i)] != 0) {
      std::int64_t const entry = i % vocabulary;
      live[static_cast<std::size_t>(i / vocabulary * words + entry / 32)] |= std::uint32_t{1} << entry % 32;
    }
  }
  std::int32_t const is_marked = 1;
  std::vector<std::int32_t> entry_of(static_cast<std::size_t>(vocabulary));
  std::vector<std::int32_t> slot_of(entry_of.size());
  std::vector<std::uint8_t> class_of(entry_of.size());
  std::vector<std::int32_t> counts(
      static_cast<std::size_t>(loss_entry_order::classes * loss_entry_order::groups(vocabulary)));
  std::int64_t alive = 0;
  std::int32_t dead_blocks = 0;
  std::int32_t own_order = 0;
  loss_entry_order const order{entry_of, slot_of, class_of, counts, {&alive, 1}, {&dead_blocks, 1}, {&own_order, 1}};
  tessera::class_entries const classify{{{live.data(), {blocks, words}}, {&is_marked, 1}}, order};
  exec.run(classify, classify.groups());
  tessera::scatter_entries const scatter{order};
  exec.run(scatter, scatter.groups());
  exec.wait();
  return entry_of;
}

/// Rows in an order: row s of the result is row `order[s]`.
template <class T>
std::vector<T> rows_in_order(std::vector<T> const& rows, std::vector<std::int32_t> const& order) {
  std::size_t const width = rows.size() / order.size();
  std::vector<T> result;
  result.reserve(rows.size());
  for (std::int32_t const entry : order) {
    auto const from = rows.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(entry) * width);
    result.insert(result.end(), from, from + static_cast<std::ptrdiff_t>(width));
  }
  return result;
}

/// The slot of each entry in an order.
inline std::vector<std::int32_t> slots_of(std::vector<std::int32_t> const& order) {
  std::vector<std::int32_t> slots(order.size());
  for (std::size_t slot = 0; slot < order.size(); ++slot) {
    slots[static_cast<std::size_t>(order[slot])] = static_cast<std::int32_t>(slot);
  }
  return slots;
}

/// Labels for rows in an order, whose slots are given.
template <class Label>
std::vector<Label> labels_in_order(std::vector<Label> const& labels, std::vector<std::int32_t> const& slots) {
  std::vector<Label> result;
  for (Label const label : labels) {
    result.push_back(slots[static_cast<std::size_t>(label)]);
  }
  return result;
}

}  // namespace tessera_examples
