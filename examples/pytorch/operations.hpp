// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The backend for one kind of executor. `Device` says where an executor for the current stream of a device comes from:
///
///     struct device {
///       using executor_type = tessera::cpu;
///       static executor_type const& executor(torch::Device);
///       static torch::Tensor host_bytes(std::int64_t);       // memory of the host that the executor can read
///     };
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/inspect_weight_stream.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/minicache.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/project/rotary_tables.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/shadow_kv.hpp>

#include "backend.hpp"
#include "tensors.hpp"

namespace tessera_torch {

template <class Device>
class kv_cache_on final : public kv_cache {
 public:
  kv_cache_on(kv_cache_shape const& shape, torch::Device device)
      : device_(device),
        blocks_of_sequence_(tessera::divide_up(shape.tokens, std::int64_t{64})),
        cache_(Device::executor(device),
               {.slots = shape.sequences,
                .tokens = shape.tokens,
                .blocks = shape.sequences * blocks_of_sequence_,
                .heads = shape.heads,
                .channels = shape.channels},
               parts_of(shape)) {
    auto const ints = torch::TensorOptions().dtype(torch::kInt32).device(device);
    blocks_ = torch::arange(shape.sequences * blocks_of_sequence_, ints).view({shape.sequences, blocks_of_sequence_});
    lengths_ = torch::zeros({shape.sequences}, ints);
    pages_ = torch::zeros({shape.sequences}, ints);
  }

  void append(std::vector<torch::Tensor> const& keys, std::vector<torch::Tensor> const& values) override {
    TORCH_CHECK(static_cast<int>(keys.size()) == cache_.layers() && keys.size() == values.size(), "append: there are ",
                cache_.layers(), " layers but keys of ", keys.size(), " and values of ", values.size());
    auto const& exec = Device::executor(device_);
    std::int64_t const tokens = keys[0].size(2);
    lengths_.add_(tokens);
    auto const plan = cache_.append_plan(lengths_.size(0), tokens);
    auto space = scratch(exec, plan);
    for (int layer = 0; layer < cache_.layers(); layer += cache_.policy_of(cache_.part_of(layer)).layers) {
      int const part = cache_.part_of(layer);
      tessera::cache_inputs<bfloat16> in;
      for (int side = 0; side < cache_.policy_of(part).layers; ++side) {
        in.keys[side] = view_of<bfloat16, 4>(keys[static_cast<std::size_t>(layer + side)], device_);
        in.values[side] = view_of<bfloat16, 4>(values[static_cast<std::size_t>(layer + side)], device_);
      }
      cache_.append(exec, part, in, sequences(), {.tokens = tokens}, tessera::workspace(plan, space));
    }
    cache_.advance(exec, sequences(), writable<std::int32_t>(pages_), tokens);
  }

  void begin_token() override { lengths_.add_(1); }

  torch::Tensor write_and_attend(std::int64_t layer, torch::Tensor const& keys, torch::Tensor const& values,
                                 torch::Tensor const& queries) override {
    auto const& exec = Device::executor(device_);
    auto const at = static_cast<int>(layer);
    cache_.write(exec, at, view_of<bfloat16, 4>(keys, device_), view_of<bfloat16, 4>(values, device_), sequences(),
                 {.tokens = 1});
    auto const asked = view_of<bfloat16, 4>(queries, device_);
    auto const plan = cache_.attention_plan(cache_.shape_of(asked, sequences()));
    auto space = scratch(exec, plan);
    torch::Tensor result = torch::empty(queries.sizes(), queries.options());
    tessera::attention_outputs<bfloat16> const out{writable<bfloat16, 4>(result)};
    cache_.attend(exec, at, asked, sequences(), {.is_causal = true}, out, tessera::workspace(plan, space));
    bool const is_last = at + 1 == cache_.layers() || cache_.part_of(at + 1) != cache_.part_of(at);
    if (is_last) {
      auto const sealing = cache_.append_plan(lengths_.size(0));
      auto memory = scratch(exec, sealing);
      cache_.seal(exec, cache_.part_of(at), sequences(), tessera::workspace(sealing, memory));
    }
    return result;
  }

  void end_token() override { cache_.advance(Device::executor(device_), sequences(), writable<std::int32_t>(pages_)); }

  [[nodiscard]] std::tuple<std::int64_t, std::int64_t> bytes() const override {
    auto const found = cache_.stats(Device::executor(device_), sequences());
    return {found.used(), found.uncompressed};
  }

 private:
  static std::vector<tessera::cache_layers> parts_of(kv_cache_shape const& shape) {
    TORCH_CHECK(!shape.parts.empty(), "minicache: there are ", shape.parts.size(), " parts but at least 1 is needed");
    std::vector<tessera::cache_layers> parts;
    for (std::int64_t const layers : shape.parts) {
      TORCH_CHECK(layers == 1 || layers == 2, "minicache: a part has ", layers, " layers but must have 1 or 2");
      parts.push_back(layers == 1 ? tessera::minicache::single() : tessera::minicache::pair());
    }
    return parts;
  }
  [[nodiscard]] tessera::cache_sequences sequences() const {
    return {.blocks = view_of<std::int32_t, 2>(blocks_, device_),
            .lengths = list_of<std::int32_t>(lengths_, device_),
            .pages = list_of<std::int32_t>(pages_, device_),
            .count = lengths_.size(0)};
  }

  torch::Device device_;
  std::int64_t blocks_of_sequence_;
  tessera::minicache cache_;
  torch::Tensor blocks_;
  torch::Tensor lengths_;
  torch::Tensor pages_;
};

template <class Device>
class long_cache_on final : public long_cache {
  using method = tessera::shadow_kv;
  using executor_type = typename Device::executor_type;

 public:
  long_cache_on(long_cache_shape const& shape, torch::Device device)
      : device_(device),
        exec_(Device::executor(device)),
        side_(exec_, method::side_marks, true),
        plan_(method::plan<bfloat16>({shape.query_heads, shape.key_heads, shape.channels, shape.tokens}, {},
                                     selector_of(shape))),
        on_device_(bytes_on(device, plan_.device.bytes())),
        on_host_(Device::host_bytes(plan_.host.bytes())),
        tables_(tessera::rotary_frequencies(shape.rotary_base, static_cast<int>(shape.channels)), longest(shape) + 64),
        within_(copied(tables_.within(), device)),
        blocks_(copied(tables_.blocks(), device)),
        cache_(method::open(plan_, aligned_bytes(on_device_), aligned_bytes(on_host_),
                            tables_.embedding(tessera::rotary_pairs::halves, data_of<tessera::rotation>(within_),
                                              data_of<tessera::rotation>(blocks_)),
                            selector_of(shape))) {}

  void prefill(std::int64_t sequence, torch::Tensor const& keys, torch::Tensor const& values) override {
    auto space = scratch(exec_, plan_.prompt);
    method::prefill(exec_, side_, cache_, sequence, view_of<bfloat16, 3>(keys, device_),
                    view_of<bfloat16, 3>(values, device_), tessera::workspace(plan_.prompt, space));
  }

  torch::Tensor decode(torch::Tensor const& queries, torch::Tensor const& keys, torch::Tensor const& values) override {
    auto space = scratch(exec_, plan_.step);
    torch::Tensor result = torch::empty(queries.sizes(), queries.options());
    method::decode(exec_, side_, cache_,
                   {view_of<bfloat16, 3>(queries, device_), view_of<bfloat16, 3>(keys, device_),
                    view_of<bfloat16, 3>(values, device_)},
                   tessera::offload_results<bfloat16>{writable<bfloat16, 3>(result)},
                   tessera::workspace(plan_.step, space));
    return result;
  }

  [[nodiscard]] std::tuple<std::int64_t, std::int64_t> bytes() const override {
    return {plan_.device.bytes(), plan_.host.bytes()};
  }
  [[nodiscard]] double hit_rate() const override { return method::wait_for_statistics(exec_, cache_).hit_rate(); }

 private:
  static std::int64_t longest(long_cache_shape const& shape) {
    TORCH_CHECK(!shape.tokens.empty(), "shadow_kv: there are ", shape.tokens.size(),
                " sequences but at least 1 is needed");
    return *std::max_element(shape.tokens.begin(), shape.tokens.end());
  }
  static method::selector_type selector_of(long_cache_shape const& shape) {
    method::selector_type selector;
    selector.chunks = shape.chunks;
    return selector;
  }

  torch::Device device_;
  executor_type const& exec_;
  tessera::side_queue<executor_type> side_;
  method::plan_type<bfloat16> plan_;
  torch::Tensor on_device_;
  torch::Tensor on_host_;
  tessera::rotary_tables tables_;
  torch::Tensor within_;
  torch::Tensor blocks_;
  method::cache_type<bfloat16> cache_;
};

template <class Device>
class backend_on final : public backend {
 public:
  torch::Tensor compress(torch::Tensor const& weights) override {
    return with_type(weights, [&]<class T>(T) {
      using codec = tessera::neuzip_of<T>;
      auto const& exec = Device::executor(weights.device());
      auto const spec = codec::spec(weights.numel());
      auto const plan = codec::encode_plan(exec, spec);
      auto space = scratch(exec, plan);
      torch::Tensor const room = bytes_on(weights.device(), codec::largest_bytes(spec));
      torch::Tensor const size = torch::zeros({1}, weights.options().dtype(torch::kInt64));
      codec::encode(exec, spec, list_of<T>(weights, weights.device()), aligned_bytes(room),
                    writable<std::int64_t>(size), tessera::workspace(plan, space));
      exec.wait();
      auto const stream = aligned_bytes(room);
      auto const used = size.item<std::int64_t>();
      torch::Tensor exact = torch::empty({used}, weights.options().dtype(torch::kUInt8));
      exec.copy(tessera::array_view<std::byte const>(stream.data, used), bytes_in(exact));
      exec.wait();
      return exact;
    });
  }

  void decompress(torch::Tensor const& stream, torch::Tensor const& weights) override {
    with_type(weights, [&]<class T>(T) {
      using codec = tessera::neuzip_of<T>;
      auto const& exec = Device::executor(weights.device());
      TORCH_CHECK(
          stream.is_contiguous() && stream.scalar_type() == torch::kUInt8 && stream.device() == weights.device(),
          "decompress: the stream must be bytes, contiguous, on ", weights.device());
      auto const spec = codec::spec(weights.numel());
      auto const plan = codec::decode_plan(exec, spec);
      auto space = scratch(exec, plan);
      codec::decode(exec, spec, bytes_in(stream), writable<T>(weights), tessera::workspace(plan, space));
      return 0;
    });
  }

  std::tuple<torch::Tensor, torch::Tensor> loss_forward(torch::Tensor const& hidden, torch::Tensor const& classifier,
                                                        torch::Tensor const& labels, std::int64_t ignore_index,
                                                        bool exact, bool for_backward) override {
    return with_loss(exact, [&]<class Loss>(Loss) {
      auto const& exec = Device::executor(hidden.device());
      auto const options = loss_options(ignore_index);
      auto const shape = loss_shape(hidden, classifier);
      auto const plan = for_backward ? Loss::template plan_backward<bfloat16>(exec, shape, options)
                                     : Loss::plan(exec, shape);
      torch::Tensor const space = bytes_on(hidden.device(), plan.bytes());
      torch::Tensor loss = torch::empty({1}, hidden.options().dtype(torch::kFloat32));
      Loss::forward(exec, loss_inputs<Loss>(hidden, classifier, labels), options, {.loss = writable<float>(loss)},
                    tessera::workspace(plan, aligned_bytes(space)));
      return std::tuple(loss, space);
    });
  }

  std::tuple<torch::Tensor, torch::Tensor> loss_backward(torch::Tensor const& hidden, torch::Tensor const& classifier,
                                                         torch::Tensor const& labels, std::int64_t ignore_index,
                                                         bool exact, torch::Tensor const& space,
                                                         torch::Tensor const& upstream) override {
    return with_loss(exact, [&]<class Loss>(Loss) {
      auto const& exec = Device::executor(hidden.device());
      auto const options = loss_options(ignore_index);
      auto const plan = Loss::template plan_backward<bfloat16>(exec, loss_shape(hidden, classifier), options);
      torch::Tensor of_hidden = torch::empty(hidden.sizes(), hidden.options());
      torch::Tensor of_classifier = torch::empty(classifier.sizes(), classifier.options());
      Loss::backward(exec, loss_inputs<Loss>(hidden, classifier, labels), options,
                     {.loss = list_of<float>(upstream, hidden.device())},
                     tessera::linear_loss_gradients<bfloat16>{writable<bfloat16, 2>(of_hidden),
                                                              writable<bfloat16, 2>(of_classifier)},
                     tessera::workspace(plan, aligned_bytes(space)));
      return std::tuple(of_hidden, of_classifier);
    });
  }

  std::tuple<torch::Tensor, torch::Tensor> attention(torch::Tensor const& queries, torch::Tensor const& keys,
                                                     torch::Tensor const& values, bool is_causal,
                                                     double scale) override {
    using method = tessera::sage_attention2;
    auto const& exec = Device::executor(queries.device());
    torch::Device const device = queries.device();
    tessera::attention_inputs<bfloat16> const in{view_of<bfloat16, 4>(queries, device),
                                                 view_of<bfloat16, 4>(keys, device),
                                                 view_of<bfloat16, 4>(values, device)};
    auto const plan = method::plan(exec, {in.queries.extent(0), in.queries.extent(1), in.keys.extent(1),
                                          in.queries.extent(2), in.keys.extent(2), in.queries.extent(3)});
    auto space = scratch(exec, plan);
    torch::Tensor result = torch::empty(queries.sizes(), queries.options());
    torch::Tensor sums =
        torch::empty({queries.size(0), queries.size(1), queries.size(2)}, queries.options().dtype(torch::kFloat32));
    method::forward(exec, in, {.softmax_scale = static_cast<float>(scale), .is_causal = is_causal},
                    tessera::attention_outputs<bfloat16>{writable<bfloat16, 4>(result), writable<float, 3>(sums)},
                    tessera::workspace(plan, space));
    return {result, sums};
  }

  std::shared_ptr<kv_cache> make_kv_cache(kv_cache_shape const& shape, torch::Device device) override {
    return std::make_shared<kv_cache_on<Device>>(shape, device);
  }
  std::shared_ptr<long_cache> make_long_cache(long_cache_shape const& shape, torch::Device device) override {
    return std::make_shared<long_cache_on<Device>>(shape, device);
  }
  void wait(torch::Device device) override { Device::executor(device).wait(); }

 private:
  template <class Use>
  static auto with_type(torch::Tensor const& tensor, Use const& use) {
    switch (tensor.scalar_type()) {
      case torch::kBFloat16:
        return use(bfloat16{});
      case torch::kFloat16:
        return use(tessera::float16{});
      default:
        TORCH_CHECK(tensor.scalar_type() == torch::kFloat32, "weights are ", tensor.scalar_type(),
                    " but must be bfloat16, float16 or float32");
        return use(float{});
    }
  }
  template <class Use>
  static auto with_loss(bool exact, Use const& use) {
    return exact ? use(tessera::exact_cross_entropy{}) : use(tessera::cut_cross_entropy{});
  }
  static tessera::linear_loss_options loss_options(std::int64_t ignore_index) { return {.ignore_index = ignore_index}; }
  static tessera::linear_loss_shape loss_shape(torch::Tensor const& hidden, torch::Tensor const& classifier) {
    return {hidden.size(0), classifier.size(0), hidden.size(1)};
  }
  template <class Loss>
  static typename Loss::template inputs<std::int64_t> loss_inputs(torch::Tensor const& hidden,
                                                                  torch::Tensor const& classifier,
                                                                  torch::Tensor const& labels) {
    torch::Device const device = hidden.device();
    return {view_of<bfloat16, 2>(hidden, device), view_of<bfloat16, 2>(classifier, device),
            list_of<std::int64_t>(labels, device)};
  }
};

}  // namespace tessera_torch
