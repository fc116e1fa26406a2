// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The class as an engine uses it, on a GPU: a cache that is filled in any way has the bytes of the host's.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <tessera/algorithm/paged_cache/paged_cache.cuh>
#include <tessera/algorithm/paged_cache/saved_cache.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/memory.hpp>
#include <tessera/minicache.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"
#include "support/page_runs.cuh"
#include "support/small_model.hpp"

using namespace tessera;
using namespace tessera_test;
using namespace tessera_test::small;

namespace {

constexpr std::int64_t table_pages = 8;  ///< block table entries of a sequence
constexpr int layers = 4;
constexpr std::int64_t query_heads = 2 * heads;
using model_data = std::vector<layer_pair<bfloat16>>;
using block_order = std::vector<std::int32_t>;

/// The order of 20 blocks: the first ones are for the pages of the first sequence.
block_order in_order() {
  block_order order(20);
  std::iota(order.begin(), order.end(), 0);
  return order;
}
block_order shuffled(std::uint64_t seed) {
  block_order order = in_order();
  for (std::size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[testing::hash(seed, left) % left]);
  }
  return order;
}

/// Keys and values of all layers on a device.
struct data_on_device {
  model_data const& host;
  std::vector<buffer<bfloat16>> lists;

  data_on_device(cuda const& exec, model_data const& of) : host(of) {
    for (auto const& part : of) {
      for (auto const& layer : part.part) {
        lists.push_back(to_device(exec, layer[0]));
        lists.push_back(to_device(exec, layer[1]));
      }
    }
    exec.wait();
  }
  /// Replaces the data by other data of as many tokens. Waits.
  void replace(cuda const& exec, model_data const& by) {
    for (std::size_t i = 0; i < lists.size(); ++i) {
      exec.copy(by[i / 4].part[i / 2 % 2][i % 2], lists[i]);
    }
    exec.wait();
  }
  head_view<bfloat16 const> heads_of(int part, int side, int which, std::int64_t first, std::int64_t tokens,
                                     std::int64_t sequences) const {
    auto const& of = host[as_size(part)];
    head_view<bfloat16 const> const all(lists[as_size(4 * part + 2 * side + which)].data(),
                                        {of.sequences, heads, of.tokens, channels});
    return all.slice(0, 0, sequences).slice(2, first, tokens);
  }
  cache_inputs<bfloat16> inputs(int part, std::int64_t first, std::int64_t tokens, std::int64_t sequences) const {
    auto const of = [&](int side, int which) { return heads_of(part, side, which, first, tokens, sequences); };
    return {{of(0, 0), of(1, 0)}, {of(0, 1), of(1, 1)}};
  }
};

/// The model of small_model on a device, for at most two sequences. All memory is allocated before the first token.
class device_model {
 public:
  std::int64_t count;

  explicit device_model(cuda const& exec, std::int64_t sequences = 2, block_order const& order = in_order(),
                        std::vector<cache_layers> const& parts = small_model::default_parts())
      : count(2),
        exec_(exec),
        cache_(exec, {3, 512, 20, heads, channels, 64}, {.parts = parts}),
        blocks_(to_device(exec, block_order(order.begin(), order.begin() + 2 * table_pages))),
        lengths_on_host_(2),
        lengths_(to_device(exec, lengths_on_host_)),
        pages_(to_device(exec, lengths_on_host_)),
        queries_(to_device(exec, attention_samples<bfloat16>(testing::gauss{}, 3, 1, rows(most_tokens) * channels))),
        result_(exec, layers * rows(most_tokens) * channels),
        append_memory_(exec, cache_.plan_append(exec, {2, 512}).bytes()),
        attention_memory_(exec,
                          cache_.plan_attend(exec, cache_.shape_of(queries(most_tokens), this->sequences())).bytes()) {
    exec_.wait();
    count = sequences;
  }

  cache_sequences sequences() const {
    return {{blocks_.data(), {count, table_pages}}, {}, lengths_.view(), pages_.view(), count};
  }
  minicache const& cache() const { return cache_; }
  head_view<bfloat16 const> queries(std::int64_t tokens) const {
    return {queries_.data(), {count, query_heads, tokens, channels}};
  }
  std::vector<bfloat16> queries_on_host(std::int64_t tokens) const {
    auto all = to_host(exec_, queries_);
    all.resize(as_size(rows(tokens) * channels));
    return all;
  }

  void lengthen(std::int64_t tokens) {
    for (std::int32_t& length : lengths_on_host_) {
      length += static_cast<std::int32_t>(tokens);
    }
    exec_.copy(lengths_on_host_, lengths_);
    exec_.wait();
  }
  /// Makes the second sequence a fork of the first, with its pages.
  void begin_second() {
    auto table = to_host(exec_, blocks_);
    auto pages = to_host(exec_, pages_);
    std::copy_n(table.begin(), pages[0], table.begin() + table_pages);
    pages[1] = pages[0];
    lengths_on_host_[1] = lengths_on_host_[0];
    exec_.copy(table, blocks_);
    exec_.copy(pages, pages_);
    exec_.copy(lengths_on_host_, lengths_);
    auto const slots = to_device(exec_, std::vector<std::int32_t>{0, 1});
    cache_.fork(exec_, {slots.data(), 1}, {slots.data() + 1, 1});
    count = 2;
    exec_.wait();
  }
  void begin_again() {
    auto const slots = to_device(exec_, std::vector<std::int32_t>{1, 0});
    cache_.reset(exec_, slots.view());
    lengths_on_host_.assign(lengths_on_host_.size(), 0);
    exec_.copy(lengths_on_host_, lengths_);
    exec_.clear(pages_);
    exec_.wait();
  }

  /// Enqueues an append to all layers at once.
  void enqueue_append(data_on_device const& data, std::int64_t first, std::int64_t tokens) {
    workspace const space(cache_.plan_append(exec_, {count, tokens}), append_memory_);
    for (int part = 0; part < cache_.parts(); ++part) {
      cache_.append(exec_, part, data.inputs(part, first, tokens, count), sequences(), {tokens, {}}, space);
    }
    cache_.advance(exec_, sequences(), pages_.view(), tokens);
  }
  void append(data_on_device const& data, std::int64_t first, std::int64_t tokens) {
    lengthen(tokens);
    enqueue_append(data, first, tokens);
    exec_.wait();
  }

  void enqueue_attention(int layer, std::int64_t tokens) {
    attention_options options;
    options.is_causal = true;
    auto const q = queries(tokens);
    float* const result = result_.data() + layer * rows(most_tokens) * channels;
    workspace const space(cache_.plan_attend(exec_, cache_.shape_of(q, sequences())), attention_memory_);
    cache_.attend(exec_, layer, q, sequences(), options,
                  attention_outputs<float>{{result, {count, query_heads, tokens, channels}}}, space);
  }
  /// Enqueues a step layer after layer, as a model decodes.
  void enqueue_step(data_on_device const& data, std::int64_t first, std::int64_t tokens) {
    workspace const space(cache_.plan_seal(exec_, count), append_memory_);
    for (int layer = 0; layer < layers; ++layer) {
      int const part = cache_.part_of(layer);
      int const side = cache_.side_of(layer);
      cache_.write(exec_, layer, data.heads_of(part, side, 0, first, tokens, count),
                   data.heads_of(part, side, 1, first, tokens, count), sequences(), {tokens, {}});
      enqueue_attention(layer, tokens);
      if (layer + 1 == layers || cache_.part_of(layer + 1) != part) {
        cache_.seal(exec_, part, sequences(), space);
      }
    }
    cache_.advance(exec_, sequences(), pages_.view(), tokens);
  }
  void step(data_on_device const& data, std::int64_t first, std::int64_t tokens) {
    lengthen(tokens);
    enqueue_step(data, first, tokens);
    exec_.wait();
  }

  /// The result of the last attention over a layer.
  std::vector<float> result_of(int layer, std::int64_t tokens) const {
    auto const all = to_host(exec_, result_);
    auto const from = all.begin() + layer * rows(most_tokens) * channels;
    return {from, from + rows(tokens) * channels};
  }
  std::vector<float> attended(int layer, std::int64_t tokens) {
    enqueue_attention(layer, tokens);
    return result_of(layer, tokens);
  }
  std::vector<std::int32_t> sealed() const { return to_host(exec_, pages_); }
  std::vector<float> restored(int layer, int which, std::int64_t tokens) const {
    std::int64_t const values = count * heads * tokens * channels;
    buffer<float> both[2]{to_device(exec_, std::vector<float>(as_size(values), -77.0F)), buffer<float>(exec_, values)};
    head_view<float> const there[2]{{both[0].data(), {count, heads, tokens, channels}},
                                    {both[1].data(), {count, heads, tokens, channels}}};
    cache_.restore(exec_, layer, sequences(), there[which], there[1 - which]);
    return to_host(exec_, both[0]);
  }
  std::vector<std::byte> saved(std::int64_t which) const { return save_cache(exec_, cache_, sequences(), which); }

 private:
  static constexpr std::int64_t most_tokens = 64;  ///< the most tokens of a step
  std::int64_t rows(std::int64_t tokens) const { return count * query_heads * tokens; }

  cuda const& exec_;
  minicache cache_;
  buffer<std::int32_t> blocks_;
  std::vector<std::int32_t> lengths_on_host_;
  buffer<std::int32_t> lengths_;
  buffer<std::int32_t> pages_;
  buffer<bfloat16> queries_;
  buffer<float> result_;
  buffer<std::byte> append_memory_;
  buffer<std::byte> attention_memory_;
};

/// Checks that every byte of two caches, and what is read from them, is the same. `last`: tokens whose queries attend.
void check_same(device_model& found, device_model& expected, std::int64_t tokens, std::int64_t last) {
  CHECK(found.sealed() == expected.sealed());
  for (std::int64_t sequence = 0; sequence < found.count; ++sequence) {
    CHECK(found.saved(sequence) == expected.saved(sequence));
  }
  for (int layer = 0; layer < layers; ++layer) {
    CAPTURE(layer);
    CHECK(found.restored(layer, 0, tokens) == expected.restored(layer, 0, tokens));
    CHECK(found.restored(layer, 1, tokens) == expected.restored(layer, 1, tokens));
    CHECK(found.attended(layer, last) == expected.attended(layer, last));
  }
}

}  // namespace

TEST_CASE("decoding step by step on a GPU gives the cache that an append at once gives, to the last bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  constexpr std::int64_t tokens = 330;
  constexpr std::int64_t last = 8;
  auto const model = make_model(2, tokens);
  cuda const exec;
  data_on_device const data(exec, model);
  device_model bulk(exec);
  bulk.append(data, 0, tokens);
  device_model stepped(exec);
  stepped.append(data, 0, 100);
  std::int64_t first = 100;
  for (std::int64_t const count : {1, 5, 64, 17, 1, 64, 40, 30, 8}) {
    stepped.step(data, first, count);
    first += count;
  }
  REQUIRE(first == tokens);
  CHECK(bulk.sealed() == std::vector<std::int32_t>{4, 4});
  // No page was complete in the last step, so that it attended over the same tokens as are there now.
  std::vector<std::vector<float>> decoded;
  for (int layer = 0; layer < layers; ++layer) {
    decoded.push_back(stepped.result_of(layer, last));
  }
  check_same(stepped, bulk, tokens, last);
  small_model host(2);
  host.append(model, 0, tokens);
  attention_problem<bfloat16> p{
      {2, query_heads, heads, last, tokens, channels}, stepped.queries_on_host(last), {}, {}, {}};
  p.options.is_causal = true;
  for (int layer = 0; layer < layers; ++layer) {
    CAPTURE(layer);
    auto const keys = host.restored(layer, 0, tokens);
    auto const values = host.restored(layer, 1, tokens);
    CHECK(decoded[as_size(layer)] == bulk.result_of(layer, last));
    CHECK(bulk.restored(layer, 0, tokens) == keys);
    CHECK(bulk.restored(layer, 1, tokens) == values);
    auto const expected =
        attention_by_formula(p, {p.shape, as_doubles(p.queries), as_doubles(keys), as_doubles(values)});
    CHECK(error_of(as_doubles(decoded[as_size(layer)]), expected.result).relative_l1 < 4e-3);
  }
  CHECK(bulk.saved(1) == save_cache(host.exec, host.cache, host.sequences(), 1));
}

namespace {

/// Captures what is enqueued in a graph and runs it so many times, each time after `before`.
template <class Enqueue, class Before>
void run_captured(cudaStream_t stream, std::int64_t times, Enqueue const& enqueue, Before const& before) {
  cudaGraph_t graph{};
  cudaGraphExec_t executable{};
  cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  enqueue();
  cuda_ok(cudaStreamEndCapture(stream, &graph));
  cuda_ok(cudaGraphInstantiate(&executable, graph, 0));
  for (std::int64_t i = 0; i < times; ++i) {
    before(i);
    cuda_ok(cudaGraphLaunch(executable, stream));
  }
  cuda_ok(cudaStreamSynchronize(stream));
  cuda_ok(cudaGraphExecDestroy(executable));
  cuda_ok(cudaGraphDestroy(graph));
}

/// The tokens `first` to `first + tokens` of a model.
model_data cut(model_data const& model, std::int64_t first, std::int64_t tokens) {
  model_data part = model;
  for (std::size_t i = 0; i < model.size(); ++i) {
    part[i].tokens = tokens;
    for (int side = 0; side < 2; ++side) {
      for (int which = 0; which < 2; ++which) {
        auto& list = part[i].part[side][which];
        list.clear();
        for (std::int64_t head = 0; head < model[i].sequences * heads; ++head) {
          auto const from = model[i].part[side][which].begin() + (head * model[i].tokens + first) * channels;
          list.insert(list.end(), from, from + tokens * channels);
        }
      }
    }
  }
  return part;
}

}  // namespace

TEST_CASE("a step of decoding and an append on a GPU are captured once, run again and take no memory", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  constexpr std::int64_t prompt = 100;
  constexpr std::int64_t tokens = 330;
  auto const model = make_model(2, tokens);
  cudaStream_t stream{};
  cuda_ok(cudaStreamCreate(&stream));
  {
    device_memory pool;
    tracking_memory counted{pool};
    cuda const exec{.stream = stream, .memory = counted};
    data_on_device const data(exec, model);
    device_model bulk(exec);
    bulk.append(data, 0, tokens);
    for (std::int64_t const count : {1, 5}) {
      for (bool const is_append : {false, true}) {
        CAPTURE(count, is_append);
        device_model found(exec);
        found.append(data, 0, prompt);
        auto const staged = cut(model, prompt, count);
        data_on_device staging(exec, staged);
        auto const allocations = counted.allocations();
        run_captured(
            stream, (tokens - prompt) / count,
            [&] { is_append ? found.enqueue_append(staging, 0, count) : found.enqueue_step(staging, 0, count); },
            [&](std::int64_t i) {
              exec.wait();
              staging.replace(exec, cut(model, prompt + i * count, count));
              found.lengthen(count);
            });
        CHECK(counted.allocations() == allocations);
        for (int layer = 0; layer < layers && !is_append; ++layer) {
          CHECK(found.result_of(layer, count) == bulk.attended(layer, count));
        }
        check_same(found, bulk, tokens, count);
      }
    }
  }
  cuda_ok(cudaStreamDestroy(stream));
}

TEST_CASE("two sequences share the pages of their beginning on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  constexpr std::int64_t tokens = 400;
  auto model = make_model(2, tokens);
  for (auto& part : model) {  // both have the same first 200 tokens
    for (auto& layer : part.part) {
      for (auto& list : layer) {
        for (std::int64_t head = 0; head < heads; ++head) {
          auto const from = list.begin() + head * tokens * channels;
          std::copy_n(from, 200 * channels, from + heads * tokens * channels);
        }
      }
    }
  }
  cuda const exec;
  data_on_device const data(exec, model);
  device_model apart(exec);
  apart.append(data, 0, 200);
  device_model shared(exec, 1);
  shared.append(data, 0, 200);
  shared.begin_second();
  for (device_model* const of : {&apart, &shared}) {
    of->append(data, 200, 70);
    for (std::int64_t first = 270; first < tokens; first += 13) {
      of->step(data, first, 13);
    }
  }
  CHECK(shared.sealed() == std::vector<std::int32_t>{5, 5});
  check_same(shared, apart, tokens, 13);
  auto const with = shared.cache().wait_for_statistics(exec, shared.sequences());
  auto const without = apart.cache().wait_for_statistics(exec, apart.sequences());
  CHECK(with.codes * 10 == without.codes * 8);  // 8 blocks instead of 10
  CHECK(with.retained == without.retained);     // each sequence has its own
}

TEST_CASE("slots on a GPU can be used again", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const model = make_model(2, 330);
  auto const others = make_model(2, 400);
  cuda const exec;
  data_on_device const data(exec, model);
  data_on_device const before(exec, others);
  auto parts = small_model::default_parts();
  parts.back().retention = retain_most_different::range(0.3F);  // thresholds are those of the first pages
  device_model fresh(exec, 2, in_order(), parts);
  fresh.append(data, 0, 330);
  device_model used(exec, 2, in_order(), parts);
  used.append(before, 0, 400);
  used.begin_again();
  used.append(data, 0, 330);
  check_same(used, fresh, 330, 5);
}

TEST_CASE("where pages lie makes no difference on a GPU, to the last bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const model = make_model(2, 400);
  cuda const exec;
  data_on_device const data(exec, model);
  device_model expected(exec);
  expected.append(data, 0, 400);
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    block_order const order = shuffled(seed);
    REQUIRE(order != in_order());
    device_model found(exec, 2, order);
    found.append(data, 0, 210);
    found.append(data, 210, 190);
    check_same(found, expected, 400, 1);
    check_same(found, expected, 400, 9);
  }
}

TEST_CASE("vectors of whole tokens make the same cache on a GPU as on the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  constexpr std::int64_t tokens = 330;
  auto const model = make_model(2, tokens);
  cuda const exec;
  data_on_device const data(exec, model);
  std::vector<cache_layers> const parts{minicache_paper::single(), minicache_paper::single(), minicache_paper::pair()};
  REQUIRE(parts.back().whole_tokens);
  small_model host(2, parts);
  host.append(model, 0, 170);
  host.append(model, 170, tokens - 170);
  device_model found(exec, 2, shuffled(9), parts);
  found.append(data, 0, 170);
  for (std::int64_t first = 170; first < tokens; first += 32) {
    found.step(data, first, 32);
  }
  auto of_heads = parts;
  of_heads.back().whole_tokens = false;
  device_model other(exec, 2, in_order(), of_heads);
  other.append(data, 0, tokens);
  for (std::int64_t sequence = 0; sequence < 2; ++sequence) {
    CHECK(found.saved(sequence) == save_cache(host.exec, host.cache, host.sequences(), sequence));
    CHECK(found.saved(sequence) != other.saved(sequence));
  }
}
