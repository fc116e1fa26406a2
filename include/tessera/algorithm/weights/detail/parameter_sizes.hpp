// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What a parameter_store knows of a parameter, and the sizes of the memory that its parameters share.
///
///     detail::parameter_sizes<Codec> sizes(options);
///     sizes.cover(detail::stored_parameter<Codec>::of(exec, count, options));
///     sizes.scratch(0);                                             // weights of the first pair of slots
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/weights/parameter_store_types.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/math.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/weights/detail/parameter_parts.hpp>
#include <tessera/program/weights/parameter_slots.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Throws value_error for options that no store can have. Returns them.
inline parameter_store_options checked(parameter_store_options options) {
  constexpr char const* where = "parameter_store";
  check<value_error>(options.scratch_slots >= 1, where, ": there are ", options.scratch_slots,
                     " slots of scratch but must be at least ", 1);
  check<value_error>(options.slack >= 0 && options.slack <= 1, where, ": the slack is ", options.slack,
                     " but must be from 0 to ", 1);
  check<value_error>(options.headroom >= 0, where, ": the headroom is ", options.headroom,
                     " bytes but must be at least ", 0);
  check<value_error>(options.overflow_tensors >= 0, where, ": the overflow arena is for ", options.overflow_tensors,
                     " tensors but must be for at least ", 0);
  constexpr std::int64_t unit = std::int64_t{1} << weight_stream_spec::largest_log2_block;
  check<value_error>(options.part > 0 && options.part % unit == 0, where, ": a part has ", options.part,
                     " weights but must have a multiple of ", unit);
  return options;
}

/// The room that the stream of a part takes at most.
template <class Codec>
std::int64_t staging_bytes(weight_stream_spec const& spec) {
  return align_up(Codec::largest_bytes(spec), std::int64_t{16});
}

/// Weights that are encoded at a time, and their stream.
struct stored_part {
  weight_stream_spec spec;
  std::int64_t first = 0;  ///< weights of the parts before it
  buffer<std::byte> slot;  ///< a stream_record, then the stream

  [[nodiscard]] stream_record* record() const {
    return reinterpret_cast<stream_record*>(const_cast<std::byte*>(slot.data()));
  }
  /// The room for the stream.
  [[nodiscard]] array_view<std::byte const> stream() const {
    constexpr std::int64_t record_bytes = sizeof(stream_record);
    return {slot.data() + record_bytes, slot.size() - record_bytes};
  }
};

/// A parameter of a store.
template <class Codec>
struct stored_parameter {
  std::string name;
  std::int64_t count = 0;
  std::vector<stored_part> parts;                 ///< one at least; the last may be shorter than the others
  workspace_plan encode_plan{"parameter_store"};  ///< for any of the parts
  workspace_plan decode_plan{"parameter_store"};  ///< for any of the parts

  /// A parameter without a name and without memory.
  template <class Exec>
  static stored_parameter of(Exec const& exec, std::int64_t count, parameter_store_options const& options) {
    static_cast<void>(Codec::spec(count, {.block = options.block}));  // throws for impossible counts
    stored_parameter made;
    made.count = count;
    std::int64_t first = 0;
    do {
      std::int64_t const weights = min(count - first, options.part);
      made.parts.push_back({Codec::spec(weights, {.block = options.block}), first, {}});
      first += weights;
    } while (first < count);
    made.encode_plan = Codec::plan_encode(exec, made.parts[0].spec);
    made.decode_plan = Codec::plan_decode(exec, made.parts[0].spec);
    return made;
  }

  /// The bytes of all slots.
  [[nodiscard]] std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (stored_part const& part : parts) {
      sum += static_cast<std::int64_t>(part.slot.bytes());
    }
    return sum;
  }
};

/// The sizes of what the parameters of a store share.
template <class Codec>
class parameter_sizes {
 public:
  using value_type = typename Codec::value_type;

  explicit parameter_sizes(parameter_store_options const& options) : options_(options) {}

  /// Whether parameters can be updated.
  static constexpr bool has_updates(parameter_store_options const& options) {
    return Codec::is_lossless && options.updates;
  }

  /// Takes account of one more parameter.
  void cover(stored_parameter<Codec> const& p) {
    auto const& part = p.parts[0];
    second_ = max(second_, min(largest_, p.count));
    largest_ = max(largest_, p.count);
    ++parameters_;
    has_parts_ = has_parts_ || p.parts.size() > 1;
    padded_ = max(padded_, part.spec.block_count() * part.spec.block_weights());
    staging_ = max(staging_, staging_bytes<Codec>(part.spec));
    encoding_ = max(encoding_, p.encode_plan.bytes());
    decoding_ = max(decoding_, p.decode_plan.bytes());
  }

  /// The slots of scratch that can be in use at a time.
  [[nodiscard]] std::int64_t slots() const { return min(std::int64_t{options_.scratch_slots}, parameters_); }
  /// The pairs of these slots; the last may be one slot.
  [[nodiscard]] std::int64_t pairs() const { return divide_up(slots(), std::int64_t{2}); }
  /// Weights of a pair of slots: room for any two parameters, or for any one. Where nothing is updated, the first pair
  /// is also the room for encoding a new parameter.
  [[nodiscard]] std::int64_t scratch(std::int64_t pair) const {
    bool const is_whole = 2 * pair + 1 < slots();
    std::int64_t const weights = is_whole ? aligned(largest_) + aligned(second_) : largest_;
    if (pair > 0 || has_updates(options_)) {
      return weights;
    }
    std::int64_t const bytes = encoding_offset(staging_) + encoding_;
    return max(weights, aligned(divide_up(bytes, static_cast<std::int64_t>(sizeof(value_type)))));
  }
  /// Bytes of a decoding's workspace, for each slot.
  [[nodiscard]] std::int64_t decoding() const { return decoding_; }
  /// Bytes of the stream that is being encoded, if it does not lie in scratch.
  [[nodiscard]] std::int64_t staging() const { return has_updates(options_) ? staging_ : 0; }
  /// Bytes of an encoding's workspace, if it does not lie in scratch.
  [[nodiscard]] std::int64_t encoding() const { return has_updates(options_) ? encoding_ : 0; }
  /// Weights of the overflow arena.
  [[nodiscard]] std::int64_t overflow() const {
    std::int64_t const tensors = has_updates(options_) ? options_.overflow_tensors : 0;
    return checked_multiply("parameter_store", tensors, padded_);
  }
  /// Elements of what there is one of in every store that has parameters.
  [[nodiscard]] std::int64_t one() const { return parameters_ > 0 ? 1 : 0; }
  /// The trials of updates in parts.
  [[nodiscard]] std::int64_t trials() const { return has_parts_ && has_updates(options_) ? 1 : 0; }

  /// `weights` and what follows them up to the next multiple of 256 bytes.
  static constexpr std::int64_t aligned(std::int64_t weights) {
    return align_up(weights, workspace_plan::alignment / static_cast<std::int64_t>(sizeof(value_type)));
  }
  /// The byte of scratch at which the workspace of an encoding begins, where it lies there.
  static constexpr std::int64_t encoding_offset(std::int64_t staging) {
    return align_up(staging, std::int64_t{workspace_plan::alignment});
  }

 private:
  parameter_store_options options_;
  std::int64_t parameters_ = 0;
  std::int64_t largest_ = 0;   ///< weights of the largest parameter
  std::int64_t second_ = 0;    ///< weights of the second largest parameter
  bool has_parts_ = false;     ///< a parameter has several parts
  std::int64_t padded_ = 0;    ///< weights of all blocks of a part
  std::int64_t staging_ = 0;   ///< bytes of a part's stream
  std::int64_t encoding_ = 0;  ///< bytes of the workspace of an encoding
  std::int64_t decoding_ = 0;  ///< bytes of the workspace of a decoding
};

/// Bytes of a slot for a stream of so many bytes.
template <class Codec>
std::int64_t slot_bytes(weight_stream_spec const& spec, std::int64_t bytes, parameter_store_options const& options) {
  auto const slack = static_cast<std::int64_t>(static_cast<double>(bytes) * options.slack);
  std::int64_t const growth = parameter_sizes<Codec>::has_updates(options) ? slack + options.headroom : 0;
  std::int64_t const least = parameter_stream<typename Codec::value_type>::smallest_capacity(spec);
  std::int64_t const wanted = align_up(max(bytes + growth, least), std::int64_t{16});
  return static_cast<std::int64_t>(sizeof(stream_record)) + min(wanted, staging_bytes<Codec>(spec));
}

/// All memory of a store.
template <class Codec, class Exec>
workspace_plan plan_parameters(Exec const& exec, std::vector<std::int64_t> const& counts,
                               parameter_store_options const& options) {
  constexpr char const* where = "parameter_store";
  parameter_sizes<Codec> shared(checked(options));
  std::int64_t streams = 0;
  for (std::int64_t const count : counts) {
    auto const p = stored_parameter<Codec>::of(exec, count, options);
    for (stored_part const& part : p.parts) {
      std::int64_t const most = staging_bytes<Codec>(part.spec);
      streams = checked_add(where, streams, static_cast<std::int64_t>(sizeof(stream_record)) + most);
    }
    shared.cover(p);
  }
  std::int64_t scratch = 0;
  for (std::int64_t pair = 0; pair < shared.pairs(); ++pair) {
    scratch = checked_add(where, scratch, shared.scratch(pair));
  }
  workspace_plan plan(where);
  plan.add<std::byte>("streams, at most", streams);
  plan.add<typename Codec::value_type>("scratch", scratch);
  plan.add<std::byte>("staging", shared.staging());
  plan.add<std::int64_t>("size of the staged stream", shared.one());
  plan.add<typename Codec::value_type>("overflow", shared.overflow());
  plan.add<overflow_state>("state of the overflow", shared.one());
  plan.add<update_trial>("trial of an update", shared.trials());
  plan.add<std::byte>("workspace of an encoding", shared.encoding());
  plan.add<std::byte>("workspace of decodings", shared.slots() * shared.decoding());
  return plan;
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
