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
add_library(tessera_readme_fragments OBJECT ${fragments})
target_link_libraries(tessera_readme_fragments PRIVATE tessera::tessera)
# Fragments say again what the library's aliases are, which clang takes for shadowing.  None of them runs.
target_compile_options(tessera_readme_fragments PRIVATE -Wno-shadow -O0 -fno-sanitize=all)
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

# Writes SOURCE with an example that is whole, but for the values that it is GIVEN; BEFORE stands before it.
function(tessera_write_example source block given before)
  split_includes("${block}" includes block)
  file(CONFIGURE OUTPUT "${source}" CONTENT "${includes}${before}void example(${given}) {${block}}\n" @ONLY)
endfunction()

# The example at the beginning of HEADER is whole, but for the values that it is GIVEN; what follows stands before it.
function(tessera_check_example header given)
  set(path "${PROJECT_SOURCE_DIR}/include/tessera/${header}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}")
  file(READ "${path}" text)
  tessera_next_example("${text}" block rest)
  if(block STREQUAL "\n")
    message(FATAL_ERROR "${path} begins with no example; this check reads it wrongly")
  endif()
  string(MAKE_C_IDENTIFIER "${header}" name)
  tessera_write_example("${folder}/${name}.cpp" "${block}" "${given}" "${ARGN}")
  target_sources(tessera_readme_fragments PRIVATE "${folder}/${name}.cpp")
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
    tessera_write_example("${folder}/${name}.cu" "${block}" "${given}" "")
    add_library(tessera_example_${name} OBJECT "${folder}/${name}.cu")
    target_link_libraries(tessera_example_${name} PRIVATE tessera::cuda)
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
tessera_check_example(algorithm/attention.hpp "${given_too}, ${attention}"
  "${executor}using namespace tessera;\n")
tessera_check_example(algorithm/linear_loss.hpp "${given_too}, ${loss}, tessera::linear_loss_options const& options"
  "${executor}using namespace tessera;\n")
tessera_check_example(algorithm/cross_layer_cache.hpp "tessera::cpu const& exec, int layer, std::int64_t n, \
  tessera::cache_extents const& extents, tessera::cache_sequences const& sequences, \
  tessera::array_view<std::int32_t> pages, ${heads} k0, ${heads} k1, ${heads} v0, ${heads} v1, ${heads} k, ${heads} v, \
  ${heads} q, tessera::head_view<tessera::bfloat16> result, tessera::workspace const& append_space, \
  tessera::workspace const& attention_space"
  "${executor}using namespace tessera;\n")
