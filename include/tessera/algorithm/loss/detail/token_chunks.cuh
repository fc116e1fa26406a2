// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `token_chunks`: a backward pass for some tokens after the others, in the memory of parts of all tokens, where
/// gradients are fp32, so that those of the classifier can be added up, or where that of hidden states alone is made
/// (gradients_apart.hpp).
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/loss/linear_loss_regions.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/tuning/loss/part_costs.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

template <class Call>
struct token_chunks {
  Call const& call;

  /// Whether tokens are taken in chunks.
  [[nodiscard]] bool are_wanted() const { return call.regions.is_apart || extents().tokens < call.shape.tokens; }
  /// How many tokens are taken at a time, with how many entries in a part: all, unless something is left out, or a map
  /// knows tokens by their numbers among all.
  [[nodiscard]] loss_chunk extents() const {
    if (call.regions.is_apart) {
      return call.regions.hidden_chunk(call.shape);
    }
    loss_chunk const all{call.shape.tokens, call.regions.entries};
    bool const can_add = std::is_same_v<typename Call::gradient_type, float> &&
                         leaves_logits<typename Call::map_type> && call.regions.kept == 0 && !call.leaves_out();
    if (!can_add) {
      return all;
    }
    loss_chunk chunk = choose_loss_chunk(all.tokens, call.shape.vocabulary, call.shape.channels, all.entries);
    auto const fits = [&] {
      return call.regions.narrowed(Call::function, shape_of(chunk.tokens), chunk.entries).has_value();
    };
    while (chunk.entries > all.entries && !fits()) {
      chunk.entries -= 256;  // its lists and sums of columns take a little more memory than parts of all tokens do
    }
    return chunk.entries > all.entries ? chunk : all;
  }

  /// Calls `run` with a call for each of such chunks. Gradients of the classifier and the bias are added to earlier
  /// tokens'.
  template <class Run>
  void each(loss_chunk const& chunk, Run const& run) const {
    for (std::int64_t first = 0; first < call.shape.tokens; first += chunk.tokens) {
      linear_loss_shape const some = shape_of(min(chunk.tokens, call.shape.tokens - first));
      auto const regions = call.regions.narrowed(Call::function, some, chunk.entries);
      check<value_error>(regions.has_value(), Call::function, ": parts of ", some.tokens, " tokens and ", chunk.entries,
                         " entries have no room in the memory of parts of ", call.shape.tokens, " and ",
                         call.regions.entries);
      auto const out = out_from(first, some.tokens);
      loss_token_list tokens = call.tokens;
      tokens.row_of = {&tokens.row_of[first], some.tokens};
      run(Call{some, call.logits, rows_of(call.hidden, first, some.tokens), tokens, call.smoothing, call.has_entropies,
               call.thresholds, out, *regions, call.space, call.status, call.targets.from(first),
               call.progress.from(first)});
      call.progress.tell(first + some.tokens);
    }
  }

 private:
  [[nodiscard]] linear_loss_shape shape_of(std::int64_t tokens) const {
    return {tokens, call.shape.vocabulary, call.shape.channels};
  }
  [[nodiscard]] auto out_from(std::int64_t first, std::int64_t count) const {
    linear_loss_gradients<typename Call::gradient_type> out = call.out;
    if (out.hidden.data != nullptr) {
      out.hidden = rows_of(out.hidden, first, count);
    }
    out.accumulate_classifier = out.accumulate_classifier || first > 0;
    out.accumulate_bias = out.accumulate_bias || first > 0;
    return out;
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
