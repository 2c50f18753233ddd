# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Reads the text of files, compressed or not, one piece at a time."""

import bz2
import codecs
import gzip
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import PurePath
from typing import Any, BinaryIO

_BLOCK_BYTES = 1 << 16
_LONGEST_LINE = 1 << 20
_BOM = codecs.BOM_UTF8


def _zstd(file: BinaryIO) -> Any:
    try:
        import zstandard  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise ImportError("reading a .zst file needs zstandard: pip install zstandard") from error
    return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)


def _only_member(file: BinaryIO) -> Any:
    archive = zipfile.ZipFile(file)
    names = [name for name in archive.namelist() if not name.endswith("/")]
    if len(names) != 1:
        raise ValueError(f"is an archive of {len(names)} files, but only archives of one file can be read: unpack it")
    return archive.open(names[0])


#: The function that decompresses a file, by its last extension.
_DECOMPRESS: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zst": _zstd,
    ".zip": _only_member,
}
COMPRESSED = tuple(_DECOMPRESS)
# The exceptions that they raise if a file is broken or incomplete.
_BROKEN: tuple[type[Exception], ...] = (
    OSError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    RuntimeError,
)


def ending(path: str | os.PathLike[str]) -> str:
    """Return the extension of a file without that of the compression, in lower case: `.csv` for `rows.csv.gz`."""
    path = PurePath(path)
    return PurePath(path.stem if path.suffix.lower() in COMPRESSED else path).suffix.lower()


def read_pieces(path: str | os.PathLike[str], opened: BinaryIO | None = None) -> Iterator[str]:
    """Read a file of UTF-8 text piece by piece; memory does not depend on its size.

    Joined, the pieces are the text: line ends are kept, and only a byte order mark is removed. A piece ends at the end
    of a line, or in a line of more than a million characters, before a space.

    Args:
        path: the file; its extension defines the compression.
        opened: the opened file, if it is not read from the path.

    Yields:
        Pieces of about 64 KiB, and never much more than 1 MiB.

    Raises:
        ValueError: if the file is blank, not UTF-8 text (with the offset of the first byte that is not, after
            decompression), or cannot be decompressed.
    """
    offset = 0  # of the first byte of `data` in the file
    data = b""
    pending = ""
    blank = True
    with opened or open(path, "rb") as file, _decompressed(path, file) as content:
        while block := content.read(_BLOCK_BYTES):
            nul = block.find(b"\0")
            if nul >= 0:
                raise _not_text(path, offset + len(data) + nul, "a NUL byte")
            data += block
            if offset == 0 and data.startswith(_BOM):
                offset, data = len(_BOM), data[len(_BOM) :]
            try:
                text, rest = data.decode("utf-8"), b""
            except UnicodeDecodeError as error:
                if error.reason != "unexpected end of data":
                    raise _not_text(path, offset + error.start, error.reason) from None
                # A character lies across two blocks.
                text, rest = data[: error.start].decode("utf-8"), data[error.start :]
            offset += len(data) - len(rest)
            data = rest
            blank = blank and not text.strip()
            pending += text
            cut = pending.rfind("\n") + 1
            if not cut and len(pending) > _LONGEST_LINE:
                # Before a space, not after it: the tokenizers keep a space with the word that follows.
                cut = max(pending.rfind(" "), 0) or len(pending)
            if cut:
                yield pending[:cut]
                pending = pending[cut:]
    if data:
        raise _not_text(path, offset, "unexpected end of data")
    if blank:
        raise ValueError(f"text file {str(path)!r} only contains white space")
    if pending:
        yield pending


def read_lines(pieces: Iterator[str]) -> Iterator[str]:
    r"""Yield the lines of a text with their ends: `\n`, `\r\n` or `\r`, and none of the other borders of Unicode."""
    begun: list[str] = []
    for piece in pieces:
        *whole, last = StringIO(piece, newline="").readlines()
        if begun and (whole or begun[-1].endswith(("\n", "\r"))):
            # Held back until now, since the piece may begin with the second half of its line end.
            *whole, last = StringIO("".join([*begun, *whole, last]), newline="").readlines()
            begun = []
        yield from whole
        begun.append(last)
    if begun:
        yield "".join(begun)


@contextmanager
def _decompressed(path: str | os.PathLike[str], file: BinaryIO) -> Iterator[Any]:
    suffix = PurePath(path).suffix.lower()
    if suffix not in _DECOMPRESS:
        yield file
        return
    try:
        with _DECOMPRESS[suffix](file) as content:
            yield content
    except _BROKEN as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # an error of the disk, not of the content
        raise ValueError(f"{str(path)!r} cannot be decompressed: {error}") from error
    except ValueError as error:
        # Of the archive; errors of the text already name the file.
        if str(error).startswith("is an archive"):
            raise ValueError(f"{str(path)!r} {error}") from None
        raise
    except Exception as error:
        if type(error).__module__.startswith("zstandard"):  # a class of a library that may be missing
            raise ValueError(f"{str(path)!r} cannot be decompressed: {error}") from error
        raise


def _not_text(path: str | os.PathLike[str], offset: int, reason: str) -> ValueError:
    return ValueError(
        f"{str(path)!r} is not UTF-8 text: {reason} at byte offset {offset}; convert it to UTF-8, or leave it out"
    )
