# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Tests that a user's project can take the library in each way, with and without CUDA.
set(package "${CMAKE_CURRENT_LIST_DIR}")
set(package_work "${PROJECT_BINARY_DIR}/package")
set(stage "${package_work}/stage")
set(archive "${package_work}/tessera.tar.gz")
file(MAKE_DIRECTORY "${package_work}")

add_test(NAME "package: install"
  COMMAND "${CMAKE_COMMAND}" -D "BUILD=${PROJECT_BINARY_DIR}" -D "STAGE=${stage}" -P "${package}/install.cmake")
set_tests_properties("package: install" PROPERTIES FIXTURES_SETUP installed LABELS package)
add_test(NAME "package: archive"
  COMMAND "${CMAKE_COMMAND}" -E tar czf "${archive}" CMakeLists.txt LICENSE include cmake
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
set_tests_properties("package: archive" PROPERTIES FIXTURES_SETUP archived LABELS package)

# To look at the compilers takes CMake half a second for C++ and four for CUDA.  Projects begin with what it has found
# out about the same compilers for this build, which it reads where a project has CMAKE_PLATFORM_INFO_INITIALIZED.  The
# The project of docs/install.md and its install commands (readme.cmake, readme_install.cmake) begin with nothing, as a
# user's do.
file(GLOB compilers "${CMAKE_BINARY_DIR}/CMakeFiles/${CMAKE_VERSION}/*.cmake")

# tessera_package_test(NAME FOLDER FIXTURE [OPTIONS ...] [RUN programs...])
#
# Programs are built without symbols for debuggers, which take a fifth of the time.
function(tessera_package_test name folder fixture)
  cmake_parse_arguments(PARSE_ARGV 3 arg "" "RUN" "OPTIONS")
  string(MAKE_C_IDENTIFIER "${name}" work)
  file(COPY ${compilers} DESTINATION "${package_work}/${work}/CMakeFiles/${CMAKE_VERSION}")
  set(run "")
  if(arg_RUN)
    set(run --test-command "${arg_RUN}")
  endif()
  add_test(NAME "package: ${name}"
    COMMAND "${CMAKE_CTEST_COMMAND}" --build-and-test "${folder}" "${package_work}/${work}"
      --build-generator "${CMAKE_GENERATOR}" --build-makeprogram "${CMAKE_MAKE_PROGRAM}"
      --build-options "-DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}" "-DCMAKE_BUILD_TYPE=None"
        -DCMAKE_PLATFORM_INFO_INITIALIZED=1
        "-DCMAKE_PREFIX_PATH=${stage}" "-DTESSERA_SOURCE=${PROJECT_SOURCE_DIR}" "-DTESSERA_ARCHIVE=${archive}"
        ${arg_OPTIONS}
      ${run})
  set_tests_properties("package: ${name}" PROPERTIES LABELS package TIMEOUT 600)
  if(NOT fixture STREQUAL "none")
    set_tests_properties("package: ${name}" PROPERTIES FIXTURES_REQUIRED ${fixture})
  endif()
endfunction()

foreach(way installed subdirectory archive)
  set(fixture none)
  set(program consumer)
  set(model OFF)
  if(way STREQUAL "installed")
    set(fixture installed)
    set(program consumer_model)
    set(model ON)
  elseif(way STREQUAL "archive")
    set(fixture archived)
  endif()
  tessera_package_test("${way}, host only" "${package}" ${fixture} RUN ${program} OPTIONS -DTESSERA_FROM=${way}
    -DCONSUMER_MODEL=${model})
  if(TESSERA_HAVE_CUDA)
    set(demands OFF)
    if(way STREQUAL "installed" OR way STREQUAL "subdirectory")
      set(demands ON)
    endif()
    tessera_package_test("${way}, with CUDA" "${package}" ${fixture} RUN consumer_cuda OPTIONS -DTESSERA_FROM=${way}
      -DCONSUMER_CUDA=ON -DCONSUMER_SETS_STANDARD=${demands}
      "-DCMAKE_CUDA_COMPILER=${CMAKE_CUDA_COMPILER}" -DCMAKE_CUDA_ARCHITECTURES=90a-real)
  endif()
endforeach()

tessera_package_test("what find_package accepts and refuses" "${package}/requests" installed RUN requests
  OPTIONS "-DINSTALLED_VERSION=${PROJECT_VERSION}" -DCUDA_EXPECTED=${TESSERA_HAVE_CUDA})

find_program(TESSERA_PKG_CONFIG NAMES pkg-config pkgconf)
mark_as_advanced(TESSERA_PKG_CONFIG)
set(pkg_config "${TESSERA_PKG_CONFIG}")
if(NOT pkg_config)
  set(pkg_config "")
endif()
add_test(NAME "package: pkg-config, of a tree that has moved"
  COMMAND "${CMAKE_COMMAND}" -D "STAGE=${stage}" -D "WORK=${package_work}/pkg_config" -D "CXX=${CMAKE_CXX_COMPILER}"
    -D "VERSION=${PROJECT_VERSION}" -D "PKG_CONFIG=${pkg_config}" -P "${package}/pkg_config.cmake")
set_tests_properties("package: pkg-config, of a tree that has moved" PROPERTIES LABELS package TIMEOUT 300
  FIXTURES_REQUIRED installed SKIP_REGULAR_EXPRESSION "\\[tessera:skipped\\]")

set(nvcc "")
if(TESSERA_HAVE_CUDA)
  set(nvcc "${CMAKE_CUDA_COMPILER}")
endif()
add_test(NAME "package: the installed tree is complete, and the same with and without nvcc"
  COMMAND "${CMAKE_COMMAND}" -D "SOURCE=${PROJECT_SOURCE_DIR}" -D "WORK=${package_work}/same"
    -D "GENERATOR=${CMAKE_GENERATOR}" -D "CXX=${CMAKE_CXX_COMPILER}" -D "NVCC=${nvcc}"
    -D "COMPILERS=${compilers}" -P "${package}/same_install.cmake")
set_tests_properties("package: the installed tree is complete, and the same with and without nvcc" PROPERTIES
  LABELS package TIMEOUT 300)

if(TESSERA_HAVE_CUDA)
  add_test(NAME "package: the page's project builds as it stands, and other architectures are warned of"
    COMMAND "${CMAKE_COMMAND}" -D "README=${PROJECT_SOURCE_DIR}/docs/install.md" -D "STAGE=${stage}"
      -D "WORK=${package_work}/readme" -D "GENERATOR=${CMAKE_GENERATOR}" -D "CXX=${CMAKE_CXX_COMPILER}"
      -D "NVCC=${nvcc}" -P "${package}/readme.cmake")
  set_tests_properties("package: the page's project builds as it stands, and other architectures are warned of"
    PROPERTIES LABELS package TIMEOUT 600 FIXTURES_REQUIRED installed)
endif()

# What docs/install.md says to install by. No generator is named: whichever of make and Ninja is CMake's choice must do.
if(CMAKE_VERSION VERSION_GREATER_EQUAL 3.25)
  add_test(NAME "package: the install commands of docs/install.md work with what setup.sh installs"
    COMMAND "${CMAKE_COMMAND}" -D "SOURCE=${PROJECT_SOURCE_DIR}" -D "WORK=${package_work}/readme_install"
      -P "${package}/readme_install.cmake")
  set_tests_properties("package: the install commands of docs/install.md work with what setup.sh installs" PROPERTIES
    LABELS package TIMEOUT 300)
endif()

# Of CPM.cmake, which no distribution has, a file may be named, of a release.
set(TESSERA_CPM "" CACHE FILEPATH "CPM.cmake, to test the project in docs/install.md that uses it")
mark_as_advanced(TESSERA_CPM)
if(UNIX)
  add_test(NAME "package: the ways of docs/install.md work as they stand there"
    COMMAND "${CMAKE_COMMAND}" -D "SOURCE=${PROJECT_SOURCE_DIR}" -D "STAGE=${stage}"
      -D "WORK=${package_work}/install_page" -D "GENERATOR=${CMAKE_GENERATOR}" -D "CXX=${CMAKE_CXX_COMPILER}"
      -D "NVCC=${nvcc}" -D "COMPILERS=${compilers}" -D "PKG_CONFIG=${pkg_config}" -D "CPM=${TESSERA_CPM}"
      -P "${package}/install_page.cmake")
  set_tests_properties("package: the ways of docs/install.md work as they stand there" PROPERTIES
    LABELS package TIMEOUT 300 FIXTURES_REQUIRED installed)
endif()

if(TESSERA_BASH)
  add_test(NAME "package: a release is the same for everyone, and is refused where something is amiss"
    COMMAND "${TESSERA_BASH}" "${package}/release.sh" "${PROJECT_SOURCE_DIR}" "${package_work}/release")
  set_tests_properties("package: a release is the same for everyone, and is refused where something is amiss" PROPERTIES
    LABELS package TIMEOUT 300 SKIP_REGULAR_EXPRESSION "\\[tessera:skipped\\]")
endif()

# An example is a project of its own as well.  Built host only here, whatever it would find, and as it comes: the
# consumer above covers CUDA for less time, and the build tree the optimised program.  A copy is built, so that nothing
# but the installed tree and the examples' own folders can be what it uses.  The example that compiles quickest is built
# to a program, and the sources of the others are only preprocessed (read_only.sh).
set(examples "${package_work}/examples")
add_test(NAME "package: examples are copied"
  COMMAND "${CMAKE_COMMAND}" -E copy_directory "${PROJECT_SOURCE_DIR}/examples" "${examples}")
set_tests_properties("package: examples are copied" PROPERTIES FIXTURES_SETUP installed LABELS package)
file(GLOB example_files RELATIVE "${PROJECT_SOURCE_DIR}/examples" CONFIGURE_DEPENDS
  "${PROJECT_SOURCE_DIR}/examples/*/CMakeLists.txt")
list(REMOVE_ITEM example_files pytorch/CMakeLists.txt)  # a package for Python, whose extension needs PyTorch
foreach(example_file IN LISTS example_files)
  get_filename_component(name "${example_file}" DIRECTORY)
  set(reads_only "")
  if(NOT name STREQUAL "kernel_levels" AND UNIX)
    set(reads_only "-DCMAKE_CXX_COMPILER_LAUNCHER=${package}/read_only.sh"
      "-DCMAKE_CXX_LINKER_LAUNCHER=${package}/read_only.sh")
  endif()
  tessera_package_test("example ${name} alone" "${examples}/${name}" installed OPTIONS "-DCMAKE_CUDA_COMPILER="
    ${reads_only})
endforeach()
