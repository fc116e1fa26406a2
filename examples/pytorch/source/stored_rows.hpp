// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The classifier of a loss: a matrix of the hidden states' type, or one that is stored in another type. `stored_rows`
/// is a TileSource whose type of elements is known at run time alone, so that one loss is compiled for all of them:
/// losses make such rows in bands before they multiply, and the choice costs a branch for each piece of a row.
///
/// Compiling: instances for matrices, for stored rows and for ranks share most programs, and are in one source for each
/// type and loss. So nvcc takes about 360 s for bfloat16's sources and sm_90a; without stored rows, and with those for
/// ranks in a source of their own, it took 325 s.
#pragma once

#include <cstdint>
#include <optional>
#include <torch/csrc/stable/tensor.h>

#include <tessera/algorithm/loss/with_classifier.hpp>
#include <tessera/algorithm/loss/with_teacher_classifier.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/source/converted.hpp>
#include <tessera/tile/source/dequantized.hpp>

#include "tensors.hpp"

namespace tessera_torch {

/// The types that rows are stored in.
enum class stored_type : std::int32_t { bfloat16, float16, float32, scaled_float8 };

/// Rows of a stored_type, as operands of type Value: rounded to the nearest, codes after they were multiplied by the
/// scale of their row.
template <class Value>
struct stored_rows {
  using value_type = Value;
  using scale_type = tessera::scaled_float_params;
  /// Lanes take 16 bytes of codes at a time, as from tessera::dequantized, also where there are none.
  static constexpr bool has_chunks = true;
  struct code_chunk {
    static constexpr int size = 16;
  };

  void const* data;
  std::int64_t extents[2];
  std::int64_t strides[2];
  tessera::matrix_view<scale_type const> scales;  ///< one for each row, of codes alone
  stored_type type;

  TESSERA_FN constexpr std::int64_t rows() const { return extents[0]; }
  TESSERA_FN constexpr std::int64_t columns() const { return extents[1]; }
  template <class G, class Tile>
  TESSERA_FN void load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    using scaled = tessera::scaled_float_quantizer<tessera::float8_e4m3, tessera::whole_row>;
    switch (type) {
      case stored_type::bfloat16:
        tessera::converted<bfloat16, Value>(matrix<bfloat16>()).load(group, tile, first_row, first_column);
        break;
      case stored_type::float16:
        tessera::converted<tessera::float16, Value>(matrix<tessera::float16>())
            .load(group, tile, first_row, first_column);
        break;
      case stored_type::float32:
        tessera::converted<float, Value>(matrix<float>()).load(group, tile, first_row, first_column);
        break;
      case stored_type::scaled_float8:
        tessera::dequantized<scaled, Value>{{}, matrix<tessera::float8_e4m3>(), scales}.load(group, tile, first_row,
                                                                                             first_column);
        break;
    }
  }

 private:
  template <class T>
  TESSERA_FN tessera::matrix_view<T const> matrix() const {
    return tessera::matrix_view<T const>(static_cast<T const*>(data), {extents[0], extents[1]},
                                         {strides[0], strides[1]});
  }
};

/// A classifier as Python gives it: vocabulary x channels, and a float for each row of codes.
struct classifier_tensor {
  Tensor rows;
  std::optional<Tensor> scale;
};

/// Names operands whose classifier is stored in another type than theirs.
template <class Operand>
struct stored_as {};

/// How an operand's programs take classifiers: as matrices of its type.
template <class Operand>
struct classifiers_of {
  using operand = Operand;
  using value_type = typename tessera::gemm_operand<Operand>::value_type;
  static constexpr bool is_stored = false;
  using gradient_type = value_type;  ///< that of gradients that are added to nothing
  template <class Method>
  using method = Method;  ///< the method for such a classifier
  template <class Method>
  using method_with_teacher = Method;  ///< the method for such classifiers of student and teacher

  static tessera::matrix_view<value_type const> rows_of(classifier_tensor const& given,
                                                        torch::stable::Device const& device, argument const& which) {
    return view_of<value_type, 2>(given.rows, device, which);
  }
  static std::int64_t count_of(tessera::matrix_view<value_type const> rows) { return rows.extent(0); }
};
/// As rows of any stored_type, also of the operand's own. All gradients are floats, as fp32 rows want them.
template <class Operand>
struct classifiers_of<stored_as<Operand>> {
  using operand = Operand;
  using value_type = typename tessera::gemm_operand<Operand>::value_type;
  static constexpr bool is_stored = true;
  using gradient_type = float;
  template <class Method>
  using method = tessera::with_classifier<Method, stored_rows<value_type>>;
  template <class Method>
  using method_with_teacher = tessera::with_teacher_classifier<method<Method>, stored_rows<value_type>>;

  static stored_rows<value_type> rows_of(classifier_tensor const& given, torch::stable::Device const& device,
                                         argument const& which) {
    check_place(given.rows, device, which);
    check_dimensions(given.rows, 2, which);
    auto const sizes = given.rows.sizes();
    auto const strides = given.rows.strides();
    stored_type const type = type_of_rows(given.rows.scalar_type(), which);
    return {given.rows.data_ptr(),
            {sizes[0], sizes[1]},
            {strides[0], strides[1]},
            scales_of(given, type, device, which),
            type};
  }
  static std::int64_t count_of(stored_rows<value_type> const& rows) { return rows.rows(); }

 private:
  static stored_type type_of_rows(ScalarType type, argument const& which) {
    switch (type) {
      case ScalarType::BFloat16:
        return stored_type::bfloat16;
      case ScalarType::Half:
        return stored_type::float16;
      case ScalarType::Float8_e4m3fn:
        return stored_type::scaled_float8;
      default:
        tessera::check<tessera::value_error>(type == ScalarType::Float, which.function, ": the ", which.name,
                                             " are of type ", torch::headeronly::toString(type),
                                             " but must be of type BFloat16, Half, Float or Float8_e4m3fn");
        return stored_type::float32;
    }
  }
  static tessera::matrix_view<tessera::scaled_float_params const> scales_of(classifier_tensor const& given,
                                                                            stored_type type,
                                                                            torch::stable::Device const& device,
                                                                            argument const& which) {
    bool const has_codes = type == stored_type::scaled_float8;
    tessera::check<tessera::value_error>(given.scale.has_value() == has_codes, which.function, ": the ", which.name,
                                         " are of type ", torch::headeronly::toString(given.rows.scalar_type()),
                                         " and have ", given.scale.has_value() ? "scales" : "no scales",
                                         " but codes of type Float8_e4m3fn alone must have them");
    if (!has_codes) {
      return {};
    }
    tessera::array_view<float const> const list =
        view_of<float, 1>(*given.scale, device, {which.function, "scales of the classifier's rows"});
    tessera::check<tessera::shape_error>(list.size() == given.rows.size(0), which.function, ": there are ", list.size(),
                                         " scales but ", given.rows.size(0), " ", which.name);
    static_assert(sizeof(tessera::scaled_float_params) == sizeof(float));
    return {reinterpret_cast<tessera::scaled_float_params const*>(list.data), {list.size(), 1}, {list.stride(0), 1}};
  }
};

/// Whether a classifier needs more than a matrix of the hidden states' type.
inline bool is_stored(Tensor const& e, classifier_tensor const& given) {
  return given.scale.has_value() || given.rows.scalar_type() != e.scalar_type();
}

/// Throws where a gradient by codes is asked for.
inline void check_has_gradient(char const* function, Tensor const& c, bool is_wanted) {
  tessera::check<tessera::value_error>(!is_wanted || c.scalar_type() != ScalarType::Float8_e4m3fn, function,
                                       ": a gradient of the classifier is asked for, whose type is ",
                                       torch::headeronly::toString(c.scalar_type()),
                                       " but must be BFloat16, Half or Float to have one");
}

}  // namespace tessera_torch
