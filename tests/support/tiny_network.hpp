// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A network of three linear layers with ReLU, trained by gradient descent on any executor, with its weights in plain
/// buffers or in a parameter_store: the two must stay identical to the last bit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/weights/parameter_store.hpp>
#include <tessera/config.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/program/weights/sgd_step.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera_test {

/// products(i, j) = sum over k, ascending, of a(i, k) * b(k, j), one fused multiply-add each.
template <class A, class B>
struct small_product {
  static constexpr int lanes = 32;
  struct scratch_type {};
  tessera::matrix_view<A const> a;
  tessera::matrix_view<B const> b;
  tessera::matrix_view<float> products;

  std::int64_t groups() const { return (products.size() + lanes - 1) / lanes; }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      std::int64_t const at = which * lanes + lane;
      if (at < products.size()) {
        std::int64_t const i = at / products.extent(1);
        std::int64_t const j = at % products.extent(1);
        float sum = 0.0F;
        for (std::int64_t k = 0; k < a.extent(1); ++k) {
          sum = tessera::multiply_add(tessera::load(a(i, k)), tessera::load(b(k, j)), sum);
        }
        products(i, j) = sum;
      }
    }
  }
};

enum class element_rule { relu, relu_gradient, error };

/// Applies one rule: values = max(values, 0); values = others > 0 ? values : 0; values = (values - others) * scale.
template <element_rule Rule>
struct elementwise {
  static constexpr int lanes = 32;
  struct scratch_type {};
  tessera::array_view<float> values;
  tessera::array_view<float const> others;
  float scale = 1.0F;

  std::int64_t groups() const { return (values.size() + lanes - 1) / lanes; }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      std::int64_t const i = which * lanes + lane;
      if (i < values.size()) {
        if constexpr (Rule == element_rule::relu) {
          values[i] = values[i] > 0.0F ? values[i] : 0.0F;
        } else if constexpr (Rule == element_rule::relu_gradient) {
          values[i] = others[i] > 0.0F ? values[i] : 0.0F;
        } else {
          values[i] = (values[i] - others[i]) * scale;
        }
      }
    }
  }
};

struct layer_shape {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t size() const { return rows * columns; }
};
// The last layer is too small to be coded.
constexpr std::array<layer_shape, 3> network_shape{{{96, 40}, {64, 96}, {8, 64}}};
constexpr std::int64_t batch = 16;

/// First weights of a layer, all with the same exponent, so that streams are small at first and grow while the network
/// learns.
template <class T>
std::vector<T> first_weights(std::size_t layer) {
  std::vector<T> weights(static_cast<std::size_t>(network_shape[layer].size()));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    std::uint64_t const word = tessera::testing::hash(100 + layer, i);
    float const magnitude = tessera::testing::uniform{0.07, 0.12}.value(200 + layer, i);
    weights[i] = tessera::store<T>((word & 1U) != 0 ? magnitude : -magnitude);
  }
  return weights;
}

template <class T, class Executor>
tessera::buffer<T> on(Executor const& exec, std::vector<T> const& values) {
  tessera::buffer<T> copy(exec, static_cast<std::int64_t>(values.size()));
  exec.copy(values, copy);
  exec.wait();
  return copy;
}

template <class Executor, class T>
std::vector<T> to_host(Executor const& exec, tessera::array_view<T> values) {
  std::vector<T> copy(static_cast<std::size_t>(values.size()));
  exec.copy(values, copy);
  exec.wait();
  return copy;
}

/// Parameters in plain buffers.
template <class T, class Executor>
struct plain_parameters {
  struct lease {
    tessera::array_view<T> view;
    tessera::array_view<T> weights() const { return view; }
  };
  Executor exec;
  std::vector<tessera::buffer<T>> weights;

  explicit plain_parameters(Executor const& e) : exec(e) {
    for (std::size_t i = 0; i < network_shape.size(); ++i) {
      weights.push_back(on(exec, first_weights<T>(i)));
    }
  }
  lease acquire(std::size_t i) { return {weights[i].view()}; }
  void prefetch(std::size_t) {}
  void update(std::size_t, lease const& held, tessera::array_view<float const> gradient, float rate) {
    tessera::sgd_step<T, float> const step{held.view, gradient, rate};
    exec.run(step, step.groups());
  }
  void end_step() {}
};

/// Parameters in a parameter_store, whose slots are so tight that most updates overflow.
template <class Codec, class Executor>
struct stored_parameters {
  using value_type = typename Codec::value_type;
  tessera::parameter_store<Codec, Executor> store;
  std::vector<tessera::parameter_id> id;
  int steps = 0;
  std::int64_t grown = 0;

  explicit stored_parameters(Executor const& exec)
      : store(exec, {.slack = 0.0, .headroom = 0, .overflow_tensors = 2, .block = 1024}) {
    for (std::size_t i = 0; i < network_shape.size(); ++i) {
      id.push_back(store.add("layer " + std::to_string(i), on(exec, first_weights<value_type>(i))));
    }
  }
  auto acquire(std::size_t i) { return store.acquire(id[i]); }
  void prefetch(std::size_t i) { store.prefetch(id[i]); }
  void update(std::size_t i, tessera::parameter_lease<value_type> const& held,
              tessera::array_view<float const> gradient, float rate) {
    store.sgd_update(id[i], held, gradient, rate);
  }
  void end_step() {
    if (++steps % 4 == 0) {
      grown += store.resolve();
    }
  }
};

struct training_result {
  std::vector<std::uint64_t> weights;  ///< hashes of all layers after each step
  std::vector<std::uint32_t> last;     ///< the bits of all weights at the end
  std::vector<float> loss;
};

template <class T>
void append_weights(training_result& result, std::vector<T> const& weights, bool at_the_end) {
  std::uint64_t hash = 1;
  for (T const& weight : weights) {
    hash = tessera::testing::hash(hash, tessera::to_bits(weight));
    if (at_the_end) {
      result.last.push_back(tessera::to_bits(weight));
    }
  }
  result.weights.push_back(hash);
}

/// Trains: forward pass, loss, backward pass and update, `steps` times.
template <class T, class Executor, class Parameters>
training_result train(Executor const& exec, Parameters& parameters, int steps) {
  using tessera::buffer;
  using tessera::matrix_view;
  constexpr std::size_t layers = network_shape.size();
  std::vector<float> data(static_cast<std::size_t>(batch * network_shape[0].columns));
  std::vector<float> wanted(static_cast<std::size_t>(batch * network_shape[layers - 1].rows));
  tessera::testing::fill(tessera::testing::gauss{.sigma = 1.0}, 7, data.data(), data.size());
  tessera::testing::fill(tessera::testing::gauss{.sigma = 1.0}, 8, wanted.data(), wanted.size());
  buffer<float> const targets = on(exec, wanted);
  std::vector<buffer<float>> inputs;  // inputs of each layer, then the outputs
  inputs.push_back(on(exec, data));
  std::vector<buffer<float>> gradients;  // gradients of the same
  gradients.emplace_back(exec, inputs[0].size());
  std::vector<buffer<float>> weight_gradients;
  for (auto const& shape : network_shape) {
    inputs.emplace_back(exec, batch * shape.rows);
    gradients.emplace_back(exec, batch * shape.rows);
    weight_gradients.emplace_back(exec, shape.size());
  }
  training_result result;
  for (int step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < layers; ++i) {
      auto const shape = network_shape[i];
      auto const lease = parameters.acquire(i);
      parameters.prefetch(i + 1 < layers ? i + 1 : 0);
      small_product<float, T> const product{
          matrix_view<float>(inputs[i].data(), {batch, shape.columns}),
          matrix_view<T>(lease.weights().data, {shape.rows, shape.columns}).transposed(),
          matrix_view<float>(inputs[i + 1].data(), {batch, shape.rows})};
      exec.run(product, product.groups());
      if (i + 1 < layers) {
        elementwise<element_rule::relu> const relu{inputs[i + 1], {}};
        exec.run(relu, relu.groups());
      }
    }
    exec.copy(inputs[layers], gradients[layers]);
    elementwise<element_rule::error> const error{gradients[layers], targets, 2.0F / static_cast<float>(batch)};
    exec.run(error, error.groups());
    float loss = 0.0F;
    for (float const difference : to_host(exec, gradients[layers].view())) {
      loss += difference * difference;
    }
    result.loss.push_back(loss);
    for (std::size_t i = layers; i-- > 0;) {
      auto const shape = network_shape[i];
      auto const lease = parameters.acquire(i);
      parameters.prefetch(i > 0 ? i - 1 : 0);
      matrix_view<float> const outer(gradients[i + 1].data(), {batch, shape.rows});
      matrix_view<float> const inner(gradients[i].data(), {batch, shape.columns});
      matrix_view<float> const input(inputs[i].data(), {batch, shape.columns});
      small_product<float, T> const back{outer, matrix_view<T>(lease.weights().data, {shape.rows, shape.columns}),
                                         inner};
      exec.run(back, back.groups());  // with the weights before the update
      if (i > 0) {
        elementwise<element_rule::relu_gradient> const mask{gradients[i], inputs[i]};
        exec.run(mask, mask.groups());
      }
      small_product<float, float> const weight{
          outer.transposed(), input, matrix_view<float>(weight_gradients[i].data(), {shape.rows, shape.columns})};
      exec.run(weight, weight.groups());
      parameters.update(i, lease, weight_gradients[i], 0.02F);
    }
    for (std::size_t i = 0; i < layers; ++i) {
      auto const lease = parameters.acquire(i);
      append_weights(result, to_host(exec, lease.weights()), step + 1 == steps);
    }
    parameters.end_step();
  }
  return result;
}

}  // namespace tessera_test
