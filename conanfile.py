# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The recipe for Conan 2:  conan create . --build=missing

The package is the installed tree, the same for all settings and options. A consumer that uses CMakeToolchain finds its
tesseraConfig.cmake, and with it tessera::tessera and, in projects with CUDA, tessera::cuda.
"""

import os
import re
import shutil
import subprocess

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir
from conan.tools.scm import Version

required_conan_version = ">=2.0"


def nvcc_release():
    """The release of the nvcc that CMake would take, or None: "12.8"."""
    folders = [os.path.join(os.environ[name], "bin") for name in ("CUDA_PATH", "CUDA_HOME") if name in os.environ]
    folders += [os.environ.get("PATH", ""), "/usr/local/cuda/bin"]
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc", path=os.pathsep.join(folders))
    try:
        said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout if nvcc else ""
    except (OSError, subprocess.CalledProcessError):
        return None
    release = re.search(r"release ([0-9.]+)", said)
    return release and release.group(1)


class TesseraRecipe(ConanFile):
    name = "tessera"
    description = "Header-only C++20 and CUDA primitives for the memory-hungry parts of large language models"
    license = "Apache-2.0 WITH LLVM-exception"
    topics = ("cuda", "llm", "quantization", "compression", "attention", "kv-cache", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"with_cuda": [True, False]}
    default_options = {"with_cuda": False}
    options_description = {"with_cuda": "Insist on a CUDA Toolkit that tessera::cuda can use; the package is the same"}
    exports_sources = ("CMakeLists.txt", "LICENSE", "NOTICE", "include/*", "cmake/*.cmake", "cmake/*.in",
                       "!cmake/ports/*", "!cmake/registries/*")
    no_copy_source = True
    test_package_folder = "tests/package"
    # What CUDA and the compilers must be at least; the README says the same.
    minimum_cuda = "12.8"
    minimum_compilers = {"gcc": "12", "clang": "14"}

    def set_version(self):
        header = load(self, os.path.join(self.recipe_folder, "include", "tessera", "version.hpp"))
        self.version = re.search(r'TESSERA_VERSION_STRING "([^"]+)"', header).group(1)

    def layout(self):
        cmake_layout(self, src_folder=".")

    def package_id(self):
        self.info.clear()

    def validate(self):
        # Not compiler.cppstd: the CMake targets raise a consumer's C++17 to C++20, and profiles that Conan detects for
        # the oldest of these compilers say 17.
        compiler = str(self.settings.compiler)
        minimum = self.minimum_compilers.get(compiler)
        if minimum and Version(self.settings.compiler.version) < minimum:
            raise ConanInvalidConfiguration(
                f"tessera needs {compiler} {minimum} or later, not {self.settings.compiler.version}")
        if self.options.with_cuda:
            release = nvcc_release()
            if release is None or Version(release) < self.minimum_cuda:
                raise ConanInvalidConfiguration(
                    f"with_cuda needs nvcc {self.minimum_cuda} or later, not {release}; "
                    "it is looked for by CUDACXX, CUDA_PATH, CUDA_HOME, PATH and in /usr/local/cuda")

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        toolchain.cache_variables["TESSERA_CUDA"] = "OFF"
        for part in ("TESTS", "BENCH", "EXAMPLES"):
            toolchain.cache_variables[f"TESSERA_BUILD_{part}"] = False
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()
        rmdir(self, os.path.join(self.package_folder, "share", "licenses"))
        for file in ["LICENSE", "NOTICE"]:
            copy(self, file, self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "tessera")]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        if self.settings.os in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread"]
