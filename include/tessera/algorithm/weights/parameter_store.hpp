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
/// Memory, all of it from exec.memory(), counted in bytes(), and known beforehand by plan(exec, counts, options). A
/// part is as many weights of a parameter as are encoded at a time, options.part = 2^26 or fewer:
///     streams     a slot for each part: 64 bytes + its first encoded size * (1 + slack) + headroom, at most the
///                 largest size
///     scratch     the two largest parameters, decoded, for each pair of slots, and the largest for a slot without a
///                 pair; there are scratch_slots of them, but no more than parameters
///     staging     the largest stream of a part: encoding goes there first, so that a slot always holds a whole stream;
///                 and its size, 8 bytes
///     overflow    overflow_tensors times the blocks of the largest part, decoded; 16 bytes, and 128 if there are
///                 parameters of several parts
///     workspace   that of one encoding (bf16 on CPUs: half of the largest part, decoded; on CUDA devices kilobytes, if
///                 the codec is lossless) and of a decoding for each slot
/// Without updates there are no slack, headroom, staging and overflow; parameters are encoded in scratch.
///
/// All but the streams take so many times the bytes of the weights in bf16 on CUDA devices (in brackets: on CPUs, where
/// that differs), for one parameter of up to 2^26 weights, for one of 128256 x 4096, and for Llama-3-8B, which has two
/// of these (parameter_store_memory_test.cpp plans them):
///
///     options                                 one part       128256 x 4096   Llama-3-8B
///     defaults                                3.00 (3.50)    1.26 (1.32)     14.8 % (15.2 %)
///     .overflow_tensors = 0                   2.00 (2.50)    1.13 (1.19)     13.9 % (14.3 %)
///     .scratch_slots = 1                      3.00 (3.50)    1.26 (1.32)     8.2 % (8.6 %)
///     .updates = false                        1.00 (1.50)    1.00            13.1 %
///     .scratch_slots = 1, .updates = false    1.00 (1.50)    1.00            6.5 %
///     .part = 2^30 (one part for each)        3.00 (3.50)    3.00 (3.50)     26.2 % (29.4 %)
///
/// With streams of 10.67 bits and their slack Llama-3-8B takes 83 % of its bf16 bytes by default, and 73 % with one
/// slot and without updates. What is left has its reasons. A second slot lets prefetch decode while the first is used.
/// An update is kept as a whole or not at all and allocates nothing, so that the new stream has a place of its own
/// until it is known to fit. For parameters of several parts this place is as small as one part because they are
/// encoded twice: once to find out whether all parts fit, once to keep them. A smaller `part` takes less memory, but
/// then more parameters are encoded twice. The arena holds one update of a part, whatever the weights are.
///
/// Overflow: each update encodes a parameter again, and the new stream may be larger than the slot. Then the blocks
/// that do not fit are kept as uncompressed weights in the overflow arena, from which acquire reads them: nothing is
/// lost, and nothing waits. resolve() gives such parameters larger slots. If the arena is full before that, the update
/// is refused, for all parts: the parameter keeps the weights of its previous update, and the next wait() or resolve()
/// throws shape_error with the parameter's number.
///
/// An add that throws, for instance because there is no memory, leaves all parameters as they were and the store
/// usable: what shared memory it gave up for a larger one, the next acquire or prefetch allocates again. A resolve that
/// throws may have made some slots larger; the next resolve continues.
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
#include <tessera/algorithm/weights/detail/parameter_memory.hpp>
#include <tessera/algorithm/weights/detail/parameter_sizes.hpp>
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
#include <tessera/program/weights/detail/parameter_parts.hpp>
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
  /// take two thirds of what is counted for them. While a parameter grows, its slot exists twice.
  [[nodiscard]] static workspace_plan plan(Exec const& exec, std::vector<std::int64_t> const& counts,
                                           parameter_store_options options = {}) {
    return detail::plan_parameters<Codec>(exec, counts, options);
  }

  /// An empty store. Throws value_error for impossible options.
  explicit parameter_store(Exec const& exec, parameter_store_options options = {})
      : options_(detail::checked(options)),
        exec_(exec),
        tracking_(exec.memory()),
        table_(std::make_shared<detail::scratch_table>()),
        memory_(options_, tracking_, exec.stream),
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
    parameter added = parameter::of(exec_, weights.size(), options_);
    added.name = std::move(name);
    sizes needed = needed_sizes();
    needed.cover(added);
    drop_prefetched();
    memory_.reserve(exec_, needed);
    for (part& each : added.parts) {
      encode(added, each, weights);
      move_to_new_slot(each, size(), weights);
    }
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
  [[nodiscard]] std::int64_t count(parameter_id id) const { return known("parameter_store.count", id).count; }

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
    if ((*table_)[slot].state == use::prefetched) {
      side_.join(slot);  // what is decoded there may lie where another slot is next
    }
    reserve_again();
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
    array_view<value_type> const weights = held.weights();
    if (p.parts.size() == 1) {
      encode(p, p.parts[0], weights);
      settle(p.parts[0], id.number, weights);
      return;
    }
    for (part const& each : p.parts) {
      encode(p, each, weights);
      auto const stream = stream_of(each, id.number, weights.data);
      exec_.run(detail::try_part<value_type>{stream, memory_.trial(), each.first == 0}, 1);
    }
    for (part const& each : p.parts) {
      encode(p, each, weights);
      auto const stream = stream_of(each, id.number, weights.data);
      exec_.run(detail::settle_part<value_type>{stream, memory_.trial()}, 1);
      move(stream);
    }
  }

  /// Applies weights -= rate * gradient (program/weights/sgd_step.hpp has the rounding), then update.
  template <class Gradient>
  void sgd_update(parameter_id id, lease const& held, view<Gradient, 1> gradient, float rate) {
    constexpr char const* where = "parameter_store.sgd_update";
    parameter const& p = checked_lease(where, id, held);
    check<shape_error>(gradient.size() == p.count, where, ": the gradient has ", gradient.size(),
                       " elements but parameter ", id.number, " (", p.name, ") has ", p.count);
    check_memory(where, "gradients", gradient);
    check_reach(exec_, where, "gradients", gradient);
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
    if (parameters_.empty() || read(memory_.overflow())[0].overflows == 0) {
      return 0;
    }
    drop_prefetched();
    std::int64_t grown = 0;
    for (std::int64_t i = 0; i < size(); ++i) {
      grown += grow(parameters_[static_cast<std::size_t>(i)], {i}) ? 1 : 0;
    }
    exec_.clear(memory_.overflow());
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
    return known("parameter_store.bytes_compressed", id).bytes();
  }
  /// All bytes that the store has allocated.
  [[nodiscard]] parameter_store_bytes bytes() const {
    parameter_store_bytes sum = memory_.bytes();
    for (parameter const& p : parameters_) {
      sum.streams += p.bytes();
    }
    return sum;
  }
  /// The most bytes that were allocated at a time.
  [[nodiscard]] std::int64_t peak_bytes() const { return static_cast<std::int64_t>(tracking_.peak_bytes()); }

 private:
  using use = detail::scratch_table::use;
  static constexpr int none = detail::scratch_table::no_slot;
  using part = detail::stored_part;
  using parameter = detail::stored_parameter<Codec>;
  using sizes = detail::parameter_sizes<Codec>;
  static_assert(std::is_nothrow_move_constructible_v<parameter>);  // a push_back that throws changes nothing

  [[nodiscard]] parameter const& at(std::int64_t i) const { return parameters_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] parameter const& known(char const* where, parameter_id id) const {
    check<value_error>(id.number >= 0 && id.number < size(), where, ": the parameter is number ", id.number,
                       " but the store has ", size());
    return at(id.number);
  }
  parameter& checked_lease(char const* where, parameter_id id, lease const& held) {
    parameter const& p = known(where, id);
    check<value_error>(options_.updates, where, ": the store's option updates is ", options_.updates,
                       " but must be 1 for updates of parameter ", id.number, " (", p.name, ")");
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
    reserve_again();
    if ((*table_)[slot].state == use::prefetched) {
      side_.join(slot);  // its weights are written on the side queue
    }
    (*table_)[slot].state = use::none;
    return slot;
  }

  [[nodiscard]] array_view<value_type> weights_in(int slot, parameter const& p) {
    return memory_.weights(slot, p.count);
  }
  [[nodiscard]] parameter_stream<value_type> stream_of(part const& each, std::int64_t number, value_type* weights) {
    parameter_stream<value_type> stream = memory_.stream_of(each, weights);
    stream.number = number;
    stream.status = status_of(exec_, {"parameter_store.update", "parameter"});
    return stream;
  }

  void decode(Exec const& where, parameter const& p, parameter_id id, int slot) {
    array_view<value_type> const weights = weights_in(slot, p);
    workspace const space(p.decode_plan, memory_.tables(slot));
    for (part const& each : p.parts) {
      Codec::decode(where, each.spec, each.stream(), weights.slice(0, each.first, each.spec.count), space);
      restore_overflow<value_type> const restore{stream_of(each, id.number, weights.data)};
      where.run(restore, each.spec.block_count());
    }
  }

  /// Encodes a part of the weights into staging.
  void encode(parameter const& p, part const& each, array_view<value_type const> weights) {
    Codec::encode(exec_, each.spec, weights.slice(0, each.first, each.spec.count), memory_.staging(each.spec),
                  memory_.staged_bytes(), memory_.encoding(p));
  }

  /// Moves the staged stream to the part's slot, and blocks that do not fit to the arena.
  void settle(part const& each, std::int64_t number, array_view<value_type const> weights) {
    auto const stream = stream_of(each, number, const_cast<value_type*>(weights.data));  // only read
    exec_.run(settle_stream<value_type>{stream}, 1);
    move(stream);
  }
  void move(parameter_stream<value_type> const& stream) {
    move_stream<value_type> const move{stream};
    exec_.run(move, move.groups());
  }

  /// Waits for the staged stream's size, and moves the stream to a new slot.
  void move_to_new_slot(part& each, std::int64_t number, array_view<value_type const> weights) {
    std::int64_t const bytes = read(memory_.staged_bytes())[0];
    buffer<std::byte> slot(detail::slot_bytes<Codec>(each.spec, bytes, options_), tracking_, exec_.stream);
    exec_.clear(slot);
    each.slot = std::move(slot);
    settle(each, number, weights);
  }

  /// Gives new slots to those parts of a parameter that have overflowed. Returns whether there were any.
  bool grow(parameter& p, parameter_id id) {
    int slot = none;
    for (part& each : p.parts) {
      array_view<stream_record> const kept(each.record(), 1);
      std::vector<stream_record> record = read(kept);
      if (record[0].first_over < each.spec.block_count()) {
        if (slot == none) {
          slot = take_slot("parameter_store.resolve");
          decode(exec_, p, id, slot);
        }
        encode(p, each, weights_in(slot, p));
        move_to_new_slot(each, id.number, weights_in(slot, p));
        exec_.wait();
      } else if (record[0].arena_blocks > 0) {  // it fits again, so that its blocks in the arena are freed for others
        record[0].arena_blocks = 0;
        exec_.copy(record, kept);
        exec_.wait();
      }
    }
    return slot != none;
  }

  /// Waits for a copy of elements in any memory, and returns it.
  template <class T>
  [[nodiscard]] std::vector<T> read(array_view<T> elements) {
    std::vector<T> copy(static_cast<std::size_t>(elements.size()));
    exec_.copy(elements, copy);
    exec_.wait();
    return copy;
  }

  [[nodiscard]] sizes needed_sizes() const {
    sizes needed(options_);
    for (parameter const& p : parameters_) {
      needed.cover(p);
    }
    return needed;
  }
  /// Allocates what an add has given up before it found no memory.
  void reserve_again() {
    if (!memory_.is_reserved()) {
      memory_.reserve(exec_, needed_sizes());
    }
  }
  void drop_prefetched() {
    for (int slot = 0; slot < table_->size(); ++slot) {
      (*table_)[slot].state = use::none;  // a prefetched parameter is decoded anew
    }
  }

  parameter_store_options options_;
  Exec exec_;
  tracking_memory tracking_;
  std::shared_ptr<detail::scratch_table> table_;
  std::vector<parameter> parameters_;
  detail::parameter_memory<Codec> memory_;
  side_queue<Exec> side_;  ///< the last member, so that it ends before the memory that it uses
};

}  // namespace v0
}  // namespace tessera
