// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Checks of what is spread over ranks.
#pragma once

#include <cstdint>

#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/config.hpp>
#include <tessera/core/check.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Throws shape_error where a rank's rows, of which there are `own`, are no part of the vocabulary.
inline void check_part(char const* function, std::int64_t own, vocabulary_part const& part) {
  check<shape_error>(part.vocabulary >= 1 && part.vocabulary <= INT32_MAX, function, ": the vocabulary has ",
                     part.vocabulary, " entries but must have 1 to ", INT32_MAX);
  check<shape_error>(part.first >= 0 && own <= part.vocabulary && part.first <= part.vocabulary - own, function,
                     ": the rank has entries ", part.first, " to ", part.first + own - 1, " but there are ",
                     part.vocabulary);
}
/// Throws value_error for a number of ranks that cannot be.
inline void check_ranks(char const* function, std::int64_t ranks) {
  check<value_error>(ranks >= 1, function, ": there are ", ranks, " ranks but must be 1 or more");
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
