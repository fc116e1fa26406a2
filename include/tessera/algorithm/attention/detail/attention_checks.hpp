// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The checks of arguments of `attention`: each throws shape_error or value_error, which names the function and shows
/// both values.
///
///     using checks = detail::attention_checks<attention_method<QK, PV, Softmax>>;
///     attention_shape const shape = checks::check_inputs("attention.forward", in);
#pragma once

#include <cstdint>

#include <tessera/algorithm/attention/attention_types.hpp>
#include <tessera/algorithm/attention/quantized_attention.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/math.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/map/listed_tiles.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Method: an attention_method.
template <class Method>
struct attention_checks {
  using heads = quantized_heads<Method>;
  using regions = quantized_regions<Method>;

  static void check_shape(char const* function, attention_shape const& shape) {
    check<shape_error>(shape.batch >= 0 && shape.queries >= 0 && shape.keys >= 0, function, ": there are ", shape.batch,
                       " sequences of ", shape.queries, " queries and ", shape.keys, " keys but none must be negative");
    check<shape_error>(shape.key_heads >= 1 && shape.query_heads >= 1 && shape.query_heads % shape.key_heads == 0,
                       function, ": there are ", shape.query_heads,
                       " query heads, which are no whole number for each of ", shape.key_heads, " key heads");
    constexpr std::int64_t most = std::int64_t{1} << 48;
    check<shape_error>(max(shape.batch, max(shape.queries, shape.keys)) <= most && shape.query_heads <= most, function,
                       ": there are ", shape.batch, " sequences of ", shape.query_heads, " heads, ", shape.queries,
                       " queries and ", shape.keys, " keys but none can be more than ", most);
    check<shape_error>(shape.channels >= 16 && shape.channels <= 256 && shape.channels % 16 == 0, function,
                       ": heads have ", shape.channels, " channels but must have a multiple of 16 up to 256");
    std::int64_t const of_values = shape.channels_of_values();
    check<shape_error>(of_values >= 16 && of_values <= 256 && of_values % 16 == 0, function, ": heads of values have ",
                       of_values, " channels but must have a multiple of 16 up to 256");
  }

  template <class T>
  static attention_shape check_inputs(char const* function, attention_inputs<T> const& in) {
    attention_shape const shape{in.queries.extent(0), in.queries.extent(1), in.keys.extent(1),  in.queries.extent(2),
                                in.keys.extent(2),    in.queries.extent(3), in.values.extent(3)};
    check<shape_error>(in.keys.extent(0) == shape.batch, function, ": keys have ", in.keys.extent(0),
                       " sequences but queries have ", shape.batch);
    check<shape_error>(in.keys.extent(3) == shape.channels, function, ": keys have ", in.keys.extent(3),
                       " channels but queries have ", shape.channels);
    check<shape_error>(in.values.extent(3) > 0, function, ": values have ", in.values.extent(3), " channels but keys ",
                       in.keys.extent(3));
    check_shape(function, shape);
    for (int dimension = 0; dimension < 3; ++dimension) {
      check<shape_error>(in.values.extent(dimension) == in.keys.extent(dimension), function, ": dimension ", dimension,
                         " of the values has ", in.values.extent(dimension), " elements but that of the keys has ",
                         in.keys.extent(dimension));
    }
    check_memory(function, "queries", in.queries);
    check_memory(function, "keys", in.keys);
    check_memory(function, "values", in.values);
    return shape;
  }

  template <class T>
  static void check_heads(char const* function, char const* what, head_view<T const> found, std::int64_t batch,
                          std::int64_t count, std::int64_t tokens, std::int64_t channels) {
    check_extents(function, what, found, {batch, count, tokens, channels});
  }

  /// Throws for a view that has elements but no memory, and for one with memory that has other extents than expected.
  template <class T, int Rank>
  static void check_extents(char const* function, char const* what, view<T, Rank> found,
                            std::int64_t const (&expected)[Rank]) {
    check_memory(function, what, found);
    for (int dimension = 0; found.data != nullptr && dimension < Rank; ++dimension) {
      check<shape_error>(found.extent(dimension) == expected[dimension], function, ": dimension ", dimension,
                         " of the ", what, " has ", found.extent(dimension), " elements but needs ",
                         expected[dimension]);
    }
  }

  /// Checks extents, and throws for strides of 0, except from sequence to sequence where sequences lie one behind the
  /// other.
  template <class T, int Rank>
  static void check_output(char const* function, char const* what, view<T, Rank> found,
                           std::int64_t const (&expected)[Rank], bool has_starts) {
    check_extents(function, what, found, expected);
    check_apart(function, what, found, has_starts ? 1 : 0);
  }

  static void check_lengths(char const* function, attention_shape const& shape, sequence_lengths queries,
                            sequence_lengths keys) {
    check_extents(function, "lengths of queries", queries, {shape.batch});
    check_extents(function, "lengths of keys", keys, {shape.batch});
  }

  static void check_starts(char const* function, attention_shape const& shape, sequence_starts const& queries,
                           sequence_starts const& keys) {
    check_extents(function, "starts of queries", queries.first, {shape.batch});
    check_extents(function, "starts of keys", keys.first, {shape.batch});
    check<shape_error>(queries.total >= 0 && keys.total >= 0, function, ": sequences have ", queries.total,
                       " queries and ", keys.total, " keys in all but neither must be negative");
  }

  /// Throws shape_error for a view that is there of sequences that begin at starts: where it has a stride from sequence
  /// to sequence, which programs would add to the starts; where a forgotten total leaves no token to be read or
  /// written; and where without lengths each sequence would go on in the next one.
  template <class T, int Rank>
  static void check_packed(char const* function, char const* what, view<T, Rank> const& found,
                           sequence_starts const& starts, sequence_lengths const& lengths) {
    if (starts.first.data == nullptr || found.data == nullptr || found.is_empty()) {
      return;
    }
    std::int64_t const sequences = found.extent(0);
    check<shape_error>(sequences < 2 || found.stride(0) == 0, function, ": the ", what, " have a stride of ",
                       found.stride(0), " from sequence to sequence but must have 0 where sequences have starts");
    check<shape_error>(starts.total > 0, function, ": the ", what, " of all sequences have ", starts.total,
                       " tokens but those of the longest up to ", found.extent(2));
    check<shape_error>(lengths.data != nullptr || starts.total / found.extent(2) >= sequences, function, ": the ", what,
                       " of ", sequences, " sequences have starts but no lengths, by which each has ", found.extent(2),
                       " tokens, of ", starts.total, " in all");
  }
  /// The same for all inputs of a call, and for the starts themselves.
  template <class T>
  static void check_packed_inputs(char const* function, attention_shape const& shape, attention_inputs<T> const& in) {
    check_starts(function, shape, in.query_starts, in.key_starts);
    check_packed(function, "queries", in.queries, in.query_starts, in.query_lengths);
    check_packed(function, "keys", in.keys, in.key_starts, in.key_lengths);
    check_packed(function, "values", in.values, in.key_starts, in.key_lengths);
  }
  /// The same for the outputs of a call.
  template <class T, class Result>
  static void check_packed_outputs(char const* function, attention_inputs<T> const& in,
                                   attention_outputs<Result> const& out) {
    check_packed(function, "results", out.result, in.query_starts, in.query_lengths);
    check_packed(function, "log-sum-exps", out.log_sum_exp, in.query_starts, in.query_lengths);
  }

  static void check_list(char const* function, attention_shape const& s, attention_block_list const& list) {
    std::int64_t const blocks = divide_up(s.queries, std::int64_t{attention_block_list::queries});
    check_extents(function, "counts of the block list", list.counts, {s.batch, s.query_heads, blocks});
    if (list.counts.data != nullptr) {
      check_extents(function, "tiles of the block list", list.tiles,
                    {s.batch, s.query_heads, blocks, list.tiles.extent(3)});
    }
  }

  template <class Call>
  static void check_call(char const* function, Call const& call) {
    attention_shape const& s = call.shape;
    attention_options const& o = call.options;
    check<value_error>(o.window_left >= -1 && o.window_right >= -1, function, ": the window has ", o.window_left,
                       " keys to the left and ", o.window_right, " to the right but neither must be below -1");
    check<shape_error>(call.out.result.data != nullptr || s.batch == 0 || s.queries == 0, function,
                       ": the result has no memory but ", checked_multiply(function, s.batch, s.query_heads, s.queries),
                       " rows");
    bool const has_starts = call.query_starts.first.data != nullptr;
    check_output(function, "result", call.out.result, {s.batch, s.query_heads, s.queries, s.channels_of_values()},
                 has_starts);
    check_output(function, "log-sum-exps", call.out.log_sum_exp, {s.batch, s.query_heads, s.queries}, has_starts);
    check_starts(function, s, call.query_starts, {});
    check_lengths(function, s, call.query_lengths, call.key_lengths);
    check_extents(function, "sinks", call.sinks, {s.query_heads});
    if constexpr (requires { call.bias.check_shape(function, s); }) {
      call.bias.check_shape(function, s);
    }
    check_list(function, s, call.block_list);
    if constexpr (is_listed<decltype(call.bias)>) {
      check_list(function, s, call.bias.list);
      check<value_error>(call.bias.list.counts.data == nullptr || call.block_list.counts.data == nullptr, function,
                         ": there are two block lists, one of listed_tiles and one of the inputs");
    }
    if constexpr (requires { call.partials; }) {
      check_partials(function, s, call.partials);
    }
  }

  template <class State>
  static void check_partials(char const* function, attention_shape const& s, attention_partials<State> const& found) {
    std::int64_t const splits = found.splits();
    check<value_error>(splits <= most_attention_splits, function, ": ", splits,
                       " splits of rows, of which there may be ", most_attention_splits);
    check_extents(function, "splits of rows", found.rows, {splits, s.batch, s.query_heads, s.queries});
    if (found.rows.data != nullptr) {
      check<value_error>(found.totals.data != nullptr, function, ": the totals of splits of rows are null");
      check_extents(function, "totals of splits", found.totals,
                    {splits, s.batch, s.query_heads, s.queries, s.channels_of_values()});
    }
  }

  /// Throws unless codes or scales, if needed, are there, contiguous and of the extents that quantized_operands.hpp
  /// says.
  template <class T, int Rank>
  static void check_operand(char const* function, char const* what, view<T, Rank> found, bool is_needed,
                            std::int64_t const (&expected)[Rank]) {
    view<T, Rank> const needed(found.data, expected);
    check<value_error>(!is_needed || found.data != nullptr || needed.is_empty(), function, ": the ", what, " are null");
    if (is_needed) {
      check_extents(function, what, found, expected);
      check<shape_error>(found.data == nullptr || found.is_contiguous(), function, ": the ", what,
                         " are not contiguous: the last two strides are ", found.stride(Rank - 2), " and ",
                         found.stride(Rank - 1));
    }
  }

  static void check_operands(char const* function, attention_shape const& s, heads const& out, bool has_queries,
                             bool has_keys, bool has_values) {
    std::int64_t const queries = padded_tokens(s.queries);
    std::int64_t const keys = padded_tokens(s.keys);
    std::int64_t const elements = s.channels / codes_in<typename Method::score_code>;
    std::int64_t const of_values = s.channels_of_values();
    std::int64_t const blocks = divide_up(s.queries, std::int64_t{block_mean::tokens});
    std::int64_t const query_scales = Method::query_groups::count(queries);
    std::int64_t const key_scales = Method::key_groups::count(keys);
    check_operand(function, "codes of queries", out.queries.codes, has_queries,
                  {s.batch, s.query_heads, queries, elements});
    check_operand(function, "scales of queries", out.queries.scales, has_queries,
                  {s.batch, s.query_heads, query_scales});
    check_operand(function, "scores of mean queries", out.queries.corrections, has_queries && regions::smooths_queries,
                  {s.batch, s.query_heads, blocks, keys});
    check<value_error>(regions::smooths_queries || out.queries.corrections.data == nullptr, function,
                       ": there are scores of mean queries, but the method does not smooth queries");
    check_operand(function, "ranges of scores of mean queries", out.queries.correction_ranges,
                  has_queries && regions::smooths_queries, {s.batch, s.query_heads, blocks, keys / attention_padding});
    check_extents(function, "scores of the mean key", out.queries.mean_scores, {s.batch, s.query_heads, s.queries});
    check_operand(function, "codes of keys", out.keys.codes, has_keys, {s.batch, s.key_heads, keys, elements});
    check_operand(function, "scales of keys", out.keys.scales, has_keys, {s.batch, s.key_heads, key_scales});
    check_operand(function, "means of keys", out.keys.mean, has_keys && regions::smooths_keys,
                  {s.batch, s.key_heads, s.channels});
    check_operand(function, "codes of values", out.values.codes, has_values,
                  {s.batch, s.key_heads, keys / attention_padding, of_values, attention_padding});
    check_operand(function, "scales of values", out.values.scales, has_values, {s.batch, s.key_heads, of_values});
    check_operand(function, "means of values", out.values.mean, has_values && regions::smooths_values,
                  {s.batch, s.key_heads, of_values});
  }

  /// Throws value_error where inputs or the workspace lie where the executor's programs do not read them. Lists of
  /// queries are left to check_call_places().
  template <class Exec, class T, class Functions>
  static void check_input_places(Exec const& exec, char const* function, attention_inputs<T> const& in,
                                 workspace const& space, Functions const& functions) {
    check_reach(exec, function, "queries", in.queries, "keys", in.keys, "values", in.values, "starts of keys",
                in.key_starts.first, "bytes of the workspace", space);
    check_reach_of(exec, function, functions.queries);
    check_reach_of(exec, function, functions.keys);
  }

  /// The same for what every call of attention has, with or without codes.
  template <class Exec, class Call>
  static void check_call_places(Exec const& exec, char const* function, Call const& call) {
    check_reach(exec, function, "results", call.out.result, "log-sum-exps", call.out.log_sum_exp, "lengths of queries",
                call.query_lengths, "lengths of keys", call.key_lengths, "starts of queries", call.query_starts.first,
                "sinks", call.sinks, "counts of the block list", call.block_list.counts, "tiles of the block list",
                call.block_list.tiles);
    check_reach_of(exec, function, call.bias);
  }

  /// The same for codes, scales and means.
  template <class Exec>
  static void check_operand_places(Exec const& exec, char const* function, heads const& of) {
    check_reach(exec, function, "codes of queries", of.queries.codes, "scales of queries", of.queries.scales,
                "scores of the mean key", of.queries.mean_scores, "scores of mean queries", of.queries.corrections,
                "ranges of scores of mean queries", of.queries.correction_ranges);
    check_reach(exec, function, "codes of keys", of.keys.codes, "scales of keys", of.keys.scales, "means of keys",
                of.keys.mean, "codes of values", of.values.codes, "scales of values", of.values.scales,
                "means of values", of.values.mean);
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
