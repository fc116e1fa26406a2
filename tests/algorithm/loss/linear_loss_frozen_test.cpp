// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A gradient that is not wanted costs nothing: no product, no reduction over ranks, and others have the same bits.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/algorithm/loss/vocabulary_parallel.hpp>
#include <tessera/comm/loopback.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/observer.hpp>
#include <tessera/exec/side_queue.hpp>

#include "support/catch.hpp"
#include "support/counting_rank.hpp"
#include "support/loss_gradient_reference.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using small_loss = linear_loss<gemm_tile<float, shape<64, 64, 8>>, lse_reducer<float>, gradient_filter<0, 64, 64>>;

/// Counts launches of products with gradients by logits.
struct product_counter : observer {
  int products = 0;

  void launched(launch const& what) override {
    products += what.program.find("gemm_tiles") != std::string_view::npos ? 1 : 0;
  }
};

struct both_passes {
  loss_problem<float> p = make_loss_problem<float>(70, 200, 16);
  product_counter counter;
  cpu exec{.threads = 1, .options = {.watched_by = &counter}};
  std::vector<float> hidden = std::vector<float>(70 * 16, -7.0F);
  std::vector<float> classifier = std::vector<float>(200 * 16, -7.0F);
  std::vector<float> value = std::vector<float>(1);

  linear_loss_gradients<float> gradients(bool has_hidden, bool has_classifier) {
    linear_loss_gradients<float> out;
    if (has_hidden) {
      out.hidden = {hidden.data(), {70, 16}};
    }
    if (has_classifier) {
      out.classifier = {classifier.data(), {200, 16}};
    }
    return out;
  }
  /// Runs both passes; gives the number of products of the backward pass.
  int products(bool has_hidden, bool has_classifier) {
    auto const plan = small_loss::plan_backward<float>(exec, {70, 200, 16});
    buffer<std::byte> memory(exec, plan.bytes());
    workspace const space(plan, memory);
    small_loss::forward(exec, p.inputs(), {}, {value}, space);
    counter.products = 0;
    small_loss::backward(exec, p.inputs(), {}, {}, gradients(has_hidden, has_classifier), space);
    exec.wait();
    return counter.products;
  }
};

}  // namespace

TEST_CASE("a frozen classifier, or hidden state, costs no product of a loss", "[host]") {
  both_passes all;
  CHECK(all.products(true, true) == 2);
  both_passes frozen_classifier;
  CHECK(frozen_classifier.products(true, false) == 1);
  CHECK(frozen_classifier.hidden == all.hidden);
  CHECK(frozen_classifier.classifier == std::vector<float>(200 * 16, -7.0F));
  both_passes frozen_hidden;
  CHECK(frozen_hidden.products(false, true) == 1);
  CHECK(frozen_hidden.classifier == all.classifier);
  CHECK(frozen_hidden.hidden == std::vector<float>(70 * 16, -7.0F));
  both_passes nothing;
  CHECK(nothing.products(false, false) == 0);
}

TEST_CASE("frozen hidden states cost no reduction over ranks", "[host]") {
  using loss = vocabulary_parallel<small_loss>;
  for (bool const has_hidden : {true, false}) {
    for (bool const has_side : {true, false}) {
      both_passes passes;
      cpu const exec{.threads = 1};
      counting_rank ranks;
      auto const plan = loss::plan_backward<float>(exec, 1, {70, 200, 16});
      buffer<std::byte> memory(exec, plan.bytes());
      workspace const space(plan, memory);
      side_queue<cpu> const side(exec, loss::side_marks);
      loss::forward(exec, ranks, passes.p.inputs(), {0, 200}, {}, {passes.value}, space);
      auto const out = passes.gradients(has_hidden, true);
      if (has_side) {
        loss::backward(exec, side, ranks, passes.p.inputs(), {0, 200}, {}, {}, out, space);
      } else {
        loss::backward(exec, ranks, passes.p.inputs(), {0, 200}, {}, {}, out, space);
      }
      exec.wait();
      CHECK(ranks.reductions == (has_hidden ? 1 : 0));
    }
  }
}
