// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>

#include <tessera/cut_cross_entropy.hpp>

#include "errors.hpp"
#include "executors.hpp"
#include "tensors.hpp"
#include "tessera_c.h"

namespace tessera_c {
namespace {

constexpr tessera_loss_options default_options = TESSERA_LOSS_OPTIONS_INIT;

/// The loss of operands T with all statistics: on a GPU they take one hundredth of the time.
template <class T>
using loss_of = tessera::cut_cross_entropy_of<T, tessera::loss_statistics>;

tessera::linear_loss_options options_of(tessera_loss_options const* given) {
  tessera_loss_options const from = known_part(given, "options", default_options);
  require(from.reduction >= TESSERA_LOSS_NONE && from.reduction <= TESSERA_LOSS_MEAN, TESSERA_VALUE_ERROR,
          "the reduction is ", from.reduction, " but must be from ", TESSERA_LOSS_NONE, " to ", TESSERA_LOSS_MEAN);
  require(from.exact == 0 || from.exact == 1, TESSERA_VALUE_ERROR, "exact is ", from.exact, " but must be 0 or 1");
  constexpr tessera::loss_reduction reductions[] = {tessera::loss_reduction::none, tessera::loss_reduction::sum,
                                                    tessera::loss_reduction::mean};
  tessera::linear_loss_options to;
  to.reduction = reductions[from.reduction];
  to.ignore_index = from.ignore_index;
  to.shift = from.shift;
  to.sequence = from.sequence;
  to.softcap = from.softcap;
  to.temperature = from.temperature;
  to.smoothing = from.smoothing;
  to.z_factor = from.z_factor;
  to.hidden_threshold = from.exact == 1 ? 0.0F : from.hidden_threshold;
  to.classifier_threshold = from.exact == 1 ? 0.0F : from.classifier_threshold;
  to.workspace_budget = from.workspace_budget;
  return to;
}

template <class T, class Label>
tessera::linear_loss_inputs<T, Label> inputs_of(tessera_loss_inputs const& from) {
  return {view_of<T const, 2>("hidden states", from.hidden),
          view_of<T const, 2>("rows of the classifier", from.classifier),
          view_of<Label const, 1>("labels", from.labels),
          view_if_given<T const, 1>("biases", from.bias),
          view_if_given<float const, 1>("weights", from.weights),
          {},
          view_if_given<float const, 1>("weights of classes", from.class_weights)};
}

tessera::linear_loss_outputs outputs_of(tessera_loss_outputs const& from) {
  return {.loss = view_of<float, 1>("losses", from.loss),
          .log_sum_exp = view_if_given<float, 1>("log-sum-exps", from.log_sum_exp),
          .log_probability = view_if_given<float, 1>("log-probabilities", from.log_probability),
          .entropy = view_if_given<float, 1>("entropies", from.entropy),
          .prediction = view_if_given<std::int32_t, 1>("predictions", from.prediction),
          .accuracy = view_if_given<float, 1>("accuracies", from.accuracy),
          .labelled_count = view_if_given<std::int64_t, 1>("counts of labelled tokens", from.labelled_count)};
}

bool is_flag(char const* name, std::int32_t value) {
  require(value == 0 || value == 1, TESSERA_VALUE_ERROR, name, " is ", value, " but must be 0 or 1");
  return value == 1;
}

template <class Gradient>
tessera::linear_loss_gradients<Gradient> gradients_of(tessera_loss_gradients const& from) {
  return {view_if_given<Gradient, 2>("gradients of hidden states", from.hidden),
          view_if_given<Gradient, 2>("gradients of the classifier", from.classifier),
          view_if_given<Gradient, 1>("gradients of the bias", from.bias),
          is_flag("accumulate_hidden", from.accumulate_hidden),
          is_flag("accumulate_classifier", from.accumulate_classifier),
          is_flag("accumulate_bias", from.accumulate_bias)};
}

tessera::loss_upstream upstream_of(tessera_loss_gradients const& from) {
  return {view_if_given<float const, 1>("upstream gradients of losses", from.of_loss),
          view_if_given<float const, 1>("upstream gradients of log-sum-exps", from.of_log_sum_exp),
          view_if_given<float const, 1>("upstream gradients of entropies", from.of_entropy)};
}

/// The type of the gradients that are given; that of hidden states where none is.
std::int32_t type_of_gradients(tessera_loss_gradients const& gradients, std::int32_t otherwise) {
  for (tessera_tensor const* const tensor : {&gradients.hidden, &gradients.classifier, &gradients.bias}) {
    if (is_given(*tensor)) {
      return tensor->type;
    }
  }
  return otherwise;
}

/// Calls use(T, Label) with the types of inputs.
template <class Use>
void with_types(tessera_loss_inputs const& inputs, Use const& use) {
  with_float_type("hidden states", inputs.hidden.type, [&]<class T>(T) {
    switch (inputs.labels.type) {
      case TESSERA_I32:
        return use(T{}, std::int32_t{});
      case TESSERA_I64:
        return use(T{}, std::int64_t{});
      default:
        require(false, TESSERA_WRONG_TYPE, "the labels are of type ", inputs.labels.type, " (",
                type_name(inputs.labels.type), ") but must be of type ", TESSERA_I32, " (i32) or ", TESSERA_I64,
                " (i64)");
    }
  });
}

/// Calls use(Gradient) with the type of gradients: float or T.
template <class T, class Use>
void with_gradient_type(tessera_loss_gradients const& gradients, Use const& use) {
  std::int32_t const type = type_of_gradients(gradients, type_of<T>);
  if (type == TESSERA_F32) {
    return use(float{});
  }
  require(type == type_of<T>, TESSERA_WRONG_TYPE, "the gradients are of type ", type, " (", type_name(type),
          ") but must be of type ", TESSERA_F32, " (f32) or, as the hidden states, ", type_of<T>, " (",
          type_name(type_of<T>), ")");
  use(T{});
}

/// The extents of a problem, whose tensors need no memory yet.
template <class T>
tessera::linear_loss_shape shape_of(tessera_loss_inputs const& inputs) {
  auto const hidden = planned_view<T const, 2>("hidden states", inputs.hidden);
  auto const classifier = planned_view<T const, 2>("rows of the classifier", inputs.classifier);
  require(hidden.extent(1) == classifier.extent(1), TESSERA_SHAPE_ERROR, "the hidden states have ", hidden.extent(1),
          " channels but the classifier has ", classifier.extent(1));
  return {hidden.extent(0), classifier.extent(0), hidden.extent(1)};
}

/// The workspace of both passes.
template <class T, class Exec>
tessera::workspace_plan backward_plan(Exec const& exec, tessera::linear_loss_shape const& shape,
                                      tessera::linear_loss_options const& options,
                                      tessera_loss_gradients const& gradients) {
  tessera::workspace_plan plan("linear_loss.backward");
  with_gradient_type<T>(gradients, [&]<class Gradient>(Gradient) {
    plan = loss_of<T>::template plan_backward<Gradient>(exec, shape, options);
  });
  return plan;
}

}  // namespace
}  // namespace tessera_c

using namespace tessera_c;

tessera_status tessera_loss_workspace(tessera_executor const* executor, tessera_loss_inputs const* inputs,
                                      tessera_loss_options const* options, tessera_loss_gradients const* gradients,
                                      std::size_t* bytes) {
  return guarded("tessera_loss_workspace", [&] {
    auto const in = known_part(inputs, "inputs");
    auto const chosen = options_of(options);
    with_executor(executor, [&](auto const& exec) {
      with_float_type("hidden states", in.hidden.type, [&]<class T>(T) {
        auto const shape = shape_of<T>(in);
        auto const plan = gradients == nullptr
                              ? loss_of<T>::plan_forward(exec, shape, chosen)
                              : backward_plan<T>(exec, shape, chosen, known_part(gradients, "gradients"));
        set_bytes(bytes, plan.bytes());
      });
    });
  });
}

tessera_status tessera_loss_forward(tessera_executor const* executor, tessera_loss_inputs const* inputs,
                                    tessera_loss_options const* options, tessera_loss_outputs const* outputs,
                                    tessera_memory workspace) {
  return guarded("tessera_loss_forward", [&] {
    auto const in = known_part(inputs, "inputs");
    auto const out = outputs_of(known_part(outputs, "outputs"));
    auto const chosen = options_of(options);
    with_executor(executor, [&](auto const& exec) {
      with_types(in, [&]<class T, class Label>(T, Label) {
        auto const shape = shape_of<T>(in);
        // A workspace that is large enough for both passes keeps what the backward pass needs.
        tessera::workspace_plan plan("linear_loss.forward");
        static_cast<void>(plan.add<std::byte>("workspace", bytes_of("workspace", workspace).size() / 256 * 256));
        std::int64_t const needed = loss_of<T>::plan_forward(exec, shape, chosen).bytes();
        require(plan.bytes() >= needed, TESSERA_SHAPE_ERROR, "the workspace has ", workspace.bytes,
                " bytes but the forward pass needs ", needed);
        loss_of<T>::forward(exec, inputs_of<T, Label>(in), chosen, out, workspace_in(plan, workspace));
      });
    });
  });
}

tessera_status tessera_loss_backward(tessera_executor const* executor, tessera_loss_inputs const* inputs,
                                     tessera_loss_options const* options, tessera_loss_gradients const* gradients,
                                     tessera_memory workspace) {
  return guarded("tessera_loss_backward", [&] {
    auto const in = known_part(inputs, "inputs");
    auto const wanted = known_part(gradients, "gradients");
    auto const chosen = options_of(options);
    with_executor(executor, [&](auto const& exec) {
      with_types(in, [&]<class T, class Label>(T, Label) {
        with_gradient_type<T>(wanted, [&]<class Gradient>(Gradient) {
          auto const plan = loss_of<T>::template plan_backward<Gradient>(exec, shape_of<T>(in), chosen);
          loss_of<T>::backward(exec, inputs_of<T, Label>(in), chosen, upstream_of(wanted),
                               gradients_of<Gradient>(wanted), workspace_in(plan, workspace));
        });
      });
    });
  });
}
