# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The checks are tested as well: each planted mistake must be found, in the words given here.
#
#   cmake -D CHECKS=<this folder> -D WORK=<scratch folder> -P planted.cmake
cmake_minimum_required(VERSION 3.24...3.31)

set(head "// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception\n#pragma once\n")
set(failures 0)

# A tree of two good headers and the one at PATH with BODY; CHECK must say SENTENCE, or pass when SENTENCE is "".
function(plant check path body sentence)
  file(REMOVE_RECURSE "${WORK}")
  foreach(good core/bits.hpp quantize/symmetric.hpp exec/cuda.cuh tessera.hpp)
    file(WRITE "${WORK}/tessera/${good}" "${head}")
  endforeach()
  file(WRITE "${WORK}/tessera/${path}" "${body}")
  execute_process(COMMAND "${CMAKE_COMMAND}" -D "INCLUDE=${WORK}" -P "${CHECKS}/${check}.cmake"
    OUTPUT_VARIABLE out ERROR_VARIABLE out RESULT_VARIABLE result)
  string(FIND "${out}" "${sentence}" at)
  if((sentence STREQUAL "" AND NOT result EQUAL 0) OR (NOT sentence STREQUAL "" AND (result EQUAL 0 OR at EQUAL -1)))
    message("${check}, ${path}: expected \"${sentence}\", got (${result}):\n${out}")
    math(EXPR failures "${failures} + 1")
    set(failures ${failures} PARENT_SCOPE)
  endif()
endfunction()

plant(layering reduce/sum.hpp "${head}#include <tessera/core/bits.hpp>\n#include <vector>\n" "")
plant(layering core/up.hpp "${head}#include <tessera/quantize/symmetric.hpp>\n"
  "layer 0 includes quantize/symmetric.hpp")
plant(layering tile/load.hpp "${head}#include <tessera/quantize/symmetric.hpp>\n" "tile/ knows primitives by")
plant(layering tile/source/codes.hpp "${head}#include <tessera/quantize/symmetric.hpp>\n" "")
plant(layering algorithm/a.hpp "${head}#include <tessera/tessera.hpp>\n" "nothing in the library includes tessera.hpp")
plant(layering algorithm/a.hpp "${head}#include <tessera/exec/cuda.cuh>\n" "a .hpp must compile without CUDA")
plant(layering algorithm/a.hpp "${head}#include <tessera/core/gone.hpp>\n" "which does not exist")
plant(layering algorithm/a.hpp "${head}#include \"../core/bits.hpp\"\n" "write #include <tessera/...>")
plant(layering core/a.hpp "${head}#  include <iostream>\n" "includes <iostream>")
plant(layering core/a.hpp "${head}#include <thread>\n" "which only exec/ may")
plant(layering core/a.hpp "${head}#include <cuda_bf16.h>\n" "CUDA headers belong in")
plant(layering exec/a.cuh "${head}#include <cuda_runtime_api.h>\n" "CUDA headers belong in")
plant(layering tile/cuda/a.cuh "${head}#include <thrust/sort.h>\n" "cost every user too much")
plant(layering tile/cuda/a.cuh "${head}#include <cub/block/block_scan.cuh>\n#if __CUDA_ARCH__ > 1\n#endif\n" "")
plant(layering program/a.cuh "${head}#include <cub/block/block_scan.cuh>\n" "which only tile/cuda/ may")
plant(layering core/a.hpp "${head}#if __CUDA_ARCH__ > 1\n#endif\n" "uses __CUDA_ARCH__")
plant(layering core/a.hpp "${head}// not __CUDA_ARCH__ here\n" "")
plant(layering core/a.hpp "${head}inline void f() { asm volatile(\"nop\"); }\n" "holds inline assembly")
plant(layering helpers/a.hpp "${head}" "its folder is in no layer")

plant(macros core/a.hpp "${head}#define TESSERA_FN\n" "")
plant(macros core/a.hpp "${head}#  define FN\n" "defines FN; macros of the library begin with TESSERA_")
string(REGEX REPLACE "([A-G])" "#define TESSERA_\\1\n" seven_macros "ABCDEFG")
plant(macros core/a.hpp "${head}${seven_macros}" "the library has 7 macros, more than 6")
plant(macros core/a.hpp "// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception\n" "has no #pragma once")
plant(macros core/a.hpp "\n#pragma once\n" "does not begin with // SPDX")
string(REPEAT "x" 117 wide)
plant(lines core/a.hpp "${head}// ${wide}\n" "")
plant(lines core/a.hpp "${head}//  ${wide}\n" "core/a.hpp: has lines of more than 120 columns")
string(REPEAT "// a line\n" 500 long)
plant(macros core/a.hpp "${head}${long}" "has 502 lines, more than 500")

file(REMOVE_RECURSE "${WORK}")
if(failures GREATER 0)
  message(FATAL_ERROR "${failures} planted cases went wrong")
endif()
message("every planted mistake was found")
