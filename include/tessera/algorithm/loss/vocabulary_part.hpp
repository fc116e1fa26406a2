// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `vocabulary_part`: which entries of the vocabulary a rank has, whose rows of a classifier are spread over ranks.
///
///     tessera::vocabulary_part const part{.first = 64000, .vocabulary = 128256};     // the second of two ranks
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/check.hpp>

namespace tessera {
inline namespace v0 {

/// Which entries of the vocabulary a rank's rows of the classifier are: those from the first one on, as many as it has
/// rows, which may be none.
struct vocabulary_part {
  std::int64_t first;       ///< the entry that is the rank's first row
  std::int64_t vocabulary;  ///< entries of all ranks
};

namespace detail {

/// Throws shape_error where a rank's rows, of which there are `own`, are no part of the vocabulary.
inline void check_part(char const* function, std::int64_t own, vocabulary_part const& part) {
  check<shape_error>(part.vocabulary >= 1 && part.vocabulary <= INT32_MAX, function, ": the vocabulary has ",
                     part.vocabulary, " entries but must have 1 to ", INT32_MAX);
  check<shape_error>(part.first >= 0 && own <= part.vocabulary && part.first <= part.vocabulary - own, function,
                     ": the rank has entries ", part.first, " to ", part.first + own - 1, " but there are ",
                     part.vocabulary);
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
