# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The README's C++ compiles as it stands there, with no other header than it includes.  A block with a main() is a
# program, which must run as well; all others are what follows `using namespace tessera`, each a source by itself.
set(readme "${PROJECT_SOURCE_DIR}/README.md")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${readme}")
set(folder "${CMAKE_CURRENT_BINARY_DIR}/readme_sources")

# The #include lines of TEXT, and what is left of it.
function(split_includes text includes rest)
  set(found "")
  while(text MATCHES "(^|\n)(#include [^\n]*\n)")
    string(APPEND found "${CMAKE_MATCH_2}")
    string(REPLACE "${CMAKE_MATCH_2}" "" text "${text}")
  endwhile()
  set(${includes} "${found}" PARENT_SCOPE)
  set(${rest} "${text}" PARENT_SCOPE)
endfunction()

set(fragments "")
set(programs 0)
set(blocks 0)
set(fence "```cpp\n")
string(LENGTH "${fence}" fence_length)
file(READ "${readme}" rest)
string(FIND "${rest}" "${fence}" at)
while(NOT at EQUAL -1)
  math(EXPR at "${at} + ${fence_length}")
  string(SUBSTRING "${rest}" ${at} -1 rest)
  string(FIND "${rest}" "\n```" end)
  string(SUBSTRING "${rest}" 0 ${end} block)
  math(EXPR blocks "${blocks} + 1")
  if(block MATCHES "int main\\(")
    math(EXPR programs "${programs} + 1")
    file(CONFIGURE OUTPUT "${folder}/program_${programs}.cpp" CONTENT "${block}\n" @ONLY)
    add_executable(tessera_readme_${programs} "${folder}/program_${programs}.cpp")
    target_link_libraries(tessera_readme_${programs} PRIVATE tessera::tessera)
    add_test(NAME "check: the README's program ${programs} runs" COMMAND tessera_readme_${programs})
    set_tests_properties("check: the README's program ${programs} runs" PROPERTIES LABELS check)
  else()
    split_includes("${block}" includes block)
    file(CONFIGURE OUTPUT "${folder}/fragment_${blocks}.cpp"
      CONTENT "${includes}using namespace tessera;\n${block}\n" @ONLY)
    list(APPEND fragments "${folder}/fragment_${blocks}.cpp")
  endif()
  string(FIND "${rest}" "${fence}" at)
endwhile()
if(programs EQUAL 0 OR blocks EQUAL programs)
  message(FATAL_ERROR "${readme} shows ${programs} programs in ${blocks} blocks of C++; this check reads them wrongly")
endif()
set_tests_properties("check: the README's program 1 runs" PROPERTIES
  PASS_REGULAR_EXPRESSION "^[0-9]+\\.[0-9][0-9] bits a weight")

# The next example of TEXT, which is in lines of `///     `, and what is behind it.
function(tessera_next_example text block rest)
  string(REGEX MATCH "\n///     [^\n]*(\n///     [^\n]*|\n///)*" found "${text}")
  string(FIND "${text}" "${found}" at)
  string(LENGTH "${found}" length)
  math(EXPR at "${at} + ${length}")
  string(SUBSTRING "${text}" ${at} -1 behind)
  string(REGEX REPLACE "\n///( ? ? ? ? ?)" "\n" found "${found}\n")
  set(${block} "${found}" PARENT_SCOPE)
  set(${rest} "${behind}" PARENT_SCOPE)
endfunction()

# What the example at the beginning of HEADER includes, and the rest of it.
function(read_example header includes rest)
  set(path "${PROJECT_SOURCE_DIR}/include/tessera/${header}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}")
  file(READ "${path}" text)
  tessera_next_example("${text}" block behind)
  if(block STREQUAL "\n")
    message(FATAL_ERROR "${path} begins with no example; this check reads it wrongly")
  endif()
  split_includes("${block}" found block)
  set(${includes} "${found}" PARENT_SCOPE)
  set(${rest} "${block}" PARENT_SCOPE)
endfunction()

# The example at the beginning of HEADER is whole, but for the values that it is GIVEN; what follows stands before it.
function(tessera_check_example header given)
  read_example("${header}" includes block)
  string(MAKE_C_IDENTIFIER "${header}" name)
  file(CONFIGURE OUTPUT "${folder}/${name}.cpp"
    CONTENT "${includes}${ARGN}void example(${given}) {${block}}\n" @ONLY)
  set(fragments ${fragments} "${folder}/${name}.cpp" PARENT_SCOPE)
endfunction()

# The second example of HEADER is the same for nvcc, which compiles it where there is one.
function(tessera_check_cuda_example header given)
  set(path "${PROJECT_SOURCE_DIR}/include/tessera/${header}")
  file(READ "${path}" text)
  tessera_next_example("${text}" block rest)
  tessera_next_example("${rest}" block rest)
  if(NOT block MATCHES "tessera::cuda exec")
    message(FATAL_ERROR "${path} has no second example for CUDA; this check reads it wrongly")
  endif()
  if(TESSERA_HAVE_CUDA)
    string(MAKE_C_IDENTIFIER "${header}" name)
    split_includes("${block}" includes block)
    file(CONFIGURE OUTPUT "${folder}/${name}.cu" CONTENT "${includes}void example(${given}) {${block}}\n" @ONLY)
    add_library(tessera_example_${name} OBJECT "${folder}/${name}.cu")
    target_link_libraries(tessera_example_${name} PRIVATE tessera::cuda)
    list(GET CMAKE_CUDA_ARCHITECTURES -1 one_architecture)
    set_target_properties(tessera_example_${name} PROPERTIES
      CUDA_PTX_COMPILATION ON CUDA_ARCHITECTURES "${one_architecture}")
  endif()
endfunction()

set(heads "tessera::head_view<tessera::bfloat16 const>")
set(matrix "tessera::matrix_view<tessera::bfloat16")
set(loss "std::int64_t tokens, std::int64_t vocabulary, std::int64_t channels, tessera::array_view<float> value, \
  ${matrix} const> hidden, ${matrix} const> classifier, tessera::array_view<std::int64_t const> labels")
set(attention "std::int64_t batch, std::int64_t query_heads, std::int64_t key_heads, std::int64_t queries, \
  std::int64_t keys, std::int64_t channels, ${heads} q, ${heads} k, ${heads} v, \
  tessera::head_view<tessera::bfloat16> result")
set(given_too "tessera::cpu const& exec, tessera::buffer<std::byte>& memory")
set(executor "#include <tessera/exec/buffer.hpp>\n#include <tessera/exec/cpu.hpp>\n")
tessera_check_example(neuzip.hpp "std::vector<tessera::bfloat16>& weights" "#include <vector>\n")
tessera_check_example(cut_cross_entropy.hpp "${loss}, ${matrix}> hidden_gradient, ${matrix}> classifier_gradient")
tessera_check_example(sage_attention2.hpp "${attention}, tessera::view<float, 3> log_sum_exp")
tessera_check_example(minicache.hpp "std::int64_t slots, std::int64_t tokens, std::int64_t blocks, \
  std::int64_t key_heads, std::int64_t channels, int layers")
set(tokens "tessera::view<tessera::bfloat16 const, 3>")
tessera_check_example(shadow_kv.hpp "std::int64_t query_heads, std::int64_t key_heads, std::int64_t channels, \
  std::int64_t sequence, std::int64_t steps, tessera::rotary_embedding const& rotary, ${tokens} keys, \
  ${tokens} values, ${tokens} queries, ${tokens} new_keys, ${tokens} new_values, \
  tessera::view<tessera::bfloat16, 3> result")
tessera_check_cuda_example(shadow_kv.hpp "std::int64_t query_heads, std::int64_t key_heads, std::int64_t channels")
tessera_check_example(algorithm/attention/attention.hpp "${given_too}, ${attention}"
  "${executor}using namespace tessera;\n")
tessera_check_example(algorithm/loss/linear_loss.hpp
  "${given_too}, ${loss}, tessera::linear_loss_options const& options"
  "${executor}using namespace tessera;\n")
tessera_check_example(algorithm/paged_cache/cross_layer_cache.hpp
  "${given_too}, int layer, std::int64_t n, \
  tessera::cache_extents const& extents, tessera::cache_sequences const& sequences, \
  tessera::array_view<std::int32_t> pages, ${heads} k0, ${heads} k1, ${heads} v0, ${heads} v1, ${heads} k, ${heads} v, \
  ${heads} q, tessera::head_view<tessera::bfloat16> result, \
  tessera::workspace const& attention_space"
  "${executor}using namespace tessera;\n")

# None of them runs, so that half of a compiler's time is saved. They say again what the library's aliases are, which
# clang takes for shadowing.
function(tessera_compile_examples name)
  add_test(NAME "compile: examples, ${name}"
    COMMAND "${CMAKE_CXX_COMPILER}" -std=c++20 -fsyntax-only -Wall -Wextra -Werror -Wno-shadow
      "-I${PROJECT_SOURCE_DIR}/include" ${ARGN})
  set_tests_properties("compile: examples, ${name}" PROPERTIES LABELS compile TIMEOUT 600)
endfunction()
tessera_compile_examples("README and whole ones of headers" ${fragments})

# Other headers' examples are pieces of programs. They compile with the header, with what SCOPE includes, and with the
# values that they are GIVEN; a line of dots is what a reader puts there, a struct stands before the function.
#
#   tessera_check_pieces(SCOPE INCLUDES HEADER GIVEN [HEADER GIVEN]...)
function(tessera_check_pieces scope includes)
  set(functions "")
  while(ARGN)
    list(POP_FRONT ARGN header given)
    read_example("${header}" more block)
    string(REGEX REPLACE "\n *\\.\\.\\.[^\n]*" "" block "${block}")
    set(before "")
    if(block MATCHES "^\n*(struct .*\n};\n)")
      set(before "${CMAKE_MATCH_1}")
      string(REPLACE "${before}" "" block "${block}")
    endif()
    string(MAKE_C_IDENTIFIER "${header}" name)
    string(APPEND includes "\n#include <tessera/${header}>\n${more}")
    string(APPEND functions "\nnamespace pieces::in_${name} {\n${before}void example(${given}) {${block}}\n}\n")
  endwhile()
  file(CONFIGURE OUTPUT "${folder}/pieces_${scope}.cpp"
    CONTENT "${includes}\nusing namespace tessera;\n${functions}" @ONLY)
  tessera_compile_examples("pieces of ${scope}" -Wno-unused -Wno-unused-result "-I${CMAKE_CURRENT_SOURCE_DIR}"
    "${folder}/pieces_${scope}.cpp")  # they show values and do nothing with them
endfunction()

tessera_check_pieces(core "#include <vector>\n#include <tessera/core/precision.hpp>\n\
#include <tessera/core/bfloat16.hpp>\nnamespace pieces { inline constexpr float low = -1.0F, high = 2.0F;}"
  core/bfloat16.hpp ""
  core/bits.hpp ""
  core/check.hpp "tessera::view<float, 2> keys, tessera::view<float, 2> queries"
  core/cpu_features.hpp "void (*fast)(), void (*portable)()"
  core/crc32c.hpp ""
  core/crc32c_host.hpp "std::vector<unsigned char> more"
  core/float16.hpp ""
  core/float8.hpp ""
  core/int4.hpp ""
  core/fast_divisor.hpp ""
  core/little_endian.hpp ""
  core/math.hpp "float value, float scale, float score, float largest"
  core/mix_bits.hpp "std::uint64_t seed"
  core/precision.hpp ""
  core/shape.hpp ""
  core/trigonometry.hpp ""
  view/array_view.hpp ""
  view/head_view.hpp "tessera::bfloat16 const* data, std::int64_t batch, std::int64_t heads, std::int64_t tokens, \
    std::int64_t channels, int sequence, int head"
  view/matrix_view.hpp "std::vector<float>& numbers, std::int64_t rows, std::int64_t columns, int i, int j"
  view/view.hpp "")
set(pieces "#include \"checks/pieces.hpp\"")
set(exec "Executor const& exec")
tessera_check_pieces(exec "${pieces}"
  exec/buffer.hpp "${exec}, std::int64_t tokens"
  exec/cpu.hpp "tessera::array_view<float> numbers"
  exec/check_reach.hpp "${exec}, std::vector<float> const& weights"
  exec/memory.hpp ""
  core/status.hpp "tessera::serial_group<32> group, tessera::status_word* status, int tag, int expected, \
    std::int64_t which, std::int64_t token, std::int64_t label, std::int64_t vocabulary"
  core/error.hpp "tessera::neuzip codec, ${exec}, tessera::array_view<std::byte const> stream, \
    std::vector<tessera::bfloat16>& weights"
  exec/side_queue.hpp "${exec}, struct program const& program, std::int64_t count"
  exec/status_calls.hpp "${exec}, std::int64_t groups, struct program& program"
  exec/worker_pool.hpp "tessera::detail::parallel_job& job"
  exec/workspace.hpp "${exec}, std::int64_t blocks")
set(memory "${exec}, tessera::buffer<std::byte>& memory")
set(rows "tessera::matrix_view<tessera::bfloat16")
tessera_check_pieces(algorithm "${pieces}"
  algorithm/attention/attention_score.hpp "${memory}, tessera::attention_shape const& shape, ${heads} in_four_bits, \
    ${heads} in_eight_bits, tessera::array_view<float> score, std::vector<float> const& scores"
  algorithm/attention/attention_types.hpp ""
  algorithm/attention/decode_attention.hpp "${memory}, tessera::attention_shape const& shape, ${heads} queries, \
    ${heads} keys, ${heads} values, tessera::matrix_view<std::int32_t const> blocks, \
    tessera::sequence_lengths lengths, tessera::head_view<tessera::bfloat16> result"
  algorithm/paged_cache/block_pool.hpp ""
  algorithm/paged_cache/cache_bytes.hpp
    "${exec}, tessera::minicache const& cache, tessera::cache_sequences const& sequences"
  algorithm/paged_cache/cache_layout.hpp
    "tessera::cache_extents const& extents, std::vector<tessera::cache_layers> const& parts, \
    tessera::buffer<std::byte>& block"
  algorithm/paged_cache/cross_layer_cache_types.hpp ""
  algorithm/weights/compressed_linear.hpp "${memory}, tessera::weight_stream_spec const& spec, \
    tessera::array_view<std::byte const> stream, ${rows} const> inputs, ${rows}> outputs"
  algorithm/weights/compressed_weights.hpp "std::vector<tessera::bfloat16>& weights"
  algorithm/subspace/factorize_keys.hpp "${exec}, std::int64_t width, tessera::matrix_view<float> gram, \
    tessera::array_view<float> room, tessera::view<tessera::bfloat16 const, 3> keys, \
    ${rows}> directions, ${rows}> coefficients"
  algorithm/weights/inspect_weight_stream.hpp "std::vector<std::byte> const& bytes"
  algorithm/gemm/linear.hpp "${exec}, ${rows} const> inputs, ${rows} const> weights, ${rows}> outputs, \
    tessera::array_view<float const> bias"
  algorithm/loss/linear_loss_types.hpp ""
  algorithm/weights/list_of_weights.hpp "${exec}, std::vector<tessera::bfloat16> const& vector"
  algorithm/offloaded_cache/offloaded_cache.hpp "${memory}, tessera::offload_shape const& shape, \
    tessera::offload_options const& options, tessera::array_view<std::byte> device_block, \
    tessera::array_view<std::byte> pinned_block, tessera::rotary_embedding const& rotary, std::int64_t sequence, \
    ${tokens} queries, ${tokens} keys, ${tokens} values, tessera::view<tessera::bfloat16, 3> result"
  algorithm/offloaded_cache/offloaded_cache_plan.hpp
    "${exec}, tessera::offload_shape const& shape, tessera::offload_options const& options"
  algorithm/offloaded_cache/offloaded_cache_types.hpp ""
  algorithm/attention/packed_codes.hpp "${exec}, tessera::sage_attention2::heads const& heads, \
    tessera::head_view<tessera::int4x2> packed"
  algorithm/weights/parameter_lease.hpp "${exec}, tessera::parameter_store<tessera::neuzip, Executor>& store, \
    tessera::parameter_id id, std::int64_t tiles"
  algorithm/weights/parameter_store.hpp "${exec}, std::vector<tessera::bfloat16> const& weights, \
    tessera::array_view<float const> gradient, tessera::parameter_id second, std::int64_t tiles"
  algorithm/weights/parameter_store_types.hpp ""
  algorithm/paged_cache/saved_cache.hpp
    "${exec}, tessera::minicache& cache, tessera::cache_sequences const& sequences, int slot, \
    std::vector<std::int32_t> const& blocks")
