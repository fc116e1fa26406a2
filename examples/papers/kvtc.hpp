// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// KVTC, a transform coder of keys and values (arXiv 2511.01815): features are decorrelated by a basis of principal
/// components, components get as many bits as pay most, and their codes are entropy-coded.
///
///     y = B x      code of y_i: 0, 2, 4 or 8 bits, which a dynamic program shares out      rANS over codes
///
/// kvtc_calibration.hpp finds B, bits and the coder's tables in samples, once, and kvtc_codec.hpp calls `linear` for
/// products with B. These programs code and decode blocks of 256 tokens, a component in each lane, whose codes are a
/// rANS lane of their own.
///
/// What the paper has beyond this: it takes rotations by position back first, joins the heads of all layers, keeps the
/// first 4 and newest 128 tokens as they are, gives groups of components scales for each token, and codes by DEFLATE.
/// Here a component's range is that of the samples, and values beyond are moved to its ends. Bytes: those of the stream
/// and of 16-bit coefficients, which are read or written once.
#pragma once

#include <cstdint>

#include <tessera/concepts/program.hpp>
#include <tessera/tile/per_lane.hpp>

#include "kvtc_stream.hpp"

namespace tessera_examples {

template <int Channels>
struct kvtc_encode : kvtc_stream<Channels> {
  using coder = rans_coder<12>;
  struct scratch_type {
    std::uint16_t words[Channels][kvtc_stream<Channels>::most_of_lane];
  };
  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    per_lane<std::int32_t, G> counts, begins;
    for (int lane : group) {
      kvtc_component const of = this->components[lane];
      auto state = coder::start();
      counts[lane] = 0;
      for (std::int64_t t = this->end_of(which); of.bits > 0 && t-- > which * this->tokens;) {
        auto const& table = this->encode_tables[of.bits / 4];
        if (auto const out = coder::push(state, of.encode(load(this->coefficients(t, lane))), table); out.occurred) {
          scratch.words[lane][counts[lane]++] = out.word;
        }
      }
      this->states(which, lane) = state;
      begins[lane] = counts[lane];
    }
    exclusive_sum(group, begins);
    for (int lane : group) {
      for (int i = 0; i < counts[lane]; ++i) {
        this->words[which * this->most_words + begins[lane] + i] = scratch.words[lane][i];
      }
      this->ends(which, lane) = begins[lane] + counts[lane];
    }
  }
};

template <int Channels>
struct kvtc_decode : kvtc_stream<Channels> {
  using coder = rans_coder<12>;
  struct scratch_type {};
  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      kvtc_component const of = this->components[lane];
      coder::decode_state state(this->states(which, lane));
      auto const* next = &this->words[which * this->most_words] + this->ends(which, lane);
      for (std::int64_t t = which * this->tokens; t < this->end_of(which); ++t) {
        int code = 0;
        if (of.bits > 0) {
          code = coder::pop(state, this->decode_tables[of.bits / 4]);
          if (coder::wants_word(state)) {
            coder::feed(state, *--next);
          }
        }
        this->coefficients(t, lane) = store<bfloat16>(of.decode(code));
      }
    }
  }
};

static_assert(DeviceProgram<kvtc_encode<128>> && DeviceProgram<kvtc_decode<128>>);

}  // namespace tessera_examples
