// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/weights/parameter_store.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "algorithm/weights/parameter_samples.hpp"
#include "support/catch.hpp"
#include "support/codecs.hpp"
#include "support/message_of.hpp"
#include "support/tiny_network.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using store_type = parameter_store<neuzip, cpu>;

/// A stream that outgrows its slot is not lost, and gets a larger slot when the store resolves.
template <class Executor>
void check_outgrown_slots(Executor const& exec) {
  parameter_store<neuzip, Executor> store(exec, {.block = 1024});
  auto const a = store.add("a", gaussian(20'000, 1));
  auto const b = store.add("b", gaussian(3000, 2));
  auto const c = store.add("c", gaussian(100, 3));
  auto const before = store.bytes_compressed(a);
  overwrite(store, a, incompressible(20'000, 4));
  overwrite(store, b, incompressible(3000, 5));
  overwrite(store, c, incompressible(100, 6));
  CHECK(store_holds(store, a, incompressible(20'000, 4)));
  CHECK(store_holds(store, b, incompressible(3000, 5)));
  store.wait();
  CHECK(store.bytes_compressed(a) == before);
  for (std::uint64_t seed = 10; seed < 13; ++seed) {  // again and again, in the same part of the arena
    overwrite(store, a, incompressible(20'000, seed));
    CHECK(store_holds(store, a, incompressible(20'000, seed)));
  }
  overwrite(store, b, gaussian(3000, 7));  // it fits again
  CHECK(store_holds(store, b, gaussian(3000, 7)));
  CHECK(store.resolve() == 1);
  CHECK(store.bytes_compressed(a) > before);
  CHECK(store_holds(store, a, incompressible(20'000, 12)));
  CHECK(store_holds(store, b, gaussian(3000, 7)));
  CHECK(store_holds(store, c, incompressible(100, 6)));
  CHECK(store.resolve() == 0);
  overwrite(store, a, gaussian(20'000, 8));
  CHECK(store_holds(store, a, gaussian(20'000, 8)));
  CHECK(store.resolve() == 0);
}

std::vector<bfloat16> joined(std::vector<bfloat16> first, std::vector<bfloat16> const& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// A parameter of several parts is updated as a whole, or not at all.
template <class Executor>
void check_parts(Executor const& exec) {
  parameter_store<neuzip, Executor> store(exec, {.block = 1024, .part = 8192});
  auto const a = store.add("a", gaussian(20'000, 1));  // three parts, of 8, 8 and 4 blocks
  auto const b = store.add("b", gaussian(8192, 2));
  CHECK(store.count(a) == 20'000);
  overwrite(store, a, gaussian(20'000, 3));
  CHECK(store_holds(store, a, gaussian(20'000, 3)));
  CHECK(store.resolve() == 0);

  // The arena has 8 blocks. The last part needs some of them.
  auto const before = store.bytes_compressed(a);
  auto const grown = joined(gaussian(16'384, 4), incompressible(3616, 5));
  overwrite(store, a, grown);
  CHECK(store_holds(store, a, grown));
  CHECK(store_holds(store, b, gaussian(8192, 2)));
  store.wait();

  // All parts need more than there is: none of them is changed, not even those that there would be room for.
  overwrite(store, a, incompressible(20'000, 6));
  CHECK(message_of([&] { store.wait(); }) ==
        "parameter_store.update: the stream of parameter 0 has 17024 bytes, its slot room for 13568, and the arena is "
        "full");
  CHECK(store_holds(store, a, grown));
  CHECK(store.resolve() == 1);
  CHECK(store.bytes_compressed(a) > before);
  CHECK(store_holds(store, a, grown));

  overwrite(store, a, joined(incompressible(8192, 9), gaussian(11'808, 10)));
  CHECK(store_holds(store, a, joined(incompressible(8192, 9), gaussian(11'808, 10))));
  CHECK(store.resolve() == 1);
  overwrite(store, a, joined(incompressible(8192, 11), gaussian(11'808, 12)));
  CHECK(store.resolve() == 0);
  CHECK(store_holds(store, a, joined(incompressible(8192, 11), gaussian(11'808, 12))));

  parameter_store<neuzip, Executor> tight(exec, {.overflow_tensors = 0, .block = 1024, .part = 8192});
  auto const c = tight.add("c", gaussian(20'000, 13));
  overwrite(tight, c, joined(gaussian(16'384, 14), incompressible(3616, 15)));  // the last part alone has no room
  CHECK_THROWS_AS(tight.wait(), shape_error);
  CHECK(store_holds(tight, c, gaussian(20'000, 13)));
  overwrite(tight, c, gaussian(20'000, 16));
  CHECK(store_holds(tight, c, gaussian(20'000, 16)));
  CHECK(tight.resolve() == 0);
}

}  // namespace

TEST_CASE("a network trained out of a store has the same bits after every step as without one",
          "[host][slow][threads]") {
  cpu const exec{.threads = 2};
  auto const check = [&](auto codec) {
    using codec_type = decltype(codec);
    using T = typename codec_type::value_type;
    tessera_test::plain_parameters<T, cpu> plain(exec);
    tessera_test::stored_parameters<codec_type, cpu> stored(exec);
    auto const expected = tessera_test::train<T>(exec, plain, 24);
    auto const found = tessera_test::train<T>(exec, stored, 24);
    CHECK(found.weights == expected.weights);
    CHECK(found.last == expected.last);
    CHECK(found.loss == expected.loss);
    CHECK(expected.loss.back() < 0.5F * expected.loss.front());
    // Slots without slack have overflowed in the meantime; codes of a fixed size never do.
    CHECK((stored.grown > 0) == std::is_same_v<typename codec_type::coder_type, rans_coder<12>>);
  };
  check(neuzip{});
  check(neuzip_of<float>{});
  check(neuzip_of<float16>{});
  check(neuzip_fixed<bfloat16>{});
}

TEST_CASE("parameters come out of a store as they went in", "[host][threads]") {
  store_type store(cpu{.threads = 2}, {.scratch_slots = 1, .block = 1024});
  std::vector<std::vector<bfloat16>> weights;
  for (std::int64_t const count : {0, 1, 7, 2047, 2048, 1023 * 4, 1024 * 4, 1024 * 4 + 1, 20'000}) {
    weights.push_back(gaussian(count, 5));
    weights.push_back(incompressible(count, 6));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    CHECK(store.add("w" + std::to_string(i), weights[i]) == parameter_id{static_cast<std::int64_t>(i)});
  }
  CHECK(store.size() == static_cast<std::int64_t>(weights.size()));
  for (std::size_t i = weights.size(); i-- > 0;) {
    auto const id = store.find("w" + std::to_string(i));
    CHECK(store.count(id) == static_cast<std::int64_t>(weights[i].size()));
    CHECK(store_holds(store, id, weights[i]));
  }
  store.wait();
}

TEST_CASE("a prefetched parameter is decoded once, and is the one to go when slots are short", "[host]") {
  store_type store(cpu{.threads = 1});
  auto const a = store.add("a", gaussian(5000, 1));
  auto const b = store.add("b", gaussian(5000, 2));
  auto const c = store.add("c", gaussian(5000, 3));
  auto first = store.acquire(a);
  CHECK(store.prefetch(b));
  CHECK(store.prefetch(b));
  auto second = store.acquire(b);
  CHECK(holds(second.weights(), gaussian(5000, 2)));
  CHECK_FALSE(store.prefetch(c));
  CHECK_FALSE(store.prefetch(a));
  second.release();
  CHECK(store.prefetch(b));
  second = store.acquire(c);  // takes the slot of b
  CHECK(holds(second.weights(), gaussian(5000, 3)));
  CHECK(holds(first.weights(), gaussian(5000, 1)));
  first.release();
  CHECK(store_holds(store, b, gaussian(5000, 2)));
}

TEST_CASE("weights that are not updated are as they were before", "[host]") {
  store_type store(cpu{.threads = 1});
  auto const id = store.add("w", gaussian(5000, 1));
  {
    auto const lease = store.acquire(id);
    lease.weights()[17] = bfloat16{0x1234};
  }
  CHECK(store_holds(store, id, gaussian(5000, 1)));
}

TEST_CASE("a gradient step rounds once in fp32 and once to the storage type", "[host][threads]") {
  store_type store(cpu{.threads = 2});
  auto weights = gaussian(5000, 1);
  auto const id = store.add("w", weights);
  std::vector<float> gradient(5000);
  testing::fill(testing::gauss{.sigma = 0.1}, 9, gradient.data(), gradient.size());
  for (int step = 0; step < 3; ++step) {
    auto const lease = store.acquire(id);
    store.sgd_update(id, lease, array_view<float const>(gradient), 0.03F);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = tessera::store<bfloat16>(std::fma(-0.03F, gradient[i], load(weights[i])));
    }
  }
  CHECK(store_holds(store, id, weights));
}

TEST_CASE("a stream that outgrows its slot is not lost, and gets a larger slot when the store resolves",
          "[host][threads]") {
  check_outgrown_slots(cpu{.threads = 2});
}

TEST_CASE("a store whose slots are outgrown keeps the rules for programs", "[host]") {
  check_outgrown_slots(testing::adversary{.seed = 11});
}

TEST_CASE("what the overflow arena cannot hold is refused and reported, and the weights before stay",
          "[host][threads]") {
  store_type store(cpu{.threads = 2}, {.overflow_tensors = 0, .block = 1024});
  auto const a = store.add("a", gaussian(20'000, 1));
  auto const b = store.add("b", gaussian(20'000, 2));
  overwrite(store, b, incompressible(20'000, 3));
  CHECK(message_of([&] { store.wait(); }) ==
        "parameter_store.update: the stream of parameter 1 has 41216 bytes, its slot room for 31232, and the arena is "
        "full");
  CHECK(store_holds(store, b, gaussian(20'000, 2)));
  overwrite(store, b, gaussian(20'000, 4));
  CHECK(store_holds(store, b, gaussian(20'000, 4)));
  CHECK(store_holds(store, a, gaussian(20'000, 1)));
  CHECK(store.resolve() == 0);

  store_type one(cpu{.threads = 2}, {.block = 1024});
  std::vector<parameter_id> ids;
  for (std::uint64_t i = 0; i < 3; ++i) {
    ids.push_back(one.add("w" + std::to_string(i), gaussian(20'000, i)));
  }
  for (std::uint64_t i = 0; i < 3; ++i) {
    overwrite(one, ids[i], incompressible(20'000, i));
  }
  CHECK_THROWS_AS(one.resolve(), shape_error);
  std::int64_t kept = 0;
  for (std::uint64_t i = 0; i < 3; ++i) {
    bool const is_new = store_holds(one, ids[i], incompressible(20'000, i));
    CHECK((is_new || store_holds(one, ids[i], gaussian(20'000, i))));
    kept += is_new ? 1 : 0;
  }
  CHECK(kept >= 1);
  CHECK(kept < 3);
  CHECK(one.resolve() == kept);
  overwrite(one, ids[2], incompressible(20'000, 2));  // now there is room
  CHECK(store_holds(one, ids[0], incompressible(20'000, 0)));
  CHECK(store_holds(one, ids[2], incompressible(20'000, 2)));
  CHECK(one.resolve() == 1);
}

TEST_CASE("parameters that overflow after a resolve share no part of the arena", "[host][threads]") {
  store_type store(cpu{.threads = 2}, {.overflow_tensors = 2, .block = 1024});
  auto const a = store.add("a", gaussian(20'000, 1));
  auto const b = store.add("b", gaussian(20'000, 2));
  overwrite(store, a, incompressible(20'000, 3));
  overwrite(store, a, gaussian(20'000, 4));  // it fits again, so that resolve() leaves its slot as it is
  CHECK(store.resolve() == 0);
  overwrite(store, b, incompressible(20'000, 5));
  overwrite(store, a, incompressible(20'000, 6));
  CHECK(store_holds(store, b, incompressible(20'000, 5)));
  CHECK(store_holds(store, a, incompressible(20'000, 6)));
  CHECK(store.resolve() == 2);
  CHECK(store_holds(store, b, incompressible(20'000, 5)));
  CHECK(store_holds(store, a, incompressible(20'000, 6)));
}

TEST_CASE("a parameter of several parts is updated as one", "[host][threads]") {
  check_parts(cpu{.threads = 2});
}

TEST_CASE("a store of parameters of several parts keeps the rules for programs", "[host]") {
  check_parts(testing::adversary{.seed = 12});
}

TEST_CASE("any parameters share the slots of scratch, in any order of leases", "[host]") {
  for (int const slots : {2, 3, 5}) {
    store_type store(cpu{.threads = 1}, {.scratch_slots = slots, .block = 1024});
    std::vector<std::vector<bfloat16>> const weights{gaussian(9001, 1), gaussian(20'000, 2), gaussian(7, 3),
                                                     gaussian(0, 4),    gaussian(12'345, 5), gaussian(4096, 6)};
    for (std::size_t i = 0; i < weights.size(); ++i) {
      store.add("w" + std::to_string(i), weights[i]);
    }
    auto const count = static_cast<std::uint64_t>(weights.size());
    std::vector<store_type::lease> held(weights.size());
    for (std::uint64_t step = 0; step < 400; ++step) {
      std::uint64_t const chosen = testing::hash(3, step);
      auto const i = static_cast<std::size_t>(chosen % count);
      parameter_id const id{static_cast<std::int64_t>(i)};
      int leases = 0;
      for (auto const& lease : held) {
        leases += lease.is_held() ? 1 : 0;
      }
      if (held[i].is_held()) {
        held[i].release();
      } else if (leases < slots && chosen / count % 3 == 0) {
        CHECK(store.prefetch(id));
      } else if (leases < slots) {
        held[i] = store.acquire(id);
      }
      for (std::size_t each = 0; each < held.size(); ++each) {
        if (held[each].is_held()) {
          CAPTURE(slots, step, each);
          REQUIRE(holds(held[each].weights(), weights[each]));
        }
      }
    }
  }
}

TEST_CASE("a store without updates holds its parameters, and refuses to change them", "[host]") {
  store_type store(cpu{.threads = 1}, {.block = 1024, .part = 8192, .updates = false});
  auto const a = store.add("a", gaussian(20'000, 1));
  auto const b = store.add("b", incompressible(100, 2));
  CHECK(store.prefetch(b));
  auto const c = store.add("c", incompressible(9000, 3));
  CHECK(store.prefetch(a));
  CHECK(store_holds(store, c, incompressible(9000, 3)));
  CHECK(store_holds(store, a, gaussian(20'000, 1)));
  CHECK(store_holds(store, b, incompressible(100, 2)));
  auto lease = store.acquire(a);
  std::vector<float> const gradient(20'000);
  CHECK(message_of([&] { store.update(a, lease); }) ==
        "parameter_store.update: the store's option updates is 0 but must be 1 for updates of parameter 0 (a)");
  CHECK_THROWS_AS(store.sgd_update(a, lease, array_view<float const>(gradient), 1.0F), value_error);
  lease.release();
  CHECK(store.resolve() == 0);
}

TEST_CASE("a slot that was damaged is reported when its parameter is acquired", "[host][threads]") {
  ledger memory;
  store_type store(cpu{.threads = 2, .memory = memory}, {.block = 1024});
  auto const id = store.add("w", gaussian(20'000, 1));
  auto const spec = neuzip::spec(20'000, {.block = 1024});
  for (auto const& [pointer, bytes] : memory.live) {
    if (static_cast<std::int64_t>(bytes) == store.bytes_compressed(id)) {
      auto* const stream = static_cast<std::byte*>(pointer) + 64;
      ++reinterpret_cast<weight_block_index*>(stream + spec.index_offset())[3].words;
    }
  }
  {
    auto const lease = store.acquire(id);
    CHECK(to_bits(lease.weights()[3 * 1024 + 5]) == 0);
    CHECK(to_bits(lease.weights()[2 * 1024 + 5]) == to_bits(gaussian(20'000, 1)[2 * 1024 + 5]));
  }
  CHECK(message_of([&] { store.wait(); }) ==
        "compressed_weights.decode: encoded bytes are corrupt (code 1) at block 3");
}

TEST_CASE("a lossy codec's parameters can be acquired", "[host]") {
  parameter_store<neuzip_lossy<3>, cpu> store(cpu{.threads = 1});
  auto const weights = gaussian(9000, 1);
  auto const id = store.add("w", weights);
  auto expected = weights;
  neuzip_lossy<3>::decode(cpu{}, neuzip_lossy<3>::encode(cpu{}, weights), expected);
  CHECK(holds(store.acquire(id).weights(), expected));
}

TEST_CASE("misuse of a store is an error that shows both values", "[host]") {
  store_type store(cpu{.threads = 1});
  store_type other(cpu{.threads = 1});
  auto const a = store.add("a", gaussian(3000, 1));
  auto const b = store.add("b", gaussian(4000, 2));
  auto const c = store.add("c", gaussian(10, 2));
  auto const d = other.add("d", gaussian(3000, 2));
  std::vector<float> const gradient(2999);
  CHECK(message_of([&] { static_cast<void>(store.acquire({3})); }) ==
        "parameter_store.acquire: the parameter is number 3 but the store has 3");
  CHECK(message_of([&] { store.prefetch({}); }) ==
        "parameter_store.prefetch: the parameter is number -1 but the store has 3");
  CHECK(message_of([&] { static_cast<void>(store.find("e")); }) ==
        "parameter_store.find: there is no parameter e among 3");
  CHECK(message_of([&] { store.add("b", gaussian(3, 3)); }) ==
        "parameter_store.add: the name b is that of parameter 1 already");
  auto lease = store.acquire(a);
  auto const foreign = other.acquire(d);
  CHECK(message_of([&] { static_cast<void>(store.acquire(a)); }) ==
        "parameter_store.acquire: parameter 0 (a) is leased already, in slot 0");
  CHECK(message_of([&] { store.update(b, lease); }) ==
        "parameter_store.update: the lease is of parameter 0 but the call is for parameter 1 (b)");
  CHECK(message_of([&] { store.update(a, foreign); }) ==
        "parameter_store.update: the lease is of parameter 0 of another store, not of this one's 0");
  CHECK(message_of([&] { store.sgd_update(a, lease, array_view<float const>(gradient), 1.0F); }) ==
        "parameter_store.sgd_update: the gradient has 2999 elements but parameter 0 (a) has 3000");
  CHECK(message_of([&] { store.sgd_update(a, lease, array_view<float const>(nullptr, 3000), 1.0F); }) ==
        "parameter_store.sgd_update: the gradients have no memory but 3000 elements");
  std::vector<float> const whole(3000);
  CHECK(message_of([&] { store.sgd_update(a, lease, array_view<float const>(whole), std::nanf("")); }) ==
        "parameter_store.sgd_update: the learning rate is nan but must be finite");
  CHECK(message_of([&] { store.add("e", gaussian(3, 3)); }) == "parameter_store.add: 1 leases are held but must be 0");
  CHECK(message_of([&] { store.resolve(); }) == "parameter_store.resolve: 1 leases are held but must be 0");
  auto const second = store.acquire(b);
  CHECK(message_of([&] { static_cast<void>(store.acquire(c)); }) ==
        "parameter_store.acquire: 2 leases are held but the slots of scratch are 2");
  lease.release();
  CHECK_FALSE(lease.is_held());
  CHECK_THAT(message_of([&] { static_cast<void>(lease.weights()); }),
             contains("parameter_lease.weights: the lease of parameter 0"));
  CHECK_THAT(message_of([&] { lease.release(); }),
             contains("parameter_lease.release: the lease of parameter 0 was released"));
  CHECK_THAT(message_of([&] { store.update(a, lease); }),
             contains("parameter_store.update: the lease of parameter 0 was released"));
  CHECK(message_of([] { store_type(cpu{}, {.scratch_slots = 0}); }) ==
        "parameter_store: there are 0 slots of scratch but must be at least 1");
  CHECK_THAT(message_of([] { store_type(cpu{}, {.slack = -0.5}); }), contains("parameter_store: the slack is -0.5"));
  CHECK(message_of([] { store_type(cpu{}, {.headroom = -1}); }) ==
        "parameter_store: the headroom is -1 bytes but must be at least 0");
  CHECK(message_of([] { store_type(cpu{}, {.overflow_tensors = -1}); }) ==
        "parameter_store: the overflow arena is for -1 tensors but must be for at least 0");
  CHECK(message_of([] { store_type(cpu{}, {.part = 1000}); }) ==
        "parameter_store: a part has 1000 weights but must have a multiple of 8192");
  CHECK_THROWS_AS(store_type(cpu{}, {.part = 0}), value_error);
}
