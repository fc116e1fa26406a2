// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A problem's codes on a GPU, over which attention runs with whole and with split work items, and by the portable
/// program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithm/attention/attention_on_device.cuh"
#include "support/take_call.cuh"

namespace tessera_test {

/// Results of sequences that lie one behind the other: tokens x heads x channels, and tokens x heads.
template <class T>
struct packed_results {
  std::vector<T> result;
  std::vector<float> log_sum_exp;
};

/// Bias: what is added to scores, perhaps within the problem's lists of tiles.
template <class Attention = tessera::sage_attention2, class T = tessera::bfloat16, class Bias = tessera::no_bias>
class device_codes {
 public:
  using call_type = tessera::attention_call<typename Attention::method, T, Bias>;
  static constexpr T rubbish = device_heads<T>::rubbish;
  static constexpr float rubbish_lse = -77.0F;

  explicit device_codes(attention_problem<T> const& of, Bias const& bias = {})
      : p_(of),
        in_(exec_, of, head_layout::heads_first),
        plan_(Attention::plan_quantize(exec_, of.shape)),
        memory_(to_device(exec_, std::vector<std::byte>(as_size(plan_.bytes()), std::byte{0xff}))),
        space_(plan_, memory_),
        bias_(bias) {
    if constexpr (tessera::is_listed<Bias>) {
      bias_.list = in_.inputs().block_list;
    }
    Attention::quantize(exec_, p_.shape, in_.inputs(), {.softmax_scale = p_.options.softmax_scale}, codes(), space_);
  }

  tessera::array_view<float> work_splits() const { return Attention::work_splits(exec_, p_.shape, space_); }
  std::vector<float> work_splits_on_host() const {
    std::vector<float> found(as_size(work_splits().size()));
    exec_.copy(work_splits(), found);
    exec_.wait();
    return found;
  }

  attention_results whole() const { return run({}, false); }
  attention_results shared() const { return run(work_splits(), false); }
  attention_results portable() const { return run({}, true); }

  /// Runs attention into memory with room for `total` tokens. The sequences have lengths.
  packed_results<T> packed(std::vector<std::int32_t> const& starts, std::int64_t total, bool is_split) const {
    tessera::attention_shape const& s = p_.shape;
    auto const first = to_device(exec_, starts);
    auto const rows = total * s.query_heads;
    auto const result = to_device(exec_, std::vector<T>(as_size(rows * s.channels + 8), rubbish));
    auto const lse = to_device(exec_, std::vector<float>(as_size(rows + 8), rubbish_lse));
    auto call =
        call_of({const_cast<T*>(result.data()),
                 {s.batch, s.query_heads, s.queries, s.channels},
                 {0, s.channels, s.query_heads * s.channels, 1}},
                {const_cast<float*>(lse.data()), {s.batch, s.query_heads, s.queries}, {0, 1, s.query_heads}}, is_split);
    call.query_starts = {first.view(), total};
    Attention::forward(exec_, call);
    return {to_host(exec_, result), to_host(exec_, lse)};
  }

  /// Whether the program for sm_90a takes the problem, whose channels are up to 128, `as` it is made by call_of().
  template <class Change>
  bool by_warpgroups(tessera::array_view<float> work_splits, Change const& change) const {
    device_heads<T> const result = make_result();
    auto call = call_of(result.view(), {}, false);
    call.work_splits = work_splits;
    call.partials = Attention::partials(p_.shape, space_);
    change(call);
    bool const took = take_call<tessera::quantized_forward_model>(exec_, call);
    exec_.wait();
    return took;
  }
  bool by_warpgroups(tessera::array_view<float> work_splits) const {
    return by_warpgroups(work_splits, [](call_type&) {});
  }

 private:
  tessera::quantized_heads<typename Attention::method> codes() const { return Attention::operands(p_.shape, space_); }
  device_heads<T> make_result() const {
    tessera::attention_shape const& s = p_.shape;
    return device_heads<T>(exec_, {s.batch, s.query_heads, s.queries, s.channels}, head_layout::heads_first);
  }

  /// A call without memory for splits of the keys: with such memory the portable program takes calls of too few blocks.
  call_type call_of(tessera::head_view<T> result, tessera::view<float, 3> lse, bool is_split) const {
    auto const in = in_.inputs();
    call_type call{p_.shape, p_.options, codes(), {result, lse}, in.query_lengths, in.key_lengths, in.sinks};
    call.bias = bias_;
    call.counters = Attention::counters(p_.shape, space_);
    if (is_split) {
      call.work_splits = work_splits();
    }
    return call;
  }

  attention_results run(tessera::array_view<float> work_splits, bool is_portable) const {
    tessera::attention_shape const& s = p_.shape;
    std::int64_t const rows = s.batch * s.query_heads * s.queries;
    device_heads<T> const result = make_result();
    auto const lse = to_device(exec_, std::vector<float>(as_size(rows + 1), rubbish_lse));
    auto call = call_of(result.view(), {const_cast<float*>(lse.data()), {s.batch, s.query_heads, s.queries}}, false);
    call.work_splits = work_splits;
    if (is_portable) {
      call.partials = Attention::partials(p_.shape, space_);
      tessera::run_portably(exec_, call);
    } else {
      Attention::forward(exec_, call);
    }
    bool is_clean = false;
    attention_results found{as_doubles(result.values(exec_, is_clean)), {}};
    auto const values = to_host(exec_, lse);
    CHECK(is_clean);
    CHECK(values.back() == rubbish_lse);
    found.log_sum_exp.assign(values.begin(), values.end() - 1);
    return found;
  }

  attention_problem<T> const& p_;
  tessera::cuda exec_;
  device_attention<T> in_;
  tessera::workspace_plan plan_;
  tessera::buffer<std::byte> memory_;
  tessera::workspace space_;
  Bias bias_;
};

}  // namespace tessera_test
