# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
tessera_check_pieces(ON_HOST core "#include \"checks/examples/core.hpp\""
  core/because.hpp ""
  core/bfloat16.hpp ""
  core/bits.hpp ""
  core/check.hpp "tessera::view<float, 2> keys, tessera::view<float, 2> queries"
  core/cpu_features.hpp "void (*fast)(), void (*portable)()"
  core/crc32c.hpp ""
  core/crc32c_host.hpp "std::vector<unsigned char> more"
  core/error.hpp "tessera::neuzip codec, ${given_executor}, tessera::array_view<std::byte const> stream, \
    std::vector<tessera::bfloat16>& weights"
  core/fast_divisor.hpp ""
  core/float16.hpp ""
  core/float8.hpp ""
  core/int4.hpp ""
  core/little_endian.hpp ""
  core/math.hpp "float value, float scale, float score, float largest"
  core/mix_bits.hpp "std::uint64_t seed"
  core/precision.hpp ""
  core/shape.hpp ""
  core/status.hpp "tessera::serial_group<32> group, tessera::status_word* status, int tag, int expected, \
    std::int64_t which, std::int64_t token, std::int64_t label, std::int64_t vocabulary"
  core/trigonometry.hpp ""
  core/with_constant.hpp "std::int64_t channels, tessera::attention_shape const& call, value_scratch& scratch, \
    float (&totals)[parts]")
tessera_shows_no_code(core/precision.hpp:2)
