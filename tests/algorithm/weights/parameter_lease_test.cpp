// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <memory>
#include <utility>

#include <tessera/algorithm/weights/parameter_lease.hpp>

#include "support/catch.hpp"

namespace tessera {
inline namespace v0 {

/// Stands for a store: only stores make leases.
template <class, class>
class parameter_store;
template <>
class parameter_store<float, void> {
 public:
  explicit parameter_store(int slots) : table_(std::make_shared<detail::scratch_table>()) {
    table_->slots.resize(static_cast<std::size_t>(slots));
  }
  parameter_lease<float> acquire(int slot, parameter_id id) {
    (*table_)[slot].state = detail::scratch_table::use::leased;
    (*table_)[slot].parameter = id;
    return {table_, slot, id, array_view<float>(&weights_[slot], 1)};
  }
  detail::scratch_table& table() { return *table_; }
  float const* weights(int slot) const { return &weights_[slot]; }

 private:
  std::shared_ptr<detail::scratch_table> table_;
  float weights_[4] = {};
};

}  // namespace v0
}  // namespace tessera

using namespace tessera;
using store_type = parameter_store<float, void>;
using use = tessera::detail::scratch_table::use;

TEST_CASE("a lease holds its slot until it is released or goes away", "[host]") {
  store_type store(2);
  {
    auto first = store.acquire(0, {7});
    auto const second = store.acquire(1, {8});
    CHECK(first.parameter() == parameter_id{7});
    CHECK(second.weights().data == store.weights(1));
    CHECK(store.table().leases() == 2);
    first.release();
    CHECK_FALSE(first.is_held());
    CHECK(store.table().leases() == 1);
    CHECK(store.table().find({8}, use::leased) == 1);
  }
  CHECK(store.table().leases() == 0);
}

TEST_CASE("a lease that was released, or never held one, gives no weights", "[host]") {
  store_type store(1);
  auto lease = store.acquire(0, {3});
  lease.release();
  CHECK_THROWS_WITH(lease.weights(),
                    "parameter_lease.weights: the lease of parameter 3 was released, and its slot of "
                    "scratch may belong to another now: 0");
  CHECK_THROWS_AS(lease.release(), value_error);
  CHECK_THROWS_AS(parameter_lease<float>().weights(), value_error);
}

TEST_CASE("a lease moves, and the one moved to gives back what it had", "[host]") {
  store_type store(2);
  auto first = store.acquire(0, {1});
  auto second = store.acquire(1, {2});
  first = std::move(second);
  CHECK_FALSE(second.is_held());  // NOLINT(bugprone-use-after-move): that it holds nothing is the point
  CHECK(first.parameter() == parameter_id{2});
  CHECK(first.weights().data == store.weights(1));
  CHECK(store.table()[0].state == use::none);
  parameter_lease<float> const third(std::move(first));
  CHECK_FALSE(first.is_held());  // NOLINT(bugprone-use-after-move)
  CHECK(third.is_held());
  CHECK(store.table().leases() == 1);
}

TEST_CASE("a lease outlives the store that gave it", "[host]") {
  auto store = std::make_unique<store_type>(1);
  auto lease = store->acquire(0, {5});
  store.reset();
  CHECK_NOTHROW(lease.release());
}

TEST_CASE("a free slot is taken first, then the one prefetched longest ago, and never one on lease", "[host]") {
  detail::scratch_table table;
  table.slots = {{{0}, use::leased, 0}, {{1}, use::prefetched, 9}, {{2}, use::prefetched, 4}, {{3}, use::none, 0}};
  CHECK(table.find_free() == 3);
  table[3].state = use::leased;
  CHECK(table.find_free() == 2);
  table[2].state = use::leased;
  CHECK(table.find_free() == 1);
  table[1].state = use::leased;
  CHECK(table.find_free() == detail::scratch_table::no_slot);
  CHECK(table.leases() == 4);
  CHECK(table.find({1}, use::prefetched) == detail::scratch_table::no_slot);
}
