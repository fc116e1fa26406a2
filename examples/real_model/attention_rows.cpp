// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// SageAttention2 in place of exact attention, in all layers and for the whole text.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/sage_attention2.hpp>

#include "rows.hpp"

namespace tessera_examples {
namespace {

/// Bytes of the codes of all keys and values, with `key_bits` bits of each channel of keys, a byte of each channel of
/// values, a scale of four bytes for every 32 keys, and one for each channel of values.
std::int64_t code_bytes(model_extents const& n, std::int64_t tokens, std::int64_t key_bits) {
  std::int64_t const of_head = tokens * n.head_channels * (key_bits + 8) / 8 + tokens / 8 + 4 * n.head_channels;
  return n.layers * n.key_heads * of_head;
}

template <class Method>
method_row attention_row(std::string name, std::string what, std::int64_t key_bits) {
  return {std::move(name), std::move(what), "codes", [=](exact_run const& exact, progress_report& report) {
            model_extents const& n = exact.net.extents();
            hidden_states const all = exact.net.forward(
                exact.text(), 0, with_progress(report, n.layers, attention_within<Method>(exact.exec())));
            std::int64_t const tokens = std::ssize(exact.text());
            std::int64_t const in_16_bits = n.layers * n.key_heads * tokens * n.head_channels * 4;
            return method_result{.hidden = last_of(all, exact.hidden.rows),
                                 .bytes = code_bytes(n, tokens, key_bits),
                                 .exact_bytes = in_16_bits};
          }};
}

}  // namespace

std::vector<method_row> attention_rows() {
  return {attention_row<tessera::sage_attention2>("sage_int8", "attention INT8", 8),
          attention_row<tessera::sage_attention2_int4>("sage_int4", "attention INT4", 4)};
}

}  // namespace tessera_examples
