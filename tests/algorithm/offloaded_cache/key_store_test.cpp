// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <memory>

#include <tessera/algorithm/offloaded_cache/exact_keys.hpp>
#include <tessera/algorithm/offloaded_cache/key_store.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>

#include "support/catch.hpp"
#include "support/offload_problem.hpp"

using namespace tessera;
using tessera_test::embedding;
using tessera_test::host_cache;
using tessera_test::make_sequence;
using tessera_test::offload_heads;

namespace {

constexpr offload_heads heads{6, 2, 16};

/// A reader's own KeyStore: exact_keys that counts what it is asked for.
struct counted_keys : exact_keys {
  struct counts {
    std::int64_t prompts = 0;
    std::int64_t archived = 0;
    std::int64_t loaded = 0;
  };
  std::shared_ptr<counts> asked = std::make_shared<counts>();

  template <Executor Exec, class Cache>
  void begin(Exec const& exec, Cache const& cache, std::int64_t sequence, workspace const& space) const {
    ++asked->prompts;
    exact_keys::begin(exec, cache, sequence, space);
  }
  template <Executor Exec, class Cache, class T>
  void archive(Exec const& exec, Cache const& cache, offload_step<T> const& step) const {
    ++asked->archived;
    exact_keys::archive(exec, cache, step);
  }
  template <Executor Exec, class Cache, class T>
  void load(Exec const& exec, Cache const& cache, offload_step<T> const& step) const {
    ++asked->loaded;
    exact_keys::load(exec, cache, step);
  }
};
static_assert(KeyStore<counted_keys>);

template <class Keys>
using method_with = offloaded_cache<Keys, landmark_selector<8>, keep_outliers<3>>;

}  // namespace

TEST_CASE("a cache keeps keys by a reader's own KeyStore", "[host]") {
  auto const s = make_sequence<float>(heads, 420, 12, 0.8);
  counted_keys const keys;
  host_cache<method_with<counted_keys>, float> own(heads, {420}, embedding(), {}, {.chunks = 9}, keys);
  host_cache<method_with<exact_keys>, float> plain(heads, {420}, embedding(), {}, {.chunks = 9});
  own.prefill(cpu{}, 0, s, 395);
  plain.prefill(cpu{}, 0, s, 395);
  for (std::int64_t position = 395; position < 420; ++position) {
    CHECK(own.decode(cpu{}, {&s}, {position}) == plain.decode(cpu{}, {&s}, {position}));
  }
  CHECK(keys.asked->prompts == 1);
  CHECK(keys.asked->archived == 25);
  CHECK(keys.asked->loaded == 25);
}
