// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `kvtc_codec`: KVTC with memory for a number of tokens, in one call each way.
#pragma once

#include <vector>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/exec/buffer.hpp>

#include "kvtc.hpp"
#include "kvtc_calibration.hpp"

namespace tessera_examples {

template <int Channels>
class kvtc_codec {
  using stream_type = kvtc_stream<Channels>;
  using coder = typename stream_type::coder;

 public:
  template <class Executor>
  kvtc_codec(Executor const& exec, kvtc_calibration const& found, std::int64_t tokens)
      : tokens_(tokens),
        blocks_(divide_up(tokens, std::int64_t{stream_type::tokens})),
        basis_(exec, Channels * Channels),
        turned_(exec, Channels * Channels),
        components_(exec, Channels),
        encode_tables_(exec, 3),
        decode_tables_(exec, 3),
        coefficients_(exec, tokens * Channels),
        states_(exec, blocks_ * Channels),
        ends_(exec, blocks_ * Channels),
        words_(exec, blocks_ * stream_type::most_words) {
    std::vector<bfloat16> basis, turned;
    for (std::size_t i = 0; i < found.basis.size(); ++i) {
      basis.push_back(store<bfloat16>(static_cast<float>(found.basis[i])));
      turned.push_back(store<bfloat16>(static_cast<float>(found.basis[i % Channels * Channels + i / Channels])));
    }
    std::vector<typename coder::encode_table> encode_tables;
    std::vector<typename coder::decode_table> decode_tables(3);
    for (std::size_t i = 0; i < 3; ++i) {
      encode_tables.push_back(coder::make_encode_table(found.models[i]));
      coder::make_decode_table(found.models[i], decode_tables[i]);
    }
    exec.copy(basis, basis_);
    exec.copy(turned, turned_);
    exec.copy(found.components, components_);
    exec.copy(encode_tables, encode_tables_);
    exec.copy(decode_tables, decode_tables_);
    exec.wait();
  }
  /// Enqueues the coding of tokens x channels.
  template <class Executor>
  void encode(Executor const& exec, matrix_view<bfloat16 const> values) {
    linear<bfloat16>::forward(exec, values, {basis_.data(), {Channels, Channels}}, stream().coefficients);
    exec.run(kvtc_encode<Channels>{stream()}, blocks_);
  }
  /// Enqueues what the stream stands for: tokens x channels.
  template <class Executor>
  void decode(Executor const& exec, matrix_view<bfloat16> values) {
    exec.run(kvtc_decode<Channels>{stream()}, blocks_);
    linear<bfloat16>::forward(exec, stream().coefficients, {turned_.data(), {Channels, Channels}}, values);
  }
  /// The stream's parts.
  stream_type stream() {
    return {components_,
            encode_tables_,
            decode_tables_,
            {coefficients_.data(), {tokens_, Channels}},
            {states_.data(), {blocks_, Channels}},
            {ends_.data(), {blocks_, Channels}},
            words_};
  }

 private:
  std::int64_t tokens_, blocks_;
  buffer<bfloat16> basis_, turned_;
  buffer<kvtc_component> components_;
  buffer<typename coder::encode_table> encode_tables_;
  buffer<typename coder::decode_table> decode_tables_;
  buffer<bfloat16> coefficients_;
  buffer<std::uint32_t> states_;
  buffer<std::int32_t> ends_;
  buffer<std::uint16_t> words_;
};

}  // namespace tessera_examples
