# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The target docs: the reference of all headers and docs/*.md as a site, in the folder html of the build.  It
# fails where a public name has no comment.
find_package(Doxygen 1.9.4 REQUIRED)
find_program(TESSERA_AWK awk REQUIRED)
mark_as_advanced(TESSERA_AWK)

configure_file(docs/Doxyfile.in "${PROJECT_BINARY_DIR}/Doxyfile" @ONLY)
add_custom_target(docs
  COMMAND "${CMAKE_COMMAND}" -E rm -rf "${PROJECT_BINARY_DIR}/html"
  COMMAND Doxygen::doxygen "${PROJECT_BINARY_DIR}/Doxyfile"
  COMMENT "The reference: ${PROJECT_BINARY_DIR}/html/index.html"
  VERBATIM)
