// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `with_logit_maps`: a distillation in which logits go through maps (concepts/logit_map.hpp) after bias, softcap and
/// temperature: the student's, the teacher's, or both.
///
///     #include <tessera/algorithm/loss/linear_distillation.hpp>
///     #include <tessera/algorithm/loss/with_logit_maps.hpp>
///
///     using loss = tessera::with_logit_maps<tessera::linear_distillation<tessera::bfloat16>, adjusted>;
///     loss::inputs in{hidden, classifier, teacher_hidden, teacher_classifier};
///     in.map = {log_prior};                                                    // in.teacher_map of the teacher
///     loss::forward(exec, in, {}, {.loss = value}, space);
///
/// Cost: the student's map is called for each token and entry once in the forward pass (twice where the Divergence is
/// no mean of log-ratios) and once in the backward pass, where its slope is, too; the teacher's each time that logits
/// are made. Precision: in fp16 gradients by logits are scaled by steepest(). A linear_loss has its map as a template
/// argument.
#pragma once

#include <tessera/algorithm/loss/detail/loss_with_classifier.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/config.hpp>
#include <tessera/map/identity_logits.hpp>

namespace tessera {
inline namespace v0 {

/// Loss: a linear_distillation, with or without sources as classifiers. Map, TeacherMap: what the logits of the student
/// and of the teacher go through.
template <class Loss, LogitMap Map, LogitMap TeacherMap = identity_logits>
using with_logit_maps = typename detail::loss_with_logit_maps<Loss, Map, TeacherMap>::type;

}  // namespace v0
}  // namespace tessera
