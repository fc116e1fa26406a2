// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <new>
#include <string>
#include <vector>

#include <tessera/algorithm/weights/parameter_store.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/neuzip.hpp>

#include "algorithm/weights/parameter_samples.hpp"
#include "support/catch.hpp"
#include "support/codecs.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using store_type = parameter_store<neuzip, cpu>;

/// Weights whose stream does not fit the slot of `weights`: all of them, or those of the last of several parts.
std::vector<bfloat16> outgrown(std::vector<bfloat16> weights, parameter_store_options const& options) {
  auto const part = static_cast<std::size_t>(options.part);
  std::size_t const first = weights.empty() ? 0 : (weights.size() - 1) / part * part;
  auto const count = static_cast<std::int64_t>(weights.size() - first);
  auto const last = incompressible(count, 7 + weights.size());
  for (std::size_t i = 0; i < last.size(); ++i) {
    weights[first + i] = last[i];
  }
  return weights;
}

/// An add that finds no memory changes nothing, whichever of its allocations fails.
void check_scarce_memory(parameter_store_options const& options) {
  auto const added = gaussian(20'000, 4);
  for (bool const is_first : {true, false}) {
    bool was_added = false;
    for (int allocations = 0; !was_added; ++allocations) {
      CAPTURE(is_first, allocations);
      REQUIRE(allocations < 100);
      ledger memory;
      store_type store(cpu{.threads = 2, .memory = memory}, options);
      std::map<std::string, std::vector<bfloat16>> expected;
      if (!is_first) {
        expected = {{"a", gaussian(3000, 1)}, {"b", incompressible(5000, 2)}};
        static_cast<void>(store.add("a", gaussian(3000, 1)));
        static_cast<void>(store.add("b", gaussian(5000, 2)));
        if (options.updates) {
          overwrite(store, store.find("b"), expected["b"]);  // goes to the overflow arena, so that add resolves first
        } else {
          expected["b"] = gaussian(5000, 2);
        }
        CHECK(store.prefetch(store.find("a")));
      }
      auto const size = store.size();
      memory.left = allocations;
      try {
        static_cast<void>(store.add("new", added));
        was_added = true;
        expected["new"] = added;
      } catch (std::bad_alloc const&) {
        CHECK(store.size() == size);
        CHECK_THROWS_AS(store.find("new"), value_error);
      }
      memory.left = std::numeric_limits<int>::max();
      CHECK(store.bytes().total() == memory.current);
      auto const check_all = [&] {
        for (auto const& [name, weights] : expected) {
          CHECK(store_holds(store, store.find(name), weights));
        }
        store.wait();
      };
      check_all();
      for (auto& [name, weights] : expected) {  // and what worked before works now, the overflow arena included
        if (options.updates) {
          weights = outgrown(weights, options);
          overwrite(store, store.find(name), weights);
        }
        CHECK(store.prefetch(store.find(name)));
      }
      check_all();
      if (!was_added) {
        expected["new"] = added;
        CHECK(store.add("new", added) == parameter_id{size});
      }
      check_all();
      CHECK(store.bytes().total() == memory.current);
      // At least scratch and a stream; with updates also staging, the workspace of an encoding, and the arena.
      CHECK((!was_added || allocations >= (options.updates ? 5 : 2)));
    }
  }
}

/// Checks that a store of parameters that nothing compresses is as large as its plan.
void check_plan(parameter_store_options const& options) {
  cpu const exec{.threads = 1};
  std::vector<std::int64_t> const counts{3000, 1, 20'000, 0};
  auto const plan = store_type::plan(exec, counts, options);
  store_type store(exec, options);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    store.add("parameter " + std::to_string(i), incompressible(counts[i], i));
  }
  auto const bytes = store.bytes();
  CHECK(bytes.streams <= planned(plan, "streams, at most"));
  CHECK((bytes.streams == planned(plan, "streams, at most") || !options.updates));
  CHECK(bytes.scratch == planned(plan, "scratch"));
  CHECK(bytes.staging == planned(plan, "staging") + planned(plan, "size of the staged stream"));
  CHECK(bytes.overflow ==
        planned(plan, "overflow") + planned(plan, "state of the overflow") + planned(plan, "trial of an update"));
  CHECK(bytes.workspace == planned(plan, "workspace of an encoding") + planned(plan, "workspace of decodings"));
  CHECK(bytes.total() <= plan.bytes());
  CHECK(store.peak_bytes() == bytes.total());  // nothing was larger before
}

}  // namespace

TEST_CASE("a store's memory is what its documentation says, to the byte", "[host][threads]") {
  ledger memory;
  cpu const exec{.threads = 2, .memory = memory};
  parameter_store_options const options{
      .scratch_slots = 3, .slack = 0.05, .headroom = 500, .overflow_tensors = 2, .block = 1024};
  {
    store_type store(exec, options);
    CHECK(store.bytes().total() == 0);
    auto const small = store.add("small", gaussian(3000, 1));
    CHECK(store.bytes().total() == memory.current);
    auto const large = store.add("large", gaussian(20'000, 2));
    auto const spec = neuzip::spec(20'000, {.block = 1024});
    auto const slot_of = [&](std::vector<bfloat16> const& weights) {
      auto const bytes = neuzip::encode(cpu{}, weights, {.block = 1024}).size();
      auto const roomy = bytes + static_cast<std::int64_t>(static_cast<double>(bytes) * 0.05) + 500;
      return 64 + (roomy + 15) / 16 * 16;
    };
    CHECK(store.bytes_compressed(small) == slot_of(gaussian(3000, 1)));
    CHECK(store.bytes_compressed(large) == slot_of(gaussian(20'000, 2)));
    auto const bytes = store.bytes();
    CHECK(bytes.streams == store.bytes_compressed(small) + store.bytes_compressed(large));
    CHECK(bytes.scratch == (20'000 * 2 + 3000 * 2 + 2 * 255) / 256 * 256);  // there is nothing for a third slot
    CHECK(bytes.staging == (neuzip::largest_bytes(spec) + 15) / 16 * 16 + 8);
    CHECK(bytes.overflow == 2 * 20 * 1024 * 2 + 16);
    CHECK(bytes.workspace == neuzip::plan_encode(exec, spec).bytes() + 2 * neuzip::plan_decode(exec, spec).bytes());
    CHECK(store.bytes().total() == memory.current);
    CHECK(store.peak_bytes() == memory.peak);

    auto const allocations = memory.allocations;
    overwrite(store, large, incompressible(20'000, 3));
    CHECK(store.prefetch(small));
    CHECK(store_holds(store, small, gaussian(3000, 1)));
    CHECK(store_holds(store, large, incompressible(20'000, 3)));
    CHECK(memory.allocations == allocations);

    auto const before = store.bytes_compressed(large);
    CHECK(store.resolve() == 1);
    CHECK(store.bytes().total() == memory.current);
    CHECK(store.peak_bytes() == memory.peak);
    CHECK(store.peak_bytes() == store.bytes().total() + before);  // the old slot went when the new one was there
  }
  CHECK(memory.current == 0);
}

TEST_CASE("an add that finds no memory changes nothing, whichever allocation fails", "[host][threads]") {
  check_scarce_memory({.scratch_slots = 2, .block = 1024});
}

TEST_CASE("an add of several parts that finds no memory changes nothing", "[host][threads]") {
  check_scarce_memory({.scratch_slots = 2, .overflow_tensors = 2, .block = 1024, .part = 8192});
}

TEST_CASE("an add to a store without updates that finds no memory changes nothing", "[host][threads]") {
  check_scarce_memory({.scratch_slots = 3, .block = 1024, .part = 8192, .updates = false});
}

TEST_CASE("a store whose scratch could not be allocated again says so, and tries the next time", "[host]") {
  ledger memory;
  store_type store(cpu{.threads = 1, .memory = memory}, {.block = 1024});
  auto const a = store.add("a", gaussian(3000, 1));
  auto const b = store.add("b", gaussian(3000, 2));
  memory.left = 0;
  CHECK_THROWS_AS(store.add("c", gaussian(20'000, 3)), std::bad_alloc);
  CHECK(store.bytes().scratch == 0);
  CHECK_THROWS_AS(store.acquire(a), std::bad_alloc);
  CHECK_THROWS_AS(store.prefetch(b), std::bad_alloc);
  CHECK(store.bytes().total() == memory.current);
  memory.left = std::numeric_limits<int>::max();
  CHECK(store.prefetch(b));
  CHECK(store_holds(store, a, gaussian(3000, 1)));
  CHECK(store_holds(store, b, gaussian(3000, 2)));
  overwrite(store, b, gaussian(3000, 4));
  CHECK(store_holds(store, b, gaussian(3000, 4)));
}

TEST_CASE("a store's plan has room for everything, whatever the weights are", "[host]") {
  check_plan({.scratch_slots = 3, .slack = 1, .overflow_tensors = 2, .block = 1024});
  check_plan({.scratch_slots = 1, .slack = 1, .overflow_tensors = 0, .block = 1024});
  check_plan({.scratch_slots = 8, .slack = 1, .block = 1024, .part = 8192});
  check_plan({.block = 1024, .updates = false});
  check_plan({.scratch_slots = 1, .block = 1024, .part = 8192, .updates = false});

  cpu const exec{.threads = 1};
  CHECK(store_type::plan(exec, {}).bytes() == 0);
  CHECK(store_type::plan(exec, {20'000}).bytes() < store_type::plan(exec, {3000, 20'000}).bytes());
  CHECK_THROWS_WITH(store_type::plan(exec, {3000}, {.scratch_slots = 0}),
                    contains("parameter_store: there are 0 slots of scratch but must be at least 1"));
  CHECK_THROWS_AS(store_type::plan(exec, {-1}), shape_error);
}

TEST_CASE("a store's memory beside the streams is what its documentation says", "[host]") {
  cpu const exec{.threads = 1};
  auto const of_one = [&](std::int64_t count, parameter_store_options const& options) {
    return overhead_of(store_type::plan(exec, {count}, options), 2.0 * static_cast<double>(count));
  };
  std::int64_t const layer = 14336 * 4096;
  CHECK(of_one(layer, {}) == 3501);
  CHECK(of_one(layer, {.overflow_tensors = 0}) == 2501);
  CHECK(of_one(layer, {.updates = false}) == 1501);
  std::int64_t const embedding = 128256 * 4096;
  CHECK(of_one(embedding, {}) == 1319);
  CHECK(of_one(embedding, {.scratch_slots = 4}) == 1319);
  CHECK(of_one(embedding, {.overflow_tensors = 0}) == 1192);
  CHECK(of_one(embedding, {.updates = false}) == 1000);
  CHECK(of_one(embedding, {.part = std::int64_t{1} << 30}) == 3501);

  auto const model = llama_3_8b();
  CHECK(model.raw_bytes == 16'060'522'496.0);
  auto const of_llama = [&](parameter_store_options const& options) {
    return overhead_of(store_type::plan(exec, model.counts, options), model.raw_bytes);
  };
  CHECK(of_llama({}) == 152);
  CHECK(of_llama({.overflow_tensors = 0}) == 143);
  CHECK(of_llama({.scratch_slots = 1}) == 86);
  CHECK(of_llama({.updates = false}) == 131);
  CHECK(of_llama({.scratch_slots = 1, .updates = false}) == 65);
  CHECK(of_llama({.part = std::int64_t{1} << 30}) == 294);

  // Streams of weights from N(0, 0.02) take 10.67 bits of 16, and 2 % for growing where there are updates.
  auto const sample = gaussian(1 << 20, 1);
  double const coded = 1000.0 * static_cast<double>(neuzip::encode(exec, sample).size()) / (2 << 20);
  CHECK(std::lround(coded) == 667);
  CHECK(std::lround(1.02 * coded) + of_llama({}) == 833);
  CHECK(std::lround(coded) + of_llama({.scratch_slots = 1, .updates = false}) == 732);
}
