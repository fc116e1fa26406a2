// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <tessera/algorithm/offloaded_cache.hpp>
#include <tessera/project/low_rank.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>

namespace tessera {
inline namespace v0 {

/// The paper's method with its parameters; landmark_selector's `chunks` (256) is how many chunks a head selects.
using shadow_kv = offloaded_cache<low_rank_projector<160>, landmark_selector<8>, keep_outliers<48>>;

}  // namespace v0
}  // namespace tessera
