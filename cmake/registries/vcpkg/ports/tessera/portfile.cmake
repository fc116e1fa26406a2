vcpkg_from_github(
    OUT_SOURCE_PATH SOURCE_PATH
    REPO OWNER/tessera
    REF "v${VERSION}"
    SHA512 0
    HEAD_REF main
)

set(VCPKG_BUILD_TYPE release) # header-only port
set(VCPKG_POLICY_SKIP_PKGCONFIG_CHECK enabled) # tessera.pc serves all build types, although it names -lpthread

vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS
        -DTESSERA_CUDA=OFF
        -DTESSERA_BUILD_TESTS=OFF
        -DTESSERA_BUILD_BENCH=OFF
        -DTESSERA_BUILD_EXAMPLES=OFF
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/tessera)
vcpkg_fixup_pkgconfig()

file(REMOVE_RECURSE
    "${CURRENT_PACKAGES_DIR}/lib"
    "${CURRENT_PACKAGES_DIR}/share/licenses"
)
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
