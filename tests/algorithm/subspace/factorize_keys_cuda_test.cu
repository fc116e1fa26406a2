// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tessera/algorithm/subspace/factorize_keys.cuh>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"
#include "support/real_tensor.hpp"

using namespace tessera;
using tessera_test::cuda_ok;
using tessera_test::to_device;
using tessera_test::to_host;

namespace {

/// The layouts of keys in memory.
enum class key_layout { heads_first, tokens_first, padded };

template <class T>
struct key_samples {
  std::int64_t heads;
  std::int64_t tokens;
  std::int64_t channels;
  key_layout layout = key_layout::heads_first;
  std::vector<T> values = {};

  [[nodiscard]] std::int64_t width() const { return heads * channels; }
  [[nodiscard]] std::int64_t head_stride() const {
    return layout == key_layout::heads_first    ? tokens * channels
           : layout == key_layout::tokens_first ? channels
                                                : (tokens + 3) * (channels + 8);
  }
  [[nodiscard]] std::int64_t token_stride() const {
    return layout == key_layout::heads_first ? channels : layout == key_layout::tokens_first ? width() : channels + 8;
  }
  [[nodiscard]] view<T const, 3> all(T const* first) const {
    return {first, {heads, tokens, channels}, {head_stride(), token_stride(), 1}};
  }
  [[nodiscard]] double at(std::int64_t token, std::int64_t channel) const {
    return double{load(all(values.data())(channel / channels, token, channel % channels))};
  }
  void set(std::int64_t token, std::int64_t channel, float value) {
    auto const where = all(values.data()).offset(channel / channels, token, channel % channels);
    values[static_cast<std::size_t>(where)] = store<T>(value);
  }
};

enum class key_kind { normal, common_mean, constant_channels, zeros };

template <class T>
key_samples<T> make_keys(std::int64_t heads, std::int64_t tokens, std::int64_t channels, key_kind kind,
                         key_layout layout = key_layout::heads_first) {
  key_samples<T> made{heads, tokens, channels, layout};
  std::int64_t const elements = made.heads * std::max(made.head_stride(), tokens * channels) + made.width();
  made.values.assign(static_cast<std::size_t>(elements), store<T>(std::numeric_limits<float>::quiet_NaN()));
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t channel = 0; channel < made.width(); ++channel) {
      auto const index = static_cast<std::uint64_t>(token * made.width() + channel);
      float const weight = 1.0F / std::sqrt(1.0F + static_cast<float>(channel));
      float value = kind == key_kind::zeros ? 0.0F : weight * testing::gauss().value(5, index);
      if (kind == key_kind::common_mean) {
        value += 30.0F * std::sin(static_cast<float>(channel));
      } else if (kind == key_kind::constant_channels && channel % 5 == 0) {
        value = 2.0F;
      }
      made.set(token, channel, value);
    }
  }
  return made;
}

/// Computes G += products on the device, from `first` on in pieces, with room for the sums of so many parts.
template <class T>
std::vector<float> device_gram(tessera::cuda const& exec, key_samples<T> const& keys, std::int64_t piece,
                               std::int64_t parts, float before = 0.0F) {
  std::int64_t const width = keys.width();
  key_factorization const factorization(width, 1);
  buffer<T> const values = to_device(exec, keys.values);
  buffer<float> gram = to_device(exec, std::vector<float>(static_cast<std::size_t>(width * width), before));
  buffer<float> room = to_device(
      exec, std::vector<float>(static_cast<std::size_t>(parts * gram_schedule::part_elements(width)), -77.0F));
  view<T const, 3> const all = keys.all(values.data());
  std::int64_t first = 0;
  do {
    factorization.accumulate(exec, all.slice(1, first, std::min(piece, keys.tokens - first)),
                             matrix_view<float>(gram.data(), {width, width}), room.view());
    first += piece;
  } while (first < keys.tokens);
  return to_host(exec, gram);
}

/// The largest |G - K^T K| relative to the sums of |k_i k_j|, which bounds the effect of rounding. Some columns are
/// skipped.
template <class T>
double gram_error(std::vector<float> const& gram, key_samples<T> const& keys, double before = 0) {
  std::int64_t const width = keys.width();
  std::int64_t const step = keys.tokens * width > 100000 ? 37 : 1;
  double worst = 0;
  for (std::int64_t i = 0; i < width; i += step) {
    for (std::int64_t j = 0; j<width; j += step> 1 && i % 2 == 0 ? 1 : step) {
      double expected = before;
      double size = std::fabs(before) + 1e-30;
      for (std::int64_t token = 0; token < keys.tokens; ++token) {
        double const product = keys.at(token, i) * keys.at(token, j);
        expected += product;
        size += std::fabs(product);
      }
      double const error = std::fabs(double{gram[static_cast<std::size_t>(i * width + j)]} - expected) / size;
      worst = error > worst || std::isnan(error) ? error : worst;
    }
  }
  return worst;
}

bool is_symmetric(std::vector<float> const& gram, std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i) {
    for (std::int64_t j = 0; j < i; ++j) {
      if (gram[static_cast<std::size_t>(i * width + j)] != gram[static_cast<std::size_t>(j * width + i)]) {
        return false;
      }
    }
  }
  return true;
}

/// The bound of gram_error(): sums of 2048 tokens are 128 additions of 16 products in fp32, each of which errs by at
/// most 2^-23 of the sum.
constexpr double gram_bound = 0x1p-16;

struct found_subspace {
  std::vector<float> directions;
  subspace_measures measures;
};

found_subspace find_on_device(tessera::cuda const& exec, std::vector<float> const& gram, std::int64_t width,
                              std::int64_t rank, bool with_graph = false) {
  key_factorization const factorization(width, rank);
  workspace_plan const plan = factorization.plan_find(exec);
  buffer<std::byte> memory =
      to_device(exec, std::vector<std::byte>(static_cast<std::size_t>(plan.bytes()), std::byte{0xff}));
  workspace const space(plan, memory.view());
  buffer<float> const products = to_device(exec, gram);
  buffer<float> directions = to_device(exec, std::vector<float>(static_cast<std::size_t>(width * rank), -77.0F));
  matrix_view<float const> const all(products.data(), {width, width});
  matrix_view<float> const target(directions.data(), {width, rank});
  exec.wait();
  if (with_graph) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    cuda_ok(cudaStreamBeginCapture(exec.stream, cudaStreamCaptureModeThreadLocal));
    factorization.find(exec, all, target, space);
    cuda_ok(cudaStreamEndCapture(exec.stream, &graph));
    cuda_ok(cudaGraphInstantiate(&replay, graph, 0));
    cuda_ok(cudaGraphLaunch(replay, exec.stream));
    cuda_ok(cudaStreamSynchronize(exec.stream));
    cuda_ok(cudaGraphExecDestroy(replay));
    cuda_ok(cudaGraphDestroy(graph));
  } else {
    factorization.find(exec, all, target, space);
  }
  std::vector<subspace_measures> measures(1);
  exec.copy(factorization.measures(space), measures);
  return {to_host(exec, directions), measures[0]};
}

/// The matrix diag(value(i)) in a basis of three reflections, in double.
template <class Value>
std::vector<double> gram_with(std::int64_t width, Value value) {
  auto const n = static_cast<std::size_t>(width);
  std::vector<double> gram(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    gram[i * n + i] = value(static_cast<double>(i));
  }
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    std::vector<double> mirror(n);
    double square = 0;
    for (std::size_t i = 0; i < n; ++i) {
      mirror[i] = double{testing::gauss().value(seed, i)};
      square += mirror[i] * mirror[i];
    }
    for (int side = 0; side < 2; ++side) {
      std::vector<double> product(n);
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j) {
          product[j] += mirror[i] * gram[i * n + j];
        }
      }
      std::vector<double> turned(n * n);
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j) {
          turned[j * n + i] = gram[i * n + j] - 2 * mirror[i] * product[j] / square;
        }
      }
      gram.swap(turned);
    }
  }
  return gram;
}

std::vector<float> rounded(std::vector<double> const& gram, std::int64_t width) {
  std::vector<float> result(gram.size());
  for (std::int64_t i = 0; i < width; ++i) {
    for (std::int64_t j = 0; j < width; ++j) {
      result[static_cast<std::size_t>(i * width + j)] =
          static_cast<float>(gram[static_cast<std::size_t>(std::min(i, j) * width + std::max(i, j))]);
    }
  }
  return result;
}

/// The part that directions hold: trace(Q^T G Q).
double held_by(std::vector<double> const& gram, std::vector<float> const& q, std::int64_t width, std::int64_t rank) {
  double held = 0;
  std::vector<double> image(static_cast<std::size_t>(rank));
  for (std::int64_t i = 0; i < width; ++i) {
    std::fill(image.begin(), image.end(), 0.0);
    for (std::int64_t j = 0; j < width; ++j) {
      double const factor = gram[static_cast<std::size_t>(i * width + j)];
      for (std::int64_t k = 0; k < rank; ++k) {
        image[static_cast<std::size_t>(k)] += factor * double{q[static_cast<std::size_t>(j * rank + k)]};
      }
    }
    for (std::int64_t k = 0; k < rank; ++k) {
      held += image[static_cast<std::size_t>(k)] * double{q[static_cast<std::size_t>(i * rank + k)]};
    }
  }
  return held;
}

double worst_product(std::vector<float> const& q, std::int64_t width, std::int64_t rank) {
  std::vector<double> products(static_cast<std::size_t>(rank * rank));
  for (std::int64_t i = 0; i < width; ++i) {
    for (std::int64_t a = 0; a < rank; ++a) {
      for (std::int64_t b = a; b < rank; ++b) {
        products[static_cast<std::size_t>(a * rank + b)] +=
            double{q[static_cast<std::size_t>(i * rank + a)]} * double{q[static_cast<std::size_t>(i * rank + b)]};
      }
    }
  }
  double worst = 0;
  for (std::int64_t a = 0; a < rank; ++a) {
    for (std::int64_t b = a; b < rank; ++b) {
      double const error = std::fabs(products[static_cast<std::size_t>(a * rank + b)] - (a == b ? 1.0 : 0.0));
      worst = error > worst || std::isnan(error) ? error : worst;
    }
  }
  return worst;
}

template <class T>
void check_projection(tessera::cuda const& exec, key_samples<T> const& keys, std::int64_t rank) {
  CAPTURE(keys.heads, keys.tokens, keys.channels, rank, static_cast<int>(keys.layout));
  std::int64_t const width = keys.width();
  constexpr std::int64_t guard = 8;  // rows that must not change
  std::vector<T> directions(static_cast<std::size_t>(width * rank));
  for (std::size_t i = 0; i < directions.size(); ++i) {
    directions[i] = store<T>(0.1F * testing::gauss().value(6, i));
  }
  auto const poison = store<T>(-77.0F);
  buffer<T> const on_device = to_device(exec, keys.values);
  buffer<T> const basis = to_device(exec, directions);
  buffer<T> target = to_device(exec, std::vector<T>(static_cast<std::size_t>((keys.tokens + guard) * rank), poison));
  key_factorization::project(exec, keys.all(on_device.data()), matrix_view<T const>(basis.data(), {width, rank}),
                             matrix_view<T>(target.data(), {keys.tokens, rank}));
  std::vector<T> const found = to_host(exec, target);
  double worst = 0;
  for (std::int64_t token = 0; token<keys.tokens; token += token> 70 && token < keys.tokens - 70 ? 17 : 1) {
    for (std::int64_t k = 0; k < rank; ++k) {
      double expected = 0;
      double size = 1e-30;
      for (std::int64_t i = 0; i < width; ++i) {
        double const product = keys.at(token, i) * double{load(directions[static_cast<std::size_t>(i * rank + k)])};
        expected += product;
        size += std::fabs(product);
      }
      double const last_bit = std::is_same_v<T, bfloat16> ? 0x1p-7 : 0x1p-10;
      double const error = std::fabs(double{load(found[static_cast<std::size_t>(token * rank + k)])} - expected) /
                           (0.5 * last_bit * std::fabs(expected) + 0x1p-16 * size + 1e-7);
      worst = error > worst || std::isnan(error) ? error : worst;
    }
  }
  CHECK(worst <= 1.0);
  for (std::size_t i = static_cast<std::size_t>(keys.tokens * rank); i < found.size(); ++i) {
    if (load(found[i]) != load(poison)) {
      FAIL("element " << i << " beyond the coefficients is written");
    }
  }
}

}  // namespace

TEST_CASE("products of channels are those of double within what fp32 sums can err", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (key_kind const kind : {key_kind::normal, key_kind::common_mean, key_kind::constant_channels, key_kind::zeros}) {
    for (std::int64_t const tokens : {0, 1, 7, 63, 64, 65, 1000}) {
      CAPTURE(static_cast<int>(kind), tokens);
      auto const keys = make_keys<bfloat16>(2, tokens, 128, kind);
      auto const gram = device_gram(exec, keys, 1 << 20, 32);
      CHECK(gram_error(gram, keys) <= gram_bound);
      CHECK(is_symmetric(gram, keys.width()));
    }
  }
}

TEST_CASE("products take any heads, layouts, widths and types, and add to what was there", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  struct extents {
    std::int64_t heads;
    std::int64_t channels;
  };
  for (extents const& n : {extents{1, 64}, {3, 64}, {1, 256}, {5, 64}, {3, 128}, {2, 192}, {8, 128}, {2, 48}}) {
    for (key_layout const layout : {key_layout::heads_first, key_layout::tokens_first, key_layout::padded}) {
      CAPTURE(n.heads, n.channels, static_cast<int>(layout));
      auto const keys = make_keys<bfloat16>(n.heads, 130, n.channels, key_kind::normal, layout);
      auto const gram = device_gram(exec, keys, 1 << 20, 2, 3.0F);
      CHECK(gram_error(gram, keys, 3.0) <= gram_bound);
      CHECK(is_symmetric(gram, keys.width()));
    }
  }
  auto const halves = make_keys<float16>(3, 200, 64, key_kind::normal);
  CHECK(gram_error(device_gram(exec, halves, 1 << 20, 1), halves) <= gram_bound);
  CHECK(gram_error(device_gram(exec, halves, 1 << 20, 0), halves) <= gram_bound);  // no room: portable
}

TEST_CASE("products of pieces of 2048 tokens are those of all at once to the bit, whatever the room", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto const keys = make_keys<bfloat16>(8, 9000, 128, key_kind::normal);
  auto const whole = device_gram(exec, keys, 1 << 20, 13);
  CHECK(gram_error(whole, keys) <= gram_bound);
  CHECK(whole == device_gram(exec, keys, 1 << 20, 13));
  CHECK(whole == device_gram(exec, keys, 1 << 20, 1));
  CHECK(whole == device_gram(exec, keys, 1 << 20, 2));
  CHECK(whole == device_gram(exec, keys, 2048, 13));
  CHECK(whole == device_gram(exec, keys, 4096, 3));
}

TEST_CASE("many tokens keep every cluster busy for several tiles", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto const keys = make_keys<bfloat16>(4, 70001, 64, key_kind::normal, key_layout::tokens_first);
  CHECK(gram_error(device_gram(exec, keys, 1 << 20, 32), keys) <= gram_bound);
}

TEST_CASE("a value that is not a number is in the products of its channel, and in all directions", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto keys = make_keys<bfloat16>(2, 300, 64, key_kind::normal);
  keys.set(77, 70, std::numeric_limits<float>::quiet_NaN());
  auto const gram = device_gram(exec, keys, 1 << 20, 1);
  for (std::int64_t i = 0; i < 128; ++i) {
    for (std::int64_t j = 0; j < 128; ++j) {
      if (std::isnan(gram[static_cast<std::size_t>(i * 128 + j)]) != (i == 70 || j == 70)) {
        FAIL("products of channels " << i << " and " << j << ": " << gram[static_cast<std::size_t>(i * 128 + j)]);
      }
    }
  }
  auto const found = find_on_device(exec, gram, 128, 16);
  CHECK(std::isnan(found.measures.trace));
  CHECK(std::isnan(found.measures.held));
  CHECK(std::all_of(found.directions.begin(), found.directions.end(), [](float v) { return std::isnan(v); }));
}

TEST_CASE("directions found on a GPU leave at most a hundredth more than the best", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  struct spectrum {
    char const* name;
    double (*value)(double);
  };
  for (spectrum const& s : {spectrum{"flat", [](double i) { return 1e4 / std::sqrt(i + 1); }},
                            spectrum{"power", [](double i) { return 1e4 / (i + 1); }},
                            spectrum{"falling", [](double i) { return 1e4 * (std::exp(-i / 32) + 1e-4); }},
                            spectrum{"mean", [](double i) { return i < 1 ? 1e6 : 1e2 / (i + 1); }},
                            spectrum{"step", [](double i) { return i < 160 ? 2.0 : 1.0; }}}) {
    std::int64_t const width = 1024;
    for (std::int64_t const rank : {160, 40, 192}) {
      CAPTURE(s.name, rank);
      auto const gram = gram_with(width, s.value);
      auto const found = find_on_device(exec, rounded(gram, width), width, rank);
      double trace = 0;
      double best = 0;
      for (std::int64_t i = 0; i < width; ++i) {
        trace += s.value(static_cast<double>(i));
        best += i < rank ? 0.0 : s.value(static_cast<double>(i));
      }
      double const left = trace - held_by(gram, found.directions, width, rank);
      CHECK(left <= 1.01 * best + 1e-6 * trace);
      CHECK(left >= best - 1e-6 * trace);
      CHECK(worst_product(found.directions, width, rank) < 1e-5);
      CHECK(found.measures.trace == Approx(trace).epsilon(1e-5));
      CHECK(found.measures.trace - found.measures.held == Approx(left).margin(2e-6 * trace));
    }
  }
}

TEST_CASE("directions on a GPU are those of the CPU's rounds within rounding, the same bits each time", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const plain;
  cudaStream_t stream = nullptr;
  cuda_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  {
    tessera::cuda const exec{.stream = stream};
    auto const values = tessera_test::real_tensor<bfloat16>("smollm2_attention.safetensors", "layers.15.keys_pre_rope");
    key_samples<bfloat16> const keys{3, 512, 64, key_layout::heads_first, values};
    auto const gram = device_gram(exec, keys, 1 << 20, 1);
    for (std::int64_t const rank : {1, 5, 32, 96, 160, 192}) {
      CAPTURE(rank);
      auto const found = find_on_device(exec, gram, 192, rank);
      auto const again = find_on_device(plain, gram, 192, rank);
      auto const replayed = find_on_device(exec, gram, 192, rank, true);
      CHECK(found.directions == again.directions);
      CHECK(found.directions == replayed.directions);
      CHECK(found.measures.held == replayed.measures.held);
      key_factorization const factorization(192, rank);
      workspace_plan plan("test");
      auto const regions = factorization.add_to(plan);
      buffer<std::byte> memory(plan.bytes());
      workspace const space(plan, memory.view());
      std::vector<float> directions(static_cast<std::size_t>(192 * rank));
      subspace_rounds::run(cpu{.threads = 2}, subspace_search<float>{matrix_view<float const>(gram.data(), {192, 192}),
                                                                     matrix_view<float>(directions.data(), {192, rank}),
                                                                     192, 4, regions, space});
      auto const expected = space[regions.measures][0];
      CHECK(found.measures.trace == Approx(expected.trace).epsilon(1e-12));
      CHECK(found.measures.held == Approx(expected.held).epsilon(2e-6));
    }
  }
  cuda_ok(cudaStreamDestroy(stream));
}

TEST_CASE("more directions than rounds take are found by eigenvectors", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  std::int64_t const width = 200;
  auto const gram = gram_with(width, [](double i) { return 1.0 / (i + 1); });
  auto const found = find_on_device(exec, rounded(gram, width), width, 193);
  CHECK(worst_product(found.directions, width, 193) < 1e-4);
  double best = 0;
  for (int i = 193; i < width; ++i) {
    best += 1.0 / (i + 1);
  }
  double const trace = found.measures.trace;
  CHECK(trace - held_by(gram, found.directions, width, 193) <= 1.01 * best + 1e-6 * trace);
}

TEST_CASE("coefficients are keys times directions, rounded once", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  for (std::int64_t const tokens : {0, 1, 63, 64, 255, 256, 257, 1000}) {
    check_projection(exec, make_keys<bfloat16>(2, tokens, 64, key_kind::normal), 160);
  }
  for (std::int64_t const rank : {1, 8, 12, 64, 72, 128, 184, 192, 200}) {
    check_projection(exec, make_keys<bfloat16>(3, 100, 64, key_kind::common_mean, key_layout::tokens_first),
                     std::min<std::int64_t>(rank, 192));
  }
  check_projection(exec, make_keys<bfloat16>(8, 600, 128, key_kind::normal, key_layout::padded), 160);
  check_projection(exec, make_keys<bfloat16>(8, 300, 128, key_kind::normal, key_layout::tokens_first), 200);
  check_projection(exec, make_keys<float16>(2, 300, 128, key_kind::normal), 40);
  check_projection(exec, make_keys<bfloat16>(4, 36000, 64, key_kind::normal), 32);  // several tiles for a cluster
}
