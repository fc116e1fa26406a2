// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <tessera/algorithm/offloaded_cache/offloaded_cache.cuh>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/cuda_memory.cuh>
#include <tessera/exec/explain.hpp>
#include <tessera/select/coded_landmark.hpp>
#include <tessera/select/landmark.hpp>
#include <tessera/select/quest.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;

namespace {

struct scores_setup {
  std::int64_t query_heads;
  std::int64_t key_heads;
  std::int64_t channels;
  std::vector<std::int32_t> chunks;  ///< archived chunks of each sequence
  std::int32_t free_rows = 0;        ///< rows that a sequence has room for besides
};

constexpr float scale = 0.11F;
constexpr float poison = -12345.0F;

/// The next of a series of numbers from -127 to 127.
int next_number(std::uint64_t& state) {
  state = state * 6364136223846793005U + 1442695040888963407U;
  return static_cast<int>((state >> 40) % 255) - 127;
}
std::uint64_t first_state(std::uint64_t line) {
  return line * 0x9e3779b97f4a7c15U + 77;
}

/// Landmarks as the device has them, and the numbers that they stand for, by which a number of a query is multiplied.
struct bfloat16_lines {
  using selector = landmark_selector<8>;
  using element = bfloat16;
  static double value(element const* line, std::int64_t channel, std::int64_t, double) {
    return double{load(line[channel])};
  }
  static void make(element* line, std::int64_t channels, std::uint64_t at) {
    std::uint64_t state = first_state(at);
    for (std::int64_t i = 0; i < channels; ++i) {
      line[i] = store<bfloat16>(0.0061F * static_cast<float>(next_number(state)));
    }
  }
  static double query_step(double) { return 0; }
};
struct box_lines {
  using selector = quest_selector<8>;
  using element = bfloat16;
  static double value(element const* line, std::int64_t channel, std::int64_t channels, double query) {
    return double{load(line[query < 0 ? channel : channels + channel])};
  }
  static void make(element* line, std::int64_t channels, std::uint64_t at) {
    std::uint64_t state = first_state(at);
    for (std::int64_t i = 0; i < channels; ++i) {
      int const one = next_number(state);
      int const other = next_number(state);
      line[i] = store<bfloat16>(0.0061F * static_cast<float>(std::min(one, other)));
      line[channels + i] = store<bfloat16>(0.0061F * static_cast<float>(std::max(one, other)));
    }
  }
  static double query_step(double) { return 0; }
};
struct coded_lines {
  using selector = coded_landmark_selector<8>;
  using element = std::int8_t;
  static double value(element const* line, std::int64_t channel, std::int64_t channels, double) {
    float by;
    std::memcpy(&by, line + channels, 4);
    return double{by} * line[channel];
  }
  static void make(element* line, std::int64_t channels, std::uint64_t at) {
    std::uint64_t state = first_state(at);
    for (std::int64_t i = 0; i < channels; ++i) {
      line[i] = static_cast<element>(next_number(state));
    }
    float const by = 0.002F * (1.0F + static_cast<float>(at % 97));
    std::memcpy(line + channels, &by, 4);
  }
  /// The step of the 15 bits of a query.
  static double query_step(double largest) { return largest / 16256; }
};

/// A query as a selector reads it.
struct query_row {
  bfloat16 const* values;
  TESSERA_FN float operator()(std::int64_t channel) const { return load(values[channel]); }
};

/// Scores of random landmarks on the device, in memory of the test's own.
template <class Lines>
class scores_problem {
 public:
  using selector = typename Lines::selector;
  using element = typename Lines::element;

  explicit scores_problem(scores_setup const& setup) : setup_(setup) {
    extents_.batch = static_cast<std::int64_t>(setup.chunks.size());
    extents_.query_heads = setup.query_heads;
    extents_.key_heads = setup.key_heads;
    extents_.channels = setup.channels;
    extents_.chunk = 8;
    extents_.ring = 64;
    for (std::int32_t const chunks : setup.chunks) {
      auto const first = static_cast<std::int32_t>(extents_.rows);
      std::int32_t const capacity = chunks + setup.free_rows;
      sequences.push_back({first, capacity, chunks * 8 + 3, chunks, 1.0F, 0.0F, 0, 0.0F});
      extents_.rows += capacity;
      extents_.longest = std::max<std::int64_t>(extents_.longest, capacity);
    }
    elements_ = chunk_landmarks<selector>::elements({}, setup.channels);
    constexpr std::int64_t behind = 16;  // copies are of whole 16 bytes
    landmarks.resize(static_cast<std::size_t>(extents_.rows * setup.key_heads * elements_ + behind));
    for (std::int64_t line = 0; line < extents_.rows * setup.key_heads; ++line) {
      Lines::make(landmarks.data() + line * elements_, setup.channels, static_cast<std::uint64_t>(line));
    }
    chunk_slots.assign(static_cast<std::size_t>(extents_.rows * setup.key_heads),
                       static_cast<std::int16_t>(chunk_slot::archived));
    for (std::size_t i = 3; i < chunk_slots.size(); i += 29) {
      chunk_slots[i] = static_cast<std::int16_t>(chunk_slot::exact);
    }
    queries.resize(static_cast<std::size_t>(extents_.batch * setup.query_heads * setup.channels));
    testing::fill(testing::gauss{1.5}, 9, queries.data(), queries.size());
  }

  void run() {
    buffer<cached_sequence> known = there(sequences);
    buffer<element> lines = there(landmarks);
    buffer<std::int16_t> where = there(chunk_slots);
    buffer<bfloat16> rows = there(queries);
    std::int64_t const blocks = divide_up(extents_.longest, scored_chunks);
    scores.assign(static_cast<std::size_t>(extents_.rows * extents_.query_heads), poison);
    sums.assign(static_cast<std::size_t>(extents_.batch * blocks * extents_.query_heads), {poison, poison});
    buffer<float> made = there(scores);
    buffer<scaled_exponentials<float>> made_sums = there(sums);
    offloaded_memory<bfloat16, element> memory{};
    memory.sequences = {known.data(), extents_.batch};
    memory.landmarks = {lines.data(), {extents_.rows, extents_.key_heads, elements_}};
    memory.chunk_slots = {where.data(), {extents_.rows, extents_.key_heads}};
    offload_step<bfloat16> step{};
    step.queries = {rows.data(), {extents_.batch, extents_.query_heads, extents_.channels}};
    step.scores = {made.data(),
                   {extents_.rows, extents_.key_heads, extents_.group()},
                   {1, extents_.group() * extents_.rows, extents_.rows}};
    step.score_sums = {made_sums.data(), {extents_.batch, blocks, extents_.query_heads}};
    tessera::run(exec_, score_chunks<bfloat16, selector>{extents_, memory, step, {}, scale});
    exec_.copy(made.view(), scores);
    exec_.copy(made_sums.view(), sums);
    exec_.wait();
  }

  float score(std::size_t sequence, std::int64_t chunk, std::int64_t head) const {
    return scores[static_cast<std::size_t>(head * extents_.rows + sequences[sequence].first + chunk)];
  }
  /// The largest of |score - expected| over the error that rounding explains; huge if a score is written for a chunk
  /// that does not exist, or a score is missing.
  double worst() const {
    double most = 0;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      for (std::int64_t head = 0; head < extents_.query_heads; ++head) {
        most = std::max(most, worst_of(i, head));
      }
    }
    return most;
  }

  std::int64_t blocks() const { return divide_up(extents_.longest, scored_chunks); }
  tessera::cuda const& exec() const { return exec_; }

  std::vector<cached_sequence> sequences;
  std::vector<element> landmarks;
  std::vector<std::int16_t> chunk_slots;
  std::vector<bfloat16> queries;
  std::vector<float> scores;
  std::vector<scaled_exponentials<float>> sums;

 private:
  template <class U>
  buffer<U> there(std::vector<U> const& from) const {
    buffer<U> made(exec_, static_cast<std::int64_t>(from.size()));
    exec_.copy(from, made);
    return made;
  }

  double worst_of(std::size_t i, std::int64_t head) const {
    std::int64_t const key_head = head / extents_.group();
    std::int64_t const channels = extents_.channels;
    auto const at = static_cast<std::int64_t>(i) * extents_.query_heads + head;
    std::vector<double> query(static_cast<std::size_t>(channels));
    double largest = 0;
    for (std::size_t c = 0; c < query.size(); ++c) {
      query[c] = double{load(queries[static_cast<std::size_t>(at * channels) + c])};
      largest = std::max(largest, std::abs(query[c]));
    }
    double most = 0;
    double total = 0;
    for (std::int64_t chunk = 0; chunk < sequences[i].capacity; ++chunk) {
      float const found = score(i, chunk, head);
      std::int64_t const row = sequences[i].first + chunk;
      if (chunk >= sequences[i].chunks) {
        most = found == poison ? most : 1e30;
        continue;
      }
      if (chunk_slots[static_cast<std::size_t>(row * extents_.key_heads + key_head)] ==
          static_cast<std::int16_t>(chunk_slot::exact)) {
        most = found == -INFINITY ? most : 1e30;
        continue;
      }
      element const* const line = landmarks.data() + (row * extents_.key_heads + key_head) * elements_;
      double sum = 0;
      double size = 0;
      double magnitudes = 0;
      for (std::int64_t c = 0; c < channels; ++c) {
        double const value = Lines::value(line, c, channels, query[static_cast<std::size_t>(c)]);
        sum += query[static_cast<std::size_t>(c)] * value;
        size += std::abs(query[static_cast<std::size_t>(c)] * value);
        magnitudes += std::abs(value);
      }
      double const room = double{scale} * (0.5 * Lines::query_step(largest) * magnitudes + 0x1p-20 * size) + 1e-30;
      most = std::max(most, std::abs(double{found} - double{scale} * sum) / room);
      most = std::isfinite(found) ? most : 1e30;
      total += std::exp(double{found});
    }
    if (sequences[i].chunks > 0) {
      double all = 0;
      for (std::int64_t block = 0; block * scored_chunks < sequences[i].chunks; ++block) {
        auto const& own = sums[static_cast<std::size_t>(
            (static_cast<std::int64_t>(i) * blocks() + block) * extents_.query_heads + head)];
        all += own.scaled > 0 ? std::exp(double{lse_reducer<float>{}.value(own)}) : 0.0;
      }
      CHECK(all == Approx(total).epsilon(1e-4));
    }
    return most;
  }

  tessera::cuda exec_{.options = {.refuses_slower_programs = true}};
  scores_setup setup_;
  offload_extents extents_{};
  std::int64_t elements_ = 0;
};

/// The program by which a device scores landmarks that a selector of this test has.
template <class Lines>
std::string chosen(cuda_device_description const& device, std::int64_t channels, std::int64_t group) {
  score_chunks<bfloat16, typename Lines::selector> call{};
  call.extents.key_heads = 8;
  call.extents.query_heads = 8 * group;
  call.extents.channels = channels;
  call.extents.longest = 4096;
  call.step.queries = {nullptr, {1, 8 * group, channels}};
  call.step.scores = {nullptr, {4096, 8, group}, {1, 4096 * group, 4096}};
  return std::string(explain(cuda::described(device), call).choices.at(0).program);
}

template <class Lines>
double worst_score(scores_setup const& setup) {
  scores_problem<Lines> p(setup);
  p.run();
  return p.worst();
}

}  // namespace

TEMPLATE_TEST_CASE("scores of landmarks are those in double", "[cuda]", bfloat16_lines, coded_lines, box_lines) {
  TESSERA_NEEDS_CUDA();
  std::vector<std::int32_t> const ragged{0, 1, 15, 16, 17, 127, 128, 129, 300, 5};
  for (std::int64_t const channels : {64, 128}) {
    for (std::int64_t const group : {1, 2, 3, 4, 5, 8, 9, 16}) {
      for (std::int64_t const key_heads : {1, 2, 3, 8, 12}) {
        CAPTURE(channels, group, key_heads);
        CHECK(worst_score<TestType>({group * key_heads, key_heads, channels, ragged, 3}) < 1);
      }
    }
  }
}

TEMPLATE_TEST_CASE("a block scores many work items of many sequences", "[cuda]", bfloat16_lines, coded_lines,
                   box_lines) {
  TESSERA_NEEDS_CUDA();
  std::vector<std::int32_t> sixteen;
  for (std::int32_t i = 0; i < 16; ++i) {
    // 31 blocks of chunks or fewer: 480 work items, more than three for each of 132 thread blocks.
    sixteen.push_back(3900 - 61 * i);
  }
  CHECK(worst_score<TestType>({8, 8, 128, sixteen}) < 1);
  std::vector<std::int32_t> few;
  for (std::int32_t i = 0; i < 24; ++i) {
    few.push_back(i % 5 == 3 ? 0 : 2700 + 401 * (i % 7));
  }
  CHECK(worst_score<TestType>({4, 2, 64, few, 1}) < 1);  // three or four blocks of chunks in a work item
  CHECK(worst_score<TestType>({9, 9, 64, few}) < 1);     // sets of heads of different sizes
}

TEMPLATE_TEST_CASE("more sequences are scored than a block knows from its start", "[cuda]", bfloat16_lines, coded_lines,
                   box_lines) {
  TESSERA_NEEDS_CUDA();
  std::vector<std::int32_t> many;
  for (std::int32_t i = 0; i < 300; ++i) {
    many.push_back(i * 37 % 141);
  }
  CHECK(worst_score<TestType>({6, 3, 64, many}) < 1);
}

TEMPLATE_TEST_CASE("landmarks and queries that are not finite are seen in scores", "[cuda]", bfloat16_lines,
                   coded_lines, box_lines) {
  TESSERA_NEEDS_CUDA();
  scores_problem<TestType> p({4, 2, 64, {40, 40}});
  std::int64_t const elements = chunk_landmarks<typename TestType::selector>::elements({}, 64);
  auto* const line = p.landmarks.data() + (7 * 2 + 1) * elements;
  float const nan = std::numeric_limits<float>::quiet_NaN();
  if constexpr (sizeof(*line) == 2) {
    line[5] = store<bfloat16>(nan);
  } else {
    std::memcpy(line + 64, &nan, 4);
  }
  p.queries[static_cast<std::size_t>((4 + 1) * 64 + 9)] = store<bfloat16>(nan);  // of sequence 1, head 1
  std::fill_n(p.queries.begin() + (4 + 3) * 64, 64, bfloat16{});
  p.run();
  CHECK(std::isnan(p.score(0, 7, 2)));
  CHECK(std::isnan(p.score(0, 7, 3)));
  CHECK(std::isfinite(p.score(0, 7, 0)));
  CHECK(std::isfinite(p.score(0, 6, 2)));
  CHECK(std::isnan(p.score(1, 11, 1)));
  CHECK(std::isfinite(p.score(1, 11, 0)));
  CHECK(p.score(1, 11, 3) == 0.0F);
  CHECK(std::isnan(p.sums[2].scaled));
  CHECK(std::isfinite(p.sums[0].scaled));
}

TEMPLATE_TEST_CASE("landmarks are scored by cp.async where there are 99 KiB of shared memory", "[cuda]", bfloat16_lines,
                   coded_lines, box_lines) {
  if constexpr (described_cuda::is_compiled_for<800>) {
    for (std::int64_t const channels : {64, 128}) {
      for (std::int64_t const group : {4, 16}) {
        for (cuda_device_description const& device :
             {cuda_device_description{800, 108, 163 * 1024}, cuda_device_description{860, 84, 99 * 1024}}) {
          CAPTURE(device.architecture, channels, group);
          CHECK(chosen<TestType>(device, channels, group) == "score_tiles (cp.async, mma.sync)");
        }
      }
    }
  }
}

TEST_CASE("boxes with infinite sides have the scores of their selector", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {64, 128}) {
    for (std::int64_t const group : {3, 16}) {
      CAPTURE(channels, group);
      scores_problem<box_lines> p({2 * group, 2, channels, {300}});
      auto const line = [&](std::int64_t chunk) { return p.landmarks.data() + (chunk * 2 + 1) * 2 * channels; };
      line(7)[3] = store<bfloat16>(-INFINITY);
      line(8)[channels + 4] = store<bfloat16>(INFINITY);
      line(129)[50] = store<bfloat16>(-INFINITY);
      line(129)[channels + 50] = store<bfloat16>(INFINITY);
      line(299)[channels + 9] = store<bfloat16>(std::numeric_limits<float>::quiet_NaN());
      p.run();
      int finite = 0;
      int infinite = 0;
      for (std::int64_t const chunk : {6, 7, 8, 129, 298, 299}) {
        for (std::int64_t head = group; head < 2 * group; ++head) {
          query_row const query{p.queries.data() + head * channels};
          float const expected =
              scale * chunk_landmarks<quest_selector<8>>::score({}, query, line(chunk), channels, {});
          float const found = p.score(0, chunk, head);
          CAPTURE(chunk, head, expected, found);
          if (std::isfinite(expected)) {
            CHECK(found == Approx(expected).epsilon(1e-5));
            ++finite;
          } else {
            CHECK((found == expected || (std::isnan(found) && std::isnan(expected))));
            ++infinite;
          }
        }
      }
      CHECK(finite > 2 * group);
      CHECK(infinite > 0);
    }
  }
}
