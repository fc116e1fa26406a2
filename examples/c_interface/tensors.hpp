// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tensors and memory of C as views.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <type_traits>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/view.hpp>

#include "errors.hpp"
#include "tessera_c.h"

namespace tessera_c {

template <class T>
constexpr int type_of = TESSERA_F32;
template <>
constexpr inline int type_of<tessera::float16> = TESSERA_F16;
template <>
constexpr inline int type_of<tessera::bfloat16> = TESSERA_BF16;
template <>
constexpr inline int type_of<std::int32_t> = TESSERA_I32;
template <>
constexpr inline int type_of<std::int64_t> = TESSERA_I64;

/// The name of a type in messages.
inline char const* type_name(std::int32_t type) {
  constexpr char const* names[] = {"f32", "f16", "bf16", "i32", "i64"};
  return type >= 0 && type < static_cast<std::int32_t>(std::size(names)) ? names[type] : "an unknown type";
}

/// Whether the caller gives a tensor.
inline bool is_given(tessera_tensor const& tensor) {
  return tensor.data != nullptr || tensor.rank != 0;
}

/// Throws for extents and strides that no memory can have: offsets of elements must fit.
inline void check_layout(char const* name, tessera_tensor const& tensor) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 16;
  require(tensor.rank >= 0 && tensor.rank <= TESSERA_MOST_DIMENSIONS, TESSERA_WRONG_TYPE, "the ", name, " have ",
          tensor.rank, " dimensions but must have at most ", TESSERA_MOST_DIMENSIONS);
  std::int64_t elements = 1;
  std::int64_t reach = 0;
  for (int i = 0; i < tensor.rank; ++i) {
    std::int64_t const extent = tensor.extents[i];
    std::int64_t const stride = tensor.strides[i];
    require(extent >= 0, TESSERA_SHAPE_ERROR, "dimension ", i, " of the ", name, " has ", extent,
            " elements but must have 0 or more");
    std::int64_t span = 0;
    bool const fits = stride > -most &&
                      !__builtin_mul_overflow(extent == 0 ? 0 : extent - 1, stride < 0 ? -stride : stride, &span) &&
                      !__builtin_add_overflow(reach, span, &reach) && reach < most &&
                      !__builtin_mul_overflow(elements, extent == 0 ? 1 : extent, &elements) && elements < most;
    require(fits, TESSERA_SHAPE_ERROR, "dimension ", i, " of the ", name, " has ", extent,
            " elements with a stride of ", stride, ", which no memory has");
  }
}

/// The number of elements of a tensor.
inline std::int64_t count_of(char const* name, tessera_tensor const& tensor) {
  check_layout(name, tensor);
  std::int64_t count = 1;
  for (int i = 0; i < tensor.rank; ++i) {
    count *= tensor.extents[i];
  }
  return count;
}

/// The view of a tensor, whose data may be null where only extents are asked for.
template <class T, int Rank>
tessera::view<T, Rank> planned_view(char const* name, tessera_tensor const& tensor) {
  constexpr int type = type_of<std::remove_const_t<T>>;
  require(tensor.type == type, TESSERA_WRONG_TYPE, "the ", name, " are of type ", tensor.type, " (",
          type_name(tensor.type), ") but must be of type ", type, " (", type_name(type), ")");
  require(tensor.rank == Rank, TESSERA_WRONG_TYPE, "the ", name, " have ", tensor.rank, " dimensions but must have ",
          Rank);
  check_layout(name, tensor);
  auto const beyond = reinterpret_cast<std::uintptr_t>(tensor.data) % sizeof(T);
  require(beyond == 0, TESSERA_VALUE_ERROR, "the ", name, " begin ", beyond, " bytes past a multiple of ", sizeof(T));
  tessera::view<T, Rank> made;
  made.data = static_cast<T*>(tensor.data);
  for (int i = 0; i < Rank; ++i) {
    made.extents[i] = tensor.extents[i];
    made.strides[i] = tensor.strides[i];
  }
  return made;
}

/// The view of a tensor.
template <class T, int Rank>
tessera::view<T, Rank> view_of(char const* name, tessera_tensor const& tensor) {
  tessera::view<T, Rank> const made = planned_view<T, Rank>(name, tensor);
  require(made.data != nullptr || made.is_empty(), TESSERA_NULL_POINTER, "the ", name, " have no memory but ",
          made.size(), " elements");
  return made;
}

/// The view of a tensor, or null where it is not given.
template <class T, int Rank>
tessera::view<T, Rank> view_if_given(char const* name, tessera_tensor const& tensor) {
  return is_given(tensor) ? view_of<T, Rank>(name, tensor) : tessera::view<T, Rank>{};
}

/// A tensor that is given by its address, which may be null.
inline tessera_tensor tensor_or_none(tessera_tensor const* tensor) {
  return tensor == nullptr ? tessera_tensor{} : *tensor;
}

/// Bytes of a block of memory.
inline tessera::array_view<std::byte> bytes_of(char const* name, tessera_memory memory) {
  constexpr auto most = static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max());
  require(memory.bytes <= most, TESSERA_SHAPE_ERROR, "the ", name, " has ", memory.bytes, " bytes but at most ", most,
          " can be");
  require(memory.data != nullptr || memory.bytes == 0, TESSERA_NULL_POINTER, "the ", name, " is null but has ",
          memory.bytes, " bytes");
  return {static_cast<std::byte*>(memory.data), static_cast<std::int64_t>(memory.bytes)};
}

/// A workspace of the caller's for a plan.
inline tessera::workspace workspace_in(tessera::workspace_plan const& plan, tessera_memory memory) {
  return {plan, bytes_of("workspace", memory)};
}

/// Calls use(T{}) for the type of a tensor of floats.
template <class Use>
void with_float_type(char const* name, std::int32_t type, Use const& use) {
  switch (type) {
    case TESSERA_F32:
      return use(float{});
    case TESSERA_F16:
      return use(tessera::float16{});
    case TESSERA_BF16:
      return use(tessera::bfloat16{});
    default:
      require(false, TESSERA_WRONG_TYPE, "the ", name, " are of type ", type, " (", type_name(type),
              ") but must be of type ", TESSERA_F32, " (f32), ", TESSERA_F16, " (f16) or ", TESSERA_BF16, " (bf16)");
  }
}

}  // namespace tessera_c
