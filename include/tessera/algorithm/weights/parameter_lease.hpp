// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `parameter_lease`: the right to use the decoded weights of a parameter_store's parameter, until it is released or
/// destroyed.
///
///     auto lease = store.acquire(id);
///     exec.run(program{lease.weights()}, tiles);
///     lease.release();                             // or let it go out of scope
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <tessera/core/check.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

/// The name of a parameter in a store, numbered in the order of adding.
struct parameter_id {
  std::int64_t number = -1;  ///< the number; -1 for no parameter
  friend constexpr bool operator==(parameter_id, parameter_id) = default;
};

namespace detail {

/// Which parameter each scratch slot holds, as the host knows it; shared by a store and its leases.
struct scratch_table {
  enum class use : std::uint8_t { none, prefetched, leased };
  struct slot {
    parameter_id parameter;
    use state = use::none;
    std::uint64_t since = 0;  ///< the time of the prefetch: the higher, the later
  };
  static constexpr int no_slot = -1;

  std::vector<slot> slots;
  std::uint64_t clock = 0;

  [[nodiscard]] slot& operator[](int i) { return slots[static_cast<std::size_t>(i)]; }
  [[nodiscard]] int size() const { return static_cast<int>(slots.size()); }

  /// The slot that holds a parameter in this state.
  [[nodiscard]] int find(parameter_id parameter, use state) {
    for (int i = 0; i < size(); ++i) {
      if ((*this)[i].state == state && (*this)[i].parameter == parameter) {
        return i;
      }
    }
    return no_slot;
  }
  /// A free slot, else the one that was prefetched longest ago.
  [[nodiscard]] int find_free() {
    int oldest = no_slot;
    for (int i = 0; i < size(); ++i) {
      if ((*this)[i].state == use::none) {
        return i;
      }
      if ((*this)[i].state == use::prefetched && (oldest == no_slot || (*this)[i].since < (*this)[oldest].since)) {
        oldest = i;
      }
    }
    return oldest;
  }
  [[nodiscard]] int leases() {
    int count = 0;
    for (slot const& s : slots) {
      count += s.state == use::leased ? 1 : 0;
    }
    return count;
  }
};

}  // namespace detail

template <class T>
class parameter_lease {
 public:
  /// A lease of no parameter.
  parameter_lease() = default;
  /// Takes over the lease.
  parameter_lease(parameter_lease&& other) noexcept
      : table_(std::move(other.table_)), slot_(other.slot_), parameter_(other.parameter_), weights_(other.weights_) {
    other.table_.reset();
  }
  /// Ends its own lease and takes over the other one.
  parameter_lease& operator=(parameter_lease&& other) noexcept {
    if (this != &other) {
      end();
      table_ = std::move(other.table_);
      other.table_.reset();
      slot_ = other.slot_;
      parameter_ = other.parameter_;
      weights_ = other.weights_;
    }
    return *this;
  }
  ~parameter_lease() { end(); }

  /// The leased parameter.
  [[nodiscard]] parameter_id parameter() const { return parameter_; }
  /// Whether a parameter is leased, so that weights() is not empty.
  [[nodiscard]] bool is_held() const { return table_ != nullptr; }
  /// The decoded weights, in memory of the store's executor, for work enqueued on that executor while the lease is
  /// held. Changes to them are lost unless the store's update() keeps them.
  [[nodiscard]] array_view<T> weights() const {
    check_held("parameter_lease.weights");
    return weights_;
  }
  /// Gives the scratch slot back. Work that uses the weights may still be running.
  void release() {
    check_held("parameter_lease.release");
    end();
  }

 private:
  template <class, class>
  friend class parameter_store;

  parameter_lease(std::shared_ptr<detail::scratch_table> table, int slot, parameter_id parameter, array_view<T> weights)
      : table_(std::move(table)), slot_(slot), parameter_(parameter), weights_(weights) {}

  void check_held(char const* where) const {
    check<value_error>(is_held(), where, ": the lease of parameter ", parameter_.number,
                       " was released, and its slot of scratch may belong to another now: ", slot_);
  }
  void end() noexcept {
    if (table_ != nullptr) {
      (*table_)[slot_].state = detail::scratch_table::use::none;
      table_.reset();
    }
  }

  std::shared_ptr<detail::scratch_table> table_;
  int slot_ = detail::scratch_table::no_slot;
  parameter_id parameter_;
  array_view<T> weights_;
};

}  // namespace v0
}  // namespace tessera
