// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `quantized_regions` and `quantization_regions`: where codes, scales and means of attention's operands lie in a
/// workspace, and what the programs that make and read them need beside. Format of codes:
/// program/attention/quantized_operands.hpp.
///
///     quantization_regions<method> const regions("attention.quantize", shape);
///     workspace const space(regions.plan, memory);
///     quantized_heads<method> const heads = regions.operands(space);
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/attention/channel_statistics.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/quantize/sampled_range.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>

namespace tessera {
inline namespace v0 {

/// Queries, keys and values as codes and scales of one Method (attention_method).
template <class Method>
struct quantized_heads {
  quantized_queries<typename Method::score_code> queries;     ///< codes of the batch's queries
  quantized_keys<typename Method::score_code> keys;           ///< codes of the batch's keys
  quantized_value_heads<typename Method::value_code> values;  ///< codes of the batch's values
};

/// Which parts of quantized_heads are to be made.
struct quantized_parts {
  bool queries = true;      ///< codes and scales of queries
  bool keys = true;         ///< codes, scales and means of keys
  bool values = true;       ///< codes, scales and means of values
  bool mean_scores = true;  ///< scores of the mean key, for log-sum-exps and sinks where keys are smoothed
};

/// The options of quantization.
struct quantize_options {
  float softmax_scale = 0.0F;  ///< goes into the scales of queries; 0: 1 / sqrt(channels)
  quantized_parts parts = {};  ///< the parts that a workspace has room for
  /// How many keys after its own a query sees (attention_options::keys_behind()), -1: all. Scores of mean queries and
  /// keys that it does not see may stay unwritten.
  std::int64_t keys_behind = -1;
};

namespace detail {

template <class T, int Rank>
view<T, Rank> view_of(array_view<T> list, std::int64_t const (&extents)[Rank]) {
  return view<T, Rank>(list.data, extents);
}

}  // namespace detail

/// The regions of a workspace that hold codes, scales and means.
template <class Method>
struct quantized_regions {
  /// The quantizer of queries and keys.
  using qk = typename Method::score_quantizer;
  /// The quantizer of values.
  using pv = typename Method::value_quantizer;
  /// Queries that share a scale: a token_groups.
  using query_groups = typename Method::query_groups;
  /// Keys that share a scale: a token_groups.
  using key_groups = typename Method::key_groups;
  /// The element that codes of queries and keys lie in.
  using score_code = typename Method::score_code;
  /// The type of a value's code.
  using value_code = typename Method::value_code;
  static constexpr bool smooths_keys = has_mean_of_tokens<qk>;  ///< whether the mean key is subtracted
  /// Whether the mean of each block of queries is subtracted.
  static constexpr bool smooths_queries = is_smoothed_by<block_mean, qk>;
  static constexpr bool smooths_values = has_mean_of_tokens<pv>;  ///< whether the mean value is subtracted
  /// The sample of keys that the mean key is taken over.
  static constexpr token_sample key_sample = mean_sample<qk>;
  /// The sample of values that their scales and their mean are taken over.
  static constexpr token_sample value_sample = range_sample<pv>;
  /// Whether scales of values are fitted to a sample, so that not all values are read before they are coded.
  static constexpr bool samples_values = value_sample.longest_step > 1;
  static_assert(!smooths_values || mean_sample<pv>.longest_step == value_sample.longest_step,
                "tessera: smoothed values have the mean and the range of all tokens or both of a sample: "
                "smoothed<sampled_range<Q>, sampled_mean> or smoothed<Q>");

  attention_shape shape;           ///< extents of the operands
  quantized_parts parts;           ///< the parts that there is room for
  workspace_plan plan;             ///< the plan of the regions below
  region<score_code> query_codes;  ///< batch x query heads x padded queries x elements()
  region<float> query_scales;      ///< batch x query heads x query_scale_count()
  region<float> mean_scores;       ///< scores of the mean key: batch x query heads x queries
  region<float> corrections;       ///< scores of mean queries: batch x query heads x query_blocks() x padded keys
  region<correction_range> correction_ranges;  ///< batch x query heads x query_blocks() x tiles of 128 keys
  region<score_code> key_codes;                ///< batch x key heads x padded keys x elements()
  region<float> key_scales;                    ///< batch x key heads x key_scale_count()
  region<float> key_mean;                      ///< batch x key heads x channels
  region<value_code> value_codes;              ///< batch x key heads x tiles of 128 keys x value channels x 128
  region<float> value_scales;                  ///< batch x key heads x value channels
  region<float> value_mean;                    ///< batch x key heads x value channels

  /// Throws shape_error for extents whose product overflows, whatever parts are wanted.
  quantized_regions(char const* where, attention_shape const& of, quantized_parts wanted = {},
                    workspace_plan::record record = workspace_plan::record::entries)
      : shape(checked_extents(where, of)),
        parts(wanted),
        plan(where, record),
        query_codes(plan.add<score_code>(
            "codes of queries", parts.queries ? size(where, query_heads(), padded_tokens(of.queries), elements()) : 0)),
        query_scales(plan.add<float>("scales of queries", parts.queries ? query_heads() * query_scale_count() : 0)),
        mean_scores(plan.add<float>("scores of the mean key", smooths_keys && parts.queries && parts.mean_scores
                                                                  ? query_heads() * of.queries
                                                                  : 0)),
        corrections(plan.add<float>(
            "scores of mean queries",
            smooths_queries && parts.queries ? size(where, query_heads(), query_blocks(), padded_tokens(of.keys)) : 0)),
        correction_ranges(
            plan.add<correction_range>("ranges of scores of mean queries", corrections.count / attention_padding)),
        key_codes(plan.add<score_code>("codes of keys",
                                       parts.keys ? size(where, key_heads(), padded_tokens(of.keys), elements()) : 0)),
        key_scales(plan.add<float>("scales of keys", parts.keys ? key_heads() * key_scale_count() : 0)),
        key_mean(plan.add<float>("mean of keys", smooths_keys && parts.keys ? key_heads() * of.channels : 0)),
        value_codes(plan.add<value_code>(
            "codes of values",
            parts.values ? size(where, key_heads(), padded_tokens(of.keys), of.channels_of_values()) : 0)),
        value_scales(plan.add<float>("scales of values", parts.values ? key_heads() * of.channels_of_values() : 0)),
        value_mean(plan.add<float>("mean of values",
                                   smooths_values && parts.values ? key_heads() * of.channels_of_values() : 0)) {}

  /// Elements of type score_code that hold the codes of a query or a key.
  [[nodiscard]] std::int64_t elements() const { return shape.channels / codes_in<score_code>; }
  /// Scales of a query head.
  [[nodiscard]] std::int64_t query_scale_count() const { return query_groups::count(padded_tokens(shape.queries)); }
  /// Scales of a key head.
  [[nodiscard]] std::int64_t key_scale_count() const { return key_groups::count(padded_tokens(shape.keys)); }
  /// Blocks of queries that have a mean.
  [[nodiscard]] std::int64_t query_blocks() const { return divide_up(shape.queries, std::int64_t{block_mean::tokens}); }

  /// The operands in a workspace of a plan that begins like this one; parts that were left out have no data.
  [[nodiscard]] quantized_heads<Method> operands(workspace const& space) const {
    using detail::view_of;
    attention_shape const& s = shape;
    std::int64_t const queries = padded_tokens(s.queries);
    std::int64_t const keys = padded_tokens(s.keys);
    quantized_heads<Method> made;
    if (parts.queries) {
      made.queries.codes = view_of(space[query_codes], {s.batch, s.query_heads, queries, elements()});
      made.queries.scales = view_of(space[query_scales], {s.batch, s.query_heads, query_scale_count()});
    }
    if (smooths_keys && parts.queries && parts.mean_scores) {
      made.queries.mean_scores = view_of(space[mean_scores], {s.batch, s.query_heads, s.queries});
    }
    if (smooths_queries && parts.queries) {
      made.queries.corrections = view_of(space[corrections], {s.batch, s.query_heads, query_blocks(), keys});
      made.queries.correction_ranges =
          view_of(space[correction_ranges], {s.batch, s.query_heads, query_blocks(), keys / attention_padding});
    }
    if (parts.keys) {
      made.keys.codes = view_of(space[key_codes], {s.batch, s.key_heads, keys, elements()});
      made.keys.scales = view_of(space[key_scales], {s.batch, s.key_heads, key_scale_count()});
    }
    if (smooths_keys && parts.keys) {
      made.keys.mean = view_of(space[key_mean], {s.batch, s.key_heads, s.channels});
    }
    if (parts.values) {
      made.values.codes = view_of(space[value_codes], {s.batch, s.key_heads, keys / attention_padding,
                                                       s.channels_of_values(), attention_padding});
      made.values.scales = view_of(space[value_scales], {s.batch, s.key_heads, s.channels_of_values()});
    }
    if (smooths_values && parts.values) {
      made.values.mean = view_of(space[value_mean], {s.batch, s.key_heads, s.channels_of_values()});
    }
    return made;
  }

 protected:
  /// Throws shape_error if the largest product of extents overflows; if it does not, smaller ones do not, either.
  static attention_shape const& checked_extents(char const* where, attention_shape const& s) {
    std::int64_t const tokens = max(padded_tokens(max(s.queries, s.keys)), attention_padding);
    std::int64_t const heads = max(s.query_heads, s.key_heads);
    static_cast<void>(size(where, checked_multiply(where, max(s.batch, std::int64_t{1}), heads), tokens,
                           max(s.channels, s.channels_of_values())));
    return s;
  }
  /// A product of extents, or shape_error.
  static std::int64_t size(char const* where, std::int64_t heads, std::int64_t tokens, std::int64_t channels) {
    return checked_multiply(where, checked_multiply(where, heads, tokens), channels);
  }

 private:
  [[nodiscard]] std::int64_t query_heads() const { return shape.batch * shape.query_heads; }
  [[nodiscard]] std::int64_t key_heads() const { return shape.batch * shape.key_heads; }
};

/// All regions of the workspace: codes, scales and means, and the intermediate results of programs.
template <class Method>
struct quantization_regions : quantized_regions<Method> {
  /// Codes, scales and means.
  using base = quantized_regions<Method>;
  /// The softmax's state of a row of scores.
  using state_type = typename Method::softmax::state_type;
  region<channel_summary> key_summaries;    ///< summaries of blocks of 128 keys
  region<channel_summary> value_summaries;  ///< summaries of blocks of 128 values
  region<float> value_reciprocals;          ///< reciprocals of channels' scales
  region<std::uint32_t> values_beyond;      ///< flags of channels, then heads: have values beyond a sample's range
  region<channel_summary> query_summaries;  ///< summaries of parts of blocks of queries
  region<float> query_means;                ///< means of blocks of queries, rounded to the type of queries
  region<std::uint32_t> magnitudes;         ///< largest magnitudes of query heads, then of key heads
  region<float> totals;                     ///< sums of weighted values of splits of the keys
  region<attention_row<state_type>> rows;   ///< states of the softmax of splits of the keys
  region<std::uint32_t> counters;           ///< counters of attention's work items

  /// Throws shape_error for extents whose product overflows.
  quantization_regions(char const* where, attention_shape const& of, quantized_parts wanted = {},
                       workspace_plan::record record = workspace_plan::record::entries)
      : base(where, of, wanted, record),
        key_summaries(this->plan.template add<channel_summary>(
            "summaries of keys", base::smooths_keys && wanted.keys ? key_blocks() * of.channels : 0)),
        value_summaries(this->plan.template add<channel_summary>(
            "summaries of values", wanted.values ? key_blocks() * of.channels_of_values() : 0)),
        value_reciprocals(this->plan.template add<float>(
            "reciprocals of scales of values", wanted.values ? of.batch * of.key_heads * of.channels_of_values() : 0)),
        values_beyond(this->plan.template add<std::uint32_t>(
            "values beyond samples' ranges",
            base::samples_values && wanted.values ? of.batch * of.key_heads * (of.channels_of_values() + 1) : 0)),
        query_summaries(this->plan.template add<channel_summary>(
            "summaries of queries", base::smooths_queries && wanted.queries ? summary_blocks() * of.channels : 0)),
        query_means(this->plan.template add<float>(
            "means of queries", base::smooths_queries && wanted.queries ? mean_blocks() * of.channels : 0)),
        magnitudes(
            this->plan.template add<std::uint32_t>("magnitudes of heads", of.batch * (of.query_heads + of.key_heads))),
        totals(this->plan.template add<float>(
            "totals of splits of rows",
            wanted.queries ? base::size(where, split_rows(), of.channels_of_values(), 1) : 0)),
        rows(this->plan.template add<attention_row<state_type>>("splits of rows", wanted.queries ? split_rows() : 0)),
        counters(this->plan.template add<std::uint32_t>("counters", 1)) {}

  /// The number of splits of the keys: so many that there are enough groups for any machine, but no split
  /// has fewer than four tiles. Where queries are few, those of all query heads of a key head count as one group. The
  /// number does not depend on the machine, so that results do not, either.
  [[nodiscard]] std::int64_t splits() const {
    constexpr std::int64_t least_keys = 4 * attention_padding;
    constexpr std::int64_t most = most_attention_splits;
    attention_shape const& s = this->shape;
    std::int64_t const together = s.query_heads / s.key_heads * s.queries;
    bool const is_few = s.queries <= few_queries;
    std::int64_t const groups =
        s.batch * (is_few ? s.key_heads * divide_up(together, few_queries)
                          : s.query_heads * divide_up(s.queries, std::int64_t{queries_of_group}));
    constexpr std::int64_t enough_groups = 256;
    constexpr std::int64_t few_query_groups = 264;  // at most two for each of 132 multiprocessors
    std::int64_t const wanted = is_few ? few_query_groups / max(groups, std::int64_t{1})
                                       : divide_up(enough_groups, max(groups, std::int64_t{1}));
    return clamp(min(wanted, s.keys / least_keys), std::int64_t{1}, most);
  }

  /// Memory for the splits of the keys; null if there is one split.
  [[nodiscard]] attention_partials<state_type> partials(workspace const& space) const {
    attention_shape const& s = this->shape;
    if (rows.count == 0) {
      return {};
    }
    return {detail::view_of(space[totals], {splits(), s.batch, s.query_heads, s.queries, s.channels_of_values()}),
            detail::view_of(space[rows], {splits(), s.batch, s.query_heads, s.queries})};
  }

 private:
  static constexpr std::int64_t queries_of_group = 64;  ///< queries of a group, where they are not few

  /// How many rows all splits have together; 0 if there is one split.
  [[nodiscard]] std::int64_t split_rows() const {
    attention_shape const& s = this->shape;
    return splits() == 1 ? 0 : splits() * s.batch * s.query_heads * s.queries;
  }
  [[nodiscard]] std::int64_t key_blocks() const {
    attention_shape const& s = this->shape;
    return s.batch * s.key_heads * divide_up(s.keys, attention_padding);
  }
  [[nodiscard]] std::int64_t mean_blocks() const {
    return this->shape.batch * this->shape.query_heads * this->query_blocks();
  }
  [[nodiscard]] std::int64_t summary_blocks() const {
    attention_shape const& s = this->shape;
    return s.batch * s.query_heads * divide_up(s.queries, std::int64_t{block_mean::part});
  }
};

}  // namespace v0
}  // namespace tessera
