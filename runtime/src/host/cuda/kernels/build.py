#!/usr/bin/env python3
"""Makes device code of our sources: PTX for compute capability 8.0 and what comes after it, machine code for 8.x and 9.x.

    python3 build.py           writes it beside each source
    python3 build.py --check   writes nothing; fails if they are not what the source gives, byte for byte
    python3 build.py --fast F  writes PTX of update.cu with approximate arithmetic to F, for measuring what exactness costs

Needs no GPU and no CUDA: the compiler is NVIDIA's NVRTC from PyPI, pinned, fetched by pip on first use.
"""

import argparse
import ctypes
import importlib.util
import itertools
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[4]
HEADER = HERE / "values.cuh"
UPDATE = TOP / "pserver/src/device/kernels/update.cu"
SOURCES = [UPDATE, HERE / "reduce.cu"]
# 12.4: what drivers from 550 on can translate. Later ones make PTX that they refuse.
WHEEL = "nvidia-cuda-nvrtc-cu12==12.4.127"
# No contraction, no flush to zero, correctly rounded division and square root.
EXACT = ["--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"]
# What a training framework would take: for measuring, and for nothing else.
FAST = ["--fmad=true", "--ftz=true", "--prec-div=false", "--prec-sqrt=false"]
# Architecture, and what NVRTC calls the result.
OUTPUTS = [("compute_80", "PTX"), ("sm_80", "CUBIN"), ("sm_90", "CUBIN")]


def nvrtc(folder):
    """The compiler: of this Python, or of the wheel unpacked in `folder`."""
    spec = importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.cuda_nvrtc")
    places = [pathlib.Path(place) for place in spec.submodule_search_locations] if spec else []
    for place in places:
        if compiler := load(place / "lib"):
            return compiler
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*install, "--target", folder, WHEEL], check=True)
    compiler = load(pathlib.Path(folder) / "nvidia" / "cuda_nvrtc" / "lib")
    return compiler or sys.exit(f"{WHEEL} has no libnvrtc.so.12 of version 12.4")


def load(place):
    library = place / "libnvrtc.so.12"
    if not library.exists():
        return None
    # It looks for the other by its name alone.
    for builtins in place.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    compiler = ctypes.CDLL(str(library))
    major, minor = ctypes.c_int(), ctypes.c_int()
    compiler.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return compiler if (major.value, minor.value) == (12, 4) else None


def compile_source(compiler, source, architecture, flags, kind):
    program = ctypes.c_void_p()
    header, name = (ctypes.c_char_p * 1)(HEADER.read_bytes()), (ctypes.c_char_p * 1)(HEADER.name.encode())
    text = source.read_bytes()
    made = compiler.nvrtcCreateProgram(ctypes.byref(program), text, source.name.encode(), 1, header, name)
    options = [option.encode() for option in [f"--gpu-architecture={architecture}", "--std=c++17", *flags]]
    compiled = made or compiler.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    log = fetch(compiler, program, "ProgramLog").rstrip(b"\0\n").decode()
    if log:
        print(f"{source.name} for {architecture}:\n{log}", file=sys.stderr)
    if compiled:
        sys.exit(f"{source.name} for {architecture}: NVRTC error {compiled}")
    result = fetch(compiler, program, kind)
    compiler.nvrtcDestroyProgram(ctypes.byref(program))
    return result.rstrip(b"\0") if kind == "PTX" else result


def fetch(compiler, program, what):
    size = ctypes.c_size_t()
    getattr(compiler, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(compiler, f"nvrtcGet{what}")(program, buffer)
    return buffer.raw


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a file differs")
    parser.add_argument("--fast", metavar="FILE", help="write PTX with approximate arithmetic there, and nothing else")
    arguments = parser.parse_args()
    differing = []
    with tempfile.TemporaryDirectory() as folder:
        compiler = nvrtc(folder)
        if arguments.fast:
            pathlib.Path(arguments.fast).write_bytes(compile_source(compiler, UPDATE, "compute_80", FAST, "PTX"))
            return
        for source, (architecture, kind) in itertools.product(SOURCES, OUTPUTS):
            made = compile_source(compiler, source, architecture, EXACT, kind)
            path = source.with_suffix(f".{architecture}.{kind.lower()}")
            if not arguments.check:
                path.write_bytes(made)
            elif not path.exists() or path.read_bytes() != made:
                differing.append(path.name)
            print(f"{path.name}: {len(made)} bytes")
    if differing:
        sys.exit(f"not what their sources give: {', '.join(differing)}\nrun python3 {pathlib.Path(__file__).name}")


if __name__ == "__main__":
    main()
