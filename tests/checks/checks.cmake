# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Tests about the source text and about what the compiler must refuse.
set(checks "${CMAKE_CURRENT_LIST_DIR}")

foreach(check layering macros concepts docs quick_reference)
  add_test(NAME "check: ${check}"
    COMMAND "${CMAKE_COMMAND}" -D "INCLUDE=${PROJECT_SOURCE_DIR}/include" -P "${checks}/${check}.cmake")
endforeach()
foreach(check actions data lines mirror threads versions)
  add_test(NAME "check: ${check}"
    COMMAND "${CMAKE_COMMAND}" -D "INCLUDE=${PROJECT_SOURCE_DIR}" -P "${checks}/${check}.cmake")
endforeach()
add_test(NAME "check: planted mistakes are found"
  COMMAND "${CMAKE_COMMAND}" -D "CHECKS=${checks}" -D "WORK=${CMAKE_CURRENT_BINARY_DIR}/planted"
    -P "${checks}/planted.cmake")
set_tests_properties("check: layering" "check: macros" "check: concepts" "check: docs" "check: quick_reference"
  "check: actions" "check: data" "check: lines" "check: mirror" "check: threads" "check: versions"
  "check: planted mistakes are found"
  PROPERTIES LABELS check)

# Skipped where there is no clang-format, or another one than that of .clang-format.
find_program(TESSERA_CLANG_FORMAT NAMES clang-format-14 clang-format)
mark_as_advanced(TESSERA_CLANG_FORMAT)
set(clang_format_version "")
if(TESSERA_CLANG_FORMAT)
  execute_process(COMMAND "${TESSERA_CLANG_FORMAT}" --version OUTPUT_VARIABLE clang_format_version ERROR_QUIET)
endif()
if(clang_format_version MATCHES "version 14\\.")
  add_test(NAME "check: format"
    COMMAND "${CMAKE_COMMAND}" -D "INCLUDE=${PROJECT_SOURCE_DIR}" -D "CLANG_FORMAT=${TESSERA_CLANG_FORMAT}"
      -P "${checks}/format.cmake")
  set_tests_properties("check: format" PROPERTIES LABELS check TIMEOUT 300)
endif()

# Over all headers at once, as the linkage check below includes them.
find_program(TESSERA_CLANG_TIDY clang-tidy)
mark_as_advanced(TESSERA_CLANG_TIDY)
if(TESSERA_CLANG_TIDY AND TESSERA_CHECK_HEADERS)
  add_test(NAME "check: clang-tidy"
    COMMAND "${TESSERA_CLANG_TIDY}" --quiet "--config-file=${PROJECT_SOURCE_DIR}/.clang-tidy" --warnings-as-errors=*
      "${CMAKE_CURRENT_BINARY_DIR}/tessera_linkage_sources/one.cpp" -- -std=c++20 "-I${PROJECT_SOURCE_DIR}/include")
  set_tests_properties("check: clang-tidy" PROPERTIES LABELS check TIMEOUT 600)
endif()

find_program(TESSERA_CLANG_QUERY NAMES clang-query clang-query-14)
mark_as_advanced(TESSERA_CLANG_QUERY)
if(TESSERA_CLANG_QUERY AND TESSERA_CHECK_HEADERS)
  add_test(NAME "check: captures"
    COMMAND "${CMAKE_COMMAND}" -D "INCLUDE=${PROJECT_SOURCE_DIR}/include"
      -D "SOURCE=${CMAKE_CURRENT_BINARY_DIR}/tessera_linkage_sources/one.cpp" -D "CLANG_QUERY=${TESSERA_CLANG_QUERY}"
      -P "${checks}/captures.cmake")
  set_tests_properties("check: captures" PROPERTIES LABELS check TIMEOUT 300)
endif()

# The times are those of reading chains of headers.
find_program(TESSERA_BASH bash)
mark_as_advanced(TESSERA_BASH)
if(TESSERA_BASH AND TESSERA_CHECK_HEADERS)
  set_target_properties(tessera_header_check PROPERTIES
    CXX_COMPILER_LAUNCHER "${TESSERA_BASH};${checks}/include_cost.sh;read")
  add_test(NAME "check: include cost"
    COMMAND "${TESSERA_BASH}" "${checks}/include_cost.sh" check "${PROJECT_SOURCE_DIR}/include"
      "${CMAKE_CURRENT_BINARY_DIR}/tessera_header_check"
      "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/tessera_header_check.dir/tessera_header_check" "${CMAKE_CXX_COMPILER}")
  set_tests_properties("check: include cost" PROPERTIES LABELS check TIMEOUT 600)
  if(TESSERA_HAVE_CUDA)
    set_target_properties(tessera_header_check_users PROPERTIES
      CUDA_COMPILER_LAUNCHER "${TESSERA_BASH};${checks}/include_cost.sh;read")
    add_test(NAME "check: include cost, CUDA"
      COMMAND "${TESSERA_BASH}" "${checks}/include_cost.sh" check "${PROJECT_SOURCE_DIR}/include"
        "${CMAKE_CURRENT_BINARY_DIR}/tessera_header_check_users"
        "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/tessera_header_check_users.dir/tessera_header_check_users"
        "${CMAKE_CXX_COMPILER}" "${CMAKE_CUDA_COMPILER}")
    set_tests_properties("check: include cost, CUDA" PROPERTIES LABELS check TIMEOUT 600)
  endif()
endif()

# Objects of translation units that hold every header link together: nothing is defined twice.
function(tessera_check_linkage target link)
  add_executable(${target} ${ARGN})
  target_link_libraries(${target} PRIVATE ${link})
  add_test(NAME "check: every header in two objects, ${target}" COMMAND ${target})
  set_tests_properties("check: every header in two objects, ${target}" PROPERTIES LABELS check)
endfunction()

if(TESSERA_CHECK_HEADERS)
  set(forwards "")
  set(backwards "")
  foreach(header IN LISTS tessera_host_headers)
    file(RELATIVE_PATH name "${PROJECT_SOURCE_DIR}/include" "${header}")
    string(APPEND forwards "#include <${name}>\n")
    string(PREPEND backwards "#include <${name}>\n")
  endforeach()
  # In both orders, too: nothing depends on what came before it.
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/tessera_linkage_sources")
  file(CONFIGURE OUTPUT "${folder}/one.cpp"
    CONTENT "${forwards}int other();\nint main() { return other(); }\n" @ONLY)
  file(CONFIGURE OUTPUT "${folder}/other.cpp" CONTENT "${backwards}int other();\nint other() { return 0; }\n" @ONLY)
  tessera_check_linkage(tessera_linkage tessera::tessera "${folder}/one.cpp" "${folder}/other.cpp")
  if(TESSERA_HAVE_CUDA)
    foreach(header IN LISTS tessera_cuda_headers)
      file(RELATIVE_PATH name "${PROJECT_SOURCE_DIR}/include" "${header}")
      string(APPEND forwards "#include <${name}>\n")
    endforeach()
    # What is defined twice is seen as well with the same object twice, its function renamed, and nvcc takes long.
    set(folder "${CMAKE_CURRENT_BINARY_DIR}/tessera_linkage_cuda_sources")
    file(CONFIGURE OUTPUT "${folder}/one.cu" CONTENT "${forwards}int one();\nint one() { return 0; }\n" @ONLY)
    file(CONFIGURE OUTPUT "${folder}/main.cpp" @ONLY
      CONTENT "int one();\nint other();\nint main() { return one() + other(); }\n")
    add_library(tessera_linkage_cuda_object OBJECT "${folder}/one.cu")
    target_link_libraries(tessera_linkage_cuda_object PRIVATE tessera::cuda)
    tessera_use_nccl_header(tessera_linkage_cuda_object)
    set_target_properties(tessera_linkage_cuda_object PROPERTIES CUDA_ARCHITECTURES 90a-real)
    add_custom_command(OUTPUT "${folder}/other.o"
      COMMAND "${CMAKE_OBJCOPY}" --redefine-sym _Z3onev=_Z5otherv "$<TARGET_OBJECTS:tessera_linkage_cuda_object>"
        "${folder}/other.o"
      DEPENDS tessera_linkage_cuda_object "$<TARGET_OBJECTS:tessera_linkage_cuda_object>"
      VERBATIM)
    tessera_check_linkage(tessera_linkage_cuda tessera::cuda
      "${folder}/main.cpp" "$<TARGET_OBJECTS:tessera_linkage_cuda_object>" "${folder}/other.o")
  endif()
endif()

if(TESSERA_CHECK_HEADERS)
  include("${checks}/readme.cmake")
endif()

# Device code compiles at run time too.
if(TESSERA_HAVE_CUDA AND TARGET CUDA::nvrtc)
  add_executable(tessera_nvrtc_check "${checks}/nvrtc.cpp")
  target_compile_features(tessera_nvrtc_check PRIVATE cxx_std_20)
  target_link_libraries(tessera_nvrtc_check PRIVATE CUDA::nvrtc)
  set(folders "-I${PROJECT_SOURCE_DIR}/include")
  foreach(folder IN LISTS CUDAToolkit_INCLUDE_DIRS)
    list(APPEND folders "-I${folder}" "-I${folder}/cccl")
  endforeach()
  set(quickly "")
  if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 13.0)
    set(quickly --Ofast-compile=max)  # nothing runs the programs, and to optimise them takes two thirds of the time
  endif()
  # The fast programs of each algorithm become PTX, since ptxas takes two thirds of the time.
  foreach(case IN ITEMS portable=sm_90a weights=compute_90a loss=compute_90a attention=compute_90a pages=compute_90a
      chunks=compute_90a older=compute_80)
    string(REPLACE "=" ";" case "${case}")
    list(GET case 0 source)
    list(GET case 1 architecture)
    add_test(NAME "compile: programs at run time, ${source}"
      COMMAND tessera_nvrtc_check "${checks}/run_time/${source}.cu" -std=c++20 "-arch=${architecture}" -default-device
        -diag-suppress=1097 ${quickly} "-I${checks}/run_time" ${folders})
    set_tests_properties("compile: programs at run time, ${source}" PROPERTIES LABELS compile)
  endforeach()
endif()

# What a compiler says that is not told to take C++20.
foreach(paper neuzip cut_cross_entropy sage_attention2 minicache shadow_kv)
  add_test(NAME "compile: ${paper} asks for C++20"
    COMMAND "${CMAKE_CXX_COMPILER}" -std=c++17 -E -o /dev/null -x c++ -I "${PROJECT_SOURCE_DIR}/include"
      "${PROJECT_SOURCE_DIR}/include/tessera/${paper}.hpp")
  set_tests_properties("compile: ${paper} asks for C++20" PROPERTIES LABELS compile
    PASS_REGULAR_EXPRESSION "tessera needs C\\+\\+20: -std=c\\+\\+20")
endforeach()

# What is said of architectures: by nvcc, whose preprocessor is enough, and by programs on a Hopper GPU.
if(TESSERA_HAVE_CUDA)
  add_test(NAME "compile: sm_75 is refused in one sentence"
    COMMAND "${CMAKE_CUDA_COMPILER}" -std=c++20 -arch=sm_75 -ptx -o "${CMAKE_CURRENT_BINARY_DIR}/architecture.ptx"
      -I "${PROJECT_SOURCE_DIR}/include" "${checks}/architecture.cu")
  set_tests_properties("compile: sm_75 is refused in one sentence" PROPERTIES LABELS compile ENVIRONMENT "LC_ALL=C"
    PASS_REGULAR_EXPRESSION "error: #error .tessera needs sm_80 or later: ")
  set(cases plain meant specific)
  tessera_cannot_run_cuda(is_without_gpu)
  if(is_without_gpu)
    set(cases plain)
    set(not_built "cuda: of sm_90 is warned where it is not meant, else NOT BUILT: there is no GPU")
    add_test(NAME "${not_built}" COMMAND "${CMAKE_COMMAND}" -E echo "[tessera:skipped] ${not_built}")
    set_tests_properties("${not_built}" PROPERTIES LABELS cuda SKIP_REGULAR_EXPRESSION "\\[tessera:skipped\\]")
  endif()
  foreach(case IN LISTS cases)
    set(target "tessera_architecture_${case}")
    add_executable(${target} "${checks}/architecture.cu")
    target_link_libraries(${target} PRIVATE tessera::cuda)
    set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES 90-real)
    add_test(NAME "cuda: of sm_90 is warned where it is not meant, ${case}" COMMAND ${target})
    set_tests_properties("cuda: of sm_90 is warned where it is not meant, ${case}" PROPERTIES LABELS cuda
      RESOURCE_LOCK gpu SKIP_REGULAR_EXPRESSION "\\[tessera:skipped\\]")
  endforeach()
  set_tests_properties("cuda: of sm_90 is warned where it is not meant, plain" PROPERTIES
    PASS_REGULAR_EXPRESSION "tessera: this program was not compiled for sm_90a.*\nnothing else")
  if(NOT is_without_gpu)
    target_compile_definitions(tessera_architecture_meant PRIVATE TESSERA_ACCEPT_SM_90)
    set_target_properties(tessera_architecture_specific PROPERTIES CUDA_ARCHITECTURES 90a-real)
    set_tests_properties("cuda: of sm_90 is warned where it is not meant, meant"
      "cuda: of sm_90 is warned where it is not meant, specific" PROPERTIES FAIL_REGULAR_EXPRESSION "tessera: ")
  endif()
endif()

# *_fail.cpp: must compile as it is; with TESSERA_FAIL it must be refused, in the words of its "// expect: regex" line.
# Two thirds of the time would go into reading the papers' headers, which are read once and precompiled.  Whether a test
# includes what it needs is therefore not seen here.
set(refusal_flags -std=c++20 -Wall -Wextra -Werror -fmessage-length=0 -I "${PROJECT_SOURCE_DIR}/include")
set(refusal_folder "${CMAKE_CURRENT_BINARY_DIR}/refusals")
file(CONFIGURE OUTPUT "${refusal_folder}/papers.hpp" @ONLY CONTENT
"#include <tessera/cut_cross_entropy.hpp>
#include <tessera/minicache.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/shadow_kv.hpp>
")
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(precompiled "${refusal_folder}/papers.hpp.pch")
  set(uses_precompiled -include-pch "${precompiled}")
else()
  set(precompiled "${refusal_folder}/papers.hpp.gch")  # the name that g++ looks for
  set(uses_precompiled -include "${refusal_folder}/papers.hpp")
endif()
add_custom_command(OUTPUT "${precompiled}"
  COMMAND "${CMAKE_CXX_COMPILER}" ${refusal_flags} -x c++-header "${refusal_folder}/papers.hpp" -o "${precompiled}"
  DEPENDS "${refusal_folder}/papers.hpp" ${tessera_host_headers}
  VERBATIM)
add_custom_target(tessera_refusals ALL DEPENDS "${precompiled}")

# An error that ends what a compiler does once it has read a source (refused.cmake).
file(CONFIGURE OUTPUT "${refusal_folder}/end.cpp" @ONLY CONTENT "static_assert(sizeof(int) == 0, \"the end\");\n")

set(refusal_command "${CMAKE_CXX_COMPILER}" ${refusal_flags} -fsyntax-only -I "${CMAKE_CURRENT_SOURCE_DIR}")
file(GLOB_RECURSE refused CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*_fail.cpp")
set(accepted "")
foreach(source IN LISTS refused)
  file(RELATIVE_PATH name "${CMAKE_CURRENT_SOURCE_DIR}" "${source}")
  string(REGEX REPLACE "_fail\\.cpp$" "" name "${name}")
  file(READ "${source}" text LIMIT 2000)
  if(NOT text MATCHES "// expect: ([^\n]+)\n")
    message(FATAL_ERROR "${source} has no line \"// expect: <what the compiler says>\"")
  endif()
  set(command ${refusal_command})
  if(text MATCHES "\n#define ")  # what it defines is for the headers that it includes itself
    add_test(NAME "compile: ${name} is accepted without its mistake" COMMAND ${command} "${source}")
    set_tests_properties("compile: ${name} is accepted without its mistake" PROPERTIES LABELS compile)
  else()
    list(APPEND command ${uses_precompiled})
    list(APPEND accepted "${source}")
  endif()
  add_test(NAME "compile: ${name} is refused"
    COMMAND "${CMAKE_COMMAND}" -D "SOURCE=${source}" -D "COMPILE=${command}" -D "END=${refusal_folder}/end.cpp"
      -P "${checks}/refused.cmake")
  set_tests_properties("compile: ${name} is refused" PROPERTIES LABELS compile ENVIRONMENT "LC_ALL=C")
endforeach()
tessera_join_sources(accepted cpp ${accepted})  # one source takes a fifth of the time that each alone takes
add_test(NAME "compile: what is refused is accepted without its mistake"
  COMMAND ${refusal_command} ${uses_precompiled} ${accepted})
set_tests_properties("compile: what is refused is accepted without its mistake" PROPERTIES LABELS compile)
