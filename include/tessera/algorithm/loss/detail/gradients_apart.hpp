// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `gradients_apart`: the gradients of a loss in a workspace that is apart: that has no room for the lower halves of
/// sums of all tokens' gradients, which have 16 bits.
///
/// What is not written yet of the gradient of the classifier is memory like any other. Its last rows hold the gradient
/// by the logits of a large part and the lower halves, while the entries before them get both gradients. Then hidden
/// states get what these last entries add, and are whole. Last the classifier gets its own last rows, in parts that
/// become smaller with the rows behind them. So only the logits of the last rows are made twice: of 8192 tokens and
/// Gemma 2's classifier (V 256000, D 2304) 15 %, of Llama 3's (V 128256, D 4096) 18 %. That is 4 % more than the
/// 8 N V D operations of both passes. On an H200, in turns with 160 MiB and the same errors: 62.1 ms for 57.2, and 58.6
/// for 53.6 (1.09 times as long); fp32 gradients in 10 MiB, which are made once, take 61.4 and 54.4.
///
/// Where the classifier's gradient is not wanted, has gaps between its rows or is too small, the gradient of hidden
/// states is made of some tokens after the others, with lower halves of these alone, after that of the classifier, for
/// which logits are made once more: 10 N V D operations. Without the classifier's gradient that is 111.6 ms for 43.9,
/// and 82.0 for 40.8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <tessera/algorithm/loss/detail/lent_memory.hpp>
#include <tessera/algorithm/loss/hidden_progress.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The calls for the gradients of one call. Call: a loss_gradient_call.
template <Executor Exec, class Call>
struct gradients_apart {
  using regions_type = typename Call::regions_type;
  using value_type = typename Call::value_type;
  using gradient_type = typename Call::gradient_type;
  using memory = lent_gradient_memory<value_type>;
  static constexpr std::int64_t step = regions_type::tile_columns;

  Exec const& exec;
  Call const& call;

  /// Enqueues all gradients.
  void make_all() const {
    std::int64_t const entries =
        is_dense(call.out.classifier) && !call.out.accumulate_classifier ? regions_type::lent_entries(call.shape) : 0;
    if (entries > 0) {
      return make_in_classifier(entries);
    }
    if (call.out.classifier.data != nullptr || call.out.bias.data != nullptr) {
      make_in_hidden();
    }
    if (wants_hidden()) {
      make(call.regions, true, false, call.progress);
    }
  }

 private:
  [[nodiscard]] bool wants_hidden() const { return call.out.hidden.data != nullptr; }
  [[nodiscard]] lent_gradient_sizes<value_type> sizes() const {
    return {call.shape.tokens, call.regions.row_tiles, regions_type::row_stride(call.shape)};
  }

  /// Whether there is a gradient, and all memory from its first to its last row is its own.
  static bool is_dense(matrix_view<gradient_type> const& target) {
    return target.data != nullptr && target.stride(0) == target.extent(1) && target.stride(1) == 1;
  }
  static std::byte* row_of(matrix_view<gradient_type> const& target, std::int64_t row) {
    return reinterpret_cast<std::byte*>(target.data + row * target.stride(0));
  }

  /// Makes gradients where the last rows of the classifier's are lent, of as many entries a part at most.
  void make_in_classifier(std::int64_t entries) const {
    std::int64_t const vocabulary = call.shape.vocabulary;
    std::int64_t const own = wants_hidden() ? sizes().remains() : 0;
    std::int64_t const bytes =
        own + sizes().gradient(entries) + sizes().column_sums(entries) + workspace_plan::alignment;
    std::int64_t const lent_row = vocabulary - divide_up(bytes, row_bytes());
    std::int64_t const last_rows = lent_row / entries * entries;
    memory lent = lent_from(lent_row, entries);
    auto* const end = reinterpret_cast<std::byte*>(lent.column_sums) + sizes().column_sums(entries);
    lent.remains = reinterpret_cast<std::uint16_t*>(end);
    regions_type const parts = in(lent, entries);
    if (last_rows > 0) {
      make(parts.between(0, last_rows), true, true, {});
    }
    if (wants_hidden()) {
      make(parts.between(last_rows, vocabulary), true, false, call.progress);
      call.progress.tell(call.shape.tokens);
    }
    make_last_rows(last_rows, entries);
  }

  /// Makes the classifier's gradient from row `first` on: a part of so many entries at most, in the rows behind it.
  void make_last_rows(std::int64_t first, std::int64_t entries) const {
    std::int64_t const vocabulary = call.shape.vocabulary;
    for (;;) {
      std::int64_t const some = min(entries_before(vocabulary - first), entries);
      if (some <= call.regions.entries) {
        return make(in_own_memory().between(first, vocabulary), false, true, {});
      }
      make(in(lent_from(first + some, some), some).between(first, first + some), false, true, {});
      first += some;
    }
  }

  /// Makes the classifier's gradient in the memory of that of hidden states, where that holds more than the workspace.
  void make_in_hidden() const {
    std::int64_t const entries = min(call.shape.channels, call.shape.vocabulary) / step * step;
    auto* const first = row_of(call.out.hidden, 0);
    bool const is_aligned = reinterpret_cast<std::uintptr_t>(first) % 16 == 0;
    bool const has_sums = sizes().column_sums(entries) <= sizes().gradient(call.regions.entries);
    if (is_dense(call.out.hidden) && is_aligned && has_sums && entries > call.regions.entries) {
      auto* const sums = reinterpret_cast<float*>(call.space[call.regions.gradient].data);
      return make(in({reinterpret_cast<value_type*>(first), nullptr, sums}, entries), false, true, {});
    }
    make(in_own_memory(), false, true, {});
  }

  [[nodiscard]] std::int64_t row_bytes() const {
    return call.shape.channels * static_cast<std::int64_t>(sizeof(gradient_type));
  }
  /// How many of the classifier's last rows get their gradient by what lies in the rows behind them.
  [[nodiscard]] std::int64_t entries_before(std::int64_t rows) const {
    std::int64_t const bytes = rows * row_bytes() - 3 * workspace_plan::alignment;
    return max(bytes, std::int64_t{0}) / (row_bytes() + sizes().bytes_of_entry()) / step * step;
  }
  /// Memory for so many entries that begins with a row of the classifier's gradient, or a little behind its beginning.
  [[nodiscard]] memory lent_from(std::int64_t row, std::int64_t entries) const {
    std::byte* const begin = row_of(call.out.classifier, row);
    auto const address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin) %
                                                   static_cast<std::uintptr_t>(workspace_plan::alignment));
    std::byte* const first = begin + (whole_lines(address) - address);
    return {reinterpret_cast<value_type*>(first), nullptr, reinterpret_cast<float*>(first + sizes().gradient(entries))};
  }
  [[nodiscard]] regions_type in(memory const& lent, std::int64_t entries) const {
    std::optional<regions_type> const made = call.regions.narrowed(Call::function, call.shape, entries, lent);
    check<value_error>(made.has_value(), Call::function, ": parts of ", entries,
                       " entries have no room in the memory of parts of ", call.regions.entries);
    return *made;
  }
  [[nodiscard]] regions_type in_own_memory() const {
    auto const& regions = call.regions;
    return in({call.space[regions.gradient].data, nullptr, call.space[regions.column_sums].data}, regions.entries);
  }

  /// Enqueues the gradients of hidden states, or of the classifier and the bias, or all, of the entries of `regions`.
  void make(regions_type const& regions, bool of_hidden, bool of_classifier, hidden_progress const& progress) const {
    linear_loss_gradients<gradient_type> out = call.out;
    if (!of_hidden) {
      out.hidden = {};
    }
    if (!of_classifier) {
      out.classifier = {};
      out.bias = {};
    }
    run(exec, Call{call.shape, call.logits, call.hidden, call.tokens, call.smoothing, call.has_entropies,
                   call.thresholds, out, regions, call.space, call.status, call.targets, progress});
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
