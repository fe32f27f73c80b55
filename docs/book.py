#!/usr/bin/env python3
"""The documents as a site with a search box: README.md is its first page, its section "Read on" the table of contents.

    cargo install mdbook --version 0.5.4 --locked --no-default-features --features search
    python3 docs/book.py                      # writes target/site/index.html
    python3 docs/book.py --mdbook PATH --out DIR

Pages lie where they lie in the repository, beside every file that one of them links to. The build fails where a link of
a page that was made leads nowhere, or a page is in no list.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
CONTENTS = "Read on"
BOOK = """[book]
title = "Shoal"
language = "en"
src = "src"
[build]
create-missing = false
# README.md stays what it is called, for whoever links to it.
use-default-preprocessors = false
[output.html]
no-section-label = true
smart-punctuation = false
[output.html.fold]
enable = true
level = 0
[output.html.search]
limit-results = 20
"""
FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r'\]\(<?([^)\s>]+)>?[^)]*\)|(?:src|href)="([^"]+)"')
TO_PAGE = re.compile(r"\]\(([^)#\s]+\.md)\)")


def prose(page):
    """A page without its fenced blocks and without what stands between backticks."""
    text = FENCED.sub("", (ROOT / page).read_text())
    return re.sub(r"`[^`\n]*`", "", text)


def targets(page):
    """The files of the repository that a page links to."""
    for found in LINK.finditer(prose(page)):
        link = urlsplit(found[1] or found[2])
        if link.path and not link.scheme:
            yield os.path.normpath(Path(page).parent / unquote(link.path))


def reached(first):
    """Every file that is linked to from the first page, or from a page that is."""
    files, waiting = set(), [first]
    while waiting:
        file = waiting.pop()
        if file in files or file.startswith("..") or not (ROOT / file).is_file():
            continue
        files.add(file)
        waiting += targets(file) if file.endswith(".md") else []
    return files


def contents(pages):
    """The table of contents: parts and pages of README.md's list, below an index of a folder the pages of that folder."""
    text = (ROOT / "README.md").read_text()
    _, begins, section = text.partition(f"\n## {CONTENTS}\n")
    if not begins:
        sys.exit(f"README.md has no section {CONTENTS!r}: it is the site's table of contents")
    lines, listed = ["[Shoal](README.md)"], {"README.md"}

    def add(page, depth):
        if page in listed:
            return
        listed.add(page)
        lines.append(f"{'  ' * depth}- [{heading(page)}]({page})")
        if page.startswith("docs/") and page.endswith("/README.md"):
            folder = page.removesuffix("README.md")
            for below in sorted(pages):
                if below.startswith(folder):
                    add(below, depth + 1)

    for part in re.split(r"^- ", section.split("\n## ")[0], flags=re.MULTILINE)[1:]:
        name = re.match(r"\*\*(.+?)\*\*", part)
        lines += ["", f"# {name[1]}", ""] if name else []
        for page in map(os.path.normpath, TO_PAGE.findall(part)):
            if page in pages:
                add(page, 0)
    lines += ["", "# Beside these", ""]
    for page in sorted(pages - listed):
        add(page, 0)
    return "\n".join(lines) + "\n"


def heading(page):
    """The title of a page."""
    found = re.search(r"^# (.+)$", FENCED.sub("", (ROOT / page).read_text()), re.MULTILINE)
    return found[1].replace("`", "") if found else page


def without_folders(page):
    """A page whose links to folders, which a site does not list, are plain words."""

    def shown(found):
        target = ROOT / Path(page).parent / found[2]
        return found[1] if target.is_dir() else found[0]

    def outside(text):
        return re.sub(r"\[([^\]]*)\]\(([^)#:\s]+)\)", shown, text)

    # What is fenced is shown as it is.
    text, made, at = (ROOT / page).read_text(), "", 0
    for fenced in FENCED.finditer(text):
        made += outside(text[at : fenced.start()]) + fenced[0]
        at = fenced.end()
    return made + outside(text[at:])


class Page(HTMLParser):
    """What a page links to, and the places in it that can be linked to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.places = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.places.update(filter(None, (named.get("id"), named.get("name") if tag == "a" else None)))
        self.links += filter(None, (named.get("href"), named.get("src")))


def dead_links(site):
    """Links of the site that lead nowhere."""
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        # All chapters on one page: its links are those of the pages, and the page of what is not there has none of its own.
        if path.name in ("print.html", "404.html", "toc.html"):
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            if target.is_dir():
                target /= "index.html"
            place = unquote(parts.fragment)
            if not (target.is_file() and target.is_relative_to(site)):
                yield f"{path.relative_to(site)}: {link}: there is no such file"
            elif place and target in pages and place not in pages[target].places:
                yield f"{path.relative_to(site)}: {link}: there is no such place in it"


def build(mdbook, out):
    """Makes the site."""
    files = reached("README.md")
    pages = {file for file in files if file.endswith(".md")}
    missing = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} - pages
    if missing:
        sys.exit(f"no link leads to {', '.join(sorted(missing))}")
    with tempfile.TemporaryDirectory() as folder:
        book = Path(folder)
        (book / "book.toml").write_text(BOOK)
        for file in files:
            place = book / "src" / file
            place.parent.mkdir(parents=True, exist_ok=True)
            if file.endswith(".md"):
                place.write_text(without_folders(file))
            else:
                shutil.copyfile(ROOT / file, place)
        (book / "src" / "SUMMARY.md").write_text(contents(pages))
        subprocess.run([mdbook, "build", "--dest-dir", str(book / "site"), str(book)], check=True)
        dead = list(dead_links(book / "site"))
        if dead:
            sys.exit("\n".join(dead))
        if out.exists():
            shutil.rmtree(out)
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(book / "site", out)
    print(f"{out}/index.html: {len(pages)} pages, {len(files) - len(pages)} files beside them, no dead link")


def main():
    """Reads the command line."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--mdbook", default="mdbook", help="the program (default: the one on the path)")
    arguments.add_argument("--out", type=Path, default=ROOT / "target" / "site", help="where the site goes")
    options = arguments.parse_args()
    out = options.out.resolve()
    # Only a site is replaced, never somebody's folder.
    is_empty = not out.exists() or (out.is_dir() and not any(out.iterdir()))
    if not is_empty and not any(out.glob("searchindex*.js")):
        sys.exit(f"{out} is no site: name another folder")
    if not shutil.which(options.mdbook):
        sys.exit(f"there is no {options.mdbook}: {__doc__.splitlines()[2].strip()}")
    build(options.mdbook, out)


if __name__ == "__main__":
    main()
