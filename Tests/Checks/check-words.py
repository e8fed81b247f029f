#!/usr/bin/env python3
"""Checks that comments, messages and docs use plain words, and comments short sentences.

    Tests/Checks/check-words.py               reads the files in FOLDERS
    Tests/Checks/check-words.py --self-test   shows that it would notice a breach

It reads comments, and string literals that contain a blank, of Swift, C, Python and shell; in Markdown everything outside code
fences. It ignores identifiers, code and text in backticks. The length of a sentence counts in comments and docstrings; lines that
are indented or in columns are no sentences.
"""

import pathlib
import re
import sys
import tempfile

# A forbidden word as a case-insensitive regular expression, and its replacement.
WORDS = (
    (r"who(so)?ever|whomever", "name the actor: the caller, the device, the sender, the reader"),
    (r"somebody('s)?", "name the actor: a caller, a device, a sender, another process"),
    (r"so many", "give the number and its unit: `limit` bytes, each of the tries"),
    (r"rings|rang", "an alarm or a timer fires, fired or is due; a container in the plural is named by its type"),
    (r"hears?", "is told, is informed, gets the answer"),
    (r"meets", "reaches, receives, joins; a bound applies, a condition is met"),
    (r"life|lives", "a process runs, starts and restarts; a file is in use; a row is kept, stands or exists; else: lifetime"),
    (r"patience", "timeout, or the delay before a retry"),
    (r"(is|was|are|were) not meant", "is not for, must not"),
)
# Phrases that may use such a word, each with its reason.
ALLOWED = {
    "no sign of life after a missed ack": "the reason of a Close, which clients may log and compare",
    "the message's life is not known": "the text of the REST answer 10004, which callers may compare",
}
# The maximum length of a comment's sentence. New sentences have at most 25 words; older ones were shortened to this limit.
LONGEST = 40

FOLDERS = (".ci", "CHANGELOG.md", "Examples", "Makefile", "Package.swift", "README.md", "Sources", "Tests", "deploy", "docs")
# Files that are never read, each with its reason.
EXEMPT = {
    "Tests/Checks/check-words.py": "contains the words themselves",
}

ROOT = pathlib.Path(__file__).resolve().parents[2]
BACKTICKS = re.compile(r"(`+)(?:(?!\n\n).)*?\1", re.S)
# A line of columns, of a list item, or a continuation of an item.
LAYOUT = re.compile(r"\s{3}|\s*(- |\d+[.] |[|])|.*\S\s{2,}\S")
SENTENCE = re.compile(r"(?:[^.!?]|[.!?](?![\s)\"”]))+")


class Passage:
    """Text that belongs together (a paragraph of comments, a message), with the line of each piece."""

    def __init__(self, pieces, is_prose):
        self.text, self.starts, self.is_prose = "", [], is_prose
        for line, piece in pieces:
            self.starts.append((len(self.text), line))
            self.text += piece + "\n"

    def line(self, offset):
        return [line for start, line in self.starts if start <= offset][-1]


class Gatherer:
    """Builds passages from comment lines and string literals that the reader of a language finds."""

    def __init__(self):
        self.passages, self.comment, self.message = [], [], []

    def add_comment(self, line, text, is_alone):
        """Adds a comment line; it continues the previous line's passage, unless one of the two lines has code."""
        if self.comment and (not is_alone or line != self.comment[-1][0] + 1):
            self.end_comment()
        if text.strip():
            self.comment.append((line, text.rstrip()))
        if not text.strip() or not is_alone:
            self.end_comment()

    def add_message(self, line, text):
        self.message += [(line + number, part) for number, part in enumerate(text.split("\n"))]

    def end_comment(self):
        if self.comment:
            self.passages.append(Passage(self.comment, True))
        self.comment = []

    def end_message(self):
        """Ends a message; a single word is a key or a value and not a message."""
        if any(" " in part.strip() for _, part in self.message):
            self.passages.append(Passage(self.message, False))
        self.message = []

    def end(self):
        self.end_comment()
        self.end_message()
        return self.passages


def read_braces(text, is_swift):
    """Reads Swift and C-like languages: `//`, `/* */`, and string literals with their escapes."""
    found, at, line, line_start = Gatherer(), 0, 1, 0
    depths = []  # for each open interpolation: its delimiter's marks and its open parentheses
    pattern = re.compile(r"//|/\*|(#*)(\"\"\"|\")|'|\n|[()]")

    def literal(at, marks, quote):
        """Reads a literal's text from `at` to its end or an interpolation; returns the text, the next place, and which of both.
        """
        end, escape, text_start = quote + marks, "\\" + marks, at
        while at < len(text):
            if text.startswith(end, at):
                return text[text_start:at], at + len(end), "end"
            if text.startswith(escape + "(", at) and is_swift:
                return text[text_start:at], at + len(escape) + 1, "interpolation"
            if text.startswith(escape, at):
                at += len(escape) + 1
            elif text[at] == "\n" and len(quote) == 1:
                return text[text_start:at], at, "end"
            else:
                at += 1
        return text[text_start:], at, "end"

    def message(at, marks, quote):
        nonlocal line
        part, at, why = literal(at, marks, quote)
        found.add_message(line, part)
        line += part.count("\n")
        if why == "interpolation":
            depths.append([marks, quote, 0])
        return at

    while match := pattern.search(text, at):
        between = text[at:match.start()]
        token = match.group()
        if between.strip(" \n+") and not depths:
            found.end_message()
        at = match.end()
        if token == "\n":
            line, line_start = line + 1, at
        elif token == "//":
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            found.add_comment(line, text[at:end].lstrip("/!"), not text[line_start:match.start()].strip())
            at = end
        elif token == "/*":
            end = text.find("*/", at)
            end = len(text) if end < 0 else end
            is_alone = not text[line_start:match.start()].strip()
            for number, part in enumerate(text[at:end].split("\n")):
                found.add_comment(line + number, part.strip().lstrip("*!"), is_alone or number > 0)
            line += text.count("\n", at, end)
            line_start, at = text.rfind("\n", 0, end) + 1, end + 2
        elif token == "'":
            character = re.compile(r"(\\.|[^\\\n'])+'").match(text, at)
            at = character.end() if character and not is_swift else at
        elif token in "()":
            if depths and token == "(":
                depths[-1][2] += 1
            elif depths and depths[-1][2]:
                depths[-1][2] -= 1
            elif depths:
                marks, quote, _ = depths.pop()
                found.add_message(line, "_")
                at = message(at, marks, quote)
            else:
                found.end_message()
        else:
            # A literal inside an interpolation is read with the surrounding one.
            at = message(at, match.group(1), match.group(2))
    return found.end()


def read_python(text):
    found, lines, before = Gatherer(), text.split("\n"), "NEWLINE"
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind, (line, column) = tokenize.tok_name[token.type], token.start
        if kind == "COMMENT":
            found.add_comment(line, token.string.lstrip("#!"), not lines[line - 1][:column].strip())
        elif kind == "STRING":
            prefix, quote, inner = re.fullmatch(r"(?s)(\w*)(\"\"\"|'''|\"|')(.*)\2", token.string).groups()
            if before in ("NEWLINE", "INDENT", "DEDENT"):
                for number, part in enumerate(inner.split("\n")):
                    found.add_comment(line + number, part.removeprefix(" " * column), True)
            else:
                found.add_message(line, re.sub(r"\{[^{}]*\}", "_", inner) if "f" in prefix.lower() else inner)
        elif kind == "FSTRING_MIDDLE":
            found.add_message(line, token.string)
        elif kind not in ("NL", "FSTRING_START", "FSTRING_END"):
            found.end_message()
        before = before if kind in ("NL", "COMMENT") else kind
    return found.end()


def read_shell(text):
    """Reads shell, make and other files with `#`: comments, and quoted text that begins and ends on one line."""
    found = Gatherer()
    for number, line in enumerate(text.split("\n"), 1):
        for match in re.finditer(r"(?P<comment>(?:^|(?<=\s))#.*)|\"(?P<double>(?:\\.|[^\"\\])*)\"|'(?P<single>[^']*)'", line):
            if match.group("comment") is not None:
                found.add_comment(number, match.group("comment").lstrip("#!"), not line[:match.start()].strip())
            else:
                found.add_message(number, match.group("double") or match.group("single") or "")
                found.end_message()
    return found.end()


def read_markdown(text):
    found, is_code = Gatherer(), False
    for number, line in enumerate(text.split("\n"), 1):
        is_fence = line.lstrip().startswith(("```", "~~~"))
        is_code ^= is_fence
        found.add_comment(number, "" if is_code or is_fence else line, True)
    return found.end()


READERS = {
    ".swift": lambda text: read_braces(text, True), ".py": read_python, ".md": read_markdown,
    **dict.fromkeys((".c", ".cpp", ".h", ".hpp", ".modulemap"), lambda text: read_braces(text, False)),
    **dict.fromkeys((".sh", ".supp", ".toml"), read_shell),
}


def reader(path):
    if path.suffix in READERS:
        return READERS[path.suffix]
    if path.name == "Makefile" or path.parent.name == ".ci":
        return read_shell
    return None


def breaches(path):
    """Returns the line of each breach in a file, with its message."""
    for passage in reader(path)(path.read_text(encoding="utf-8")):
        text = BACKTICKS.sub(lambda match: re.sub(r"\S", "_", match.group()), passage.text)
        for phrase in ALLOWED:
            text = re.sub(phrase, lambda match: "_" * len(match.group()), text, flags=re.I)
        for match in LIST.finditer(text):
            word, advice = " ".join(match.group().split()), WORDS[int(match.lastgroup[1:])][1]
            yield passage.line(match.start()), f'"{word}"; instead: {advice}'
        if passage.is_prose and path.suffix != ".md":
            # A line that is no prose ends the previous sentence; positions do not change.
            plain = re.sub(r"(?m)^.*$", lambda match: match.group() if not LAYOUT.match(match.group())
                           else "." + " " * (len(match.group()) - 1), text)
            for match in SENTENCE.finditer(plain):
                count = len(re.findall(r"\S*\w\S*", match.group()))
                if count > LONGEST:
                    start = match.start() + len(match.group()) - len(match.group().lstrip())
                    yield passage.line(start), f"a sentence of {count} words; at most {LONGEST}, of a new one 25"


def files(root):
    for name in FOLDERS:
        top = root / name
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.is_file() and not path.is_symlink() and name not in EXEMPT and not name.endswith(".zh-CN.md") and reader(path):
                yield name, path


def check(root):
    """Returns every breach under a folder as lines to print."""
    return [
        f"{name}:{line}: {breach}" for name, path in files(root) for line, breach in sorted(breaches(path))
    ]


def rates(lines, found):
    """The number of findings of each rule per hundred lines."""
    return [100 * sum(1 for one in found if one[2] == rule) / max(lines, 1) for rule in ADVICE]


def check(root, limits=None):
    """Returns the table of rates, and the breaches as lines to print."""
    lines, found, used = measure(root)
    table = [f"{'per 100 lines':20}{'lines':>7}" + "".join(f"{rule:>16}" for rule in ADVICE)]
    breaches = [f'{__file__}: ALLOWED: no file has "{allowed}"; remove the exception' for allowed in ALLOWED if allowed not in used]
    for key, limit in (limits or LIMITS).items():
        measured = rates(lines[key], found[key])
        table.append(f"{' '.join(key):20}{lines[key]:7}" + "".join(
            f"{f'{rate:.2f} (≤ {most:g})':>16}" for rate, most in zip(measured, limit, strict=True)))
        for rule, rate, most in zip(ADVICE, measured, limit, strict=True):
            if rate > most:
                breaches += [f"{name}:{line}: {rule}: \"{words}\"; {ADVICE[rule]}"
                             for name, line, broken, words in sorted(found[key]) if broken == rule]
                breaches.append(f"{' '.join(key)}: {rule}: {rate:.2f} per 100 lines, above the limit of {most:g}")
    return table, breaches


# Texts in which no rule may find anything, each under a file's name.
GOOD = {
    "Sources/A.swift": '''
/// The lifetime of a row; a `life` and `nobody` in backticks. A ring of slots, a condition that is met, live messages.
/// The whole message, and the one that follows. Data at rest, the rest of the bytes, REST, and a restart.
/// Requests are refused for good reason, and sent as it is described, as they are needed. Is it late? What follows?
/// - tell: The name in use.
/// - Parameter whoami: No one of the slots is free.
let nobody = told(who: "who", text: "rests", "a message of \\(whoever ?? hears("x y")) is here")
let script = "WORDS WORDS"
let url = "https://example.org/a b" + #"a "raw" one"#
// WORDS. Words, e.g. 1.5 of them:
//
// - WORDS
// - WORDS
//
//     what   a word of a column
'''.replace("WORDS", "word " * 22 + "word"),
    "Sources/a.c": "char lives = '\"'; /* plain */ int rang; // plain\n",
    "Sources/a.js": "const told = /[\"`]/.test(`${nobody ? `} who is ${it}` : \"\"} is here`); // plain\n",
    "Sources/texts.js": 'const told = "nobody 个推 told";\n',
    "Tests/a.py": 'life = {"life": "patience"}  # plain\ntext = f"{life} and {whoever(1)} are here"\n',
    "Tests/a.sh": 'life=1 # plain\necho "plain text" ${#life}\n',
    "Proto/a.proto": "int32 told = 1;  // 0 until the Hello\n",
    "deploy/a.yaml": "told: nobody  # plain\ndescription: |\n  The devices of `nobody`.\nwho: x y\n",
    "README.md": "# What it is\n\nPlain words, a `life` in backticks.\n\n    whoever hears\n\n```\nnobody\n\nhears\n```\n\n"
                 "| name | what |\n|---|---|\n| a [link](nobody/told.md) | <img src=\"who is told\"> |\n",
    "README.zh-CN.md": "whoever\n",
    "docs/A.zh-CN.md": "whoever\n",
    "docs/A.md": "- An item of a list.\n\n    It continues here.\n",
    "Tests/Checks/check-words.py": "# whoever\n",
    "Examples/allowed.swift": "".join(f"// {allowed}\n" for allowed in ALLOWED),
}
# A file's name, its text, and the one breach in it: the line and the rule.
BAD = (
    ("Sources/B.swift", "/// What a peer sends.\n", 1, "clause"),
    ("Sources/B.swift", "/// The name. Whose name it is.\n", 1, "clause"),
    ("Sources/B.swift", "/// The name.\n/// One that waits\n/// is late.\n", 2, "clause"),
    ("Sources/B.swift", "/// A name.\n/// - Returns: What the file has.\n", 2, "clause"),
    ("Sources/B.swift", "let a = 1  // those that wait\n", 1, "clause"),
    ("Sources/B.swift", 'let a = "one\\nNone of the rows is here"\n', 1, "clause"),
    ("Sources/B.swift", 'let a = """\n    --all    what is in the store\n    """\n', 2, "clause"),
    ("Sources/B.swift", "/// Sends what\n/// the peer is told.\n", 2, "person"),
    ("Sources/B.swift", "// MARK: - The loop goes\n// on\n", 1, "person"),
    ("Sources/B.swift", 'let a = "\\(b(c: "d")) hears of it"\n', 1, "person"),
    ("Sources/B.swift", 'let a = "one \\(b ? "the loop hears" : "x")"\n', 1, "person"),
    ("Sources/B.swift", "/// A lane that may rest for a minute.\n", 1, "person"),
    ("Sources/B.swift", 'let a = "come back later"\n', 1, "person"),
    ("Sources/B.swift", "/// The device\n/// whom a push reaches.\n", 2, "who"),
    ("Sources/B.swift", "/// The loop, of which nobody reads.\n", 1, "who"),
    ("Sources/B.swift", "/// A thread of its\n/// own.\n", 1, "vague"),
    ("Sources/B.swift", "/// Writes the row as it is.\n", 1, "vague"),
    ("Sources/B.swift", "/// Closed for good.\n", 1, "vague"),
    ("Sources/B.swift", "\n/// Keeps so\n/// many bytes.\nlet a = 1\n", 2, "refused"),
    ("Sources/B.swift", "let a = 1  // Somebody waits.\nlet b = 2\n", 1, "refused"),
    ("Sources/B.swift", "/* The alarm\n   rings. */\n", 2, "refused"),
    ("Sources/B.swift", 'let a = "the alarm "\n    + "rang"\n', 2, "refused"),
    ("Sources/B.swift", 'let a = """\n    one\n    whoever asks\n    """\n', 3, "refused"),
    ("Sources/B.swift", "/// One. " + "word " * 20 + "\n/// " + "word " * 21 + "\n", 1, "endless"),
    ("Sources/B.swift", "/// One. " + "word " * 20 + "\n/// " + "word " * 6 + "\n", 1, "long"),
    ("Sources/B.swift", "/// - Parameter one: " + "word " * 20 + "\n///   " + "word " * 6 + "\n", 1, "long"),
    ("Sources/B.swift", "/// " + "word " * 14 + "e.g. " + "word " * 14 + "\n", 1, "long"),
    ("Tests/B.swift", '@Test("a message is not meant for it") func a() {}\n', 1, "refused"),
    ("Sources/b.h", "int a; /* the life of a row */\n", 1, "refused"),
    ("Sources/b.cpp", 'fail("out of patience");\n', 1, "person"),
    ("Sources/b.js", "const a = 'the device hears of it';\n", 1, "person"),
    ("Sources/b.js", "const a = `one ${b} goes\naway`;\n", 1, "person"),
    ("Sources/b.js", "/**\n * What it shows.\n */\n", 2, "clause"),
    ("Proto/b.proto", "int32 a = 1;  // nobody reads it\n", 1, None),
    ("Tests/b.py", '"""One line.\n\nWhoever asks.\n"""\n', 3, "refused"),
    ("Tests/b.py", "def a():\n    # The device hears\n    # of it.\n    return 1\n", 2, "person"),
    ("Tests/b.py", 'assert a, (f"{a} is "\n    "not meant")\n', 1, "refused"),
    ("Tests/b.py", "def a():\n    \"\"\"One.\n\n    Two. Three\n    " + "word " * 40 + "\n    \"\"\"\n", 4, "endless"),
    ("Tests/b.sh", "# A process lives here.\n", 1, "refused"),
    ("Tests/b.sh", 'a=1\necho "it meets a bound" >&2\n', 2, "refused"),
    ("Tests/b.supp", "# One life.\n", 1, "refused"),
    ("deploy/postrm", "#!/bin/sh\n# What stays here.\n", 2, "clause"),
    ("deploy/b.json5", "// Who may use it.\n", 1, None),
    ("deploy/b.yaml", "a: 1\ndescription: >-\n  One line.\n  What follows.\nb: 2\n", 4, "clause"),
    ("deploy/b.yaml", "- summary: Tells it\n  a: 1\n", 1, "person"),
    ("deploy/b.yaml", "a: { b: 1, description: \"One, two. What is it\", c: who }\n", 1, "clause"),
    ("Makefile", "help: ## Lists so many targets.\n", 1, "refused"),
    ("CHANGELOG.md", "A table:\n\n| a device meets | it |\n", 3, "refused"),
    ("CHANGELOG.md", "| a | b |\n|---|---|\n| a | What it does |\n", 3, "clause"),
    ("CHANGELOG.md", "A list\n\n1. **None of it** is here.\n", 3, "clause"),
    ("CHANGELOG.md", "One. " + "word " * 26 + "\n- two\n", 1, "long"),
)
# For each phrase of a rule, in their order, words that it finds.
EXAMPLES = {
    "person": ("tell told", "believes", "heard hears", "forgiven", "excused", "said goodbye", "goes on, went away", "come back",
               "sent away", "stands still, stood still", "by heart", "in vain", "patience", "rested", "may rest, it rest"),
    "who": ("nobody", "no one", "who", "whom"),
    "vague": ("at hand", "meanwhile", "for good", "of its own, of their own", "by now", "likewise", "as it is, as they are.",
              "too many of", "the rest of it", "its own words", "on the way"),
    "refused": ("whoever whosoever", "somebody's", "so many", "rings rang", "meets", "life lives", "was not meant"),
    "clause": ("What", "Who", "Whom", "Whose", "Whichever", "Nobody", "One that", "The one which", "Ones that", "Those who",
               "None of", "None is", "Which of"),
}


def test_phrases():
    """Compares each phrase with its own example, so a phrase that finds nothing, or has no example, is noticed."""
    for rule, examples in EXAMPLES.items():
        phrases = PHRASES.get(rule, (None,) * len(examples))
        if len(phrases) != len(examples):
            return f"{rule}: {len(phrases)} phrases, {len(examples)} examples"
        for words, example in zip(phrases, examples):
            for part in example.split(", "):
                if not (pattern([words]) if words else CLAUSE).search(part):
                    return f"{rule}: {words} does not find \"{part}\""
    return None


def self_test():
    if failure := test_phrases():
        return failure
    none = dict.fromkeys(LIMITS, (0,) * len(ADVICE))
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)

        def write(name, text):
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return path

        def breaches(limits=none):
            return check(root, limits)[1]

        for name, text in GOOD.items():
            write(name, text)
        if found := breaches():
            return "a near miss was refused: " + "; ".join(found)
        for name, text, line, rule in BAD:
            path = write(name, text)
            found = [one for one in breaches() if one.startswith(f"{name}:")]
            path.unlink()
            expected = f"{name}:{line}: {rule or ''}"
            # A rule that is `None` stands for two rules with a finding each.
            if not found or not all(one.startswith(expected) for one in found) or rule and len(found) != 1:
                return f"a breach was not found, or elsewhere: {text!r} in {name}; found: {found}"
        # One breach in a thousand lines is within each limit of Sources, twenty are not.
        plain, told = "/// A plain line of text.\n\n" * 50, "/// It is told, says nobody meanwhile.\n\n/// What it says.\n\n"
        for name, times, expected in ("one", 1, 0), ("twenty", 20, 4):
            path = write("Sources/C.swift", plain * 20 + told * times)
            found = breaches({key: LIMITS["Sources", "comments"] for key in LIMITS})
            path.unlink()
            if len(found) != expected * (times + 1):
                return f"{name} in a thousand lines: {found}"
        (root / "Examples/allowed.swift").unlink()
        if len(breaches()) != len(ALLOWED):
            return f"an exception without a use was not found: {breaches()}"
    return None


def main(arguments):
    if arguments[:1] == ["--list"] and len(arguments) < 3:
        prefix = arguments[1] if len(arguments) == 2 else ""
        _, found, _ = measure(ROOT)
        for name, line, rule, words in sorted(one for group in found.values() for one in group):
            if name.startswith(prefix):
                print(f"{name}:{line}: {rule}: \"{words}\"")
    elif arguments == ["--self-test"]:
        if failure := self_test():
            sys.exit(f"check-words: {failure}")
        print("check-words: the self-test passed")
    elif not arguments:
        table, breaches = check(ROOT)
        print("\n".join(table + breaches))
        sys.exit(1 if breaches else 0)
    else:
        print(f"check-words: unknown argument {arguments[0]}", file=sys.stderr)
        sys.exit(64)


if __name__ == "__main__":
    main(sys.argv[1:])
