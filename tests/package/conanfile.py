# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conan's test of the package: builds the user's project of this folder with it, and runs its programs."""

import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout


class TesseraConsumer(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = ("CMakeDeps",)

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def with_cuda(self):
        return bool(self.dependencies["tessera"].options.with_cuda)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        toolchain.cache_variables["CONSUMER_MODEL"] = True
        toolchain.cache_variables["CONSUMER_CUDA"] = self.with_cuda()
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        if can_run(self):
            programs = ["consumer", "consumer_model"]
            if self.with_cuda():
                programs += ["consumer_cuda", "consumer_runtime"]
            for program in programs:
                self.run(os.path.join(self.cpp.build.bindir, program), env="conanrun")
