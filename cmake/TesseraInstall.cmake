# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The install rules.  tessera::cuda is not exported, because it would name this machine's toolkit: tesseraConfig.cmake
# makes it in the consumer's project.  So the installed tree is the same whether or not nvcc is here.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(tessera_package_folder "${CMAKE_INSTALL_DATADIR}/cmake/tessera")
install(TARGETS tessera EXPORT tesseraTargets FILE_SET HEADERS)
install(DIRECTORY include/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.cuh")
install(EXPORT tesseraTargets NAMESPACE tessera:: DESTINATION "${tessera_package_folder}")
configure_package_config_file(cmake/tesseraConfig.cmake.in tesseraConfig.cmake
  INSTALL_DESTINATION "${tessera_package_folder}")
write_basic_package_version_file(tesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES
  "${PROJECT_BINARY_DIR}/tesseraConfig.cmake"
  "${PROJECT_BINARY_DIR}/tesseraConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/TesseraCuda.cmake"
  DESTINATION "${tessera_package_folder}")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/licenses/tessera")

# For builds without CMake, which choose -std=c++20 themselves.  It finds its prefix from where it lies.
set(tessera_pc_folder "${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig")
file(RELATIVE_PATH tessera_pc_to_prefix "${tessera_pc_folder}" "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" tessera_pc_to_prefix "${tessera_pc_to_prefix}")
set(tessera_pc_includedir "${CMAKE_INSTALL_INCLUDEDIR}")
if(NOT IS_ABSOLUTE "${tessera_pc_includedir}")
  string(PREPEND tessera_pc_includedir "\${prefix}/")
endif()
configure_file(cmake/tessera.pc.in tessera.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/tessera.pc" DESTINATION "${CMAKE_INSTALL_DATADIR}/pkgconfig")
