"""Finds the prose of a source file: passages of comments and docstrings, messages in string literals, and paragraphs of Markdown."""

import io
import re
import tokenize

COMMENT, MESSAGE, PAGE = "comment", "message", "page"


class Passage:
    """Consecutive lines of prose. Each offset of `text` maps to a line of the file."""

    def __init__(self, pieces, kind):
        self.text, self.starts, self.kind = "", [], kind
        for line, piece in pieces:
            self.starts.append((len(self.text), line))
            self.text += piece + "\n"

    def line(self, offset):
        return [line for start, line in self.starts if start <= offset][-1]

    def count(self):
        """The number of lines with text."""
        return sum(1 for line in self.text.split("\n") if re.search(r"\w", line))


class Gatherer:
    """Joins comment lines and string literals to passages."""

    def __init__(self, kind=COMMENT):
        self.passages, self.comment, self.message, self.kind = [], [], [], kind

    def add_comment(self, line, text, is_alone):
        """Adds a line of a comment. It continues the passage of the line above, unless one of the two lines also has code."""
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
            self.passages.append(Passage(self.comment, self.kind))
        self.comment = []

    def end_message(self):
        """A literal without a blank between words is a key or a value, not a message."""
        if any(re.search(r"\S +\S", part) for _, part in self.message):
            self.passages.append(Passage(self.message, MESSAGE))
        self.message = []

    def end(self):
        self.end_comment()
        self.end_message()
        return self.passages


def read_braces(text, is_swift):
    """Swift, C and their relatives: `//`, `/* */`, and string literals with their escapes."""
    found, at, line, line_start = Gatherer(), 0, 1, 0
    depths = []  # of each open interpolation: the delimiter's `#`s, its quotes, and the number of open parentheses
    pattern = re.compile(r"//|/\*|(#*)(\"\"\"|\")|'|\n|[()]")

    def literal(at, marks, quote):
        """Reads a literal from `at` to its end or to an interpolation. Returns the text, the next offset, and the reason of the stop."""
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
            # A literal inside an interpolation becomes part of the outer message.
            at = message(at, match.group(1), match.group(2))
    return found.end()


SCRIPT = re.compile(
    r"//(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/|(?P<quote>[\"'])(?P<string>(?:\\.|(?!(?P=quote))[^\\\n])*)(?P=quote)"
    r"|(?P<back>`)|(?<=[(,=:\[!&|?{};\n>])\s*(?P<pattern>/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/)", re.S)


def template_end(text, at):
    """Returns the offset after the template literal that begins before `at`, and its text with a `_` for each `${}`."""
    said, depth = "", 0
    while at < len(text):
        if depth == 0 and text[at] == "`":
            return at + 1, said
        if depth == 0 and text[at] == "\\":
            said, at = said + text[at:at + 2], at + 2
        elif text.startswith("${", at) and depth == 0:
            said, depth, at = said + "_", 1, at + 2
        elif depth and text[at] == "`":
            at, _ = template_end(text, at + 1)
        elif depth:
            depth, at = depth + {"{": 1, "}": -1}.get(text[at], 0), at + 1
        else:
            said, at = said + text[at], at + 1
    return at, said


def read_script(text):
    """JavaScript: comments, strings, and template literals without the code in them."""
    found, at = Gatherer(), 0
    while match := SCRIPT.search(text, at):
        start, at = match.start(), match.end()
        line = text.count("\n", 0, start) + 1
        is_alone = not text[text.rfind("\n", 0, start) + 1:start].strip()
        if match.group("line") is not None:
            found.add_comment(line, match.group("line").lstrip("/!"), is_alone)
        elif match.group("block") is not None:
            for number, part in enumerate(match.group("block").split("\n")):
                found.add_comment(line + number, part.strip().lstrip("*!"), is_alone or number > 0)
        elif match.group("quote"):
            found.add_message(line, match.group("string"))
            found.end_message()
        elif match.group("back"):
            at, said = template_end(text, at)
            found.add_message(line, said)
            found.end_message()
    return found.end()


def read_python(text):
    text = re.sub(r"\A#!.*", "", text)
    found, lines, before = Gatherer(), text.split("\n"), "NEWLINE"
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind, (line, column) = tokenize.tok_name[token.type], token.start
        if kind == "COMMENT":
            found.add_comment(line, token.string.lstrip("#!"), not lines[line - 1][:column].strip())
        elif kind == "STRING":
            prefix, quote, inner = re.fullmatch(r"(?s)(\w*)(\"\"\"|'''|\"|')(.*)\2", token.string).groups()
            if before in ("NEWLINE", "INDENT", "DEDENT"):
                found.end_comment()
                for number, part in enumerate(inner.split("\n")):
                    found.add_comment(line + number, part.removeprefix(" " * column), True)
                found.end_comment()
            else:
                found.add_message(line, re.sub(r"\{[^{}]*\}", "_", inner) if "f" in prefix.lower() else inner)
        elif kind == "FSTRING_MIDDLE":
            found.add_message(line, token.string)
        elif kind not in ("NL", "FSTRING_START", "FSTRING_END"):
            found.end_message()
        before = before if kind in ("NL", "COMMENT") else kind
    return found.end()


def read_shell(text):
    """Shell, make and other files with `#`: comments, and quoted text that begins and ends on one line."""
    found = Gatherer()
    for number, line in enumerate(re.sub(r"\A#!.*", "", text).split("\n"), 1):
        for match in re.finditer(r"(?P<comment>(?:^|(?<=\s))#.*)|\"(?P<double>(?:\\.|[^\"\\])*)\"|'(?P<single>[^']*)'", line):
            if match.group("comment") is not None:
                found.add_comment(number, match.group("comment").lstrip("#!"), not line[:match.start()].strip())
            else:
                found.add_message(number, match.group("double") or match.group("single") or "")
                found.end_message()
    return found.end()


INNER = re.compile(r"\b(?:description|summary): (?:\"((?:\\.|[^\"\\])*)\"|([^\",}\[\]]+))")
DESCRIPTION = re.compile(r"(?P<indent>\s*)(?P<item>- )?(?:description|summary):(?: (?P<text>.*))?$")


def read_yaml(text):
    """YAML: comments, and the values of `description` and `summary`, which may continue on lines of a deeper indentation."""
    found, depth = Gatherer(), None
    for number, line in enumerate(text.split("\n"), 1):
        indent = len(line) - len(line.lstrip())
        if depth is not None and (not line.strip() or indent > depth):
            found.add_comment(number, line.strip(), True)
            continue
        if depth is not None:
            found.end_comment()
        depth = None
        if match := DESCRIPTION.match(line):
            depth = len(match["indent"]) + len(match["item"] or "")
            said = (match["text"] or "").strip()
            found.add_comment(number, "" if re.fullmatch(r"[|>][-+]?", said) else said.strip("\"'"), True)
        elif inner := [match for match in INNER.finditer(line) if not line.lstrip().startswith("#")]:
            for match in inner:  # of a mapping on one line
                found.add_comment(number, match[1] or match[2], False)
        elif comment := re.search(r"(?:^|(?<=\s))#(.*)", re.sub(r"\"[^\"]*\"|'[^']*'", lambda quoted: "_" * len(quoted.group()), line)):
            found.add_comment(number, line[comment.start(1):].lstrip("#!"), not line[:comment.start()].strip())
    return found.end()


TAG = re.compile(r"<!--.*?-->|<(?!https?:)/?[a-z][^>]*>", re.S | re.I)


def read_markdown(text):
    """Markdown outside code: neither fences nor blocks that are indented by four columns outside a list."""
    found, is_fenced, is_indented, is_list, before = Gatherer(PAGE), False, False, False, ""
    text = TAG.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    for number, line in enumerate(text.split("\n"), 1):
        is_fence = line.lstrip().startswith(("```", "~~~"))
        is_fenced ^= is_fence
        if line.strip():
            is_list = bool(re.match(r"\s{0,3}([-*+]|\d+[.)]) ", line)) or is_list and line.startswith(" ")
            is_indented = line.startswith("    ") and not is_list and (not before.strip() or is_indented)
        before = line
        # A link counts with its text, not with its address.
        said = re.sub(r"\]\([^()\s]*\)", lambda match: "]" + " " * (len(match.group()) - 1), line)
        found.add_comment(number, "" if is_fenced or is_fence or is_indented or re.fullmatch(r"\s*\|?[-:| ]+\|?\s*", line) else said, True)
    return found.end()


READERS = {
    ".js": read_script, ".md": read_markdown, ".py": read_python, ".swift": lambda text: read_braces(text, True), ".yaml": read_yaml,
    **dict.fromkeys((".c", ".cpp", ".h", ".hpp", ".json5", ".modulemap", ".proto"), lambda text: read_braces(text, False)),
    **dict.fromkeys((".conf", ".service", ".sh", ".supp", ".sysusers", ".toml"), read_shell),
}


def reader(path):
    """Returns the function that reads a file's passages; `None` if the file has no prose to check."""
    if path.suffix in READERS:
        return READERS[path.suffix]
    if path.name in ("Dockerfile", "Makefile"):
        return read_shell
    if not path.suffix:
        with path.open("rb") as file:
            return read_shell if re.match(rb"#!.*sh\b", file.readline(100)) else None
    return None


ABBREVIATION = re.compile(r"\b(?:approx|cf|e\.g|etc|i\.e|vs)\.$")
END = re.compile(r"[.!?][)\"”'’*_\]]*(?=\s)")
ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
ROW = re.compile(r"\s*\|")
HEADING = re.compile(r"#+ ")
# A line of columns, and a line of an example.
COLUMNS = re.compile(r"\s{5}|.*\S\s{3,}\S")
# Marks in front of a sentence, and the names of a documentation comment's parts.
LEAD = re.compile(r"[\s>*_(\"“'‘\[]*(?:(?:Parameter )?\w+: )?[*_(\"“'‘\[]*")


def blocks(passage):
    """The offsets of the parts in which sentences end: paragraphs, items of lists, cells of tables."""
    text, start, at, is_item = passage.text, None, 0, False
    for line in text.splitlines(keepends=True):
        item = ITEM.match(line)
        is_item = bool(item) or is_item and line.startswith(" ")
        is_layout = passage.kind == COMMENT and not is_item and COLUMNS.match(line)
        is_row = ROW.match(line) and passage.kind != MESSAGE
        is_heading = passage.kind == PAGE and HEADING.match(line)
        if start is not None and (item or is_layout or is_row or is_heading):
            yield start, at, False
            start = None
        if is_row:
            for cell in re.finditer(r"(?:\\\||[^|\n])+", line):
                yield at + cell.start(), at + cell.end(), False
        elif is_heading:
            yield at + is_heading.end(), at + len(line), True
        elif not is_layout and start is None:
            start = at + (item.end() if item else 0)
        at += len(line)
    if start is not None:
        yield start, at, False


def sentences(passage):
    """The offset of each sentence's first word, its text, and whether the sentence is a heading."""
    for start, end, is_heading in blocks(passage):
        part, at = passage.text[start:end], 0
        stops = [match.end() for match in END.finditer(part) if not ABBREVIATION.search(part[:match.start() + 1])]
        if passage.kind == MESSAGE:
            stops += [match.end() for match in re.finditer(r"\S\s{3,}", part)]  # columns of a list of options
        for stop in sorted(stops) + [len(part)]:
            lead = LEAD.match(part, at, stop)
            if re.search(r"\w", part[lead.end():stop]):
                yield start + lead.end(), part[lead.end():stop], is_heading
            at = stop
