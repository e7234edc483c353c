# SPDX-License-Identifier: MIT
"""docs/measured.md, where some of these scripts put what they have measured."""
import pathlib
import sys

DOCS = pathlib.Path(__file__).resolve().parent.parent.parent / "docs"


def fill(script, text):
    """The text in place of what the script, by its name here, has put there before: between two lines that name it."""
    page = DOCS / "measured.md"
    begin, end = (f"<!-- tests/bench/{script}: {where} here -->" for where in ("from", "to"))
    old = page.read_text(encoding="utf-8")
    if begin not in old or end not in old:
        sys.exit(f"tests/bench/{script}: docs/measured.md has no lines '{begin}' and '{end}'")
    head, rest = old.split(begin)
    page.write_text(f"{head}{begin}\n{text}\n{end}{rest.split(end)[1]}", encoding="utf-8")
