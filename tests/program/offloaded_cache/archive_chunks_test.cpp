// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/offloaded_cache/archive_chunks.hpp>
#include <tessera/select/landmark.hpp>
#include <tessera/testing/adversary.hpp>

#include "program/offloaded_cache/small_memory.hpp"
#include "support/catch.hpp"

using namespace tessera;

namespace {

using selector_type = landmark_selector<4>;
constexpr auto archived = static_cast<std::int16_t>(chunk_slot::archived);
constexpr auto exact = static_cast<std::int16_t>(chunk_slot::exact);

/// A step of both sequences. The first one, of 23 tokens, fills its ring with the new one, so that chunk 2 leaves it;
/// the second one has room.
struct archiving_step : tessera_test::small_memory {
  static constexpr std::int64_t chunk = 2;  ///< the chunk that leaves the ring, in row 2
  std::vector<float> queries = std::vector<float>(sized(2 * 4 * channels));
  std::vector<float> residuals = std::vector<float>(2, garbage);

  archiving_step() {
    sequences[0] = {0, 8, 23, 2, 1.0, 0.01F, 4, 0.5F, 8, 0.5F};
    sequences[1] = {8, 12, 20, 2, 1.0, 0.01F, 4, 0.5F, 8, 0.5F};
    directions = samples(2 * width * n.rank, 3);
    ring_keys = samples(static_cast<std::int64_t>(ring_keys.size()), 4);
    ring_values = samples(static_cast<std::int64_t>(ring_keys.size()), 5);
    ring_sources = samples(static_cast<std::int64_t>(ring_keys.size()), 6);
  }
  [[nodiscard]] offload_step<float> step() {
    offload_step<float> made{};
    made.queries = {queries.data(), {2, 4, channels}};
    made.residuals = residuals;
    return made;
  }
  template <class Executor, class Program>
  static void run(Executor const& exec, Program const& program) {
    exec.run(program, program.groups());
  }
  template <class Executor>
  void project(Executor const& exec) {
    run(exec, project_archived<float, bfloat16>{n, memory(), step()});
  }
  template <class Executor>
  void archive(Executor const& exec) {
    run(exec, archive_chunks<float, selector_type, tessera::exact_values>{n, memory(), step(), {}, 1.5F});
  }
  template <class Executor>
  void finish(Executor const& exec) {
    run(exec, finish_steps<float, bfloat16>{n, memory(), step(), {1.25F, 0.0F}});
  }
  /// Where the token of the chunk is in the ring.
  [[nodiscard]] std::int64_t at(std::int64_t token) const { return (chunk * n.chunk + token) % n.ring; }
};

template <class Executor>
void check_coefficients(Executor const& exec) {
  archiving_step of;
  of.project(exec);
  auto const memory = of.memory();
  double worst = 0;
  double held = 0;
  double whole = 0;
  for (std::int64_t token = 0; token < 4; ++token) {
    for (std::int64_t k = 0; k < of.n.rank; ++k) {
      double sum = 0;
      for (std::int64_t i = 0; i < of.width; ++i) {
        sum += double{memory.ring_sources(0, of.at(token), i)} * double{memory.directions(0, i, k)};
      }
      held += sum * sum;
      worst = std::max(worst, std::fabs(sum - double{memory.coefficients(2 * 4 + token, k)}));
    }
    for (std::int64_t i = 0; i < of.width; ++i) {
      whole += std::pow(double{memory.ring_sources(0, of.at(token), i)}, 2);
    }
  }
  CHECK(worst < 1e-5);
  CHECK(double{of.residuals[0]} == Approx(std::max(0.0, 1 - held / whole)).margin(1e-6));
  CHECK(of.residuals[1] == -1.0F);  // its ring has room
  auto const written =
      std::count_if(of.coefficients.begin(), of.coefficients.end(), [&](float value) { return value != of.garbage; });
  CHECK(written == 4 * of.n.rank);
}

/// A step whose chunk has slots to choose from: outliers are chunks 0 and 1 with these least cosines, strays have
/// these residuals; NaN: the slot is empty.
archiving_step step_with(std::vector<float> const& cosines, std::vector<float> const& of_strays, float residual) {
  archiving_step of;
  auto const memory = of.memory();
  of.residuals[0] = residual;
  std::fill(of.slots.begin(), of.slots.end(), archived);
  for (std::int64_t head = 0; head < 2; ++head) {
    std::int32_t id = 0;
    for (std::int64_t slot = 0; slot < of.n.exact(); ++slot) {
      auto const p = static_cast<std::size_t>(slot);
      float const measure = slot < of.n.outliers ? cosines[p] : of_strays[p - 3];
      memory.exact_ids(0, head, slot) = std::isnan(measure) ? -1 : id % 2;
      memory.exact_measures(0, head, slot) = measure;
      id += std::isnan(measure) ? 0 : 1;
    }
    memory.chunk_slots(0, head) = memory.chunk_slots(1, head) = exact;
  }
  return of;
}

/// The slot where the chunk is exact for a head, or -1; checks that everything about it is noted.
std::int64_t slot_of(archiving_step& of, std::int64_t head) {
  auto const memory = of.memory();
  std::int64_t found = -1;
  for (std::int64_t slot = 0; slot < of.n.exact(); ++slot) {
    if (memory.exact_ids(0, head, slot) == of.chunk) {
      CHECK(found == -1);
      found = slot;
      CHECK(memory.exact_keys(0, head, slot, 3, 5) == memory.ring_keys(0, head, of.at(3), 5));
      CHECK(memory.exact_values(0, head, slot, 2, 11) == memory.ring_values(0, head, of.at(2), 11));
    }
  }
  CHECK(memory.chunk_slots(of.chunk, head) == (found >= 0 ? exact : archived));
  return found;
}

constexpr float none = std::numeric_limits<float>::quiet_NaN();

template <class Executor>
void check_archived(Executor const& exec) {
  archiving_step of = step_with({none, none, none}, {none, none}, 0.0F);
  of.archive(exec);
  auto const memory = of.memory();
  double worst = 0;
  int wrong = 0;
  for (std::int64_t head = 0; head < 2; ++head) {
    for (std::int64_t c = 0; c < of.channels; ++c) {
      double mean = 0;
      for (std::int64_t token = 0; token < 4; ++token) {
        mean += double{memory.ring_keys(0, head, of.at(token), c)} / 4;
        wrong += of.stored_value(2, head, token, c) == memory.ring_values(0, head, of.at(token), c) ? 0 : 1;
      }
      double const found = double{load(memory.landmarks(2, head, c))};
      worst = std::max(worst, std::fabs(found - mean) - std::fabs(mean) * 0x1p-8);
    }
    CHECK(slot_of(of, head) == 0);  // the first empty slot
    CHECK(std::fabs(memory.exact_measures(0, head, 0)) <= 1.0F);
  }
  CHECK(worst < 1e-6);
  CHECK(wrong == 0);
  auto const stored = std::count_if(of.values.begin(), of.values.end(), [&](float v) { return v != of.garbage; });
  CHECK(stored == 2 * 4 * of.channels);  // and nothing for the sequence that has room
}

template <class Executor>
void check_pointers(Executor const& exec) {
  // The chunk's least cosine is below 0.99; its slot is that of the outlier with the larger cosine, of two the later.
  archiving_step worst = step_with({-1.0F, 0.995F, 0.999F}, {none, none}, 0.0F);
  worst.archive(exec);
  CHECK(slot_of(worst, 0) == 2);
  CHECK(worst.memory().chunk_slots(0, 0) == archived);  // that was chunk 0
  // All outliers deserve their slots more. A residual of 1.5 times the usual one is no stray, a larger one is.
  std::vector<float> const better(3, -1.0F);
  archiving_step usual = step_with(better, {none, 0.7F}, 0.015F);
  usual.archive(exec);
  CHECK(slot_of(usual, 1) == -1);
  archiving_step stray = step_with(better, {none, 0.7F}, 0.02F);
  stray.archive(exec);
  CHECK(slot_of(stray, 1) == 3);
  CHECK(stray.memory().exact_measures(0, 1, 3) == 0.02F);
  archiving_step larger = step_with(better, {0.6F, 0.5F}, 0.55F);
  larger.archive(exec);
  CHECK(slot_of(larger, 0) == 4);
  archiving_step smaller = step_with(better, {0.6F, 0.5F}, 0.45F);
  smaller.archive(exec);
  CHECK(slot_of(smaller, 0) == -1);
}

template <class Executor>
void check_products(Executor const& exec) {
  archiving_step of;
  of.gram = of.samples(2 * of.width * of.width, 8);
  auto const before = of.gram;
  auto const memory = of.memory(true);
  memory.ring_sources(1, 20 % 16, 3) = 1e20F;  // a product that no float holds
  of.run(exec, add_to_gram<float, bfloat16>{of.n, memory, of.step()});
  double worst = 0;
  for (std::int64_t i = 0; i < of.width; ++i) {
    for (std::int64_t j = 0; j < of.width; ++j) {
      double const product =
          0.25 * double{memory.ring_sources(0, 23 % 16, i)} * double{memory.ring_sources(0, 23 % 16, j)};
      double const expected = double{before[of.sized(i * of.width + j)]} + product;
      worst = std::max(worst, std::fabs(expected - double{memory.gram(0, i, j)}));
    }
  }
  CHECK(worst < 1e-6);
  CHECK(memory.gram(1, 3, 3) == most_key_product);
  CHECK(std::all_of(of.gram.begin(), of.gram.end(), [](float value) { return std::fabs(value) <= most_key_product; }));
}

template <class Executor>
void check_counts(Executor const& exec) {
  archiving_step of;
  of.residuals = {0.25F, -1.0F};
  of.finish(exec);
  cached_sequence const& full = of.sequences[0];
  CHECK((full.tokens == 24 && full.chunks == 3 && full.streamed == 5 && full.streamed_residual == 0.75F));
  cached_sequence const& other = of.sequences[1];
  CHECK((other.tokens == 21 && other.chunks == 2 && other.streamed == 4 && other.streamed_residual == 0.5F));
}

}  // namespace

TEST_CASE("the chunk that leaves the ring has its coefficients, and the part of its keys that they leave",
          "[host][threads]") {
  check_coefficients(cpu{.threads = 2});
  archiving_step zeros;
  std::fill(zeros.ring_sources.begin(), zeros.ring_sources.end(), 0.0F);
  zeros.project(cpu{.threads = 1});
  CHECK(zeros.residuals[0] == 0.0F);
}

TEST_CASE("the chunk that leaves the ring has a landmark and a record of its values", "[host][threads]") {
  check_archived(cpu{.threads = 2});
}

TEST_CASE("the chunk that leaves the ring is exact where it deserves a slot more than another", "[host][threads]") {
  check_pointers(cpu{.threads = 2});
}

TEST_CASE("a step adds the products of its token, none of which is too large", "[host][threads]") {
  check_products(cpu{.threads = 2});
}

TEST_CASE("a step counts its token, and the chunk that leaves the ring", "[host][threads]") {
  check_counts(cpu{.threads = 2});
}

TEST_CASE("no chunk leaves the ring of a sequence without room for it, and no step without a sequence counts",
          "[host]") {
  cpu const exec{.threads = 1};
  archiving_step of;
  of.sequences[0].capacity = 2;
  of.project(exec);
  of.archive(exec);
  CHECK(of.residuals[0] == -1.0F);
  CHECK(std::count(of.slots.begin(), of.slots.end(), -99) == 20 * 2);
  of.finish(exec);
  CHECK((of.sequences[0].tokens == 24 && of.sequences[0].chunks == 2));
  of.finish(exec);  // its ring is full
  CHECK(of.sequences[0].tokens == 24);
}

TEST_CASE("archiving keeps the rules for programs", "[host]") {
  testing::adversary const exec{.seed = 51};
  check_coefficients(exec);
  check_archived(exec);
  check_pointers(exec);
  check_products(exec);
  check_counts(exec);
}
