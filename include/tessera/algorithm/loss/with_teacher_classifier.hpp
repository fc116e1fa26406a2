// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `with_teacher_classifier`: a distillation whose teacher's classifier is a source of rows instead of a matrix of the
/// hidden states' type, such as fp8 codes with a scale for each row: what with_classifier is for the student's.
///
///     #include <tessera/algorithm/loss/linear_distillation.hpp>
///     #include <tessera/algorithm/loss/with_classifier.hpp>
///     #include <tessera/algorithm/loss/with_teacher_classifier.hpp>
///     #include <tessera/quantize/scaled_float.hpp>
///     #include <tessera/tile/source/converted.hpp>
///
///     using scaled = tessera::scaled_float_quantizer<tessera::float8_e4m3, tessera::whole_row>;
///     using coded = tessera::dequantized<scaled, tessera::bfloat16>;                    // fp8, a scale for each row
///     using master = tessera::converted<float, tessera::bfloat16>;                      // fp32 in memory
///     using student = tessera::with_classifier<tessera::linear_distillation<tessera::bfloat16>, master>;
///     using loss = tessera::with_teacher_classifier<student, coded>;
///     loss::inputs const inputs{hidden, master(weights), teacher_hidden, coded{{}, codes, scales}};
///     loss::forward(exec, inputs, {}, {value}, space);
///
/// Precision and cost are those that with_classifier.hpp says: a row is rounded to the type of the hidden states once,
/// in bands that are the parts of the vocabulary, each time that a part's logits are made: once or twice in the forward
/// pass, once in the backward pass. Memory: a part's rows of each source.
#pragma once

#include <tessera/algorithm/loss/detail/loss_with_classifier.hpp>
#include <tessera/concepts/tile_source.hpp>
#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// Loss: a linear_distillation. Source: what its teacher's classifier is given as.
template <class Loss, TileSource Source>
using with_teacher_classifier = typename detail::loss_with_teacher_classifier<Loss, Source>::type;

}  // namespace v0
}  // namespace tessera
