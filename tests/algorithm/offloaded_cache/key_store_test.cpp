// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/algorithm/offloaded_cache/exact_keys.hpp>
#include <tessera/algorithm/offloaded_cache/low_rank_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/project/low_rank.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/reduce/mean.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>
#include <tessera/select/random.hpp>

#include "support/catch.hpp"
#include "support/offload_problem.hpp"
#include "support/vectors.hpp"

using namespace tessera;
using tessera_test::contains;
using tessera_test::dense_attention;
using tessera_test::embedding;
using tessera_test::host_cache;
using tessera_test::make_sequence;
using tessera_test::offload_heads;
using tessera_test::offload_sequence;
using tessera_test::relative_error;

namespace {

constexpr offload_heads heads{6, 2, 16};
constexpr int width = 32;

/// A reader's own Projector: it keeps every channel from `first` on, `Rank` of them, times `gain`, and counts the rows
/// that it is fitted to.
template <int Rank>
struct some_channels {
  struct basis_type {
    int first;
    int width;
    std::int64_t rows;
  };
  static constexpr int rank = Rank;

  int first = 0;
  float gain = 1.0F;
  std::shared_ptr<std::vector<std::int64_t>> fitted = std::make_shared<std::vector<std::int64_t>>();

  basis_type fit(float const* rows, std::int64_t count, int columns) const {
    REQUIRE(rows != nullptr);
    fitted->push_back(count);
    return {first, columns, count};
  }
  void project(basis_type const& basis, float const* row, float* coefficients) const {
    for (int k = 0; k < Rank; ++k) {
      coefficients[k] = gain * row[(basis.first + k) % basis.width];
    }
  }
  void reconstruct(basis_type const& basis, float const* coefficients, float* row) const {
    std::fill(row, row + basis.width, 0.0F);
    for (int k = 0; k < Rank; ++k) {
      row[(basis.first + k) % basis.width] = coefficients[k] / gain;
    }
  }
};
static_assert(Projector<some_channels<8>>);

/// low_rank_projector under another name, which the cache cannot replace by key_factorization.
template <int Rank>
struct renamed_projector : low_rank_projector<Rank> {};

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

/// A reader's own selector: means of channels count if they are above a threshold, and a share of the chunks is taken,
/// or six of them.
struct above_threshold {
  using landmark_type = float;
  using group_type = group_max;
  static constexpr int chunk = 8;

  float threshold = 0.0F;
  float share = 0.0F;

  [[nodiscard]] mean_reducer<float> summary() const { return {}; }
  [[nodiscard]] float landmark(counted_sum<float> const& summarised) const {
    float const mean = summary().value(summarised);
    return std::abs(mean) >= threshold ? mean : 0.0F;
  }
  [[nodiscard]] float score(float query, float landmark) const { return query * landmark; }
  [[nodiscard]] std::int64_t budget(std::int64_t candidates) const {
    return share > 0.0F ? static_cast<std::int64_t>(share * static_cast<float>(candidates))
                        : std::min(candidates, std::int64_t{6});
  }
};

/// The tokens of which a step reads a chunk that it selected, and those that it reads in any case.
struct token_sets {
  std::vector<std::vector<bool>> selected;
  std::vector<std::vector<bool>> always;
};

/// What the latest step read of the first sequence, whose chunks before the step were `chunks`.
template <class Cache>
token_sets tokens_read(Cache& cache, std::int64_t position, std::int64_t chunks,
                       std::vector<std::vector<std::int64_t>> const& exact) {
  auto const& n = cache.plan().extents;
  auto const size = static_cast<std::size_t>(position + 1);
  token_sets found{{2, std::vector<bool>(size)}, {2, std::vector<bool>(size)}};
  auto const add = [&](std::vector<bool>& tokens, std::int64_t chunk) {
    for (std::int64_t t = chunk * n.chunk; chunk >= 0 && t < (chunk + 1) * n.chunk; ++t) {
      tokens[static_cast<std::size_t>(t)] = true;
    }
  };
  auto const step = cache.step(1);
  for (std::size_t head = 0; head < 2; ++head) {
    auto const h = static_cast<std::int64_t>(head);
    std::fill(found.always[head].begin() + static_cast<std::ptrdiff_t>(chunks * n.chunk), found.always[head].end(),
              true);
    for (std::int64_t const id : exact[head]) {
      add(found.always[head], id);
    }
    for (std::int64_t rank = 0; rank < step.selected_counts(0, h); ++rank) {
      add(found.selected[head], step.selected(0, h, rank));
    }
  }
  return found;
}

template <class Cache>
std::vector<std::vector<std::int64_t>> exact_ids(Cache const& cache) {
  std::vector<std::vector<std::int64_t>> ids(2);
  for (std::int64_t head = 0; head < 2; ++head) {
    for (std::int64_t index = 0; index < cache.plan().extents.exact(); ++index) {
      ids[static_cast<std::size_t>(head)].push_back(cache.memory().exact_ids(0, head, index));
    }
  }
  return ids;
}

/// Replaces keys of a row by what a Projector makes of them.
template <class P>
std::vector<float> rebuilt_keys(P const& projector, offload_sequence<float> const& s, std::int64_t prompt) {
  std::vector<float> rows(static_cast<std::size_t>(s.tokens * width));
  auto const at = [&](std::int64_t token, std::int64_t i) {
    return static_cast<std::size_t>((i / 16 * s.tokens + token) * 16 + i % 16);
  };
  for (std::int64_t token = 0; token < s.tokens; ++token) {
    for (std::int64_t i = 0; i < width; ++i) {
      rows[static_cast<std::size_t>(token * width + i)] = s.keys[at(token, i)];
    }
  }
  auto const basis = projector.fit(rows.data(), prompt, width);
  std::vector<float> made(s.keys.size());
  for (std::int64_t token = 0; token < s.tokens; ++token) {
    std::vector<float> coefficients(P::rank);
    std::vector<float> row(width);
    projector.project(basis, rows.data() + token * width, coefficients.data());
    projector.reconstruct(basis, coefficients.data(), row.data());
    for (std::int64_t i = 0; i < width; ++i) {
      made[at(token, i)] = row[static_cast<std::size_t>(i)];
    }
  }
  return made;
}

/// Steps of a cache against attention in double, over the chosen chunks with the keys in `rebuilt` and over the others
/// with exact keys. Returns the largest relative error.
template <class Method>
double error_of_steps(host_cache<Method, float>& cache, offload_sequence<float> const& s, std::int64_t prompt,
                      std::vector<float> const& rebuilt) {
  cpu const exec{.threads = 2};
  double worst = 0;
  for (std::int64_t position = prompt; position < s.tokens; ++position) {
    std::int64_t const chunks = cache.memory().sequences[0].chunks;
    auto const exact = exact_ids(cache);
    auto const found = cache.decode(exec, {&s}, {position});
    exec.wait();
    token_sets const read = tokens_read(cache, position, chunks, exact);
    // Both heads' keys of a token are replaced where both or one have selected it: heads are compared one by one.
    std::vector<double> expected;
    for (std::int64_t head = 0; head < 2; ++head) {
      offload_sequence<float> mixed = s;
      auto const own = static_cast<std::size_t>(head);
      for (std::int64_t token = 0; token <= position; ++token) {
        if (read.selected[own][static_cast<std::size_t>(token)]) {
          std::int64_t const first = (head * s.tokens + token) * 16;
          std::copy_n(rebuilt.begin() + static_cast<std::ptrdiff_t>(first), 16,
                      mixed.keys.begin() + static_cast<std::ptrdiff_t>(first));
        }
      }
      auto const all =
          dense_attention<float>(heads, mixed, position, embedding(), 0, nullptr, [&](std::int64_t h, std::int64_t t) {
            auto const at = static_cast<std::size_t>(t);
            return read.selected[static_cast<std::size_t>(h)][at] || read.always[static_cast<std::size_t>(h)][at];
          });
      expected.insert(expected.end(), all.begin() + head * 3 * 16, all.begin() + (head + 1) * 3 * 16);
    }
    worst = std::max(worst, relative_error(found, expected));
  }
  return worst;
}

template <class Keys, class Codec = exact_values>
using method_with = offloaded_cache<Keys, landmark_selector<8>, keep_outliers<3>, Codec>;

}  // namespace

TEST_CASE("exact keys give exact attention over the chunks that a step selects", "[host]") {
  auto const s = make_sequence<float>(heads, 480, 5, 0.8);
  for (auto const where : {value_store::host, value_store::device}) {
    host_cache<method_with<exact_keys>, float> cache(heads, {500}, embedding(), {.values = where}, {.chunks = 9});
    cache.prefill(cpu{.threads = 2}, 0, s, 395);
    CHECK(error_of_steps(cache, s, 395, s.keys) < 2e-6);
    cached_sequence const known = cache.memory().sequences[0];
    CHECK(known.tokens == 480);
    CHECK(known.chunks == (480 - 56) / 8);
    CHECK(known.residual == 0.0F);
    CHECK(known.streamed_residual == 0.0F);
    CHECK(known.energy == 0.0);
    for (std::int64_t head = 0; head < 2; ++head) {  // nothing is lost, so that no chunk is a stray
      for (std::int64_t index = 3; index < cache.plan().extents.exact(); ++index) {
        CHECK(cache.memory().exact_ids(0, head, index) == -1);
      }
    }
  }
}

TEST_CASE("exact keys are where values are, and nothing is kept of coefficients", "[host]") {
  using method = method_with<exact_keys>;
  using coded = method_with<exact_keys, symmetric_quantizer<8, 16>>;
  cpu const exec;
  offload_shape const shape{6, 2, 16, {500, 77}};
  auto const there = method::plan<float>(exec, shape);
  std::int64_t const keys = there.extents.rows * 2 * 8 * 16 * 4;
  CHECK(there.host.bytes() == 2 * keys);
  CHECK(there.extents.rank == 0);
  auto const here = method::plan<float>(exec, shape, {.values = value_store::device});
  CHECK(here.host.bytes() == 0);
  CHECK(here.device.bytes() == there.device.bytes() + 2 * keys);
  CHECK(coded::plan<float>(exec, shape).host.bytes() < 2 * keys);  // keys stay exact where values are codes
  CHECK(coded::plan<float>(exec, shape).host.bytes() > keys);
  CHECK_THAT(there.describe(), contains("keys of 32 channels of all heads as they are"));
  CHECK_THROWS_WITH(method::plan<float>(exec, shape, {.keeps_products = true}),
                    contains("offloaded_cache.plan: keeps_products is 1 but exact_keys have no directions"));
}

TEST_CASE("exact keys in pieces have the bits of all at once, and results do not depend on slots", "[host]") {
  auto const s = make_sequence<bfloat16>(heads, 460, 6, 0.8);
  cpu const exec{.threads = 2};
  host_cache<method_with<exact_keys>, bfloat16> whole(heads, {460}, embedding(), {}, {.chunks = 9});
  host_cache<method_with<exact_keys>, bfloat16> pieces(heads, {460}, embedding(), {.slots = 30}, {.chunks = 9});
  host_cache<method_with<exact_keys>, bfloat16> fresh(heads, {460}, embedding(), {.keeps_slots = false}, {.chunks = 9});
  whole.prefill(exec, 0, s, 403);
  pieces.prefill(exec, 0, s, 403, 40);
  fresh.prefill(exec, 0, s, 20);  // the rest is generated
  for (std::int64_t position = 20; position < 403; ++position) {
    fresh.decode(exec, {&s}, {position});
  }
  for (std::int64_t position = 403; position < 460; ++position) {
    auto const expected = whole.decode(exec, {&s}, {position});
    CHECK(pieces.decode(exec, {&s}, {position}) == expected);
    std::vector<double> const wide(expected.begin(), expected.end());  // exact chunks are in another order
    CHECK(relative_error(fresh.decode(exec, {&s}, {position}), wide) < 1e-6);
  }
}

TEST_CASE("keys are those that the cache's own Projector reconstructs", "[host]") {
  auto const s = make_sequence<float>(heads, 470, 7, 0.8);
  some_channels<24> const projector{.first = 5, .gain = 2.0F};
  using method = method_with<low_rank_keys<some_channels<24>>>;
  host_cache<method, float> cache(heads, {500}, embedding(), {.strays = 0}, {.chunks = 9}, {.projector = projector});
  cache.prefill(cpu{.threads = 2}, 0, s, 395);
  CHECK(*projector.fitted == std::vector<std::int64_t>{395});
  auto const rebuilt = rebuilt_keys(projector, s, 395);
  CHECK(error_of_steps(cache, s, 395, rebuilt) < 2e-6);
  CHECK(relative_error(s.keys, std::vector<double>(rebuilt.begin(), rebuilt.end())) > 0.1);
  double lost = 0;
  double whole = 0;
  for (std::int64_t head = 0; head < 2; ++head) {
    for (std::int64_t i = 0; i < 336 * 16; ++i) {  // the prompt's archived tokens
      auto const at = static_cast<std::size_t>(head * s.tokens * 16 + i);
      lost += std::pow(double{s.keys[at]} - double{rebuilt[at]}, 2);
      whole += std::pow(double{s.keys[at]}, 2);
    }
  }
  cached_sequence const known = cache.memory().sequences[0];
  CHECK(double{known.residual} == Approx(lost / whole).epsilon(1e-5));
  CHECK(known.energy == Approx(whole / 336).epsilon(1e-5));
}

TEST_CASE("a Projector's state travels to the cache, and its losses make strays", "[host]") {
  auto s = make_sequence<float>(heads, 470, 8, 0.8);
  using method = method_with<low_rank_keys<some_channels<24>>>;
  std::vector<std::vector<float>> results;
  for (int const first : {0, 8, 0}) {
    host_cache<method, float> cache(heads, {500}, embedding(), {}, {.chunks = 9}, {.projector = {.first = first}});
    cache.prefill(cpu{}, 0, s, 395);
    results.push_back(cache.decode(cpu{}, {&s}, {395}));
  }
  CHECK(results[0] != results[1]);
  CHECK(results[0] == results[2]);

  for (std::int64_t head = 0; head < 2; ++head) {  // a chunk of which the channels kept have nothing
    for (std::int64_t token = 400; token < 408; ++token) {
      for (std::int64_t channel = 0; channel < 16; ++channel) {
        float& key = s.keys[static_cast<std::size_t>((head * s.tokens + token) * 16 + channel)];
        key = head == 1 && channel >= 8 ? 40.0F : 0.0F;
      }
    }
  }
  host_cache<method, float> cache(heads, {500}, embedding(), {}, {.chunks = 9}, {.projector = {.first = 0}});
  cache.prefill(cpu{}, 0, s, 395);
  for (std::int64_t position = 395; position < 470; ++position) {
    cache.decode(cpu{}, {&s}, {position});
  }
  CHECK(cache.memory().exact_ids(0, 1, 3) == 50);
}

TEST_CASE("an empty prompt is fitted when its first chunk leaves the ring", "[host]") {
  auto const s = make_sequence<float>(heads, 200, 9, 0.8);
  some_channels<32> const projector;  // keeps all channels
  using method = method_with<low_rank_keys<some_channels<32>>>;
  host_cache<method, float> cache(heads, {200, 200}, embedding(), {}, {.chunks = 9}, {.projector = projector});
  cache.prefill(cpu{}, 0, s, 0);
  CHECK(projector.fitted->empty());
  CHECK(error_of_steps(cache, s, 0, s.keys) < 2e-6);
  CHECK(*projector.fitted == std::vector<std::int64_t>{64});
}

TEST_CASE("low_rank and its Projector called through the concept keep the same of keys", "[host]") {
  auto const s = make_sequence<float>(heads, 470, 10, 0.8);
  offload_options options;
  options.strays = 0;
  options.renewal_until = 0;
  options.search.iterations = 12;
  host_cache<method_with<low_rank<20>>, float> fast(heads, {500}, embedding(), options, {.chunks = 9});
  host_cache<method_with<low_rank_keys<renamed_projector<20>>>, float> plain(heads, {500}, embedding(), options,
                                                                             {.chunks = 9});
  fast.prefill(cpu{}, 0, s, 395);
  plain.prefill(cpu{}, 0, s, 395);
  CHECK(double{fast.memory().sequences[0].residual} ==
        Approx(double{plain.memory().sequences[0].residual}).epsilon(0.1));
  for (std::int64_t position = 395; position < 470; ++position) {
    auto const expected = plain.decode(cpu{}, {&s}, {position});
    REQUIRE(relative_error(fast.decode(cpu{}, {&s}, {position}),
                           std::vector<double>(expected.begin(), expected.end())) < 1e-3);
  }
}

TEST_CASE("a Projector that does not fit its keys is refused", "[host]") {
  using wide = method_with<low_rank_keys<some_channels<33>>>;
  cpu const exec;
  CHECK_THROWS_WITH(wide::plan<float>(exec, {6, 2, 16, {500}}),
                    contains("offloaded_cache.plan: the Projector has 33 coefficients but rows have 32 channels"));
  using method = method_with<low_rank_keys<some_channels<8>>>;
  CHECK_THROWS_WITH(method::plan<float>(exec, {6, 2, 16, {500}}, {.keeps_products = true}),
                    contains("keeps_products is 1 but only low_rank<rank>"));
}

TEST_CASE("a reader's own selector is called with its state", "[host]") {
  auto const s = make_sequence<float>(heads, 470, 13, 0.8);
  auto const chosen = [&]<class S>(S const& selector) {
    using method = offloaded_cache<exact_keys, S, keep_outliers<0>>;
    host_cache<method, float> cache(heads, {500}, embedding(), {}, selector);
    cache.prefill(cpu{}, 0, s, 395);
    cache.decode(cpu{}, {&s}, {395});
    auto const step = cache.step(1);
    return std::vector<std::int32_t>(step.selected.data, step.selected.data + step.selected.size());
  };
  auto const plain = chosen(landmark_selector<8>{.chunks = 6});
  CHECK(chosen(above_threshold{.threshold = 0.0F}) == plain);  // all means count
  auto const some = chosen(above_threshold{.threshold = 0.5F});
  CHECK(some.size() == plain.size());
  CHECK(some != plain);
  // No mean counts: all chunks are alike, of which the earlier ones are taken.
  auto const none = chosen(above_threshold{.threshold = 1e30F});
  CHECK(none == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5});
  CHECK(chosen(above_threshold{.threshold = 0.0F, .share = 0.05F}).size() == 2 * 2);  // of at most 55 chunks
}

TEST_CASE("a selector's state is that of the plan", "[host]") {
  auto const s = make_sequence<float>(heads, 470, 11, 0.8);
  using method = offloaded_cache<exact_keys, random_selector<8>, keep_outliers<0>>;
  std::vector<std::vector<std::int32_t>> chosen;
  for (std::uint64_t const seed : {3U, 4U, 3U}) {
    random_selector<8> const selector{.chunks = 5, .seed = seed};
    host_cache<method, float> cache(heads, {500}, embedding(), {}, selector);
    cache.prefill(cpu{}, 0, s, 395);
    cache.decode(cpu{}, {&s}, {395});
    auto const step = cache.step(1);
    chosen.emplace_back(step.selected.data, step.selected.data + step.selected.size());
    std::vector<std::pair<float, std::int32_t>> lots;
    for (std::int32_t chunk = 0; chunk < 42; ++chunk) {
      auto const any = [](std::int64_t) { return 0.0F; };
      lots.emplace_back(-selector.score(any, nullptr, 16, {chunk, 1, 395}), chunk);
    }
    std::sort(lots.begin(), lots.end());
    std::vector<std::int32_t> expected;
    for (std::size_t i = 0; i < 5; ++i) {
      expected.push_back(lots[i].second);
    }
    std::sort(expected.begin(), expected.end());
    CHECK(std::vector<std::int32_t>(chosen.back().begin() + 5, chosen.back().end()) == expected);
  }
  CHECK(chosen[0] != chosen[1]);
  CHECK(chosen[0] == chosen[2]);
}

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
