# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# An overlay port: it installs the source tree that it lies in.  vcpkg looks at the port's own files alone to see what
# has changed, so after an edit of the library say --no-binarycaching and remove the package first.
set(VCPKG_BUILD_TYPE release)  # headers only
set(VCPKG_POLICY_SKIP_PKGCONFIG_CHECK enabled)  # tessera.pc serves all build types, although it names -lpthread
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../.." ABSOLUTE)

if("cuda" IN_LIST FEATURES)
  vcpkg_find_cuda(OUT_CUDA_TOOLKIT_ROOT cuda_root OUT_CUDA_VERSION cuda_version)
  file(STRINGS "${SOURCE_PATH}/cmake/TesseraCuda.cmake" minimum REGEX "^set\\(TESSERA_CUDA_MINIMUM [0-9.]+\\)")
  string(REGEX REPLACE "[^0-9.]" "" minimum "${minimum}")
  if(cuda_version VERSION_LESS minimum)
    message(FATAL_ERROR "tessera[cuda] needs CUDA ${minimum} or later, but ${cuda_root} is ${cuda_version}")
  endif()
endif()

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    -DTESSERA_CUDA=OFF
    -DTESSERA_BUILD_TESTS=OFF
    -DTESSERA_BUILD_BENCH=OFF
    -DTESSERA_BUILD_EXAMPLES=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/tessera)
vcpkg_fixup_pkgconfig()
file(INSTALL "${CURRENT_PORT_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/licenses")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
