// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The memory that the parameters of a parameter_store share: scratch for decoded weights, and what encoding needs.
///
///     detail::parameter_memory<Codec> memory(options, resource, stream);
///     memory.reserve(exec, sizes);                                  // for parameters of these sizes
///     memory.weights(slot, count);                                  // where a parameter is decoded
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/algorithm/weights/detail/parameter_sizes.hpp>
#include <tessera/algorithm/weights/parameter_store_types.hpp>
#include <tessera/core/math.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/memory.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/weights/detail/parameter_parts.hpp>
#include <tessera/program/weights/parameter_slots.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

template <class Codec>
class parameter_memory {
 public:
  using value_type = typename Codec::value_type;
  using sizes = parameter_sizes<Codec>;

  parameter_memory(parameter_store_options const& options, memory_handle memory, stream_handle stream)
      : has_updates_(sizes::has_updates(options)),
        memory_(std::move(memory)),
        stream_(stream),
        scratch_(static_cast<std::size_t>(divide_up(std::int64_t{options.scratch_slots}, std::int64_t{2}))),
        tables_(static_cast<std::size_t>(options.scratch_slots)) {}

  /// Makes all buffers large enough; what was in them is lost, and no work may use them. If an allocation fails,
  /// is_reserved() is false until a later call succeeds.
  template <class Exec>
  void reserve(Exec const& exec, sizes const& needed) {
    is_reserved_ = false;
    for (std::int64_t pair = 0; pair < needed.pairs(); ++pair) {
      enlarge(scratch_[static_cast<std::size_t>(pair)], needed.scratch(pair));
    }
    for (std::int64_t slot = 0; slot < needed.slots(); ++slot) {
      enlarge(tables_[static_cast<std::size_t>(slot)], needed.decoding());
    }
    enlarge(staging_, needed.staging());
    enlarge(staged_bytes_, needed.one());
    enlarge(encoding_, needed.encoding());
    enlarge(arena_, needed.overflow());
    enlarge(trial_, needed.trials());
    if (overflow_.is_empty()) {
      buffer<overflow_state> empty(1, memory_, stream_);
      exec.clear(empty);
      overflow_ = std::move(empty);
    }
    is_reserved_ = true;
  }
  [[nodiscard]] bool is_reserved() const { return is_reserved_; }

  /// The weights of a parameter in a slot. Two slots share a buffer: the weights of the first begin where it begins,
  /// those of the second end where it ends. Slots in use are those of different parameters, so that they do not meet.
  [[nodiscard]] array_view<value_type> weights(int slot, std::int64_t count) {
    buffer<value_type>& pair = scratch_[static_cast<std::size_t>(slot / 2)];
    return {pair.data() + (slot % 2 == 0 ? 0 : pair.size() - sizes::aligned(count)), count};
  }
  /// The workspace of a decoding into a slot.
  [[nodiscard]] array_view<std::byte> tables(int slot) { return tables_[static_cast<std::size_t>(slot)]; }
  /// Room for the stream of a part. If no parameter is ever updated, it is in scratch, where no weights are in use
  /// while parameters are added; and so is the workspace of the encoding.
  [[nodiscard]] array_view<std::byte> staging(weight_stream_spec const& spec) {
    std::byte* const first = has_updates_ ? staging_.data() : reinterpret_cast<std::byte*>(scratch_[0].data());
    return {first, staging_bytes<Codec>(spec)};
  }
  /// The workspace in which a part of the parameter is encoded.
  [[nodiscard]] workspace encoding(stored_parameter<Codec> const& p) {
    if (has_updates_) {
      return {p.encode_plan, encoding_};
    }
    array_view<std::byte> const staged = staging(p.parts[0].spec);
    std::byte* const first = staged.data + sizes::encoding_offset(staged.size());
    return {p.encode_plan, array_view<std::byte>(first, p.encode_plan.bytes())};
  }
  /// One element: the bytes of the stream in staging.
  [[nodiscard]] array_view<std::int64_t> staged_bytes() { return staged_bytes_; }
  /// The state of the overflow arena. Empty if there are no parameters yet.
  [[nodiscard]] array_view<overflow_state> overflow() { return overflow_; }
  [[nodiscard]] update_trial* trial() { return trial_.data(); }

  /// The memory of one part; without a number and a status. `weights` are those of the parameter.
  [[nodiscard]] parameter_stream<value_type> stream_of(stored_part const& part, value_type* weights) {
    parameter_stream<value_type> stream;
    stream.spec = part.spec;
    stream.record = part.record();
    stream.slot = reinterpret_cast<std::uint8_t*>(stream.record + 1);
    stream.capacity = part.stream().size();
    stream.staged = reinterpret_cast<std::uint8_t*>(staging(part.spec).data);
    stream.staged_bytes = staged_bytes_.data();
    stream.weights = weights + part.first;
    stream.arena = arena_.data();
    stream.arena_blocks = arena_.size() / part.spec.block_weights();
    stream.overflow = overflow_.data();
    return stream;
  }

  /// The bytes of all buffers.
  [[nodiscard]] parameter_store_bytes bytes() const {
    parameter_store_bytes sum;
    for (buffer<value_type> const& pair : scratch_) {
      sum.scratch += static_cast<std::int64_t>(pair.bytes());
    }
    sum.staging = static_cast<std::int64_t>(staging_.bytes() + staged_bytes_.bytes());
    sum.overflow = static_cast<std::int64_t>(arena_.bytes() + overflow_.bytes() + trial_.bytes());
    sum.workspace = static_cast<std::int64_t>(encoding_.bytes());
    for (buffer<std::byte> const& tables : tables_) {
      sum.workspace += static_cast<std::int64_t>(tables.bytes());
    }
    return sum;
  }

 private:
  /// Makes a buffer larger. Gives the old memory back first, so that there is never more than the plan says.
  template <class T>
  void enlarge(buffer<T>& memory, std::int64_t size) {
    if (memory.size() < size) {
      memory = buffer<T>();
      memory = buffer<T>(size, memory_, stream_);
    }
  }

  bool has_updates_;
  memory_handle memory_;
  stream_handle stream_;
  std::vector<buffer<value_type>> scratch_;  ///< a buffer for each pair of slots
  std::vector<buffer<std::byte>> tables_;    ///< a buffer for each slot
  buffer<std::byte> staging_;
  buffer<std::int64_t> staged_bytes_;
  buffer<std::byte> encoding_;
  buffer<value_type> arena_;
  buffer<overflow_state> overflow_;
  buffer<update_trial> trial_;
  bool is_reserved_ = true;
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
