// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Log-probabilities of chosen entries of a linear classifier: of some entries of each token, as sampling, ranking and
/// distillation from stored entries need them, without the logits of the others.
///
///     #include <tessera/algorithm/loss/chosen_log_probabilities.hpp>
///     #include <tessera/core/bfloat16.hpp>
///
///     using chosen = tessera::chosen_log_probabilities<tessera::bfloat16>;
///     chosen::inputs<std::int32_t> const in{hidden, classifier, entries, log_sum_exp};
///     chosen::forward(exec, in, {.softcap = 30.0F}, log_probabilities);
///     exec.wait();
///
/// With hidden states e_i, classifier rows c_j, biases b_j, the chosen entries j = entries(i, k), and lse_i, the
/// log-sum-exp of all logits of the token, which a forward pass of a linear_loss has written:
///
///     log_probabilities(i, k) = map(cap(e_i . c_j + b_j) / temperature) - lse_i
///
/// Cost, for N tokens of D channels with K entries each: 2 N K D FLOPs. Bytes: N D of the hidden states, in their type,
/// N K D of rows of the classifier, which lie anywhere (a row that several tokens choose is read again unless a cache
/// has it), and N K entries and results. A group of 32 lanes, a warp, takes four entries of a token, with loads of 16
/// bytes where rows begin at multiples of 16 bytes and have whole chunks, and element by element elsewhere. Over ranks:
/// vocabulary_parallel_entries.hpp.
#pragma once

#include <cstdint>

#include <tessera/algorithm/loss/detail/check_classifier.hpp>
#include <tessera/algorithm/loss/detail/loss_with_classifier.hpp>
#include <tessera/algorithm/loss/linear_loss_arguments.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/concepts/tile_source.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/status_calls.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/program/loss/detail/chosen_logits.hpp>
#include <tessera/program/loss/detail/element_of.hpp>
#include <tessera/reduce/sum.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
template <class Loss> struct vocabulary_parallel;  // of vocabulary_parallel.hpp
// clang-format on

/// T: the type of hidden states, classifier and bias: bfloat16, float16 or float, of any strides. Map: the LogitMap of
/// the loss. Classifier: a view, or a source of rows (with_classifier.hpp), whose elements are made one by one.
///
/// Entries are std::int32_t or std::int64_t. A negative one means none, and has the result 0; where a token has no
/// label, linear_loss writes log-sum-exp 0, so that entries of such tokens ought to be none. An entry that is not below
/// the vocabulary is never used as an index: its result is NaN, and exec.wait() throws value_error with its position
/// (token * K + k) and both numbers. An entry may be chosen several times.
///
/// Precision: products and sums are in fp32, the same additions on every executor, and then as in linear_loss, whose
/// own log-probabilities differ by rounding; with tf32 it also rounds operands. Results are the same bits each time. A
/// logit of minus infinity (a masked entry) has the result minus infinity if the log-sum-exp is finite.
template <Scalar T, LogitMap Map = identity_logits, class Classifier = matrix_view<T const>>
struct chosen_log_probabilities {
  static_assert(detail::gives_operands<T, Classifier>(),
                "tessera: a source of a classifier has elements of the type that hidden states have");
  /// The inputs of a call, with entries of type Entry.
  template <class Entry>
  struct inputs {
    matrix_view<T const> hidden;          ///< tokens x channels
    Classifier classifier;                ///< vocabulary x channels
    matrix_view<Entry const> entries;     ///< tokens x K: entries of the vocabulary; negative: none
    array_view<float const> log_sum_exp;  ///< for each token, linear_loss_outputs::log_sum_exp
    array_view<T const> bias = {};        ///< a value for each entry of the vocabulary, or null
    [[no_unique_address]] Map map = {};   ///< the map of logits, that of the loss
  };

  /// Enqueues the log-probabilities, tokens x K, in nats. Of the options softcap and temperature count: they, the bias
  /// and the map are those of the loss. Others are checked as the loss does, and change nothing; entries are a token's
  /// own, whatever the shift. Throws shape_error or value_error for arguments that do not fit together. The call
  /// neither waits nor allocates, and can be captured in a CUDA graph.
  template <Executor Exec, class Entry = std::int32_t>
  static void forward(Exec const& exec, inputs<Entry> const& in, linear_loss_options const& options,
                      matrix_view<float> log_probabilities) {
    check_call(exec, where, in, options, log_probabilities, 1);
    detail::write_chosen_log_probabilities<T, Entry, Map, Classifier> const program{
        {in.hidden},
        in.classifier,
        in.entries,
        in.log_sum_exp,
        in.map,
        {in.bias, options.softcap, 1.0F / options.temperature},
        log_probabilities,
        status_of(exec, {where, "chosen entry"})};
    if (program.groups() > 0) {
      exec.run(program, program.groups());
    }
  }

 private:
  template <class Loss>
  friend struct vocabulary_parallel;  // which checks the same arguments
  /// With a sum among its statistics the loss takes any smoothing.
  using arguments = detail::linear_loss_arguments<T, sum_reducer<float>>;
  static constexpr char const* where = "chosen_log_probabilities.forward";

  /// Throws for arguments that do not fit together, or lie where programs do not read them. `fewest`: entries that a
  /// vocabulary must have.
  template <class Exec, class Entry>
  static void check_call(Exec const& exec, char const* function, inputs<Entry> const& in,
                         linear_loss_options const& options, matrix_view<float> const& out, std::int64_t fewest) {
    check_inputs(function, in, options, fewest);
    check_output(function, in, out);
    check_reach(exec, function, "hidden states", in.hidden, "chosen entries", in.entries, "log-sum-exps",
                in.log_sum_exp, "biases", in.bias, "log-probabilities", out);
    detail::check_classifier_place(exec, function, in.classifier);
    check_reach_of(exec, function, in.map);
  }
  template <class Entry>
  static void check_inputs(char const* function, inputs<Entry> const& in, linear_loss_options const& options,
                           std::int64_t fewest) {
    linear_loss_shape const shape{in.hidden.extent(0), detail::rows_in(in.classifier), in.hidden.extent(1)};
    arguments::check_extents(function, shape, fewest);
    arguments::check_options(function, shape, options);
    std::int64_t const channels = detail::columns_in(in.classifier);
    check<shape_error>(channels == shape.channels, function, ": the hidden states have ", shape.channels,
                       " channels but the classifier has ", channels);
    check<shape_error>(in.entries.extent(0) == shape.tokens, function, ": there are chosen entries of ",
                       in.entries.extent(0), " tokens but hidden states of ", shape.tokens);
    check<shape_error>(in.entries.extent(1) >= 0, function, ": a token has ", in.entries.extent(1),
                       " chosen entries but must have 0 or more");
    check<shape_error>(in.log_sum_exp.size() == shape.tokens, function, ": there are ", in.log_sum_exp.size(),
                       " log-sum-exps but ", shape.tokens, " tokens");
    check<shape_error>(in.bias.data == nullptr || in.bias.size() == shape.vocabulary, function, ": the bias has ",
                       in.bias.size(), " values but the vocabulary has ", shape.vocabulary);
    check_memory(function, "hidden states", in.hidden);
    detail::check_classifier(function, in.classifier);
    check_memory(function, "chosen entries", in.entries);
    check_memory(function, "log-sum-exps", in.log_sum_exp);
    check_memory(function, "biases", in.bias);
    check<value_error>(in.map.steepest() > 0 && in.map.steepest() < infinity, function,
                       ": the map of logits has slopes up to ", in.map.steepest(),
                       " but its steepest() must be positive and finite");
  }

  template <class Entry>
  static void check_output(char const* function, inputs<Entry> const& in, matrix_view<float> const& out) {
    check<shape_error>(out.extent(0) == in.entries.extent(0) && out.extent(1) == in.entries.extent(1), function,
                       ": the log-probabilities are ", out.extent(0), " x ", out.extent(1), " but the chosen entries ",
                       in.entries.extent(0), " x ", in.entries.extent(1));
    check_memory(function, "log-probabilities", out);
    check_apart(function, "log-probabilities", out);
  }
};

namespace detail {

template <Scalar T, LogitMap Map, class Classifier, TileSource Source>
struct loss_with_classifier<chosen_log_probabilities<T, Map, Classifier>, Source> {
  using type = chosen_log_probabilities<T, Map, Source>;
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
