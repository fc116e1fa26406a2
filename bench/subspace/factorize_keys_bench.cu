// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Directions of a prompt's keys, and coefficients in them: the low-rank part of ShadowKV's prefill, and its stages.
///
/// Keys are normal, channel i of all heads with a deviation of (i + 1)^-1/2, so that it is known what directions can
/// hold. Rows of whole factorizations fail where directions hold less. `ms` is the median of cold calls; for single
/// programs of a round, that of one of them in a CUDA graph of many. Operations of products of channels are counted on
/// and above the diagonal.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/algorithm/subspace/factorize_keys.cuh>
#include <tessera/testing/generators.hpp>

#include "support/cuda.cuh"

namespace {

using namespace tessera;

struct weigh_channels {
  static constexpr int lanes = 128;
  struct scratch_type {};

  view<bfloat16, 3> keys;

  TESSERA_FN constexpr std::int64_t groups() const { return keys.extent(0) * keys.extent(1); }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const head = which / keys.extent(1);
    std::int64_t const token = which % keys.extent(1);
    for (int lane : group) {
      for (std::int64_t i = lane; i < keys.extent(2); i += lanes) {
        auto const number = static_cast<float>(head * keys.extent(2) + i);
        float const weight = 1.0F / ::sqrtf(number + 1.0F);
        keys(head, token, i) = store<bfloat16>(weight * load(keys(head, token, i)));
      }
    }
  }
};

class factorization_problem {
 public:
  static constexpr std::int64_t heads = 8;
  static constexpr std::int64_t tokens = 131072;
  static constexpr std::int64_t channels = 128;
  static constexpr std::int64_t width = heads * channels;
  static constexpr std::int64_t rank = 160;

  factorization_problem()
      : plan_("factorize_keys_bench"),
        regions_(factorization_.add_to(plan_)),
        keys_(memory_, heads * tokens * channels),
        gram_(memory_, width * width),
        room_(memory_, static_cast<std::size_t>(key_factorization::room_elements(width))),
        directions_(memory_, width * rank),
        coefficients_(memory_, tokens * rank),
        work_(memory_, static_cast<std::size_t>(plan_.bytes())),
        exec_{.stream = memory_.stream()} {
    bench::fill(keys_, testing::gauss{}, 1, memory_.stream());
    weigh_channels const weigh{{keys_.data(), {heads, tokens, channels}}};
    exec_.run(weigh, weigh.groups());
    multiply(tokens);
    search();
    exec_.wait();
  }

  [[nodiscard]] cudaStream_t stream() const { return memory_.stream(); }
  [[nodiscard]] tessera::cuda const& exec() const { return exec_; }
  [[nodiscard]] matrix_view<float> gram() const { return {gram_.data(), {width, width}}; }
  [[nodiscard]] workspace space() const {
    return {plan_, array_view<std::byte>(work_.data(), static_cast<std::int64_t>(work_.size()))};
  }
  [[nodiscard]] subspace_regions const& regions() const { return regions_; }

  void multiply(std::int64_t piece) const {
    exec_.clear(array_view<float>(gram_.data(), width * width));
    array_view<float> const room(room_.data(), static_cast<std::int64_t>(room_.size()));
    for (std::int64_t first = 0; first < tokens; first += piece) {
      factorization_.accumulate(exec_, keys().slice(1, first, piece), gram(), room);
    }
  }
  void search() const {
    factorization_.find(exec_, matrix_view<float const>(gram()), regions_, space(),
                        matrix_view<bfloat16>(directions_.data(), {width, rank}));
  }
  void project() const {
    key_factorization::project(exec_, keys(), matrix_view<bfloat16 const>(directions_.data(), {width, rank}),
                               matrix_view<bfloat16>(coefficients_.data(), {tokens, rank}));
  }

  /// Throws unless directions leave no more than the best ones of so many keys.
  void verify() const {
    std::vector<subspace_measures> found(1);
    exec_.copy(key_factorization::measures(regions_, space()), found);
    exec_.wait();
    double whole = 0;
    double best = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      whole += 1.0 / static_cast<double>(i + 1);
      best += i < rank ? 0.0 : 1.0 / static_cast<double>(i + 1);
    }
    double const left = 1.0 - found[0].held / found[0].trace;
    double const ratio = left * whole / best;
    if (!(std::fabs(ratio - 1.0) < 0.015)) {
      throw std::runtime_error("directions leave " + std::to_string(left) + " of the keys but the best leave " +
                               std::to_string(best / whole));
    }
  }

 private:
  [[nodiscard]] view<bfloat16 const, 3> keys() const { return {keys_.data(), {heads, tokens, channels}}; }

  bench::device_memory memory_;
  key_factorization factorization_{width, rank};
  workspace_plan plan_;
  subspace_regions regions_;
  bench::device_array<bfloat16> keys_;
  bench::device_array<float> gram_;
  bench::device_array<float> room_;
  bench::device_array<bfloat16> directions_;
  bench::device_array<bfloat16> coefficients_;
  bench::device_array<std::byte> work_;
  tessera::cuda exec_;
};

/// The problem of all rows, which is kept.
factorization_problem const& problem() {
  static factorization_problem const made;
  return made;
}

template <class Body>
void measure(benchmark::State& state, double operations, Body const& body) {
  factorization_problem const& on = problem();
  double const seconds = bench::time_cold(state, on.stream(), [&](cudaStream_t) { body(on); });
  state.counters["ms"] = 1e3 * seconds;
  bench::report_cuda(state, seconds, {.operations = operations});
}

void measure_whole(benchmark::State& state, std::int64_t piece) {
  measure(state, 0, [piece](factorization_problem const& on) {
    on.multiply(piece);
    on.search();
    on.project();
  });
  problem().verify();
}

/// Measures a program of a round, many times; make(problem) makes it.
template <class Make>
void measure_program(benchmark::State& state, double operations, Make const& make) {
  constexpr int calls = 20;
  factorization_problem const& on = problem();
  auto const program = make(on);
  tessera::cuda exec = on.exec();
  double const seconds = bench::time_graph(state, on.stream(), calls, [&](cudaStream_t stream, int) {
    exec.stream = stream;
    exec.run(program, program.groups());
  });
  state.counters["ms"] = 1e3 * seconds;
  bench::report_cuda(state, seconds, {.operations = operations});
}

/// factor_blocks, whose run is one group.
struct one_factorization : factor_blocks<5> {
  [[nodiscard]] static constexpr std::int64_t groups() { return 1; }
};

bench::registration const registered([] {
  using on_type = factorization_problem;
  constexpr auto tokens = static_cast<double>(on_type::tokens);
  constexpr auto width = static_cast<double>(on_type::width);
  constexpr auto rank = static_cast<double>(on_type::rank);
  auto const columns = [](on_type const& on) {
    return matrix_view<float>(on.space()[on.regions().columns].data, {on_type::width, on_type::rank});
  };
  auto const images = [](on_type const& on) {
    return matrix_view<float>(on.space()[on.regions().images].data, {on_type::width, on_type::rank});
  };
  auto const splits = [](on_type const& on) {
    return view<double, 3>(on.space()[on.regions().splits].data,
                           {product_splits::splits, on_type::rank, on_type::rank});
  };
  auto const factor = [](on_type const& on) {
    return matrix_view<double>(on.space()[on.regions().factor].data, {on_type::rank, on_type::rank});
  };
  bench::add_cuda("shadow/prefill/factorize/128k",
                  [](benchmark::State& state) { measure_whole(state, on_type::tokens); });
  bench::add_cuda("shadow/prefill/factorize/128k/pieces_8k",
                  [](benchmark::State& state) { measure_whole(state, 8192); });
  bench::add_cuda("shadow/prefill/products/128k", [](benchmark::State& state) {
    measure(state, tokens * width * (width + 1), [](on_type const& on) { on.multiply(on_type::tokens); });
  });
  bench::add_cuda("shadow/prefill/search/1024x160",
                  [](benchmark::State& state) { measure(state, 0, [](on_type const& on) { on.search(); }); });
  bench::add_cuda("shadow/prefill/project/128k", [](benchmark::State& state) {
    measure(state, 2 * tokens * width * rank, [](on_type const& on) { on.project(); });
  });
  bench::add_cuda("shadow/prefill/images/1024x160", [=](benchmark::State& state) {
    measure_program(state, 2 * width * width * rank, [=](on_type const& on) {
      return gram_images{on.gram(), on.space()[on.regions().measures], columns(on), images(on)};
    });
  });
  bench::add_cuda("shadow/prefill/shares/1024x160", [=](benchmark::State& state) {
    measure_program(state, width * rank * (rank + 1), [=](on_type const& on) {
      return product_splits{columns(on), splits(on)};
    });
  });
  bench::add_cuda("shadow/prefill/factor/160", [=](benchmark::State& state) {
    measure_program(state, rank * rank * rank / 3, [=](on_type const& on) {
      return one_factorization{{splits(on), on_type::rank, factor(on)}};
    });
  });
  bench::add_cuda("shadow/prefill/solve/1024x160", [=](benchmark::State& state) {
    measure_program(state, width * rank * rank, [=](on_type const& on) {
      return solve_blocks{factor(on), columns(on), images(on)};
    });
  });
});

}  // namespace
