"""CSV, text and Parquet files of all kinds, made from a seed, packed by `shoal recordio pack` and held against what pandas, Python and
pyarrow read of them: equal, or refused by both, or one of RULES. Needs pandas and pyarrow.

    python3 packing.py --shoal target/debug/shoal --files 2000
    python3 packing.py --shoal target/debug/shoal --only 17 --keep folder     # one file again, which stays
"""

import argparse
import base64
import bz2
import collections
import concurrent.futures
import csv
import datetime
import decimal
import gzip
import io
import json
import lzma
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import zipfile

import numpy
import pandas
import pyarrow
import pyarrow.parquet

# Where one reads what the other does not, and why that is right: what we say, and whether the case gives reason to.
REFUSED = {
    "rows have equally many columns": (r"has \d+ columns and the first row \d+", lambda case: case.is_ragged()),
    "gzip is the only compression of texts": (r"is compressed or packed with (bzip2|xz|zip)", lambda case: case.wrapped in ("bz2", "xz", "zip")),
    "UTF-16's mark and a NUL are UTF-32's mark": (r"begins with the mark of UTF-32", lambda case: case.stored.startswith(b"\xff\xfe\0\0")),
    "Parquet: zstd is not built": (r"is compressed with zstd", lambda case: case.compression == "zstd"),
    "Parquet: decimals, half floats, INT96": (r"holds (decimals|half floats|timestamps of the deprecated type INT96)", lambda case: case.has("odd")),
    "Parquet: lists of lists and of groups, maps": (r"holds (a list of (groups|lists|maps)|a map)", lambda case: case.has("deep")),
    "Parquet: two columns of one name": (r"there are \d+ columns ", lambda case: case.has_duplicates()),
    "Parquet: no columns": (r"the file has no columns", lambda case: not case.table.column_names),
    "JSON has no infinity and no NaN": (r"is not finite", lambda case: case.form == "json"),
    "f32: no null": (r"is null, which an f32 cannot say", lambda case: case.form == "f32"),
    "f32: what is too large": (r"is too large for an f32", lambda case: case.form == "f32"),
    "f32: numbers only": (r"holds no numbers", lambda case: case.form == "f32"),
    "f32: records of one length": (r"records would differ in length", lambda case: case.form == "f32"),
}
# What is read here, and by the others not (with this error), or not the same.
READ = {
    "an empty table has no records": lambda case, records, error: records == [] and "EmptyDataError" in error,
    "pandas' C engine, unlike its Python engine, drops a comma after a blank line that ends in \\r": lambda case, records, error: (
        case.kind == "csv" and records == case.by_python() and re.search(r"(^|[\r\n])[ \t]*\r,", case.whole_text())
    ),
}


class Case:
    """One file, what it is packed with, and what others read of it."""

    wrapped = compression = form = None

    def __init__(self, rng, path):
        self.rng, self.path, self.flags = rng, path, []

    def chance(self, share):
        return self.rng.random() < share

    def command(self):
        return ["recordio", "pack", self.kind, self.path, "--output", self.path + ".recordio", *self.flags]


# How pages may be encoded without a dictionary.
PAGES = {
    **{kind: ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"] for kind in ("int32", "int64", "uint32", "uint64")},
    **{kind: ["PLAIN", "BYTE_STREAM_SPLIT"] for kind in ("float", "double")},
    **{kind: ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"] for kind in ("string", "binary", "large_string", "large_binary")},
    "fixed_size_binary[3]": ["PLAIN", "DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT"],
    "bool": ["PLAIN", "RLE"],
}
# Per encoding as Python names it, where the web has one that holds another the larger one: how many of the files have it, characters that it has, and what `--encoding` says (None: nothing).
LATIN, CYRILLIC, KANJI = "äöüßéñÀÿ£", "абвгдЖЯю", "日本語東京カタひら"
ENCODINGS = [
    (12, "utf-8", LATIN + CYRILLIC + KANJI + "😀\u2028\x85\ufeff", [None, "utf-8", "utf8", "UTF_8"]),
    (6, "utf-8-sig", LATIN + KANJI + "😀", [None, "utf-8", "utf-8-sig"]),
    (4, "utf-16", LATIN + KANJI + "😀\u0a0d\u2c0a", [None, "utf-16", "utf16", "utf-16-le"]),
    (2, "utf-16-le", LATIN + KANJI + "😀\u0a0d\u2c0a", ["utf-16-le", "utf-16le", "utf-16"]),
    (2, "utf-16-be", LATIN + KANJI + "😀\u0a0d\u2c0a", ["utf-16-be", "UTF-16BE"]),
    (2, "latin-1", LATIN + "\x80\x85\x9f\xa0", ["latin-1", "iso-8859-1", "latin1"]),
    (2, "cp1252", LATIN + "€œ", ["cp1252", "windows-1252"]),
    (1, "iso8859-15", LATIN + "€œ", ["iso8859_15", "iso-8859-15"]),
    (1, "iso8859-2", "čřžŁ", ["iso-8859-2", "latin2"]),
    (1, "cp1251", CYRILLIC, ["cp1251", "windows-1251"]),
    (1, "koi8-r", CYRILLIC, ["koi8-r", "koi8_r"]),
    (3, "cp932", KANJI + "表ソ能①髙", ["shift_jis", "sjis", "cp932", "ms932"]),
    (1, "euc-jp", KANJI, ["euc-jp", "euc_jp"]),
    (1, "gb18030", "汉字中文", ["gbk", "cp936", "gb2312"]),
    (1, "gb18030", "汉字中文😀ÿ", ["gb18030"]),
    (1, "big5hkscs", "漢字中功", ["big5", "cp950"]),
    (1, "cp949", "한국어", ["euc-kr", "cp949"]),
]


class Text(Case):
    """A text in some encoding, perhaps compressed, perhaps damaged."""

    def store(self, text):
        text = "\0" + text if self.chance(0.01) else text
        self.stored = text.encode(self.encoding)
        if self.chance(0.04) and self.stored:
            at = self.rng.randrange(len(self.stored) + 1)
            self.stored = self.stored[:at] + self.rng.randbytes(self.rng.choice([1, 1, 2])) + self.stored[at:]
        wraps = {"gzip": 10, "members": 4, "padded": 2, "cut": 2, "trailing": 2, "bz2": 1, "xz": 1, "zip": 1, None: 80}
        self.wrapped = self.rng.choices(list(wraps), wraps.values())[0]
        with open(self.path, "wb") as file:
            file.write(wrap(self.stored, self.wrapped, self.rng))

    def choose_encoding(self):
        weights = [one[0] for one in ENCODINGS]
        _, self.encoding, letters, names = self.rng.choices(ENCODINGS, weights)[0]
        name = self.rng.choice(names)
        self.flags += ["--encoding", name] if name else []
        return letters

    def plain(self):
        """What is in the file, by Python's modules: an exception where they refuse it."""
        with open(self.path, "rb") as file:
            stored = file.read()
        if self.wrapped in ("gzip", "members", "padded", "cut", "trailing"):
            return gzip.decompress(stored)
        return self.stored


def wrap(stored, how, rng):
    if how in ("gzip", "cut", "trailing", "padded"):
        whole = gzip.compress(stored)
        ends = {"cut": whole[: rng.randrange(3, len(whole))], "trailing": whole + b"what is this?", "padded": whole + bytes(rng.randrange(1, 999))}
        return ends.get(how, whole)
    if how == "members":
        cut = rng.randrange(len(stored) + 1)
        return gzip.compress(stored[:cut]) + gzip.compress(stored[cut:])
    if how == "zip":
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("a.csv", stored)
        return archive.getvalue()
    return {"bz2": bz2.compress, "xz": lzma.compress, None: bytes}[how](stored)


class Csv(Text):
    kind = "csv"

    def make(self):
        rng, letters = self.rng, self.choose_encoding()
        self.header = self.chance(0.4)
        self.flags += ["--skip-header"] if self.header else []
        if self.chance(0.35):
            text = "".join(rng.choices('ab1,,"""\n\n\r\r \t' + letters[:2], k=rng.randrange(60)))
        else:
            text = self.table(letters)
        self.store(text)

    def table(self, letters):
        rng = self.rng
        ends = rng.choice([["\n"], ["\r\n"], ["\r"], ["\n", "\r\n", "\r"]])
        columns, lines = rng.randrange(1, 6), []
        for _ in range(rng.randrange(12)):
            fields = [self.field(letters) for _ in range(columns)]
            if self.chance(0.015):
                fields = rng.choice([fields[1:], fields + ["x"]]) or ["x", "y"]
            line = ",".join(fields)
            # What is nothing but a line end would be blank.
            lines.append(line + rng.choice(ends))
            if self.chance(0.1):
                lines.append(rng.choice(["", "", "  ", "\t"]) + rng.choice(ends))
        text = "".join(lines)
        if self.chance(0.02):
            text += '"never closed'
        return text.rstrip("\r\n") if self.chance(0.4) else text

    def field(self, letters):
        rng = self.rng
        some = lambda of: "".join(rng.choices(of, k=rng.randrange(7)))
        kind = rng.randrange(8)
        if kind < 3:
            return some("abc123.-" + letters)
        if kind < 5:
            return '"' + some("ab, \n\r\t" + letters).replace('"', "") + '"'
        if kind == 5:
            return '"' + some('a"b"\n, ').replace('"', '""') + '"'
        odd = ['5" disk', '"a"x"y"', '"a"""', " lead", "trail ", ' "b"', "\0", "a\0b", "\x1a", "\x0c", "\x0b", "'", "\\", "#", "NA", '""', "", " "]
        return rng.choice(odd)

    def whole_text(self):
        return self.plain().decode(self.encoding).removeprefix("\ufeff")

    def by_python(self):
        rows = [row for row in csv.reader(io.StringIO(self.whole_text(), newline="")) if not is_blank(row)]
        return rows[1:] if self.header else rows

    def is_ragged(self):
        # Spaces in quotes are a row, which Python's reader cannot tell from a blank line.
        rows = csv.reader(io.StringIO(self.whole_text(), newline=""))
        return len({len(row) for row in rows if not is_blank(row) or '" ' in self.whole_text()} - {0}) > 1

    def expected(self):
        compression = {"bz2": "bz2", "xz": "xz", "zip": "zip", None: None}.get(self.wrapped, "gzip")
        header = 0 if self.header else None
        table = pandas.read_csv(
            self.path, compression=compression, encoding=self.encoding, header=header, index_col=False, dtype=str, keep_default_na=False
        )
        return table.values.tolist()

    def read(self, record):
        (row,) = csv.reader([record.decode()])
        return row


def is_blank(row):
    return not row or (len(row) == 1 and row[0] != "" and not row[0].strip(" \t"))


class Lines(Text):
    kind = "lines"

    def make(self):
        letters = self.choose_encoding()
        self.bytes = self.chance(0.15)
        if self.bytes:
            self.flags = ["--encoding", "bytes"]
        alphabet = "abc,\" \t\0\x0b\x0c\x1c\n\n\r\r" + letters
        self.store("".join(self.rng.choices(alphabet, k=self.rng.randrange(60))))

    def expected(self):
        if self.wrapped == "zip":
            return None
        plain = self.plain()
        if self.bytes:
            lines = re.split(rb"\r\n|\r|\n", plain)
            return lines[:-1] if lines[-1] == b"" else lines
        with io.TextIOWrapper(io.BytesIO(plain), encoding=self.encoding) as file:
            text = file.read()
        if self.encoding in ("utf-8", "utf-16-le", "utf-16-be"):
            text = text.removeprefix("\ufeff")
        return [line.removesuffix("\n").encode() for line in io.StringIO(text, newline="\n")]

    def read(self, record):
        return record


class Parquet(Case):
    kind = "parquet"

    def make(self):
        rng = self.rng
        rows, self.form = rng.choice([0, 1, 3, 20, 2500]), rng.choice(["json", "json", "f32"])
        columns, names, self.marks = [], [], []
        for _ in range(rng.choice([1, 2, 3, 5]) if self.chance(0.98) else 0):
            mark, kind, value = rng.choice(NUMBERS if self.form == "f32" and self.chance(0.92) else KINDS)
            nulls = rng.choice([0, 0, 0.2]) if self.form == "json" else (0.05 if self.chance(0.1) else 0)
            values = [None if rng.random() < nulls else value(rng) for _ in range(min(rows, 40))]
            # Many rows repeat, so that dictionaries hold them.
            values = (values * (rows // 40 + 1))[:rows]
            columns.append(pyarrow.array(values, kind))
            names.append(self.name())
            self.marks.append(mark)
        self.table = pyarrow.Table.from_arrays(columns, names=names)
        self.compression = rng.choice(["none", "snappy", "gzip", "brotli", "lz4", "zstd"]) if self.chance(0.5) else "snappy"
        dictionary = rng.choice([True, False])
        pyarrow.parquet.write_table(
            self.table,
            self.path,
            compression=self.compression,
            version=rng.choice(["1.0", "2.4", "2.6"]),
            data_page_version=rng.choice(["1.0", "2.0"]),
            row_group_size=rng.choice([7, 1000, 100000]) if rows else None,
            data_page_size=rng.choice([64, 1 << 20]),
            use_dictionary=dictionary,
            column_encoding=None if dictionary or len(set(names)) < len(names) else {name: rng.choice(PAGES[str(c.type)]) for name, c in zip(names, columns) if str(c.type) in PAGES},
            store_schema=self.chance(0.5),
            use_deprecated_int96_timestamps=self.chance(0.1),
        )
        self.flags += ["--as", self.form]
        self.wanted = None
        leaves = list(dict.fromkeys(leaf_names(self.table.schema)))
        if leaves and self.chance(0.5):
            self.wanted = rng.sample(leaves, rng.randrange(1, len(leaves) + 1))
            said = io.StringIO()
            csv.writer(said, lineterminator="").writerow(self.wanted)
            self.flags.append(f"--columns={said.getvalue()}")

    def name(self):
        rng = self.rng
        plain = "".join(rng.choices("abcdefgh", k=4))
        odd = ["price, usd", 'say "x"', "", " ", "a.b", "with\nline", "é日", "a", "a", "list", "element", "key_value", "\ufeffx", "-1", "x=y", "array"]
        return rng.choice(odd) if self.chance(0.3) else plain

    def has(self, mark):
        columns = pyarrow.parquet.ParquetFile(self.path).schema
        return mark in self.marks or (mark == "odd" and any(column.physical_type == "INT96" for column in columns))

    def has_duplicates(self):
        names = leaf_names(self.table.schema)
        return len(set(names)) < len(names)

    def expected(self):
        table = pyarrow.parquet.ParquetFile(self.path).read()
        columns = [leaf for at, field in enumerate(table.schema) for leaf in leaves_of(field.name, field.type, table.column(at))]
        if self.wanted is not None:
            columns = [next(column for column in columns if column[0] == name) for name in self.wanted]
        rows = zip(*(values for _, values in columns)) if columns else iter(())
        if self.form == "f32":
            return [[word for value in row for word in words(value)] for row in rows]
        names = [name for name, _ in columns]
        return [[names, list(row)] for row in rows]

    def read(self, record):
        if self.form == "f32":
            return list(struct.unpack(f"<{len(record) // 4}I", record))
        pairs = json.loads(record, object_pairs_hook=list)
        names, values = [name for name, _ in pairs], [value for _, value in pairs]
        return [names, values]


def words(value):
    """The bits of a value as f32, so that NaN is equal to itself; None where there are none."""
    if isinstance(value, list):
        return [word for one in value for word in words(one)]
    if value is None or isinstance(value, str):
        return [None]
    with numpy.errstate(over="ignore"):
        number = numpy.uint64(value) if isinstance(value, int) and value >= 1 << 63 else numpy.int64(value) if isinstance(value, int) else value
        return [int(numpy.float32(number).view(numpy.uint32))]


def leaf_names(schema):
    def names(name, kind):
        if pyarrow.types.is_struct(kind):
            return [leaf for field in kind for leaf in names(f"{name}.{field.name}", field.type)]
        return [name]

    return [leaf for field in schema for leaf in names(field.name, field.type)]


def leaves_of(name, kind, column):
    """Leaves as (name, values), values as JSON has them."""
    if pyarrow.types.is_struct(kind):
        for at, field in enumerate(kind):
            parts = [chunk.flatten()[at] for chunk in column.chunks]
            yield from leaves_of(f"{name}.{field.name}", field.type, pyarrow.chunked_array(parts, field.type))
    else:
        yield name, [said(value, kind) for value in stored_numbers(column, kind).to_pylist()]


def stored_numbers(column, kind):
    """Dates and times as the numbers that the file holds."""
    types = pyarrow.types
    if types.is_date64(kind):
        return column.cast(pyarrow.date32()).cast(pyarrow.int32())
    if types.is_date32(kind) or types.is_time32(kind):
        return column.cast(pyarrow.time32("ms") if types.is_time32(kind) else kind).cast(pyarrow.int32())
    if types.is_timestamp(kind) and kind.unit == "s":
        return column.cast(pyarrow.timestamp("ms", kind.tz)).cast(pyarrow.int64())
    if types.is_time64(kind) or types.is_timestamp(kind) or types.is_duration(kind):
        return column.cast(pyarrow.int64())
    return column


def said(value, kind):
    if isinstance(value, list) and not pyarrow.types.is_map(kind):
        return [said(one, kind.value_type) for one in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and pyarrow.types.is_float32(kind) and numpy.isfinite(value):
        # The shortest number that reads back the same.
        return float(str(numpy.float32(value)))
    return value


def integers(bits, signed):
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return lambda rng: rng.choice([low, high, 0, 1, rng.randint(low, high)])


def floats(rng):
    number = rng.choice([0.0, -0.0, 0.1, 1.0, 3e38, -1e-40, rng.gauss(0, 1e3), rng.random()])
    return rng.choice([float("nan"), float("inf"), 1e300]) if rng.random() < 0.02 else number


def listed(value):
    return lambda rng: [None if rng.random() < 0.1 else value(rng) for _ in range(rng.choice([0, 1, 3]))]


def of_length(length, value):
    return lambda rng: [value(rng) for _ in range(length)]


def texts(rng):
    return rng.choice(["", "plain", 'say "hä"\n\\', "日本😀", "\0\x1f\x7f", "x" * rng.choice([1, 300, 20000])])


def blobs(rng):
    return rng.randbytes(rng.choice([0, 1, 2, 3, 50]))


A, INT = pyarrow, integers(32, True)
NUMBERS = [("", getattr(A, f"{'' if signed else 'u'}int{bits}")(), integers(bits, signed)) for bits in (8, 16, 32, 64) for signed in (True, False)]
NUMBERS += [("", A.float32(), lambda rng: float(numpy.float32(min(floats(rng), 3e38)))), ("", A.float64(), floats), ("", A.bool_(), lambda rng: rng.random() < 0.5)]
NUMBERS += [("", A.list_(A.float64(), 3), of_length(3, floats)), ("", A.list_(A.int32()), of_length(2, INT)), ("", A.list_(A.uint8()), lambda rng: [1] * rng.choice([2, 2, 2, 2, 2, 2, 2, 2, 2, 3]))]
KINDS = NUMBERS + [("", A.string(), texts), ("", A.large_string(), texts), ("", A.binary(), blobs), ("", A.large_binary(), blobs)]
KINDS += [
    ("", A.binary(3), lambda rng: rng.randbytes(3)),
    ("", A.dictionary(A.int16(), A.string()), texts),
    ("", A.null(), lambda rng: None),
    ("", A.date32(), lambda rng: datetime.date(1900, 1, 1) + datetime.timedelta(rng.randrange(99999))),
    ("", A.date64(), lambda rng: datetime.date(1900, 1, 1) + datetime.timedelta(rng.randrange(99999))),
    ("", A.time32("s"), lambda rng: datetime.time(rng.randrange(24), rng.randrange(60))),
    ("", A.time32("ms"), lambda rng: datetime.time(rng.randrange(24), 59, 1, 5000)),
    ("", A.time64("us"), lambda rng: datetime.time(rng.randrange(24), 59, 1, 5001)),
    ("", A.time64("ns"), lambda rng: datetime.time(rng.randrange(24), 59, 1, 5001)),
    *(("", A.timestamp(unit, zone), lambda rng: rng.randrange(-(10**6), 10**6) * 1000) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Europe/Berlin")),
    ("", A.duration("us"), lambda rng: rng.randrange(10**9)),
    ("", A.list_(A.string()), listed(texts)),
    ("", A.large_list(A.int64()), listed(integers(64, True))),
    ("", A.list_(A.binary()), listed(blobs)),
    ("", A.list_(A.timestamp("ms")), listed(lambda rng: None)),
    ("", A.struct([("a", A.int32()), ("b", A.string())]), lambda rng: {"a": rng.choice([1, None]), "b": texts(rng)}),
    ("", A.struct([("a", A.list_(A.float32())), ("b", A.struct([("c", A.bool_())]))]), lambda rng: {"a": rng.choice([None, [], [0.5]]), "b": rng.choice([None, {"c": True}])}),
    ("odd", A.float16(), lambda rng: numpy.float16(rng.random())),
    ("odd", A.decimal128(9, 2), lambda rng: decimal.Decimal(rng.randrange(999)) / 100),
    ("odd", A.decimal256(50, 2), lambda rng: decimal.Decimal(rng.randrange(999)) / 100),
    ("odd", A.list_(A.decimal128(9, 2)), lambda rng: [decimal.Decimal(1)]),
    ("deep", A.list_(A.struct([("a", A.int32())])), lambda rng: [{"a": 5}]),
    ("deep", A.list_(A.struct([("a", A.int32()), ("b", A.int32())])), lambda rng: [{"a": 5, "b": 6}]),
    ("deep", A.list_(A.list_(A.int32())), lambda rng: [[1], []]),
    ("deep", A.list_(A.map_(A.string(), A.int32())), lambda rng: [[("k", 1)]]),
    ("deep", A.map_(A.string(), A.int32()), lambda rng: [("k", 1)]),
    ("deep", A.struct([("m", A.map_(A.string(), A.int32()))]), lambda rng: {"m": [("k", 1)]}),
]


def records_of(path):
    """The records of a RecordIO file as `pack` writes it without a compressor."""
    records = []
    with open(path, "rb") as file:
        while header := file.read(20):
            magic, _, compressor, stored, count = struct.unpack("<5I", header)
            assert (magic, compressor) == (0x01020304, 0), header
            chunk = io.BytesIO(file.read(stored))
            records += [chunk.read(*struct.unpack("<I", chunk.read(4))) for _ in range(count)]
            assert not chunk.read(1)
    return records


def tried(work):
    try:
        return work(), None
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def judge(shoal, case):
    """What came of a file: (fine, what to count it as or what was wrong)."""
    packed = subprocess.run([shoal, *case.command()], capture_output=True, timeout=60)
    told = packed.stderr.decode(errors="replace").strip()
    if packed.returncode not in (0, 1):
        return False, f"exit code {packed.returncode}: {told}"
    expected, refusal = tried(case.expected)
    if packed.returncode == 1:
        if refusal:
            return True, "refused by both"
        for name, (pattern, holds) in REFUSED.items():
            if re.search(pattern, told) and tried(lambda: holds(case))[0]:
                return True, name
        return False, f"refused here only: {told}"
    stored = records_of(case.path + ".recordio")
    records, unread = tried(lambda: [case.read(record) for record in stored])
    if unread:
        return False, f"a record cannot be read ({unread}): {stored[:9]}"
    if refusal or records != expected:
        for name, holds in READ.items():
            if tried(lambda: holds(case, records, refusal or ""))[0]:
                return True, name
    if refusal:
        return False, f"read here only: {stored[:9]}, refused by the others: {refusal}"
    if records != expected:
        differs = next((at for at, pair in enumerate(zip(records, expected)) if pair[0] != pair[1]), min(len(records), len(expected)))
        return False, f"{len(records)} records, {len(expected)} expected; record {differs}: {records[differs:][:1]!r:.500} and not {expected[differs:][:1]!r:.500}"
    return True, "equal"


def one(shoal, seed, number, folder):
    rng = random.Random(f"{seed}/{number}")
    case = rng.choice([Csv, Csv, Csv, Lines, Parquet, Parquet])(rng, os.path.join(folder, str(number)))
    case.make()
    fine, what = judge(shoal, case)
    return fine, case.kind, what, case.flags


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shoal", required=True)
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", type=int)
    parser.add_argument("--keep")
    args = parser.parse_args()
    numbers = range(args.files) if args.only is None else [args.only]
    counts, wrong = collections.Counter(), []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        folder = args.keep or folder
        os.makedirs(folder, exist_ok=True)
        for number, (fine, kind, what, flags) in zip(numbers, pool.map(lambda number: one(args.shoal, args.seed, number, folder), numbers)):
            if fine:
                counts[f"{kind}: {what}" if what in ("equal", "refused by both") else what] += 1
            else:
                wrong.append(f"--seed {args.seed} --only {number} ({kind} {' '.join(flags)}): {what}")
    for what, count in sorted(counts.items()):
        print(f"{count:6}  {what}")
    print(f"{len(wrong):6}  wrong of {len(numbers)}, by pandas {pandas.__version__} and pyarrow {pyarrow.__version__}")
    print("\n".join(wrong[:20]))
    unmet = [rule for rule in [*REFUSED, *READ] if not counts[rule]] if len(numbers) >= 5000 else []
    if unmet:
        print("rules that no file met, and that can go:", ", ".join(unmet))
    return 1 if wrong or unmet else 0


if __name__ == "__main__":
    sys.exit(main())
