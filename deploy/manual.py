#!/usr/bin/env python3
"""Writes the man pages and the shell completions of the three programs from what they print for --help.

    deploy/manual.py --binaries .build/release --output FOLDER

FOLDER gets man/*.8 and *.1, bash/, zsh/ and fish/. Nothing of it is kept in the repository, so it cannot fall behind the
programs. A help text that this program cannot read ends it with an error. Tests/Integration/cases/test_packages.py holds the result
to the programs.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

OPTION = r"--[a-z][a-z0-9-]*|-[a-z](?![a-z])"
PLACEHOLDER = r"[A-Z][A-Z0-9:+|-]*(?![a-z])"
ONE = rf"(?:{OPTION})(?: {PLACEHOLDER})?"
FILES = {"FILE", "DIR", "PATH", "FROM", "TO"}
PROGRAMS = {"longwire": "1", "longwired": "8", "longwire-sender": "8"}
SEE_ALSO = {
    "longwire": ["longwired(8)"],
    "longwired": ["longwire(1)", "longwire-sender(8)"],
    "longwire-sender": ["longwired(8)", "longwire(1)"],
}
SUMMARIES = {
    "longwire": "talks to a Longwire message gateway",
    "longwired": "passthrough message gateway",
    "longwire-sender": "sends the gateway's handoff jobs to push vendors",
}


class Option:
    def __init__(self, name, placeholder, text):
        self.name, self.placeholder, self.text = name, placeholder, text


class Command:
    """One command line: its words behind the program's name, what it says of itself, its options."""

    def __init__(self, words, summary, text):
        self.words, self.summary, self.text = words, summary, text
        self.options = []

    def add(self, options):
        known = {option.name for option in self.options}
        self.options += [option for option in options if option.name not in known]


def entries(text):
    """The entries of a help text: indented by two spaces, their explanation behind or further in; (head, explanation)."""
    found = []
    for line in text.splitlines():
        inner = re.match(r"^   +(\S.*)$", line)
        entry = re.match(rf"^  ({ONE}(?:, {ONE})*)(?:\s+(\S.*))?$", line) or re.match(r"^  (\S+(?: \S+)*?)  +(\S.*)$", line)
        if entry:
            found.append([entry[1], entry[2] or ""])
        elif inner and found:
            found[-1][1] = (found[-1][1] + " " + inner[1]).strip()
    return found


def options_of(text):
    """The options of a help text, including options with a value that another option's explanation names."""
    options = []
    for head, explanation in entries(text):
        if head.startswith("-"):
            for name, value in re.findall(rf"({OPTION})(?: ({PLACEHOLDER}))?", head):
                if name.startswith("--"):
                    options.append(Option(name, value, explanation))
    known = {option.name for option in options}
    for name, value in re.findall(rf"(--[a-z][a-z0-9-]*) ({PLACEHOLDER})", text):
        if name not in known:
            known.add(name)
            options.append(Option(name, value, ""))
    return options


def help_of(binaries, program, words=()):
    command = [str(binaries / program), *words, "--help"]
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "SWIFT_BACKTRACE": "enable=no", "NO_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    if done.returncode != 0 or not done.stdout.strip():
        sys.exit(f"manual: {' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.rstrip("\n")


def section(text, name):
    """The lines between `name` and the next line that is not indented."""
    found = re.search(rf"^{re.escape(name)}\n((?:  .*\n|\n(?=  ))*)", text + "\n", re.M)
    return found[1] if found else ""


def read_longwire(binaries):
    overview = help_of(binaries, "longwire")
    commands = []
    for head, summary in entries(section(overview, "Commands:")):
        words = head.split()
        text = help_of(binaries, "longwire", words)
        command = Command(words, summary, text)
        command.add(options_of(text) + [Option("--help", "", "Show this text.")])
        commands.append(command)
    if len(commands) < 5:
        sys.exit("manual: the overview of longwire has no list of commands that this program can read")
    return overview, commands


def read_longwired(binaries):
    text = help_of(binaries, "longwired")
    command = Command([], SUMMARIES["longwired"], text)
    command.add(options_of(text))
    return text, [command]


def read_apns(binaries):
    text = help_of(binaries, "longwire-sender")
    usage, = (part for part in text.split("\n\n") if part.startswith("Usage: "))
    usages = re.findall(r"^(?:Usage: | +)longwire-sender(.*)$", usage, re.M)
    commands = [Command([], SUMMARIES["longwire-sender"], "")]
    for usage in usages[1:]:
        words = re.match(r"^((?: [a-z|]+)+)", usage)[1].split()
        for last in words[-1].split("|"):
            command = Command(words[:-1] + [last], "", "")
            command.add(Option(name, value, "") for name, value in re.findall(rf"({OPTION}) ({PLACEHOLDER})", usage))
            commands.append(command)
    # A paragraph that begins with commands explains the options below it.
    for paragraph in re.split(r"\n\n", text):
        first = re.match(r"^([a-z]+)(?: and ([a-z]+))? ", paragraph)
        names = [name for name in (first.groups() if first else ()) if name]
        for command in commands:
            if command.words and command.words[0] in names or not command.words and paragraph.startswith("  --"):
                command.summary = command.summary or re.split(r"[.:]\s", paragraph)[0].replace("\n", " ")
                explained = {option.name: option for option in options_of(paragraph)}
                for option in command.options:
                    option.text = option.text or explained.get(option.name, option).text
                command.add(explained.values())
    for command in commands:
        command.add([Option("--help", "", "This text.")])
    return text, commands


READERS = {"longwire": read_longwire, "longwired": read_longwired, "longwire-sender": read_apns}


# Man pages


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("µ", "\\(mc").replace("–", "\\(en").replace("…", "...")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def roff_body(text, heading):
    """A help text behind its usage as roff: paragraphs, sections with entries, sections as they stand."""
    lines = []
    for block in re.split(r"\n\n+", text):
        rows = block.splitlines()
        told = [row for row in rows if not row.startswith(" ")]
        rows = rows[len(told) :] if rows[: len(told)] == told else rows
        if len(told) == 1 and rows and not told[0].endswith("."):
            lines.append(f'{heading} "{roff(told[0].rstrip(":"))}"')
        elif told:
            lines += [".PP", roff(" ".join(told))]
        if not rows:
            continue
        if re.match(r"^  \S+(?: \S+)*?  +\S|^  -", rows[0]) and (found := entries("\n".join(rows))):
            for head, explanation in found:
                lines += [".TP", ".B " + roff(head), roff(explanation) or "\\&"]
        else:
            lines += [".PP", ".nf", *(roff(row) or "." for row in rows), ".fi"]
    return lines


def without_usage(text):
    """The summary, the usage lines and the rest of a help text."""
    found = re.search(r"^Usage: (.*(?:\n +\S.*)*)\n?", text, re.M)
    if not found:
        sys.exit("manual: a help text has no line that begins with Usage:")
    usage = [line.strip() for line in found[1].splitlines()]
    return text[: found.start()].strip(), usage, text[found.end() :].strip("\n")


def page(program, overview, commands, version, date):
    name = program.upper().replace("-", "\\-")
    lines = [f'.TH {name} {PROGRAMS[program]} "{date}" "Longwire {version}" "Longwire"', ".SH NAME"]
    lines += [f"{roff(program)} \\- {roff(SUMMARIES[program])}", ".SH SYNOPSIS", ".nf"]
    summary, usage, rest = without_usage(overview)
    lines += [roff(line) for line in usage] + [".fi", ".SH DESCRIPTION", roff(summary or SUMMARIES[program])]
    # The sections of the commands replace their list.
    list_of_commands = "Commands:\n" + section(overview, "Commands:")
    lines += roff_body(rest.replace(list_of_commands.rstrip("\n"), "").strip("\n"), ".SS")
    told = [command for command in commands if command.text and command.words]
    if told:
        lines.append(".SH COMMANDS")
        for command in told:
            summary, usage, rest = without_usage(command.text)
            lines += [f'.SS "{roff(" ".join([program, *command.words]))}"', roff(summary or command.summary)]
            lines += [".PP", ".nf", *(roff(line) for line in usage), ".fi"]
            lines += roff_body(rest, ".SS") if rest else []
    if program != "longwire":
        file = {"longwired": "gateway.json5", "longwire-sender": "sender.json5"}[program]
        lines += [".SH FILES", ".TP", f".I /etc/longwire/{file}", "The configuration of the Debian package's service."]
    lines += [".SH SEE ALSO", ", ".join(roff(item) for item in SEE_ALSO[program])]
    lines += [".PP", "The manual is in /usr/share/doc/longwire."]
    return "\n".join(line for line in lines if line) + "\n"


# Completions


def next_words(commands, prefix):
    """Returns the possible words after the words `prefix`, each with its explanation."""
    found = {}
    for command in commands:
        if len(command.words) > len(prefix) and command.words[: len(prefix)] == prefix:
            word = command.words[len(prefix)]
            text = command.summary if len(command.words) == len(prefix) + 1 else f"{word} …"
            found.setdefault(word, text)
    return found


def prefixes(commands):
    """Returns every row of words that completions distinguish, longest first."""
    rows = {tuple(command.words[:count]) for command in commands for count in range(len(command.words) + 1)}
    return sorted((list(row) for row in rows), key=lambda row: (-len(row), row))


def choices(commands, prefix):
    """Words and options behind `prefix`."""
    exact = [command for command in commands if command.words == prefix]
    options = exact[0].options if exact else [Option("--help", "", "Show the help text.")]
    return next_words(commands, prefix), options


def bash(program, commands):
    function = "_" + program.replace("-", "_")
    lines = [f"# bash completion of {program}; made from its --help.", f"{function}() {{"]
    lines += ["    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}"]
    lines += ['    local line="${COMP_WORDS[*]:1:COMP_CWORD-1} " words= files= values=', '    case "$line" in']
    for prefix in prefixes(commands):
        words, options = choices(commands, prefix)
        pattern = f'"{" ".join(prefix)} "*' if prefix else "*"
        files = " ".join(option.name for option in options if option.placeholder in FILES)
        values = " ".join(option.name for option in options if option.placeholder and option.placeholder not in FILES)
        offered = " ".join([*words, *(option.name for option in options)])
        lines.append(f"    {pattern}) words='{offered}' files='{files}' values='{values}' ;;")
    lines += ["    esac", '    case " $files " in *" $previous "*)']
    lines += ["        compopt -o filenames 2>/dev/null", '        mapfile -t COMPREPLY < <(compgen -f -- "$current")', "        return ;;"]
    lines += ["    esac", '    case " $values " in *" $previous "*) COMPREPLY=(); return ;; esac']
    lines += ['    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")', "}", f"complete -o default -F {function} {program}"]
    return "\n".join(lines) + "\n"


def short(text):
    """The first sentence, for one line of a list."""
    return re.split(r"(?<=[a-z)])\. |: (?=[A-Z])", text)[0].rstrip(".")[:78]


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def zsh(program, commands):
    lines = [f"#compdef {program}", f"# zsh completion of {program}; made from its --help.", "local -a words_next options files values"]
    lines += ['local line="${(j: :)words[2,CURRENT-1]} " previous=${words[CURRENT-1]}', 'case "$line" in']
    for prefix in prefixes(commands):
        words, options = choices(commands, prefix)
        pattern = f"({quoted(' '.join(prefix) + ' ')}*)" if prefix else "(*)"
        described = [quoted(f"{word}:{short(text)}") for word, text in words.items()]
        told = [quoted(f"{option.name}:{short(option.text)}") for option in options]
        files = [option.name for option in options if option.placeholder in FILES]
        values = [option.name for option in options if option.placeholder and option.placeholder not in FILES]
        lines.append(f"    {pattern}")
        lines.append(f"        words_next=({' '.join(described)})")
        lines.append(f"        options=({' '.join(told)})")
        lines.append(f"        files=({' '.join(files)}) values=({' '.join(values)}) ;;")
    lines += ["esac", "if (( ${files[(Ie)$previous]} )); then _files; return; fi"]
    lines += ["if (( ${values[(Ie)$previous]} )); then _message value; return; fi"]
    lines += ["(( ${#words_next} )) && _describe command words_next", "_describe option options"]
    return "\n".join(lines) + "\n"


def fish(program, commands):
    function = "__" + program.replace("-", "_") + "_at"
    lines = [f"# fish completion of {program}; made from its --help."]
    lines += [f"function {function}", "    set -l words (commandline -opc)[2..]", "    set -l count (count $argv)"]
    lines += ["    test (count $words) -ge $count; or return 1", "    test $count -eq 0; or test \"$words[1..$count]\" = \"$argv\"", "end"]
    # A longer row of words wins over a shorter one.
    for prefix in prefixes(commands):
        words, options = choices(commands, prefix)
        longer = [row for row in prefixes(commands) if len(row) > len(prefix) and row[: len(prefix)] == prefix]
        condition = f"{function} {' '.join(prefix)}".strip()
        for row in longer:
            condition += f"; and not {function} {' '.join(row)}"
        for word, text in words.items():
            lines.append(f"complete -c {program} -n {quoted(condition)} -f -a {word} -d {quoted(short(text))}")
        for option in options:
            value = " -r" if option.placeholder in FILES else " -x" if option.placeholder else ""
            lines.append(
                f"complete -c {program} -n {quoted(condition)} -f -l {option.name[2:]}{value} -d {quoted(short(option.text))}")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binaries", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    binaries = arguments.binaries.resolve()
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    for folder in ("man", "bash", "zsh", "fish"):
        (arguments.output / folder).mkdir(parents=True, exist_ok=True)
    for program, number in PROGRAMS.items():
        words = ["version"] if program == "longwire" else ["--version"]
        version = subprocess.run([binaries / program, *words], capture_output=True, text=True, check=True).stdout.split()[-1]
        overview, commands = READERS[program](binaries)
        (arguments.output / "man" / f"{program}.{number}").write_text(page(program, overview, commands, version, date))
        (arguments.output / "bash" / program).write_text(bash(program, commands))
        (arguments.output / "zsh" / f"_{program}").write_text(zsh(program, commands))
        (arguments.output / "fish" / f"{program}.fish").write_text(fish(program, commands))


if __name__ == "__main__":
    main()
