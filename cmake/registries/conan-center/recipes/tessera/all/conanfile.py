import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy, get, save
from conan.tools.layout import basic_layout
from conan.tools.scm import Version

required_conan_version = ">=2.1"


class TesseraConan(ConanFile):
    name = "tessera"
    description = "Header-only C++20 and CUDA primitives for the memory-hungry parts of large language models"
    license = "Apache-2.0 WITH LLVM-exception"
    url = "https://github.com/conan-io/conan-center-index"
    homepage = "https://github.com/OWNER/tessera"
    topics = ("cuda", "llm", "quantization", "compression", "attention", "kv-cache", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True

    @property
    def _compilers_minimum_version(self):
        return {"gcc": "12", "clang": "14"}

    def layout(self):
        basic_layout(self, src_folder="src")

    def package_id(self):
        self.info.clear()

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration(f"{self.ref} is written for Linux, not for {self.settings.os}")
        compiler = str(self.settings.compiler)
        minimum = self._compilers_minimum_version.get(compiler)
        if minimum and Version(self.settings.compiler.version) < minimum:
            raise ConanInvalidConfiguration(
                f"{self.ref} needs {compiler} {minimum} or later, not {self.settings.compiler.version}")

    def source(self):
        get(self, **self.conan_data["sources"][self.version], strip_root=True)

    def build(self):
        pass

    @property
    def _module_folder(self):
        return os.path.join("lib", "cmake", "tessera")

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        for pattern in ("*.hpp", "*.cuh"):
            copy(self, pattern, os.path.join(self.source_folder, "include"),
                 os.path.join(self.package_folder, "include"))
        # tessera::cuda exists in projects that have enabled CUDA alone, and is made there of their toolkit.
        module_folder = os.path.join(self.package_folder, self._module_folder)
        copy(self, "TesseraCuda.cmake", os.path.join(self.source_folder, "cmake"), module_folder)
        save(self, os.path.join(module_folder, "tessera-cuda-target.cmake"),
             'include("${CMAKE_CURRENT_LIST_DIR}/TesseraCuda.cmake")\n'
             "if(CMAKE_CUDA_COMPILER_LOADED)\n"
             "  tessera_import_cuda_target()\n"
             "endif()\n")

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "tessera")
        self.cpp_info.set_property("cmake_target_name", "tessera::tessera")
        self.cpp_info.builddirs = [self._module_folder]
        self.cpp_info.set_property("cmake_build_modules", [
            os.path.join(self._module_folder, "tessera-cuda-target.cmake")])
        self.cpp_info.set_property("pkg_config_name", "tessera")
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        if self.settings.os == "Linux":
            self.cpp_info.system_libs = ["pthread"]
