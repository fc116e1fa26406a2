// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `tensor_map`: how TMA (sm_90) finds boxes of a matrix: where the matrix lies, how large it is, and how a box lies in
/// shared memory.
///
///     if (can_map(matrix)) {
///       tensor_map const map = make_tensor_map("linear", matrix, box_shape{.rows = 128, .columns = 64});
///       exec.run(program{.map = map}, tiles);           // a program holds maps by value
///     }
///
/// The driver makes maps (cuTensorMapEncodeTiled). It is found at run time, so there is nothing to link. Elements of a
/// box outside of the matrix read as zeros and are not written (but see store_box). Boxes lie swizzled by 128 bytes:
/// the 16 bytes number c of row r are at 128 r + 16 (c ^ (r % 8)). Boxes with 64 bytes a row can be swizzled by 64
/// bytes for wgmma instead, see box_swizzle.
///
/// A map depends on the matrix's address, extents and strides, on its type and on the box, and not on what the memory
/// holds. So each thread keeps the maps that it made last, and calls that are repeated with the same memory neither
/// check it nor ask the driver again.
#pragma once

#if !defined(__CUDACC_RTC__)
#include <cuda.h>
#include <cuda_runtime_api.h>
#endif

#include <cstdint>
#include <type_traits>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

struct tensor_map {
#if defined(__CUDACC_RTC__)  // NVRTC does not read the driver's header
  alignas(64) std::uint64_t map[16];
#else
  CUtensorMap map;  ///< the driver's map, opaque
#endif
};

/// The box that one copy moves. A row of it is at most 128 bytes, a multiple of 16.
struct box_shape {
  int rows;     ///< rows of the box
  int columns;  ///< columns of the box; a row has at most 128 bytes
};

/// How many bytes a swizzle permutes: for operands of wgmma, as many as a row of the box has.
enum class box_swizzle { bytes_128, bytes_64 };

#if !defined(__CUDACC_RTC__)  // the host makes maps

/// How L2 fetches boxes that are read: 256 bytes at a time where rows are long.
inline constexpr CUtensorMapL2promotion tensor_map_l2 = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;

namespace detail {

template <class T>
constexpr CUtensorMapDataType tensor_map_type() {
  if constexpr (std::is_same_v<T, float>) {
    return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return CU_TENSOR_MAP_DATA_TYPE_INT32;
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  } else if constexpr (std::is_same_v<T, float16>) {
    return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  } else {
    static_assert(sizeof(T) == 1, "tessera: tensor maps are for elements of 1, 2 or 4 bytes");
    return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
}

constexpr CUtensorMapSwizzle tensor_map_swizzle(box_swizzle swizzle) {
  return swizzle == box_swizzle::bytes_128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
}

using encode_tiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, cuuint64_t const*,
                                  cuuint64_t const*, cuuint32_t const*, cuuint32_t const*, CUtensorMapInterleave,
                                  CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/// The driver's function; throws device_error when the driver has no such function.
inline encode_tiled find_encode_tiled(char const* function) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  constexpr unsigned introduced = 12000;  // CUDA 12.0
  cudaError_t const result =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, introduced, cudaEnableDefault, &found);
  if (result != cudaSuccess || found != cudaDriverEntryPointSuccess || entry == nullptr) {
    throw device_error(join(function, ": the driver has no cuTensorMapEncodeTiled (", cudaGetErrorName(result), ")"),
                       static_cast<int>(result));
  }
  return reinterpret_cast<encode_tiled>(entry);
}

/// The driver's function, looked up once in a process: a call makes a dozen maps.
inline encode_tiled encode_tiled_of_driver(char const* function) {
  static encode_tiled const found = find_encode_tiled(function);
  return found;
}

/// All that a map depends on, in words.
struct tensor_map_key {
  static constexpr int size = 9;
  std::uint64_t words[size];

  /// Whether all words are equal; without a branch for each.
  friend bool operator==(tensor_map_key const& a, tensor_map_key const& b) {
    std::uint64_t differing = 0;
    for (int i = 0; i < size; ++i) {
      differing |= a.words[i] ^ b.words[i];
    }
    return differing == 0;
  }
};

/// The key of the map of a matrix, or of a list of matrices. Its last word is not 0.
template <class T, int Rank>
tensor_map_key key_of_map(view<T, Rank> const& of, box_shape box, box_swizzle swizzle) {
  static_assert(Rank == 2 || Rank == 3, "tessera: tensor maps are of matrices, or of lists of matrices");
  constexpr std::uint64_t type = tensor_map_type<std::remove_const_t<T>>();
  tensor_map_key key{};
  key.words[0] = reinterpret_cast<std::uintptr_t>(of.data);
  for (int r = 0; r < Rank; ++r) {
    key.words[1 + r] = static_cast<std::uint64_t>(of.extent(r));
    key.words[4 + r] = static_cast<std::uint64_t>(of.stride(r));
  }
  key.words[7] = static_cast<std::uint64_t>(static_cast<unsigned>(box.rows)) << 32 | static_cast<unsigned>(box.columns);
  key.words[8] = type << 16 | static_cast<std::uint64_t>(swizzle) << 8 | Rank;
  return key;
}

/// The maps that a thread made last: a few for each of the numbers that keys are hashed to. A new map replaces the
/// oldest of its few.
class remembered_tensor_maps {
 public:
  /// The map of a key, or null.
  [[nodiscard]] tensor_map const* find(tensor_map_key const& key) const {
    few const& own = all_[number_of(key)];
    for (int i = 0; i < in_few; ++i) {
      if (own.keys[i] == key) {
        return &own.maps[i];
      }
    }
    return nullptr;
  }
  /// Remembers a map, and returns it.
  tensor_map const& keep(tensor_map_key const& key, tensor_map const& map) {
    few& own = all_[number_of(key)];
    int const slot = own.oldest;
    own.keys[slot] = key;
    own.maps[slot] = map;
    own.oldest = (slot + 1) % in_few;
    return own.maps[slot];
  }

 private:
  static constexpr int in_few = 4;
  static constexpr int bits = 4;
  struct few {
    tensor_map maps[in_few];
    tensor_map_key keys[in_few];  // zeros at first, which are nobody's key
    int oldest;
  };
  static std::uint64_t number_of(tensor_map_key const& key) {
    std::uint64_t const mixed =
        key.words[0] / 16 + key.words[1] * 3 + (key.words[7] >> 32) * 5 + key.words[7] + key.words[8];
    return mixed * 0x9E3779B97F4A7C15ULL >> (64 - bits);
  }

  few all_[1 << bits] = {};
};

/// The maps of this thread.
inline remembered_tensor_maps& tensor_maps_of_thread() {
  thread_local remembered_tensor_maps maps;
  return maps;
}

/// The map of a key, which `make` makes unless the thread remembers it. Where `make` throws nothing is remembered.
template <class Make>
tensor_map remembered_tensor_map(tensor_map_key const& key, Make const& make) {
  remembered_tensor_maps& maps = tensor_maps_of_thread();
  if (tensor_map const* const known = maps.find(key)) {
    return *known;
  }
  return maps.keep(key, make());
}

}  // namespace detail

/// Whether TMA can address a matrix: rows next to each other in memory begin at multiples of 16 bytes, elements of a
/// row lie next to each other, extents fit 31 bits. An empty matrix has no map.
template <class T>
[[nodiscard]] bool can_map(matrix_view<T> matrix) {
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(T));
  constexpr std::int64_t most_extent = 0x7fffffff;
  constexpr std::int64_t most_stride = std::int64_t{1} << 40;
  bool const one_row = matrix.extent(0) == 1;
  bool const row_stride =
      one_row || (matrix.stride(0) > 0 && matrix.stride(0) * bytes % 16 == 0 && matrix.stride(0) < most_stride / bytes);
  return !matrix.is_empty() && matrix.extent(0) <= most_extent && matrix.extent(1) <= most_extent && row_stride &&
         (matrix.stride(1) == 1 || matrix.extent(1) == 1) && reinterpret_cast<std::uintptr_t>(matrix.data) % 16 == 0;
}

namespace detail {

/// Makes a map by the driver, for make_tensor_map().
template <class T>
[[nodiscard]] tensor_map encode_tensor_map(char const* function, matrix_view<T> matrix, box_shape box,
                                           box_swizzle swizzle) {
  constexpr auto bytes = static_cast<std::int64_t>(sizeof(T));
  check<value_error>(can_map(matrix), function, ": a matrix of ", matrix.extent(0), " x ", matrix.extent(1),
                     " with strides ", matrix.stride(0), " and ", matrix.stride(1),
                     " cannot be copied by boxes: rows must begin at multiples of 16 bytes");
  check<value_error>(box.rows > 0 && box.rows <= 256, function, ": a box has ", box.rows, " rows but takes 1 to 256");
  check<value_error>(box.columns > 0 && box.columns * bytes <= 128 && box.columns * bytes % 16 == 0, function,
                     ": a row of a box has ", box.columns * bytes, " bytes but takes 16, 32, ... 128");
  std::int64_t const row_bytes =
      matrix.extent(0) == 1 ? (matrix.extent(1) * bytes + 15) / 16 * 16 : matrix.stride(0) * bytes;
  cuuint64_t const extents[2] = {static_cast<cuuint64_t>(matrix.extent(1)), static_cast<cuuint64_t>(matrix.extent(0))};
  cuuint64_t const strides[1] = {static_cast<cuuint64_t>(row_bytes)};
  cuuint32_t const sizes[2] = {static_cast<cuuint32_t>(box.columns), static_cast<cuuint32_t>(box.rows)};
  cuuint32_t const steps[2] = {1, 1};
  using element = std::remove_const_t<T>;
  tensor_map made{};
  CUresult const result = encode_tiled_of_driver(function)(
      &made.map, tensor_map_type<element>(), 2, const_cast<element*>(matrix.data), extents, strides, sizes, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, tensor_map_swizzle(swizzle), tensor_map_l2, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw device_error(
        join(function, ": cuTensorMapEncodeTiled refused a matrix of ", matrix.extent(0), " x ", matrix.extent(1),
             " with boxes of ", box.rows, " x ", box.columns, " (CUresult ", static_cast<int>(result), ")"),
        static_cast<int>(cudaErrorInvalidValue));
  }
  return made;
}

}  // namespace detail

/// Makes the map, or finds the one that this thread has made. Messages name `function`. Throws value_error for a matrix
/// that cannot be mapped or an invalid box.
template <class T>
[[nodiscard]] tensor_map make_tensor_map(char const* function, matrix_view<T> matrix, box_shape box,
                                         box_swizzle swizzle = box_swizzle::bytes_128) {
  return detail::remembered_tensor_map(detail::key_of_map(matrix, box, swizzle),
                                       [&] { return detail::encode_tensor_map(function, matrix, box, swizzle); });
}

#endif  // !defined(__CUDACC_RTC__)

}  // namespace v0
}  // namespace tessera
