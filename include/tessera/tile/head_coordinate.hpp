// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `head_coordinate`: the coordinate at which a box begins in heads x rows x columns (tile/cuda/sm_90/head_boxes.cuh).
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

struct head_coordinate {
  std::int32_t column;  ///< column within the head
  std::int32_t row;     ///< row within the head
  std::int32_t head;    ///< index of the head

  TESSERA_FN friend constexpr bool operator==(head_coordinate a, head_coordinate b) {
    return a.column == b.column && a.row == b.row && a.head == b.head;
  }
};

}  // namespace v0
}  // namespace tessera
