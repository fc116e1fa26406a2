# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set(given_block "int coded, tessera::pair_coder::decode_table const& table, std::uint8_t const* states, \
  std::uint8_t const* words, int word_count, tessera::weight_block_scratch& scratch")
set(reader_type "tessera::weight_reader<T, tessera::keep_mantissa<7>>")
tessera_check_pieces(ON_HOST algorithms_and_programs "${pieces}\n#include \"checks/examples/program.hpp\"\n\
#include <tessera/core/cpu_features.hpp>\n#include <tessera/entropy/rans_coder.hpp>\n\
#include <tessera/entropy/tans_coder.hpp>\n#include <tessera/program/weights/linear.hpp>"
  program/weights/block_avx2.hpp "${given_block}"
  program/weights/block_avx512.hpp "${given_block}"
  program/weights/codebook.hpp "std::uint64_t const* counts"
  program/weights/detail/block_host.hpp
    "tessera::serial_group<32> const& group, tessera::weight_block<tessera::bfloat16> const& block"
  program/weights/detail/parameter_parts.hpp "${given_executor}, \
    std::vector<tessera::detail::stored_part> const& parts, tessera::detail::update_trial* trial, \
    void (*encode)(tessera::detail::stored_part const&), void (*move)(tessera::detail::stored_part const&), \
    tessera::parameter_stream<T> (*stream_of)(tessera::detail::stored_part const&)"
  program/weights/exponent_block.hpp ""
  program/weights/exponent_codebook.hpp
    "${given_executor}, tessera::weight_encoding<tessera::bfloat16, tessera::tans_coder> const& encoding"
  program/weights/reader.hpp "${given_executor}, tessera::weight_decoding<T, tessera::pair_coder> const& decoding, \
    ${reader_type} const& reader, tessera::serial_group<32> const& group, std::int64_t block, \
    tessera::compressed_linear_rows<${reader_type}, T, T>::scratch_type& scratch"
  program/weights/sgd_step.hpp "${given_executor}, tessera::array_view<tessera::bfloat16> weights, \
    tessera::array_view<float const> gradient"
  program/weights/symbol_lanes.hpp "tessera::serial_group<32> const& group, int rows, \
    tessera::rans_coder<12>::encode_table const& encode_table, std::uint8_t* symbols, std::uint16_t* words, \
    int most_words, tessera::rans_coder<12>::decode_table const& decode_table, std::uint8_t const* states, \
    std::uint8_t const* coded_words, int word_count")
