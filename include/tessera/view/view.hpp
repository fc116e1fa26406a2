// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `view<T, Rank>`: where a tensor's elements lie: a pointer, extents, and strides in elements.  It owns nothing, is
/// passed by value, and works on both sides.
///
///     std::vector<float> numbers(12);
///     view<float, 2> matrix(numbers.data(), {3, 4});      // row-major
///     matrix(2, 3) = 1.0f;
///     view<float const, 1> row = matrix[2];                // the last row, read only
///     view<float, 1> column = matrix.transposed()[3];      // stride 4
///
/// It converts from contiguous containers (rank 1), from whatever looks like `std::mdspan`, and, once `view/dlpack.hpp`
/// is included, from whatever looks like a DLPack tensor.  All offsets are 64-bit.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

template <class T, int Rank>
struct view;

namespace detail {

template <class From, class To>
concept same_but_for_const = std::is_convertible_v<From (*)[], To (*)[]>;

template <class T>
inline constexpr bool is_view = false;
template <class T, int Rank>
inline constexpr bool is_view<view<T, Rank>> = true;

/// A DLPack tensor by its members' names; see view/dlpack.hpp.
template <class Source>
concept dlpack_like = requires(Source const& s) {
  s.data;
  s.ndim;
  s.shape[0];
  s.strides;
  s.dtype.code;
  s.byte_offset;
};

/// Defined in view/dlpack.hpp.
template <class T, int Rank, class Source>
struct dlpack_conversion;

}  // namespace detail

/// Elements of `Source` lie one after the other and can be seen as `T`.
// clang-format off
template <class Source, class T>
concept ContiguousContainer =
    (!detail::is_view<std::remove_cvref_t<Source>>
        || because<"a view is not a container: it converts by its own rules">) &&
    (requires(Source& s) { { s.size() } -> std::convertible_to<std::size_t>; }
        || because<"a ContiguousContainer has size()">) &&
    (requires(Source& s) { requires detail::same_but_for_const<std::remove_pointer_t<decltype(s.data())>, T>; }
        || because<"a ContiguousContainer has data(), a pointer to elements of the view's own type">);
// clang-format on

/// `Source` describes `Rank` strided dimensions the way `std::mdspan` does.
// clang-format off
template <class Source, class T, int Rank>
concept MdspanLike =
    (requires { requires static_cast<int>(Source::rank()) == Rank; }
        || because<"an MdspanLike has rank(), a constant, as many dimensions as the view">) &&
    (requires(Source const& s) { { s.extent(0) } -> std::convertible_to<std::int64_t>; }
        || because<"an MdspanLike has extent(r)">) &&
    (requires(Source const& s) { { s.stride(0) } -> std::convertible_to<std::int64_t>; }
        || because<"an MdspanLike has stride(r), in elements">) &&
    (requires(Source const& s) {
       requires detail::same_but_for_const<std::remove_pointer_t<decltype(s.data_handle())>, T>;
     }
        || because<"an MdspanLike has data_handle(), a pointer to elements of the view's own type">);
// clang-format on

template <class T, int Rank>
struct view {
  static_assert(Rank >= 1 && Rank <= 8, "tessera: a view has 1 to 8 dimensions");
  /// T, with its const.
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  static constexpr int rank = Rank;  ///< dimensions

  T* data = nullptr;             ///< the element at index 0 of every dimension
  std::int64_t extents[Rank]{};  ///< of each dimension, not negative
  std::int64_t strides[Rank]{};  ///< in elements; may be zero or negative

  constexpr view() = default;

  /// Row-major: the last dimension is contiguous.
  TESSERA_FN constexpr view(T* first, std::int64_t const (&sizes)[Rank]) : data(first) {
    std::int64_t stride = 1;
    for (int r = Rank - 1; r >= 0; --r) {
      extents[r] = sizes[r];
      strides[r] = stride;
      stride *= sizes[r];
    }
  }
  /// Any strides, in elements.
  TESSERA_FN constexpr view(T* first, std::int64_t const (&sizes)[Rank], std::int64_t const (&steps)[Rank])
      : data(first) {
    for (int r = 0; r < Rank; ++r) {
      extents[r] = sizes[r];
      strides[r] = steps[r];
    }
  }
  /// `size` contiguous elements.
  TESSERA_FN constexpr view(T* first, std::int64_t size) requires(Rank == 1) : data(first), extents{size}, strides{1} {}

  /// Elements that may be changed as elements to be read.
  template <class U>
  requires(!std::same_as<U, T> && detail::same_but_for_const<U, T>) TESSERA_FN constexpr view(view<U, Rank> other)
      : data(other.data) {
    for (int r = 0; r < Rank; ++r) {
      extents[r] = other.extents[r];
      strides[r] = other.strides[r];
    }
  }
  /// A container that may be changed; the view is valid as long as its elements stay where they are.
  template <ContiguousContainer<T> Container>
  requires(Rank == 1 && !MdspanLike<Container, T, Rank>) constexpr view(Container& container)
      : view(container.data(), static_cast<std::int64_t>(container.size())) {}
  /// A container to be read, which may be a temporary of the same full expression.
  template <ContiguousContainer<T> Container>
  requires(Rank == 1 && std::is_const_v<T> &&
           !MdspanLike<Container, T, Rank>) constexpr view(Container const& container)
      : view(container.data(), static_cast<std::int64_t>(container.size())) {}

  /// From what looks like std::mdspan, with its extents and strides.
  template <MdspanLike<T, Rank> Source>
  constexpr view(Source const& source) : data(source.data_handle()) {
    for (int r = 0; r < Rank; ++r) {
      extents[r] = static_cast<std::int64_t>(source.extent(static_cast<unsigned>(r)));
      strides[r] = static_cast<std::int64_t>(source.stride(static_cast<unsigned>(r)));
    }
  }
  /// Checks the element type, the rank, the extents and the packing; throws `shape_error` or `value_error`.
  template <detail::dlpack_like Source>
  view(Source const& source) : view(detail::dlpack_conversion<T, Rank, Source>::convert(source)) {}

  /// Indices of dimension `r`.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t extent(int r) const { return extents[r]; }
  /// Elements from one index of dimension `r` to the next.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t stride(int r) const { return strides[r]; }

  /// How many elements there are in all.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t size() const {
    if (is_empty()) {
      return 0;
    }
    std::int64_t product = 1;
    for (int r = 0; r < Rank; ++r) {
      product *= extents[r];
    }
    return product;
  }
  /// Whether a dimension has no indices.
  [[nodiscard]] TESSERA_FN constexpr bool is_empty() const {
    for (std::int64_t extent : extents) {
      if (extent == 0) {
        return true;
      }
    }
    return false;
  }

  /// Whether the elements lie one after the other in row-major order.
  [[nodiscard]] TESSERA_FN constexpr bool is_contiguous() const {
    if (is_empty()) {
      return true;
    }
    std::int64_t expected = 1;
    for (int r = Rank - 1; r >= 0; --r) {
      if (extents[r] != 1 && strides[r] != expected) {
        return false;
      }
      expected *= extents[r];
    }
    return true;
  }

  /// How many elements past `data` the element at `indices` lies.
  template <std::convertible_to<std::int64_t>... Indices>
  requires(sizeof...(Indices) == Rank) [[nodiscard]] TESSERA_FN constexpr std::int64_t
      offset(Indices... indices) const {
    std::int64_t const at[Rank]{static_cast<std::int64_t>(indices)...};
    std::int64_t elements = 0;
    for (int r = 0; r < Rank; ++r) {
      elements += at[r] * strides[r];
    }
    return elements;
  }
  /// The element at `indices`, unchecked.
  template <std::convertible_to<std::int64_t>... Indices>
  requires(sizeof...(Indices) == Rank) [[nodiscard]] TESSERA_FN constexpr T& operator()(Indices... indices) const {
    return data[offset(indices...)];
  }

  /// The element `i` of a list; of anything else the part with first index `i`, which has one dimension less.
  [[nodiscard]] TESSERA_FN constexpr decltype(auto) operator[](std::int64_t i) const {
    if constexpr (Rank == 1) {
      return (data[i * strides[0]]);
    } else {
      view<T, Rank - 1> part;
      part.data = data + i * strides[0];
      for (int r = 1; r < Rank; ++r) {
        part.extents[r - 1] = extents[r];
        part.strides[r - 1] = strides[r];
      }
      return part;
    }
  }

  /// The `count` indices from `first` on of one dimension.
  [[nodiscard]] TESSERA_FN constexpr view slice(int dimension, std::int64_t first, std::int64_t count) const {
    view part = *this;
    part.data = data + first * strides[dimension];
    part.extents[dimension] = count;
    return part;
  }

  /// A view of the same elements with two dimensions exchanged.
  [[nodiscard]] TESSERA_FN constexpr view transposed(int a = 0, int b = Rank - 1) const {
    view turned = *this;
    turned.extents[a] = extents[b];
    turned.extents[b] = extents[a];
    turned.strides[a] = strides[b];
    turned.strides[b] = strides[a];
    return turned;
  }
};

/// A list.
template <class T>
view(T*, std::int64_t) -> view<T, 1>;
/// Row-major.
template <class T, int Rank>
view(T*, std::int64_t const (&)[Rank]) -> view<T, Rank>;
/// With strides.
template <class T, int Rank>
view(T*, std::int64_t const (&)[Rank], std::int64_t const (&)[Rank]) -> view<T, Rank>;

}  // namespace v0
}  // namespace tessera
