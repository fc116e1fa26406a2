// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `with_classifier`: a loss whose classifier is a source of rows instead of a matrix of the hidden states' type: fp32
/// rows that an optimizer keeps, fp16 rows beside bf16 hidden states, fp8 codes with a scale for each row, codes of any
/// Quantizer.
///
///     #include <tessera/algorithm/loss/with_classifier.hpp>
///     #include <tessera/cut_cross_entropy.hpp>
///     #include <tessera/quantize/scaled_float.hpp>
///     #include <tessera/tile/source/converted.hpp>
///
///     using master = tessera::converted<float, tessera::bfloat16>;                   // fp32 in memory
///     using loss = tessera::with_classifier<tessera::cut_cross_entropy, master>;
///     loss::inputs<std::int64_t> const inputs{hidden, master(weights), labels};      // weights: a view of floats
///     tessera::linear_loss_gradients<float> const gradients{hidden_gradient, classifier_gradient};
///     loss::forward(exec, inputs, {}, {.loss = value}, space);
///     loss::backward(exec, inputs, {}, {}, gradients, space);
///
///     using scaled = tessera::scaled_float_quantizer<tessera::float8_e4m3, tessera::whole_row>;
///     using coded = tessera::dequantized<scaled, tessera::bfloat16>;                 // fp8, a scale for each row
///     using frozen = tessera::with_classifier<tessera::exact_cross_entropy, coded>;
///     frozen::inputs<std::int64_t> const of_codes{hidden, coded{{}, codes, scales}, labels};  // vocabulary x 1 scales
///     frozen::forward(exec, of_codes, {}, {.loss = value}, space);
///
/// All else is as without it: options, outputs, Reducers, the filter, LogitMaps and programs, and so are
/// soft_target_loss and vocabulary_parallel of such a loss, and of a soft_target_loss, a distillation and chosen
/// entries with such a classifier. A chosen_log_probabilities and a linear_distillation take such a classifier in the
/// same way, and this one's teacher, too (with_teacher_classifier.hpp). A source has elements of the type of the hidden
/// states; another one does not compile. Hidden states have the type of the loss: convert those of another type by
/// materialize (algorithm/gemm/materialize.hpp), since they are few.
///
/// Precision: products multiply what the source gives. An fp32 row is rounded to the type of the hidden states, once
/// and to the nearest, as autocast does. A code is its value times its scale in fp32, rounded once. Results are those
/// of the loss with a classifier that was rounded in this way before. In fp16 what is beyond 65504 becomes infinite.
///
/// Gradients: that of the classifier is the gradient by the rows that were multiplied, as if they were not rounded (a
/// straight-through estimate). linear_loss_gradients<float> makes it fp32, which is what fp32 rows want, and that of
/// the hidden states, too. There is no gradient by codes or scales: leave that of the classifier null where it is
/// frozen, which costs nothing, or take the one by the decoded rows.
///
/// Cost: all programs, portable ones and those of the CPU, too, multiply matrices in memory. Before each launch that
/// multiplies, another one makes some rows, a band: each row once in the forward pass and once in the backward pass, or
/// where memory is so short that tokens are taken in chunks, once for each of them.
///
/// Memory: a band has at most 56 MiB, or a quarter of `workspace_budget` where that is less. The plans of both passes
/// have it, so that both need options with the same budget. Softmaxes are not kept, however large the budget is.
#pragma once

#include <tessera/algorithm/loss/detail/loss_with_classifier.hpp>
#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/concepts/tile_source.hpp>
#include <tessera/program/loss/logits.hpp>
#include <tessera/reduce/logit_reducer.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

template <class Tile, LogitReducer Statistics, class Filter, LogitMap Map, TileSource Source>
struct loss_with_classifier<linear_loss<Tile, Statistics, Filter, Map>, Source> {
  using type = linear_loss<tile_with_classifier<Tile, Source>, Statistics, Filter, Map>;
};

}  // namespace detail

/// Loss: a linear_loss, as cut_cross_entropy or exact_cross_entropy, a linear_distillation, whose student's classifier
/// it is, or a chosen_log_probabilities. Source: what its classifier is given as.
template <class Loss, TileSource Source>
using with_classifier = typename detail::loss_with_classifier<Loss, Source>::type;

}  // namespace v0
}  // namespace tessera
