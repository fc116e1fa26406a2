#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Builds the wheel and runs its tests against the installed package, in a virtual environment of its own.
#
#   examples/pytorch/test.sh [folder]            # of the environment and the wheel; build/pytorch_test by default
#
# PYTHON: the interpreter, python3 by default. TORCH: what pip is asked for, "torch>=2.10" by default.
# TESSERA_TORCH_CUDA: AUTO, ON or OFF. PIP_INDEX_URL and others are pip's own. An environment that is there already is
# used as it is.
set -eu
package=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$package/../../build/pytorch_test}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

if [ ! -x "$folder/venv/bin/python" ]; then
  "${PYTHON:-python3}" -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "${TORCH:-torch>=2.10}" "scikit-build-core>=0.10" ninja pytest numpy \
    safetensors transformers
fi
rm -rf "$folder/wheel"
PATH="$folder/venv/bin:$PATH" "$folder/venv/bin/pip" wheel --no-build-isolation --no-deps --wheel-dir "$folder/wheel" \
  "--config-settings=cmake.define.TESSERA_TORCH_CUDA=${TESSERA_TORCH_CUDA:-AUTO}" "$package"
"$folder/venv/bin/pip" install --quiet --no-deps --force-reinstall "$folder"/wheel/*.whl
cd "$folder"  # where no folder tessera_torch hides the installed package
"$folder/venv/bin/python" -m pytest -q "$package/tests"
"$folder/venv/bin/python" "$package/benchmarks/overhead.py" --json "$folder/overhead.json"
