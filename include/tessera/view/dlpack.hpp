// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Lets views be made from DLPack tensors, which are recognised by their members' names: no header of DLPack is needed.
///
///     #include <tessera/view/dlpack.hpp>
///     matrix_view<bfloat16 const> const weights = managed->dl_tensor;   // throws unless rank, type and packing fit
///
/// Null strides mean row-major, as in old producers; `byte_offset` is honoured; strides are in elements and may be
/// negative. The tensor's device is not checked: the caller must run programs on the view only where they can read its
/// data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// DLDataType: what kind of number, and how many bits it has.
struct dlpack_type {
  int code;
  int bits;
};

/// The codes of dlpack.h, version 1.1.
inline constexpr int dlpack_int = 0;
inline constexpr int dlpack_unsigned = 1;
inline constexpr int dlpack_float = 2;
inline constexpr int dlpack_bfloat = 4;
inline constexpr int dlpack_bool = 6;
inline constexpr int dlpack_float8_e4m3fn = 10;
inline constexpr int dlpack_float8_e5m2 = 12;

template <class T>
[[nodiscard]] constexpr dlpack_type dlpack_type_of() {
  constexpr int bits = static_cast<int>(sizeof(T)) * 8;
  if constexpr (std::is_same_v<T, bfloat16>) {
    return {dlpack_bfloat, bits};
  } else if constexpr (std::is_same_v<T, float16> || std::is_floating_point_v<T>) {
    return {dlpack_float, bits};
  } else if constexpr (std::is_same_v<T, float8_e4m3>) {
    return {dlpack_float8_e4m3fn, bits};
  } else if constexpr (std::is_same_v<T, float8_e5m2>) {
    return {dlpack_float8_e5m2, bits};
  } else if constexpr (std::is_same_v<T, bool>) {
    return {dlpack_bool, bits};
  } else {
    static_assert(std::is_integral_v<T>, "tessera: DLPack has no code for this element type");
    return {std::is_signed_v<T> ? dlpack_int : dlpack_unsigned, bits};
  }
}

/// The extents, which must not be negative and whose elements must be countable in 63 bits.
template <int Rank, class Source>
void read_dlpack_extents(Source const& source, std::int64_t (&extents)[Rank]) {
  std::int64_t size = 1;
  bool is_empty = false;
  for (int r = 0; r < Rank; ++r) {
    extents[r] = static_cast<std::int64_t>(source.shape[r]);
    check<shape_error>(extents[r] >= 0, "view: extent ", r, " of the tensor is ", extents[r],
                       " but must not be negative");
    is_empty = is_empty || extents[r] == 0;
  }
  for (int r = 0; r < Rank && !is_empty; ++r) {
    size = checked_multiply("view: the tensor's size", size, extents[r]);
  }
}

template <class T, int Rank, class Source>
struct dlpack_conversion {
  [[nodiscard]] static view<T, Rank> convert(Source const& source) {
    check_type(source);
    check<shape_error>(static_cast<int>(source.ndim) == Rank, "view: the tensor has ", static_cast<int>(source.ndim),
                       " dimensions but the view has ", Rank);
    view<T, Rank> converted;
    read_dlpack_extents<Rank>(source, converted.extents);
    read_strides(source, converted);
    auto const address =
        reinterpret_cast<std::uintptr_t>(source.data) + static_cast<std::uintptr_t>(source.byte_offset);
    check<value_error>(converted.is_empty() || source.data != nullptr, "view: the tensor has ", converted.size(),
                       " elements but no data");
    check<value_error>(address % alignof(T) == 0, "view: the tensor's data lies ", address % alignof(T),
                       " bytes past a multiple of ", alignof(T));
    converted.data = reinterpret_cast<T*>(address);
    return converted;
  }

 private:
  static void check_type(Source const& source) {
    constexpr dlpack_type expected = dlpack_type_of<std::remove_cv_t<T>>();
    int const code = static_cast<int>(source.dtype.code);
    int const bits = static_cast<int>(source.dtype.bits);
    int const vector = static_cast<int>(source.dtype.lanes);
    check<value_error>(code == expected.code && bits == expected.bits,
                       "view: the tensor's elements have DLPack type code ", code, " and ", bits,
                       " bits but the view's have code ", expected.code, " and ", expected.bits, " bits");
    check<value_error>(vector == 1, "view: the tensor's elements are vectors of ", vector, " but the view's of 1");
  }
  static void read_strides(Source const& source, view<T, Rank>& converted) {
    std::uint64_t row_major = 1;  // of an empty tensor it may wrap, and then nobody uses it
    for (int r = Rank - 1; r >= 0; --r) {
      converted.strides[r] = static_cast<std::int64_t>(
          source.strides == nullptr ? row_major : static_cast<std::uint64_t>(source.strides[r]));
      row_major *= static_cast<std::uint64_t>(converted.extents[r]);
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
