// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `head_place`: where in heads x rows x columns a box begins (tile/cuda/head_boxes.cuh).
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

struct head_place {
  std::int32_t column;  ///< of a head
  std::int32_t row;     ///< of a head
  std::int32_t head;    ///< which

  TESSERA_FN friend constexpr bool operator==(head_place a, head_place b) {
    return a.column == b.column && a.row == b.row && a.head == b.head;
  }
};

}  // namespace v0
}  // namespace tessera
