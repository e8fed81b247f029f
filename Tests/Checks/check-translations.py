#!/usr/bin/env python3
"""Compares a complete translation with its page: no key, metric, log name, field, code or byte is missing or extra.

    Tests/Checks/check-translations.py               compares the pages of COMPLETE with their twins
    Tests/Checks/check-translations.py --self-test   shows that it would notice a breach

Both pages must have the same number of each of these:

- rows of each table, and for pages of RULES list items of each section
- code spans in the first column of a table, and cells of that column that are a number alone
- code spans of list items that begin with a word of FIELD_LISTS, separately for each word
- code fences whose first line has a name after the language, such as ```hex Hello, with the same contents up to comments

The contents of other code fences are not read.
"""

import collections
import pathlib
import re
import sys
import tempfile

# The pages below docs whose twin, NAME.zh-CN.md, is the whole page. The other twins are shorter than their pages.
COMPLETE = ("Semantics", "use/Errors", "use/GetuiCompatibility", "use/Limits", "use/Migrating-from-Getui", "use/OpenIM",
            "use/Operations", "use/Protocol", "use/Symptoms", "use/Vendors")

# The pages whose list items are rules: each section has as many in the translation. The list above the first section has none.
RULES = ("Semantics",)

# The first words of list items whose code spans are compared, and their translations.
FIELD_LISTS = {"served": "served", "支持": "served", "ignored": "ignored", "忽略": "ignored", "refused": "refused", "拒绝": "refused"}

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"\s*(?:```|~~~)(\w+ \w+)?")
FIELD_LIST = re.compile(rf"- ({'|'.join(FIELD_LISTS)})[:：]")
# A remark behind a line of code.
REMARK = re.compile(r"\s{2,}.*$")
SPAN = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
# The first cell of a row, up to an unescaped bar.
FIRST_CELL = re.compile(r"\s*\|((?:\\.|[^|\\])*)\|")


def facts(text, has_rules):
    """The number of occurrences of each fact of `text` that its translation must have, too."""
    found, in_fence, name = collections.Counter(), False, None
    tables, in_table, sections = 0, False, 0
    for line in text.splitlines():
        row = None if in_fence else FIRST_CELL.match(line)
        tables, in_table = tables + (row is not None and not in_table), row is not None
        if fence := FENCE.match(line):
            in_fence, name = not in_fence, None if in_fence else fence[1]
            if name:
                found[name] += 1
        elif in_fence:
            # Remarks are translated.
            if name and (code := REMARK.sub("", line.strip())):
                found[f"{name}: {code}"] += 1
        elif row:
            found[f"row of table {tables}"] += 1
            cell = row[1].strip()
            found.update(span[1].strip() for span in SPAN.findall(cell))
            if cell.isdecimal():
                found[cell] += 1
        elif line.startswith("##"):
            sections += 1
        elif has_rules and sections and line.startswith("- "):
            found[f"list item of section {sections}"] += 1
        elif item := FIELD_LIST.match(line):
            found.update(f"{FIELD_LISTS[item[1]]} {span[1].strip()}" for span in SPAN.findall(line))
    return found


def check(root):
    """Returns the breaches, one line each, and the names of the pages that have a twin."""
    breaches, names = [], []
    for name in COMPLETE:
        page, twin = root / "docs" / f"{name}.md", root / "docs" / f"{name}.zh-CN.md"
        if not twin.exists():
            continue
        names.append(name)
        if not page.exists():
            breaches.append(f"docs/{name}.zh-CN.md: has no page docs/{name}.md; remove it, or restore the page")
            continue
        ours, theirs = (facts(file.read_text(encoding="utf-8"), name in RULES) for file in (page, twin))
        for span in sorted((ours - theirs).keys()):
            breaches.append(f"docs/{name}.zh-CN.md: lacks `{span}` of docs/{name}.md; translate it ({theirs[span]} of {ours[span]})")
        for span in sorted((theirs - ours).keys()):
            breaches.append(f"docs/{name}.zh-CN.md: `{span}` is not in docs/{name}.md; remove it ({theirs[span]} of {ours[span]})")
    return breaches, names


PAGE = """# Page

- The notation.

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

- served: `f.g`, `f.h`
- refused: `f.g`
- other: `f.i`

```hex Frame
01 02   type: 1
03      length
```

## Rules

- A rule.
- Another one.
"""
TWIN = (PAGE.replace("key", "键").replace(", ", "、").replace("above 1", "大于 1").replace("Again.", "同上 `e`。").replace("in.a", "")
        .replace("served: ", "支持：").replace("refused: ", "拒绝：").replace("other: `f.i`", "其他").replace("length", "长度")
        .replace("- The notation.\n\n", ""))
RULE = "- Another one.\n"
# What to replace in the twin, with what, and the spans that must be named.
BAD = (
    ("| `a.b`、`.c` | `1` |\n", "", {"row of table 1", "a.b", ".c"}),
    ("| `a.b` | 同上 `e`。 |\n", "", {"row of table 2", "a.b"}),
    ("| 64 | `d` |\n", "", {"row of table 1", "64"}),
    ("| 64 |", "| 65 |", {"64", "65"}),
    ("`.c`", "`.C`", {".c", ".C"}),
    ("| 64 |", "| `new` |\n| 64 |", {"row of table 1", "new"}),
    ("| 64 |", "| 新 |\n| 64 |", {"row of table 1"}),
    ("`rate(", "`increase(", {'rate(x{y="z"})', 'increase(x{y="z"})'}),
    ("支持：`f.g`、", "支持：", {"served f.g"}),
    ("拒绝：`f.g`", "忽略：`f.g`", {"refused f.g", "ignored f.g"}),
    ("01 02", "01 04", {"hex Frame: 01 02", "hex Frame: 01 04"}),
    (RULE, "", {"list item of section 1"}),
    ("```hex Frame", "```hex", {"hex Frame", "hex Frame: 01 02", "hex Frame: 03"}),
)


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "docs/use").mkdir(parents=True)
        if check(root) != ([], []):
            return "pages without a twin were refused"
        for name in COMPLETE:
            (root / "docs" / f"{name}.md").write_text(PAGE, encoding="utf-8")
        for name in COMPLETE:
            twin = root / "docs" / f"{name}.zh-CN.md"
            twin.write_text(TWIN, encoding="utf-8")
            if (breaches := check(root)[0]) or name not in check(root)[1]:
                return f"what is allowed was refused, or not read: {breaches}"
            for old, new, spans in BAD:
                twin.write_text(TWIN.replace(old, new, 1), encoding="utf-8")
                breaches, _ = check(root)
                if old == RULE and name not in RULES:
                    spans = set()
                if TWIN.count(old) == 0 or {re.search(r"`(.+?)`", breach)[1] for breach in breaches} != spans:
                    return f"this went unnoticed, or more was found: {old!r} as {new!r} in {twin.name}; found: {breaches}"
            twin.write_text(TWIN, encoding="utf-8")
        (root / "docs" / f"{COMPLETE[0]}.md").unlink()
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
        print("\n".join(breaches) if breaches else f"check-translations: same contents in {', '.join(names)}")
        sys.exit(1 if breaches else 0)
    else:
        print(f"check-translations: unknown argument {arguments[0]}", file=sys.stderr)
        sys.exit(64)


if __name__ == "__main__":
    main(sys.argv[1:])
