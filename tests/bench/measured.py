# SPDX-License-Identifier: MIT
"""Some of these scripts write their figures into docs/measured.md."""
import pathlib
import sys

DOCS = pathlib.Path(__file__).resolve().parent.parent.parent / "docs"


def fill(script, text):
    """Replaces a script's earlier text in the page: that between the two lines that name it."""
    page = DOCS / "measured.md"
    begin, end = (f"<!-- tests/bench/{script}: {where} here -->" for where in ("from", "to"))
    old = page.read_text(encoding="utf-8")
    if begin not in old or end not in old:
        sys.exit(f"tests/bench/{script}: docs/measured.md has no lines '{begin}' and '{end}'")
    head, rest = old.split(begin)
    page.write_text(f"{head}{begin}\n{text}\n{end}{rest.split(end)[1]}", encoding="utf-8")
