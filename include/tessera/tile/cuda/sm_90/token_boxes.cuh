// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Copies boxes of the tokens of heads by TMA (sm_90), from views of batch x heads x tokens x channels of any strides.
/// Tokens from the end of a sequence on read as zeros, also where only the device knows the end, and also where the
/// next sequence follows without padding.
///
///     if (can_map_tokens(values, 0)) {
///       token_map const map = make_token_map("dense_attention.forward", values, 0, box_shape{128, 64});
///       ...
///     }
///
/// A program that holds the map copies boxes:
///
///     token_place const place = map.place_of({.sequence = 2, .head = 3}, {.first = 0, .end = length});
///     load_token_box(shared, map, full, place, {.column = 64, .row = 256});
///
/// TMA compares each coordinate with an extent that the host has set, and writes zeros for what is beyond. An end that
/// lies elsewhere for each sequence takes two coordinates, both of which count tokens: a row r, which is below the
/// number n of tokens of the longest sequence, and an offset. Token k of a sequence that begins at `first` and has
/// `end` tokens has the row n - end + k and the offset first + end: rows are beyond n exactly if k is beyond `end`, and
/// their sum is n + first + k. So the map's address lies n tokens before the view's; nothing is read from there, unless
/// all columns of a box are beyond the channels: for such a box an H200 reports an illegal access where nothing is
/// mapped before the view, as if it read at the map's address. Programs leave such boxes out.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/check.hpp>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/tensor_map.cuh>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// A head of a sequence.
struct token_head {
  std::int32_t sequence;  ///< the first coordinate of the view
  std::int32_t head;      ///< the second coordinate of the view
};

/// The tokens of a sequence.
struct token_interval {
  std::int32_t first;  ///< where the first token lies, in tokens from the view's
  std::int32_t end;    ///< how many tokens there are; the next ones read as zeros
};

/// Coordinates of the first token of a head.
struct token_place {
  std::int32_t row;       ///< the first token's row
  std::int32_t offset;    ///< what is added to rows
  std::int32_t head;      ///< head of the sequence
  std::int32_t sequence;  ///< sequence of the view
};

/// A map of boxes of tokens, which knows where sequences end.
struct token_map {
  tensor_map boxes;     ///< the hardware's map
  std::int32_t tokens;  ///< tokens of the longest sequence

  /// Where a head's tokens lie.
  [[nodiscard]] TESSERA_FN constexpr token_place place_of(token_head of, token_interval of_sequence) const {
    return {tokens - of_sequence.end, of_sequence.first + of_sequence.end, of.head, of.sequence};
  }
};

#if !defined(__CUDACC_RTC__)  // the host makes maps
namespace detail {

/// Elements from token to token; where there is one token, which needs no stride, whole 16 bytes.
template <class T>
[[nodiscard]] std::int64_t token_stride(head_view<T> const& heads, std::int64_t packed_tokens) {
  constexpr auto chunk = static_cast<std::int64_t>(16 / sizeof(T));
  return heads.extent(2) == 1 && packed_tokens == 0 ? (heads.extent(3) + chunk - 1) / chunk * chunk : heads.stride(2);
}

/// Makes a map by the driver, for make_token_map().
template <class T>
[[nodiscard]] tensor_map encode_token_map(char const* function, head_view<T> const& heads, std::int64_t packed_tokens,
                                          box_shape box) {
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(T));
  std::int64_t const row = token_stride(heads, packed_tokens) * bytes;
  auto const stride_of = [&](int dimension) {
    return static_cast<cuuint64_t>(
        heads.extent(dimension) == 1 || heads.stride(dimension) == 0 ? row : heads.stride(dimension) * bytes);
  };
  std::int64_t const sequences = packed_tokens > 0 ? 1 : heads.extent(0);
  cuuint64_t const extents[5] = {static_cast<cuuint64_t>(heads.extent(3)), static_cast<cuuint64_t>(heads.extent(2)),
                                 static_cast<cuuint64_t>(heads.extent(2) + packed_tokens + 1),
                                 static_cast<cuuint64_t>(heads.extent(1)), static_cast<cuuint64_t>(sequences)};
  auto const stride = static_cast<cuuint64_t>(row);
  cuuint64_t const strides[4] = {stride, stride, stride_of(1), stride_of(0)};
  cuuint32_t const sizes[5] = {static_cast<cuuint32_t>(box.columns), static_cast<cuuint32_t>(box.rows), 1, 1, 1};
  cuuint32_t const steps[5] = {1, 1, 1, 1, 1};
  auto const address =
      reinterpret_cast<std::uintptr_t>(heads.data) - static_cast<std::uintptr_t>(heads.extent(2) * row);
  tensor_map made{};
  CUresult const result = encode_tiled_of_driver(function)(
      &made.map, tensor_map_type<std::remove_const_t<T>>(), 5, reinterpret_cast<void*>(address), extents, strides,
      sizes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, tensor_map_l2,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw device_error(join(function, ": cuTensorMapEncodeTiled refused ", heads.extent(0), " x ", heads.extent(1),
                            " heads of ", heads.extent(2), " x ", heads.extent(3), " with boxes of ", box.rows, " x ",
                            box.columns, " (CUresult ", static_cast<int>(result), ")"),
                       static_cast<int>(cudaErrorInvalidValue));
  }
  return made;
}

}  // namespace detail

/// Whether TMA can address heads: channels lie next to each other, and tokens, heads and sequences begin at multiples
/// of 16 bytes. `packed_tokens`: where sequences lie one behind the other, at a stride of 0, the tokens of all of them;
/// else 0. Empty views have no map.
template <class T>
[[nodiscard]] bool can_map_tokens(head_view<T> const& heads, std::int64_t packed_tokens) {
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(T));
  constexpr std::int64_t most = std::int64_t{1} << 30;
  constexpr std::int64_t most_stride = std::int64_t{1} << 40;
  auto const address = reinterpret_cast<std::uintptr_t>(heads.data);
  bool fits = !heads.is_empty() && address % 16 == 0 && (heads.stride(3) == 1 || heads.extent(3) == 1) &&
              packed_tokens >= 0 && packed_tokens < most;
  for (int dimension = 0; dimension < 4; ++dimension) {
    fits = fits && heads.extent(dimension) < most;
  }
  auto const is_stride = [](std::int64_t stride) {
    return stride > 0 && stride * bytes % 16 == 0 && stride < most_stride / bytes;
  };
  bool const has_sequences = packed_tokens > 0 ? heads.stride(0) == 0 || heads.extent(0) == 1
                                               : heads.extent(0) == 1 || is_stride(heads.stride(0));
  std::int64_t const row = fits ? detail::token_stride(heads, packed_tokens) : 0;
  return fits && is_stride(row) && has_sequences && (heads.extent(1) == 1 || is_stride(heads.stride(1))) &&
         static_cast<std::uintptr_t>(heads.extent(2) * row * bytes) < address;
}

/// Makes the map, or finds the one that this thread has made. Messages name `function`. Throws value_error for heads
/// that cannot be mapped or a box that is not valid.
template <class T>
[[nodiscard]] token_map make_token_map(char const* function, head_view<T> const& heads, std::int64_t packed_tokens,
                                       box_shape box) {
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(T));
  check<value_error>(can_map_tokens(heads, packed_tokens), function, ": heads of ", heads.extent(2), " x ",
                     heads.extent(3), " with strides ", heads.stride(0), ", ", heads.stride(1), ", ", heads.stride(2),
                     " and ", heads.stride(3),
                     " cannot be copied by boxes: tokens must begin at multiples of 16 bytes");
  check<value_error>(box.rows > 0 && box.rows <= 256, function, ": a box has ", box.rows, " rows but takes 1 to 256");
  check<value_error>(box.columns > 0 && box.columns * bytes <= 128 && box.columns * bytes % 16 == 0, function,
                     ": a row of a box has ", box.columns * bytes, " bytes but takes 16, 32, ... 128");
  detail::tensor_map_key key{};
  key.words[0] = reinterpret_cast<std::uintptr_t>(heads.data);
  auto const word = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  key.words[1] = word(heads.extent(0)) << 32 | word(heads.extent(1));
  key.words[2] = word(heads.extent(2)) << 32 | word(heads.extent(3));
  for (int dimension = 0; dimension < 3; ++dimension) {
    key.words[3 + dimension] = word(heads.stride(dimension));
  }
  key.words[6] = word(packed_tokens);
  key.words[7] = word(box.rows) << 32 | word(box.columns);
  constexpr std::uint64_t type = detail::tensor_map_type<std::remove_const_t<T>>();
  key.words[8] = type << 16 | std::uint64_t{4};  // key_of_map() has 2 or 3 there
  return {
      detail::remembered_tensor_map(key, [&] { return detail::encode_token_map(function, heads, packed_tokens, box); }),
      static_cast<std::int32_t>(heads.extent(2))};
}

#endif  // !defined(__CUDACC_RTC__)

/// Copies a box from global to shared memory. `from`: a channel that there is, and a token of the sequence. `done`
/// counts the box's bytes, also those of zeros.
__device__ __forceinline__ void load_token_box(void* shared, token_map const& map, shared_barrier& done,
                                               token_place const& place, box_coordinate from) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], "
      "[%2];" ::"r"(detail::plain_shared_address(shared)),
      "l"(&map.boxes), "r"(detail::plain_shared_address(&done)), "r"(from.column), "r"(place.row + from.row),
      "r"(place.offset), "r"(place.head), "r"(place.sequence)
      : "memory");
}

}  // namespace v0
}  // namespace tessera
