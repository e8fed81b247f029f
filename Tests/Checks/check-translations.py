#!/usr/bin/env python3
"""Checks that a complete translation of a page has the same tables: no key, metric, log name or code is missing or extra.

    Tests/Checks/check-translations.py               compares the pages of COMPLETE in docs/use with their twins
    Tests/Checks/check-translations.py --self-test   shows that it would notice a breach

It compares the code spans in the first column of every table, and the cells of that column that are only a number. Each must
occur equally often in both pages. Code fences are not read.
"""

import collections
import pathlib
import re
import sys
import tempfile

# The pages whose twin, docs/use/NAME.zh-CN.md, is complete. The other twins are shorter than their pages.
COMPLETE = ("Errors", "Operations", "Symptoms")

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"\s*(```|~~~)")
SPAN = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
# The first cell of a row, up to an unescaped bar.
FIRST_CELL = re.compile(r"\s*\|((?:\\.|[^|\\])*)\|")


def first_column(text):
    """Counts each code span, and each cell that is only a number, in the first column of all tables of `text`."""
    found, in_fence = collections.Counter(), False
    for line in text.splitlines():
        if FENCE.match(line):
            in_fence = not in_fence
        elif not in_fence and (row := FIRST_CELL.match(line)):
            cell = row[1].strip()
            found.update(span[1].strip() for span in SPAN.findall(cell))
            if cell.isdecimal():
                found[cell] += 1
    return found


def check(root):
    """Returns the breaches, one line each, and the names of the pages that have a twin."""
    breaches, names = [], []
    for name in COMPLETE:
        page, twin = root / "docs/use" / f"{name}.md", root / "docs/use" / f"{name}.zh-CN.md"
        if not twin.exists():
            continue
        names.append(name)
        if not page.exists():
            breaches.append(f"docs/use/{twin.name}: has no page docs/use/{page.name}; remove it, or restore the page")
            continue
        ours, theirs = (first_column(file.read_text(encoding="utf-8")) for file in (page, twin))
        for span in sorted((ours - theirs).keys()):
            breaches.append(f"docs/use/{twin.name}: lacks `{span}` of a table in docs/use/{page.name}; add its row ({theirs[span]} of {ours[span]})")
        for span in sorted((theirs - ours).keys()):
            breaches.append(f"docs/use/{twin.name}: `{span}` is in no such table of docs/use/{page.name}; remove its row ({theirs[span]} of {ours[span]})")
    return breaches, names


PAGE = """# Page

| key | default |
|---|---|
| `a.b`, `.c` | `1` |
| `rate(x{y="z"})` above 1 | – |
| 64 | `d` |

```
| `in.a.fence` | no table |
```

A table after text:

| event | meaning |
|---|---|
| `a.b` | Again. |
"""
TWIN = PAGE.replace("key", "键").replace(", ", "、").replace("above 1", "大于 1").replace("Again.", "同上 `e`。").replace("in.a", "")
# The text to replace in the twin, its replacement, and the spans that must be reported.
BAD = (
    ("| `a.b`、`.c` | `1` |\n", "", {"a.b", ".c"}),
    ("| `a.b` | 同上 `e`。 |\n", "", {"a.b"}),
    ("| 64 | `d` |\n", "", {"64"}),
    ("| 64 |", "| 65 |", {"64", "65"}),
    ("`.c`", "`.C`", {".c", ".C"}),
    ("| 64 |", "| `new` |\n| 64 |", {"new"}),
    ("`rate(", "`increase(", {'rate(x{y="z"})', 'increase(x{y="z"})'}),
)


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "docs/use").mkdir(parents=True)
        if check(root) != ([], []):
            return "pages without a twin were refused"
        for name in COMPLETE:
            (root / "docs/use" / f"{name}.md").write_text(PAGE, encoding="utf-8")
        for name in COMPLETE:
            twin = root / "docs/use" / f"{name}.zh-CN.md"
            twin.write_text(TWIN, encoding="utf-8")
            if (breaches := check(root)[0]) or name not in check(root)[1]:
                return f"what is allowed was refused, or not read: {breaches}"
            for old, new, spans in BAD:
                twin.write_text(TWIN.replace(old, new, 1), encoding="utf-8")
                breaches, _ = check(root)
                if TWIN.count(old) == 0 or {re.search(r"`(.+?)`", breach)[1] for breach in breaches} != spans:
                    return f"this went unnoticed, or more was found: {old!r} as {new!r} in {twin.name}; found: {breaches}"
            twin.write_text(TWIN, encoding="utf-8")
        (root / "docs/use" / f"{COMPLETE[0]}.md").unlink()
        if len(check(root)[0]) != 1:
            return "a twin without its page went unnoticed"
    return None


def main(arguments):
    if arguments == ["--self-test"]:
        if failure := self_test():
            sys.exit(f"check-translations: {failure}")
        print("check-translations: the self-test passed")
    elif not arguments:
        breaches, names = check(ROOT)
        print("\n".join(breaches) if breaches else f"check-translations: same tables in {', '.join(names)}")
        sys.exit(1 if breaches else 0)
    else:
        print(f"check-translations: unknown argument {arguments[0]}", file=sys.stderr)
        sys.exit(64)


if __name__ == "__main__":
    main(sys.argv[1:])
