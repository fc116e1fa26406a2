// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What examples of views call by these names: view.cmake.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/map/add_bias.hpp>
#include <tessera/map/dense_bias.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace pieces {

/// The tensors of dlpack.h, by their members' names.
struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};
struct DLTensor {
  void* data;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
};

}  // namespace pieces
