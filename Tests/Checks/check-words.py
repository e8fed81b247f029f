#!/usr/bin/env python3
"""Holds comments, docs and messages to plain English, by rates that are measured again on every run.

    Tests/Checks/check-words.py                  prints the rates, and each offending line of a rate above its limit
    Tests/Checks/check-words.py --list [PREFIX]  prints every line that counts, of the files whose names begin with PREFIX
    Tests/Checks/check-words.py --self-test      shows that each rule finds a breach and passes a near miss

It reads comments, docstrings and descriptions of Swift, C, JavaScript, Python, shell, YAML and .proto, and Markdown outside
code. Text between backticks is code. A message is a string literal with a blank between two words. Chinese text is not read.
"""

import pathlib
import re
import sys
import tempfile

sys.dont_write_bytecode = True
from Prose.passages import COMMENT, MESSAGE, PAGE, reader, sentences  # noqa: E402


CLAUSE = re.compile(
    r"(?:what|who|whom|whose|whichever|nobody|(?:the )?ones? (?:that|which|who)|those (?:that|which|who)"
    r"|none (?:of|is|are|was|has|may|can)|which of)\b(?!-)", re.I)
# The phrases of the other rules; a blank stands for any space.
PHRASES = {
    "person": (
        r"tells?(?!:)|told|telling", r"believe[sd]?|believing", r"hears?|heard", r"forgives?|forgave|forgiven", r"excuse[sd]?",
        r"(?:says?|said) goodbye", r"(?:goes|go|went|gone|going) (?:on|away)", r"(?:comes?|came|coming) back", r"sent away",
        r"(?:stands?|stood|standing) still", r"by heart", r"in vain", r"patience", r"rests|rested",
        r"(?:to|may|must|can|will|would|let|lets|and|it|they) rest(?! of)"),
    "who": (r"nobody", r"no one(?! of)", r"who", r"whom"),
    "vague": (
        r"at hand", r"meanwhile", r"for good(?! reasons?\b)", r"of (?:its|their) own", r"by now", r"likewise",
        r"as (?:it is|they are)(?=\s*(?:[,.;:)]|$))", r"too many of", r"the rest of it", r"(?:its|their) own words", r"on the way"),
    "refused": (
        r"who(?:so)?ever|whomever", r"somebody(?:'s)?", r"so many", r"rings|rang", r"meets", r"life|lives",
        r"(?:is|was|are|were) not meant"),
}


def pattern(phrases):
    return re.compile(r"(?<![\w.-])(?:" + "|".join(phrases).replace(" ", r"\s+") + r")(?![\w-])", re.I)


PATTERNS = {rule: pattern(phrases) for rule, phrases in PHRASES.items()}

# The longest sentence that is allowed, and the length above which sentences are counted.
LONGEST, LONG = 40, 25

# A rule's name, and what to write instead.
ADVICE = {
    "clause": "the sentence begins with a clause: name the thing",
    "person": "software is no person: it sends, reports, logs, returns, retries, continues, reconnects, is queued",
    "who": "name the actor: the caller, the device, the sender, the operator",
    "vague": "say when, how many, which",
    "long": f"more than {LONG} words: make two sentences of it",
    "refused": "name the actor, the number, the event or the lifetime",
    "endless": f"more than {LONGEST} words",
}
# A group's limits, per hundred lines of comments or pages, or per hundred messages, in the order of ADVICE. Two rules allow no
# breach anywhere. The rates of Tests are those of today: lower a limit after each correction, and never raise one.
LIMITS = {
    ("Sources", "comments"): (0.1, 0.5, 0.1, 0.2, 1, 0, 0),
    ("Sources", "messages"): (0.3, 0.3, 0.1, 0.2, 0, 0, 0),
    ("docs", "pages"): (0.1, 0.5, 0.1, 0.2, 3.5, 0, 0),
    ("deploy", "comments"): (0.1, 0.5, 0.1, 0.2, 2, 0, 0),
    ("Tests", "comments"): (0.3, 0.5, 0.1, 0.2, 1, 0, 0),
    ("Tests", "messages"): (0.5, 1, 0.7, 0.2, 0, 0, 0),
}
# The folders and files of each group.
GROUPS = {
    "Sources": ("Sources",),
    "docs": ("docs", "README.md", "CHANGELOG.md"),
    "deploy": ("deploy", "Examples", "Proto", ".ci", "Makefile", "Package.swift"),
    "Tests": ("Tests",),
}
# Phrases that may break a rule, each with its reason.
ALLOWED = {
    "no sign of life after a missed ack": "the reason of a Close, which clients may log and compare",
    "the message's life is not known": "the text of the REST answer 10004, which callers may compare",
}
# Files that are not read, each with its reason.
EXEMPT = {
    "Tests/Checks/check-words.py": "contains the words themselves",
}

ROOT = pathlib.Path(__file__).resolve().parents[2]
BACKTICKS = re.compile(r"(`+)(?:(?!\n\n).)*?\1", re.S)
FOREIGN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


def code_as_word(text):
    """Replaces each code span by one word of the same length."""
    return BACKTICKS.sub(lambda match: re.sub(r"[^\n]", "_", match.group()), text)


def findings(passage, used):
    """Yields the offset, the rule and the words of each breach in a passage. Adds the allowed phrases to `used`."""
    text = code_as_word(passage.text)
    if passage.kind == MESSAGE:
        text = re.sub(r"\\[nt]", ". ", text)
    for allowed in ALLOWED:
        text, count = re.subn(allowed.replace(" ", r"\s+"), lambda match: re.sub(r"[^\n]", "_", match.group()), text, flags=re.I)
        used |= {allowed} if count else set()
    passage.text = text
    for rule, words in PATTERNS.items():
        for match in words.finditer(text):
            yield match.start(), rule, " ".join(match.group().split())
    for start, sentence, is_heading in sentences(passage):
        # A question may begin this way, and so may the head of a table's column, which is no sentence.
        is_free = is_heading or re.search(r"\?\W*$", sentence) or passage.kind == PAGE and not sentence[0].isupper()
        if CLAUSE.match(sentence) and not is_free:
            yield start, "clause", " ".join(sentence.split()[:6])
        # A list of names in backticks reads like one word.
        count = len(re.findall(r"\S*\w\S*", re.sub(r"_+(?:, _+)+", "_", sentence)))
        # Scripts and tables of options are messages, too.
        if count > LONG and passage.kind != MESSAGE:
            yield start, "endless" if count > LONGEST else "long", f"{count} words: {' '.join(sentence.split()[:6])}"


def files(root, folders):
    for name in folders:
        top = root / name
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.is_file() and not path.is_symlink() and name not in EXEMPT and not name.endswith(".zh-CN.md") and reader(path):
                yield name, path


def measure(root):
    """Returns each group's number of lines and its findings (file, line, rule, words), and the allowed phrases that occur."""
    lines, found, used = dict.fromkeys(LIMITS, 0), {key: [] for key in LIMITS}, set()
    kinds = {COMMENT: "comments", PAGE: "pages", MESSAGE: "messages"}
    for group, folders in GROUPS.items():
        for name, path in files(root, folders):
            for passage in reader(path)(path.read_text(encoding="utf-8")):
                if FOREIGN.search(passage.text):
                    continue
                # A README beside the code counts as its comments, an example in a page's folder as a part of the page.
                key = (group, kinds[passage.kind])
                if key not in LIMITS:
                    key = next(other for other in LIMITS if other[0] == group)
                lines[key] += 1 if passage.kind == MESSAGE else passage.count()
                found[key] += [(name, passage.line(at), rule, words) for at, rule, words in findings(passage, used)]
    return lines, found, used


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
