// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `parameter_store`: the parameters of a model, kept compressed and decoded one at a time where they are used, for
/// training and inference (NeuZip's algorithm 1, with gradients taken at the weights before the update).
///
///     tessera::parameter_store<tessera::neuzip, tessera::cpu> store(exec);
///     auto const first = store.add("layer.0.weight", weights);      // compresses; `weights` may go
///     ...
///     auto lease = store.acquire(first);                            // decodes into scratch
///     store.prefetch(second);                                       // meanwhile, on CUDA on a stream of its own
///     exec.run(backward{lease.weights(), gradient}, tiles);
///     store.sgd_update(first, lease, gradient, 0.01F);              // w -= rate * g, then encodes again in place
///     lease.release();
///     ...
///     store.resolve();                                              // once a step or so: waits, grows small slots
///
/// On CUDA acquire, prefetch, update and sgd_update wait for nothing, allocate no memory of the executor, and can be
/// captured in a CUDA graph (a prefetch together with the acquire that uses it). A graph keeps addresses: capture it
/// again after an add, or after a resolve that made slots larger.
///
/// Memory, all of it from exec.memory(), counted in bytes(), and known beforehand by plan(exec, counts, options):
///     streams     a slot for each parameter: 64 bytes + its first encoded size * (1 + slack) + headroom, at most the
///                 largest size
///     scratch     scratch_slots times the largest parameter, decoded
///     staging     one largest stream: encoding goes there first, so that a slot always holds a whole stream; and
///                 its size, 8 bytes
///     overflow    overflow_tensors times the blocks of the largest parameter, decoded; and 16 bytes
///     workspace   that of one encoding and of scratch_slots decodings
///
/// Overflow: each update encodes a parameter again, and the new stream may be larger than the slot. Then the blocks
/// that do not fit are kept as uncompressed weights in the overflow arena, from which acquire reads them: nothing is
/// lost, and nothing waits. resolve() gives such parameters larger slots. If the arena is full before that, the update
/// is refused: the parameter keeps the weights of its previous update, and the next wait() or resolve() throws
/// shape_error with the parameter's number.
///
/// An add that throws, for instance because there is no memory, leaves all parameters as they were and the store
/// usable. Shared memory stays as large as it had become by then. A resolve that throws may have made some slots
/// larger; the next resolve continues.
///
/// A store and its leases are for one thread at a time. The store cannot be moved, and must outlive the work that uses
/// its weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/algorithm/weights/compressed_weights.hpp>
#include <tessera/algorithm/weights/parameter_lease.hpp>
#include <tessera/algorithm/weights/parameter_store_types.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/math.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/memory.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/exec/status_calls.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/weights/parameter_slots.hpp>
#include <tessera/program/weights/sgd_step.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

template <class Codec, class Exec>
class parameter_store {
 public:
  using value_type = typename Codec::value_type;
  /// The decoded weights of a parameter, for as long as they are needed.
  using lease = parameter_lease<value_type>;

  /// The most memory that a store of parameters with so many weights takes, whatever their values are; streams usually
  /// take two thirds of what is counted for them. While parameters are added or grow, one buffer exists twice.
  [[nodiscard]] static workspace_plan plan(Exec const& exec, std::vector<std::int64_t> const& counts,
                                           parameter_store_options options = {}) {
    checked(options);
    workspace_plan plan("parameter_store");
    shared_sizes shared;
    std::int64_t streams = 0;
    for (std::int64_t const count : counts) {
      parameter const p = parameter_of(exec, count, options);
      streams = checked_add("parameter_store", streams, record_bytes + staging_bytes(p.spec));
      shared.cover(p);
    }
    std::int64_t const one = counts.empty() ? 0 : 1;
    std::int64_t const slots = options.scratch_slots;
    plan.add<std::byte>("streams, at most", streams);
    plan.add<value_type>("scratch", checked_multiply("parameter_store", slots, shared.weights));
    plan.add<std::byte>("staging", shared.staging);
    plan.add<std::int64_t>("size of the staged stream", one);
    plan.add<value_type>("overflow", checked_multiply("parameter_store", options.overflow_tensors, shared.padded));
    plan.add<overflow_state>("state of the overflow", one);
    plan.add<std::byte>("workspace of an encoding", shared.encoding);
    plan.add<std::byte>("workspace of decodings", slots * shared.decoding);
    return plan;
  }

  /// An empty store. Throws value_error for impossible options.
  explicit parameter_store(Exec const& exec, parameter_store_options options = {})
      : options_(checked(options)),
        exec_(exec),
        tracking_(exec.memory()),
        table_(std::make_shared<detail::scratch_table>()),
        scratch_(static_cast<std::size_t>(options.scratch_slots)),
        tables_(static_cast<std::size_t>(options.scratch_slots)),
        side_(exec, options.scratch_slots) {
    table_->slots.resize(static_cast<std::size_t>(options.scratch_slots));
  }
  parameter_store(parameter_store const&) = delete;
  parameter_store& operator=(parameter_store const&) = delete;

  /// Compresses a parameter into the store. Allocates and waits; after it `weights` (in memory of the executor) is no
  /// longer needed. No lease may be held. If it throws, nothing was added, and all other parameters are as they were.
  parameter_id add(std::string name, array_view<value_type const> weights) {
    constexpr char const* where = "parameter_store.add";
    check_no_leases(where);
    check_reach(exec_, where, "weights", weights);
    for (std::int64_t i = 0; i < size(); ++i) {
      check<value_error>(at(i).name != name, where, ": the name ", name, " is that of parameter ", i, " already");
    }
    resolve();
    parameter added = parameter_of(exec_, weights.size(), options_);
    added.name = std::move(name);
    reserve_for(added);
    encode(added, weights);
    std::int64_t const bytes = staged_size();
    move_to_new_slot(added, size(), weights, bytes);
    exec_.wait();
    parameters_.push_back(std::move(added));
    return {size() - 1};
  }

  /// The parameter of that name.
  [[nodiscard]] parameter_id find(std::string const& name) const {
    for (std::int64_t i = 0; i < size(); ++i) {
      if (at(i).name == name) {
        return {i};
      }
    }
    throw value_error(join("parameter_store.find: there is no parameter ", name, " among ", size()));
  }
  /// The number of parameters in the store.
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(parameters_.size()); }
  /// The name that a parameter was added with.
  [[nodiscard]] std::string const& name(parameter_id id) const { return known("parameter_store.name", id).name; }
  /// The number of weights of a parameter.
  [[nodiscard]] std::int64_t count(parameter_id id) const { return known("parameter_store.count", id).spec.count; }

  /// Decodes a parameter into a slot of scratch, or takes the slot that a prefetch has filled. wait() reports a corrupt
  /// stream.
  [[nodiscard]] lease acquire(parameter_id id) {
    constexpr char const* where = "parameter_store.acquire";
    parameter const& p = known(where, id);
    check<value_error>(table_->find(id, use::leased) == none, where, ": parameter ", id.number, " (", p.name,
                       ") is leased already, in slot ", table_->find(id, use::leased));
    int slot = table_->find(id, use::prefetched);
    if (slot != none) {
      side_.join(slot);
    } else {
      slot = take_slot(where);
      decode(exec_, p, id, slot);
    }
    (*table_)[slot] = {id, use::leased, 0};
    return lease(table_, slot, id, weights_in(slot, p));
  }

  /// Starts to decode a parameter that acquire will ask for soon, in parallel with work enqueued from now on. Returns
  /// true if it is decoded or being decoded; false, and does nothing, if all slots are leased or this parameter is.
  bool prefetch(parameter_id id) {
    parameter const& p = known("parameter_store.prefetch", id);
    if (table_->find(id, use::prefetched) != none) {
      return true;
    }
    int const slot = table_->find_free();
    if (slot == none || table_->find(id, use::leased) != none) {
      return false;
    }
    side_.follow();
    decode(side_.executor(), p, id, slot);
    side_.mark(slot);
    (*table_)[slot] = {id, use::prefetched, ++table_->clock};
    return true;
  }

  /// Keeps the current weights of the lease: encodes them into the parameter's slot. The lease stays valid.
  void update(parameter_id id, lease const& held) {
    static_assert(Codec::is_lossless,
                  "tessera: a parameter_store is updated with a lossless codec only, since every update of a "
                  "lossy one would round all weights again");
    parameter& p = checked_lease("parameter_store.update", id, held);
    encode(p, held.weights());
    settle(p, id.number, held.weights());
  }

  /// Applies weights -= rate * gradient (program/weights/sgd_step.hpp has the rounding), then update.
  template <class Gradient>
  void sgd_update(parameter_id id, lease const& held, view<Gradient, 1> gradient, float rate) {
    constexpr char const* where = "parameter_store.sgd_update";
    parameter const& p = checked_lease(where, id, held);
    check<shape_error>(gradient.size() == p.spec.count, where, ": the gradient has ", gradient.size(),
                       " elements but parameter ", id.number, " (", p.name, ") has ", p.spec.count);
    check_memory(where, "gradients", gradient);
    check<value_error>(is_finite(rate), where, ": the learning rate is ", rate, " but must be finite");
    sgd_step<value_type, std::remove_const_t<Gradient>> const step{held.weights(), gradient, rate};
    exec_.run(step, step.groups());
    update(id, held);
  }

  /// Waits, throws what was reported, and gives every parameter that has overflowed a slot that it fits. Returns how
  /// many there were. No lease may be held.
  std::int64_t resolve() {
    check_no_leases("parameter_store.resolve");
    wait();
    if (parameters_.empty() || read(overflow_.view())[0].overflows == 0) {
      return 0;
    }
    std::int64_t grown = 0;
    for (std::int64_t i = 0; i < size(); ++i) {
      array_view<stream_record> const kept(record_of(at(i)), 1);
      std::vector<stream_record> record = read(kept);
      if (record[0].first_over < at(i).spec.block_count()) {
        grow(parameters_[static_cast<std::size_t>(i)], {i});
        ++grown;
      } else if (record[0].arena_blocks > 0) {  // it fits again, so that its blocks in the arena are freed for others
        record[0].arena_blocks = 0;
        exec_.copy(record, kept);
        exec_.wait();
      }
    }
    exec_.clear(overflow_);
    wait();
    return grown;
  }

  /// Waits for all enqueued work, and throws what was reported.
  void wait() {
    side_.wait();
    exec_.wait();
  }

  /// Bytes of memory that a parameter's slot takes, however much of it the stream fills.
  [[nodiscard]] std::int64_t bytes_compressed(parameter_id id) const {
    return static_cast<std::int64_t>(known("parameter_store.bytes_compressed", id).slot.bytes());
  }
  /// All bytes that the store has allocated.
  [[nodiscard]] parameter_store_bytes bytes() const {
    parameter_store_bytes sum;
    for (parameter const& p : parameters_) {
      sum.streams += static_cast<std::int64_t>(p.slot.bytes());
    }
    for (std::size_t i = 0; i < scratch_.size(); ++i) {
      sum.scratch += static_cast<std::int64_t>(scratch_[i].bytes());
      sum.workspace += static_cast<std::int64_t>(tables_[i].bytes());
    }
    sum.staging = static_cast<std::int64_t>(staging_.bytes() + staged_bytes_.bytes());
    sum.overflow = static_cast<std::int64_t>(arena_.bytes() + overflow_.bytes());
    sum.workspace += static_cast<std::int64_t>(encode_memory_.bytes());
    return sum;
  }
  /// The most bytes that were allocated at a time.
  [[nodiscard]] std::int64_t peak_bytes() const { return static_cast<std::int64_t>(tracking_.peak_bytes()); }

 private:
  using use = detail::scratch_table::use;
  static constexpr int none = detail::scratch_table::no_slot;
  static constexpr std::int64_t record_bytes = sizeof(stream_record);

  struct parameter {
    std::string name;
    weight_stream_spec spec;
    workspace_plan encode_plan{"parameter_store"};
    workspace_plan decode_plan{"parameter_store"};
    buffer<std::byte> slot;  ///< a stream_record, then the stream
  };
  static_assert(std::is_nothrow_move_constructible_v<parameter>);  // a push_back that throws changes nothing

  /// What parameters share must be as large as the largest of them needs it.
  struct shared_sizes {
    std::int64_t weights = 0;   ///< weights of a slot of scratch
    std::int64_t padded = 0;    ///< weights of all blocks of a parameter
    std::int64_t staging = 0;   ///< bytes of a stream
    std::int64_t encoding = 0;  ///< bytes of the workspace of an encoding
    std::int64_t decoding = 0;  ///< bytes of the workspace of a decoding

    void cover(parameter const& p) {
      weights = max(weights, p.spec.count);
      padded = max(padded, p.spec.block_count() * p.spec.block_weights());
      staging = max(staging, staging_bytes(p.spec));
      encoding = max(encoding, p.encode_plan.bytes());
      decoding = max(decoding, p.decode_plan.bytes());
    }
  };

  /// A parameter without a name and without memory.
  static parameter parameter_of(Exec const& exec, std::int64_t count, parameter_store_options const& options) {
    parameter made;
    made.spec = Codec::spec(count, {.block = options.block});
    made.encode_plan = Codec::plan_encode(exec, made.spec);
    made.decode_plan = Codec::plan_decode(exec, made.spec);
    return made;
  }

  static parameter_store_options checked(parameter_store_options options) {
    constexpr char const* where = "parameter_store";
    check<value_error>(options.scratch_slots >= 1, where, ": there are ", options.scratch_slots,
                       " slots of scratch but must be at least ", 1);
    check<value_error>(options.slack >= 0 && options.slack <= 1, where, ": the slack is ", options.slack,
                       " but must be from 0 to ", 1);
    check<value_error>(options.headroom >= 0, where, ": the headroom is ", options.headroom,
                       " bytes but must be at least ", 0);
    check<value_error>(options.overflow_tensors >= 0, where, ": the overflow arena is for ", options.overflow_tensors,
                       " tensors but must be for at least ", 0);
    return options;
  }

  [[nodiscard]] parameter const& at(std::int64_t i) const { return parameters_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] parameter const& known(char const* where, parameter_id id) const {
    check<value_error>(id.number >= 0 && id.number < size(), where, ": the parameter is number ", id.number,
                       " but the store has ", size());
    return at(id.number);
  }
  parameter& checked_lease(char const* where, parameter_id id, lease const& held) {
    parameter const& p = known(where, id);
    held.check_held(where);
    check<value_error>(held.table_ == table_, where, ": the lease is of parameter ", held.parameter_.number,
                       " of another store, not of this one's ", id.number);
    check<value_error>(held.parameter_ == id, where, ": the lease is of parameter ", held.parameter_.number,
                       " but the call is for parameter ", id.number, " (", p.name, ")");
    return parameters_[static_cast<std::size_t>(id.number)];
  }
  void check_no_leases(char const* where) const {
    check<value_error>(table_->leases() == 0, where, ": ", table_->leases(), " leases are held but must be ", 0);
  }

  /// Takes a slot of scratch that the executor may write to from now on.
  int take_slot(char const* where) {
    int const slot = table_->find_free();
    check<value_error>(slot != none, where, ": ", table_->leases(), " leases are held but the slots of scratch are ",
                       table_->size());
    if ((*table_)[slot].state == use::prefetched) {
      side_.join(slot);  // its weights are written on the side queue
    }
    (*table_)[slot].state = use::none;
    return slot;
  }

  [[nodiscard]] array_view<value_type> weights_in(int slot, parameter const& p) {
    return {scratch_[static_cast<std::size_t>(slot)].data(), p.spec.count};
  }
  [[nodiscard]] static stream_record* record_of(parameter const& p) {
    return reinterpret_cast<stream_record*>(const_cast<std::byte*>(p.slot.data()));
  }
  [[nodiscard]] array_view<std::byte> staging_of(parameter const& p) {
    return {staging_.data(), staging_bytes(p.spec)};
  }
  [[nodiscard]] static std::int64_t staging_bytes(weight_stream_spec const& spec) {
    return align_up(Codec::largest_bytes(spec), std::int64_t{16});
  }

  [[nodiscard]] parameter_stream<value_type> stream_of(parameter const& p, std::int64_t number, value_type* weights) {
    parameter_stream<value_type> stream;
    stream.spec = p.spec;
    stream.record = record_of(p);
    stream.slot = reinterpret_cast<std::uint8_t*>(record_of(p) + 1);
    stream.capacity = p.slot.size() - record_bytes;
    stream.staged = reinterpret_cast<std::uint8_t*>(staging_.data());
    stream.staged_bytes = staged_bytes_.data();
    stream.weights = weights;
    stream.arena = arena_.data();
    stream.arena_blocks = arena_.size() / p.spec.block_weights();
    stream.overflow = overflow_.data();
    stream.number = number;
    stream.status = status_of(exec_, {"parameter_store.update", "parameter"});
    return stream;
  }

  void decode(Exec const& where, parameter const& p, parameter_id id, int slot) {
    array_view<value_type> const weights = weights_in(slot, p);
    array_view<std::byte const> const stream(p.slot.data() + record_bytes, p.slot.size() - record_bytes);
    Codec::decode(where, p.spec, stream, weights, workspace(p.decode_plan, tables_[static_cast<std::size_t>(slot)]));
    where.run(restore_overflow<value_type>{stream_of(p, id.number, weights.data)}, p.spec.block_count());
  }

  void encode(parameter const& p, array_view<value_type const> weights) {
    Codec::encode(exec_, p.spec, weights, staging_of(p), staged_bytes_, workspace(p.encode_plan, encode_memory_));
  }

  /// Moves the staged stream to the parameter's slot, and blocks that do not fit to the arena.
  void settle(parameter const& p, std::int64_t number, array_view<value_type const> weights) {
    auto const stream = stream_of(p, number, const_cast<value_type*>(weights.data));  // these programs only read them
    exec_.run(settle_stream<value_type>{stream}, 1);
    move_stream<value_type> const move{stream};
    exec_.run(move, move.groups());
  }

  /// Moves the staged stream to a new slot.
  void move_to_new_slot(parameter& p, std::int64_t number, array_view<value_type const> weights, std::int64_t bytes) {
    buffer<std::byte> slot(record_bytes + capacity_for(p.spec, bytes), tracking_, exec_.stream);
    exec_.clear(slot);
    p.slot = std::move(slot);
    settle(p, number, weights);
  }

  [[nodiscard]] std::int64_t capacity_for(weight_stream_spec const& spec, std::int64_t bytes) const {
    auto const slack = static_cast<std::int64_t>(static_cast<double>(bytes) * options_.slack);
    std::int64_t const wanted =
        max(bytes + slack + options_.headroom, parameter_stream<value_type>::smallest_capacity(spec));
    return min(align_up(wanted, std::int64_t{16}), staging_bytes(spec));
  }

  void grow(parameter& p, parameter_id id) {
    int const slot = take_slot("parameter_store.resolve");
    decode(exec_, p, id, slot);
    encode(p, weights_in(slot, p));
    std::int64_t const bytes = staged_size();
    move_to_new_slot(p, id.number, weights_in(slot, p), bytes);
    exec_.wait();
  }

  /// Waits for the size of the staged stream, and returns it.
  [[nodiscard]] std::int64_t staged_size() { return read(staged_bytes_.view())[0]; }

  /// Waits for a copy of elements in any memory, and returns it.
  template <class T>
  [[nodiscard]] std::vector<T> read(array_view<T> elements) {
    std::vector<T> copy(static_cast<std::size_t>(elements.size()));
    exec_.copy(elements, copy);
    exec_.wait();
    return copy;
  }

  /// Makes all shared memory large enough for one more parameter; the contents of the shared buffers are lost. If one
  /// of the allocations fails, all buffers are still large enough for the parameters in the store.
  void reserve_for(parameter const& added) {
    shared_sizes wanted;
    wanted.cover(added);
    for (parameter const& p : parameters_) {
      wanted.cover(p);
    }
    for (int slot = 0; slot < table_->size(); ++slot) {
      (*table_)[slot].state = use::none;  // a prefetched parameter is decoded anew
      enlarge(scratch_[static_cast<std::size_t>(slot)], wanted.weights);
      enlarge(tables_[static_cast<std::size_t>(slot)], wanted.decoding);
    }
    enlarge(staging_, wanted.staging);
    enlarge(staged_bytes_, 1);
    enlarge(encode_memory_, wanted.encoding);
    enlarge(arena_, options_.overflow_tensors * wanted.padded);
    if (overflow_.is_empty()) {
      buffer<overflow_state> empty(1, tracking_, exec_.stream);
      exec_.clear(empty);
      overflow_ = std::move(empty);
    }
  }
  /// Makes a buffer larger. Frees the old memory only after the new memory is allocated, so that a failure leaves the
  /// store usable. At most one buffer exists twice at a time.
  template <class T>
  void enlarge(buffer<T>& memory, std::int64_t size) {
    if (memory.size() < size) {
      memory = buffer<T>(size, tracking_, exec_.stream);
    }
  }

  parameter_store_options options_;
  Exec exec_;
  tracking_memory tracking_;
  std::shared_ptr<detail::scratch_table> table_;
  std::vector<parameter> parameters_;
  std::vector<buffer<value_type>> scratch_;
  std::vector<buffer<std::byte>> tables_;
  buffer<std::byte> staging_;
  buffer<std::int64_t> staged_bytes_;
  buffer<std::byte> encode_memory_;
  buffer<value_type> arena_;
  buffer<overflow_state> overflow_;
  side_queue<Exec> side_;  ///< the last member, so that it ends before the memory that it uses
};

}  // namespace v0
}  // namespace tessera
