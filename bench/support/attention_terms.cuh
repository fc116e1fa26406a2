// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What is added to scores of attention where it is measured, and lists of tiles.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <tessera/map/dense_bias.hpp>
#include <tessera/map/linear_bias.hpp>
#include <tessera/view/attention_block_list.hpp>

#include "attention_problem.cuh"

namespace bench {

/// A bias that a user writes: it falls with the distance, by a slope for each head.
struct bias_function {
  std::int64_t heads;
  TESSERA_FN float operator()(std::int64_t, std::int64_t head, std::int32_t query, std::int32_t key) const {
    float const slope = 1.0F / static_cast<float>(heads + 16 * head);
    return slope * static_cast<float>(key - query);
  }
};

/// Lists of half of the tiles, chosen at random for every `together` blocks of 64 queries of each head, and the last
/// tile that the block sees. Lists ascend.
class half_lists {
 public:
  half_lists(attention_problem& problem, std::int64_t together) : shape_(problem.shape()) {
    tessera::attention_shape const& s = problem.shape();
    blocks_ = s.queries / 64;
    std::int64_t const all = s.keys / 128;
    for (std::int64_t list = 0; list < s.batch * s.query_heads * blocks_; ++list) {
      std::int64_t const block = list % blocks_;
      std::int64_t const seen = problem.options().is_causal ? (64 * block + 63) / 128 + 1 : all;
      std::vector<std::int32_t> own = choose(all, static_cast<std::uint64_t>((list - block) + block / together));
      if (!std::binary_search(own.begin(), own.end(), static_cast<std::int32_t>(seen - 1))) {
        own.insert(std::lower_bound(own.begin(), own.end(), static_cast<std::int32_t>(seen - 1)),
                   static_cast<std::int32_t>(seen - 1));
      }
      counts_.push_back(static_cast<std::int32_t>(own.size()));
      visited_ += std::lower_bound(own.begin(), own.end(), static_cast<std::int32_t>(seen)) - own.begin();
      of_all_ += seen;
      own.resize(static_cast<std::size_t>(all / 2 + 1));
      tiles_.insert(tiles_.end(), own.begin(), own.end());
    }
    device_counts_ = copy(problem, counts_);
    device_tiles_ = copy(problem, tiles_);
  }
  /// The part of the tiles within the mask that is listed.
  double part() const { return static_cast<double>(visited_) / static_cast<double>(of_all_); }
  tessera::attention_block_list list() const {
    return {{device_counts_->data(), {shape_.batch, shape_.query_heads, blocks_}},
            {device_tiles_->data(), {shape_.batch, shape_.query_heads, blocks_, shape_.keys / 128 / 2 + 1}}};
  }

 private:
  using memory_type = std::unique_ptr<device_array<std::int32_t>>;

  static memory_type copy(attention_problem& problem, std::vector<std::int32_t> const& values) {
    auto memory = std::make_unique<device_array<std::int32_t>>(problem.memory(), values.size());
    check(cudaMemcpyAsync(memory->data(), values.data(), memory->bytes(), cudaMemcpyHostToDevice,
                          problem.memory().stream()),
          "cudaMemcpyAsync");
    problem.memory().wait();
    return memory;
  }
  /// Half of the numbers below `all`, ascending.
  static std::vector<std::int32_t> choose(std::int64_t all, std::uint64_t seed) {
    std::vector<std::pair<std::uint64_t, std::int32_t>> order;
    for (std::int32_t i = 0; i < all; ++i) {
      order.emplace_back(tessera::testing::hash(seed, static_cast<std::uint64_t>(i)), i);
    }
    std::sort(order.begin(), order.end());
    std::vector<std::int32_t> chosen;
    for (std::int64_t i = 0; i < all / 2; ++i) {
      chosen.push_back(order[static_cast<std::size_t>(i)].second);
    }
    std::sort(chosen.begin(), chosen.end());
    return chosen;
  }

  tessera::attention_shape shape_;
  std::int64_t blocks_;
  std::int64_t visited_ = 0;
  std::int64_t of_all_ = 0;
  std::vector<std::int32_t> counts_;
  std::vector<std::int32_t> tiles_;
  memory_type device_counts_;
  memory_type device_tiles_;
};

/// Minus infinity outside of lists of tiles.
struct outside_of_lists {
  tessera::attention_block_list list;
  __device__ float operator()(std::int64_t sequence, std::int64_t head, std::int64_t query, std::int64_t key) const {
    std::int64_t const count = list.count(sequence, head, query / 64);
    for (std::int64_t i = 0; i < count; ++i) {
      if (list.tiles(sequence, head, query / 64, i) == key / 128) {
        return 0.0F;
      }
    }
    return -tessera::infinity;
  }
};

/// The slopes of a linear_bias, as in its paper.
class held_slopes {
 public:
  explicit held_slopes(attention_problem& problem) {
    std::int64_t const heads = problem.shape().query_heads;
    std::vector<float> slopes;
    for (std::int64_t head = 1; head <= heads; ++head) {
      slopes.push_back(std::exp2(-8.0F * static_cast<float>(head) / static_cast<float>(heads)));
    }
    memory_ = std::make_unique<device_array<float>>(problem.memory(), slopes.size());
    check(cudaMemcpyAsync(memory_->data(), slopes.data(), memory_->bytes(), cudaMemcpyHostToDevice,
                          problem.memory().stream()),
          "cudaMemcpyAsync");
    problem.memory().wait();
  }
  tessera::linear_bias bias() const { return {{memory_->data(), static_cast<std::int64_t>(memory_->size())}}; }

 private:
  std::unique_ptr<device_array<float>> memory_;
};

/// The memory of a dense_bias that all heads share.
class held_biases {
 public:
  explicit held_biases(attention_problem& problem) : shape_(problem.shape()) {
    std::int64_t const count = shape_.queries * shape_.keys;
    memory_ = std::make_unique<device_array<tessera::bfloat16>>(problem.memory(), static_cast<std::size_t>(count));
    fill_head<<<2048, 256, 0, problem.memory().stream()>>>(tessera::testing::gauss{}, 9, memory_->data(), count);
    check(cudaGetLastError(), "fill_head");
  }
  tessera::dense_bias<tessera::bfloat16> bias() const {
    return {{memory_->data(), {shape_.batch, shape_.query_heads, shape_.queries, shape_.keys}, {0, 0, shape_.keys, 1}}};
  }

 private:
  tessera::attention_shape shape_;
  std::unique_ptr<device_array<tessera::bfloat16>> memory_;
};

}  // namespace bench
