// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <vector>

#include <tessera/algorithm/offloaded_cache/low_rank_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/select/landmark.hpp>

#include "support/catch.hpp"
#include "support/offload_problem.hpp"
#include "support/stray_sequence.hpp"
#include "support/vectors.hpp"

using namespace tessera;
using tessera_test::embedding;
using tessera_test::host_cache;
using tessera_test::make_sequence;
using tessera_test::offload_heads;
using tessera_test::offload_sequence;
using tessera_test::sequence_that_strays;
using tessera_test::share_that_strays;

namespace {

constexpr offload_heads heads{6, 2, 16};
constexpr std::int64_t group = 3;

using row = std::vector<double>;

/// The key or query of a token, rotated to its position.
row turned(std::vector<float> const& all, offload_sequence<float> const& s, std::int64_t head, std::int64_t token) {
  view<float const, 2> const rows(all.data() + head * s.tokens * 16, {s.tokens, 16});
  row made;
  for (std::int64_t c = 0; c < 16; ++c) {
    made.push_back(double{rotated<float>(embedding(), token, c, plain_keys<float>{rows}.at(token))});
  }
  return made;
}

double dot(row const& a, row const& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

/// A way to rank chunks, given the scores of each query head of a key head and of each chunk.
using ranking = std::function<row(std::vector<row> const& scores)>;

double log_sum_exp(row const& scores) {
  double sum = 0;
  for (double const score : scores) {
    sum += std::exp(score);
  }
  return std::log(sum);
}

/// rank = agree(score - norm) over heads.
ranking ranked_by(std::function<double(row const&)> const& norm, std::function<double(row const&)> const& agree) {
  return [norm, agree](std::vector<row> const& scores) {
    row ranks;
    for (std::size_t chunk = 0; chunk < scores[0].size(); ++chunk) {
      row wanted;
      for (row const& of_head : scores) {
        wanted.push_back(of_head[chunk] - norm(of_head));
      }
      ranks.push_back(agree(wanted));
    }
    return ranks;
  };
}
double largest(row const& wanted) {
  return *std::max_element(wanted.begin(), wanted.end());
}
double mean_share(row const& wanted) {
  double sum = 0;
  for (double const share : wanted) {
    sum += std::exp(share);
  }
  return sum / static_cast<double>(wanted.size());
}
double mean_score(row const& wanted) {
  double sum = 0;
  for (double const score : wanted) {
    sum += score;
  }
  return sum / static_cast<double>(wanted.size());
}
double none(row const&) {
  return 0;
}
double maximum_of(row const& scores) {
  return largest(scores);
}

/// Compares a cache's choices with those of the rankings. Returns the number of heads and steps that differ, for each
/// ranking.
template <class Group>
std::vector<int> differing_choices(std::vector<ranking> const& rankings, double softmax_scale, int* asked) {
  using method = offloaded_cache<low_rank<16>, landmark_selector<8, Group>, keep_outliers<3>>;
  constexpr std::int64_t prompt = 420;
  constexpr std::int64_t taken = 9;
  auto s = make_sequence<float>(heads, prompt + 40, 31, 0.8);
  // Heads of a group differ in how peaked their scores are: without a common measure the most peaked head would choose
  // alone.
  for (std::size_t i = 0; i < s.queries.size(); ++i) {
    auto const head = static_cast<std::int64_t>(i) / (s.tokens * 16);
    s.queries[i] *= head % group == 0 ? 0.6F : head % group == 1 ? 1.7F : 1.0F;
  }
  offload_options options;
  options.strays = 0;
  options.softmax_scale = static_cast<float>(softmax_scale);
  cpu const exec{.threads = 2};
  host_cache<method, float> cache(heads, {s.tokens}, embedding(), options, {.chunks = taken});
  cache.prefill(exec, 0, s, prompt);
  double const scale = softmax_scale > 0 ? static_cast<double>(options.softmax_scale) : 0.25;
  std::vector<int> differing(rankings.size());
  for (std::int64_t position = prompt; position < s.tokens; ++position) {
    std::int64_t const chunks = cache.memory().sequences[0].chunks;
    std::vector<std::set<std::int64_t>> exact(2);
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t index = 0; index < 3; ++index) {
        exact[static_cast<std::size_t>(head)].insert(cache.memory().exact_ids(0, head, index));
      }
    }
    cache.decode(exec, {&s}, {position});
    auto const step = cache.step(1);
    for (std::int64_t head = 0; head < 2; ++head) {
      std::vector<std::int64_t> candidates;
      std::vector<row> scores(group);
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        if (exact[static_cast<std::size_t>(head)].count(chunk) > 0) {
          continue;
        }
        candidates.push_back(chunk);
        row mean(16);
        for (std::int64_t token = 8 * chunk; token < 8 * chunk + 8; ++token) {
          row const key = turned(s.keys, s, head, token);
          for (std::size_t c = 0; c < 16; ++c) {
            mean[c] += key[c] / 8;
          }
        }
        for (double& x : mean) {
          x = double{load(store<bfloat16>(static_cast<float>(x)))};  // rounded as landmarks are
        }
        for (std::int64_t query = 0; query < group; ++query) {
          row const asked_for = turned(s.queries, s, head * group + query, position);
          scores[static_cast<std::size_t>(query)].push_back(scale * dot(asked_for, mean));
        }
      }
      std::set<std::int64_t> chosen;
      REQUIRE(step.selected_counts(0, head) == taken);
      for (std::int64_t index = 0; index < taken; ++index) {
        chosen.insert(step.selected(0, head, index));
      }
      ++*asked;
      for (std::size_t i = 0; i < rankings.size(); ++i) {
        row const ranks = rankings[i](scores);
        double least = std::numeric_limits<double>::infinity();
        double best_left = -least;
        for (std::size_t at = 0; at < ranks.size(); ++at) {
          bool const is_chosen = chosen.count(candidates[at]) > 0;
          least = is_chosen ? std::min(least, ranks[at]) : least;
          best_left = is_chosen ? best_left : std::max(best_left, ranks[at]);
        }
        differing[i] += best_left > least + 1e-6 * std::abs(least) ? 1 : 0;
      }
    }
  }
  exec.wait();
  return differing;
}

}  // namespace

TEST_CASE("chunks are chosen by the largest of the shares that their heads give them", "[host][threads][slow]") {
  std::vector<ranking> const rankings{ranked_by(log_sum_exp, largest),     // the documented ranking
                                      ranked_by(none, largest),            // without a common measure
                                      ranked_by(maximum_of, largest),      // with another common measure
                                      ranked_by(log_sum_exp, mean_share),  // as group_mean ranks
                                      ranked_by(none, mean_score)};
  for (double const scale : {0.0, 0.4}) {
    int asked = 0;
    auto const differing = differing_choices<group_max>(rankings, scale, &asked);
    CAPTURE(scale, asked);
    CHECK(asked == 80);
    CHECK(differing[0] == 0);
    for (std::size_t other = 1; other < rankings.size(); ++other) {
      CAPTURE(other);
      CHECK(differing[other] > asked / 10);
    }
  }
}

TEST_CASE("chunks are chosen by the mean of the shares where a group says so", "[host][threads]") {
  std::vector<ranking> const rankings{ranked_by(log_sum_exp, mean_share), ranked_by(log_sum_exp, largest),
                                      ranked_by(none, mean_score), ranked_by(log_sum_exp, mean_score)};
  int asked = 0;
  auto const differing = differing_choices<group_mean>(rankings, 0.0, &asked);
  CHECK(differing[0] == 0);
  for (std::size_t other = 1; other < rankings.size(); ++other) {
    CAPTURE(other);
    CHECK(differing[other] > asked / 10);
  }
}

namespace {

using without_outliers = offloaded_cache<low_rank<16>, landmark_selector<8>, keep_outliers<0>>;
using cache_of_strays = host_cache<without_outliers, float>;
constexpr std::int64_t prompt_tokens = 248;  ///< 24 chunks, and 56 tokens of a ring of 64

offload_sequence<float> sequence_with_strays() {
  return sequence_that_strays<float>(heads, 8 * 60, prompt_tokens, share_that_strays);
}

/// The part of a chunk's keys, of all heads, that the cache's directions do not hold, in double.
double left_of_chunk(cache_of_strays const& cache, offload_sequence<float> const& s, std::int64_t chunk) {
  auto const directions = cache.memory().directions[0];
  double held = 0;
  double whole = 0;
  for (std::int64_t token = 8 * chunk; token < 8 * chunk + 8; ++token) {
    for (std::int64_t k = 0; k < 16; ++k) {
      double coefficient = 0;
      for (std::int64_t i = 0; i < 32; ++i) {
        double const key = double{s.keys[static_cast<std::size_t>((i / 16 * s.tokens + token) * 16 + i % 16)]};
        coefficient += key * double{directions(i, k)};
        whole += k == 0 ? key * key : 0;
      }
      held += coefficient * coefficient;
    }
  }
  return 1 - held / whole;
}

/// Generates tokens, one chunk after the other, until `chunks` chunks are archived.
void generate_chunks(cache_of_strays& cache, offload_sequence<float> const& s, std::int64_t chunks) {
  for (std::int64_t position = cache.memory().sequences[0].tokens; cache.memory().sequences[0].chunks < chunks;
       ++position) {
    cache.decode(cpu{}, {&s}, {position});
  }
}

std::set<std::int32_t> strays_of(cache_of_strays const& cache, std::int64_t head) {
  std::set<std::int32_t> found;
  for (std::int64_t index = 0; index < cache.plan().extents.strays; ++index) {
    if (cache.memory().exact_ids(0, head, index) >= 0) {
      found.insert(cache.memory().exact_ids(0, head, index));
    }
  }
  return found;
}

}  // namespace

TEST_CASE("chunks that directions do not hold are exact, those that leave most where slots are few", "[host]") {
  auto const s = sequence_with_strays();
  offload_options options;
  options.strays = 3;
  options.residual_limit = 4.0F;
  options.slots = 40;
  cache_of_strays cache(heads, {s.tokens}, embedding(), options, {.chunks = 40});
  cache.prefill(cpu{}, 0, s, prompt_tokens);
  auto const& memory = cache.memory();
  double const limit = 4.0 * double{memory.sequences[0].residual};
  REQUIRE(limit < 0.2);
  std::vector<std::set<std::int32_t>> const after{{34},         {34, 36},     {34, 36, 39}, {34, 39, 42},
                                                  {34, 39, 42}, {34, 39, 42}, {39, 42, 47}};
  // 42 takes the place of 36, and 47 that of 34. Directions leave less of 45 than of the three strays, and little of
  // 46.
  std::vector<std::int32_t> const added{34, 36, 39, 42, 45, 46, 47};
  for (std::size_t i = 0; i < added.size(); ++i) {
    CAPTURE(added[i]);
    CHECK((left_of_chunk(cache, s, added[i]) > limit) == (added[i] != 46));
    generate_chunks(cache, s, added[i] + 1);
    for (std::int64_t head = 0; head < 2; ++head) {
      REQUIRE(strays_of(cache, head) == after[i]);
    }
  }
  generate_chunks(cache, s, 52);
  for (std::int64_t head = 0; head < 2; ++head) {
    auto const strays = strays_of(cache, head);
    REQUIRE(strays == std::set<std::int32_t>{39, 42, 47});
    for (std::int64_t chunk = 0; chunk < 52; ++chunk) {
      CHECK((memory.chunk_slots(chunk, head) == static_cast<std::int16_t>(chunk_slot::exact)) ==
            (strays.count(static_cast<std::int32_t>(chunk)) == 1));
    }
    for (std::int64_t index = 0; index < 3; ++index) {
      std::int64_t const chunk = memory.exact_ids(0, head, index);
      CHECK(double{memory.exact_measures(0, head, index)} == Approx(left_of_chunk(cache, s, chunk)).epsilon(1e-4));
      for (std::int64_t token = 0; token < 8; ++token) {
        row const key = turned(s.keys, s, head, 8 * chunk + token);
        for (std::int64_t c = 0; c < 16; ++c) {
          CHECK(double{memory.exact_keys(0, head, index, token, c)} == key[static_cast<std::size_t>(c)]);
          CHECK(memory.exact_values(0, head, index, token, c) ==
                s.values[static_cast<std::size_t>((head * s.tokens + 8 * chunk + token) * 16 + c)]);
        }
      }
    }
  }
  // Chunks that lost their slots can be selected again; exact chunks cannot.
  cache.decode(cpu{}, {&s}, {memory.sequences[0].tokens});
  auto const step = cache.step(1);
  for (std::int64_t head = 0; head < 2; ++head) {
    auto const strays = strays_of(cache, head);
    std::int64_t const candidates = 52 - 3;
    REQUIRE(step.selected_counts(0, head) == 40);
    for (std::int64_t rank = 0; rank < 40; ++rank) {
      CHECK(strays.count(step.selected(0, head, rank)) == 0);
    }
    for (std::int64_t query = 0; query < group; ++query) {
      std::int64_t finite = 0;
      for (std::int64_t chunk = 0; chunk < 52; ++chunk) {
        finite += std::isfinite(step.scores(chunk, head, query)) ? 1 : 0;
      }
      CHECK(finite == candidates);
      CHECK(std::isfinite(step.scores(36, head, query)));
    }
  }
}

TEST_CASE("no chunk strays below the limit, nor where there is no slot", "[host][slow]") {
  auto const s = sequence_with_strays();
  offload_options options;
  for (bool const has_slots : {true, false}) {
    options.strays = has_slots ? 3 : 0;
    options.residual_limit = has_slots ? INFINITY : 4.0F;
    cache_of_strays cache(heads, {s.tokens}, embedding(), options, {.chunks = 40});
    cache.prefill(cpu{}, 0, s, prompt_tokens);
    generate_chunks(cache, s, 50);
    CHECK(strays_of(cache, 0).empty());
    CHECK(strays_of(cache, 1).empty());
    CHECK(double{cache.memory().sequences[0].streamed_residual} > 3.0);  // it counts all the same
  }
}

TEST_CASE("a stray chunk is attended to as it was, where its coefficients would be wrong", "[host][slow]") {
  auto const s = sequence_with_strays();
  auto const error = [&](std::int64_t strays) {
    offload_options options;
    options.strays = strays;
    cache_of_strays cache(heads, {s.tokens}, embedding(), options, {.chunks = 60});
    cache.prefill(cpu{}, 0, s, prompt_tokens);
    generate_chunks(cache, s, 50);
    std::int64_t const position = cache.memory().sequences[0].tokens;
    return tessera_test::relative_error(cache.decode(cpu{}, {&s}, {position}),
                                        tessera_test::dense_attention(heads, s, position, embedding()));
  };
  CHECK(error(6) < 0.7 * error(0));
}
