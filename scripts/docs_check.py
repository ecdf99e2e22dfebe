#!/usr/bin/env python3
"""Checks that the documentation can be followed. Prints every fault and exits with 1, or prints what was checked.

  scripts/docs_check.py [build/bin/winnow]

- Relative links of every Markdown file lead to a file, and their anchors to a heading of it.
- The commands of winnow in ```sh blocks parse: the command exists, `winnow COMMAND --help` has every flag, and `winnow
  methods` every method that is named after --kv-evict or --methods. No command runs on a model.
- README, guides and the paragraphs outside docs/lab have no more than README_LINES, GUIDE_WORDS and PARAGRAPH_WORDS.
- proselint finds no fault in the prose by the rules in docs/prose.json. Help texts and the sentences in string literals
  of src/ are prose, too; code and tables are not.

Without the tool (not yet built) commands are not checked, without proselint (make python-packages) prose is not, and
the last line says so.
"""
import functools
import itertools
import json
import os
import pathlib
import re
import shlex
import string
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
README_LINES = 100
GUIDE_WORDS = 1500
PARAGRAPH_WORDS = 120
GUIDES = ["quickstart", "coming-from-llama.cpp", "coming-from-kvpress", "choosing-a-method", "tuning", "faq", "glossary",
          "cookbook"]

PROSELINT = ROOT / ".venv/bin/proselint"

LINK = re.compile(r"\]\(([^)\s]+)\)")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
FLAG = re.compile(r"(?<![\w-])(--?[A-Za-z][\w-]*)")


def markdown_files():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.split()
    return [path for path in listed if (ROOT / path).exists()]


@functools.cache
def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def lines_outside_code(text):
    """Yields (line number, line) outside fenced blocks."""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark:
            fence = None if fence and mark.group(1).startswith(fence) else fence or mark.group(1)
        elif not fence:
            yield number, line


@functools.cache
def anchors(path):
    """Returns the anchors that GitHub makes of headings: letters, digits, '-', '_', and a number after repetitions."""
    found, seen = set(), {}
    for _, line in lines_outside_code(read(path)):
        heading = re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
        if heading:
            title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).lower()
            anchor = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
            found.add(anchor + (f"-{seen[anchor]}" if anchor in seen else ""))
            seen[anchor] = seen.get(anchor, 0) + 1
    return found


def check_links(path):
    for number, line in lines_outside_code(read(path)):
        for link in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = link.partition("#")
            file = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
            if not (ROOT / file).exists():
                yield f"{path}:{number}: there is no {file}"
            elif anchor and file.endswith(".md") and anchor not in anchors(file):
                yield f"{path}:{number}: {file} has no heading for #{anchor}"


def paragraphs(text):
    """Yields (line number, words) of paragraphs and list items, not of tables, headings and code."""
    first, words, before = 0, 0, 0
    for number, line in [*lines_outside_code(text), (0, "")]:
        stripped = line.strip()
        begins = number != before + 1 or not stripped or re.match(r"\||#|<!--|([-*]|\d+\.)\s", stripped)
        if begins and words:
            yield first, words
            words = 0
        before = number
        if stripped and not re.match(r"\||#|<!--", stripped):
            first = first if words else number
            words += len(stripped.split())


def check_lengths(path):
    if path == "README.md":
        n = len(read(path).splitlines())
        if n > README_LINES:
            yield f"{path}: {n} lines, and at most {README_LINES} are wanted"
    if path in {f"docs/{guide}.md" for guide in GUIDES}:
        n = len(" ".join(line for _, line in lines_outside_code(read(path))).split())
        if n >= GUIDE_WORDS:
            yield f"{path}: {n} words, and a guide has fewer than {GUIDE_WORDS}"
    if path == "README.md" or path.startswith("docs/") and not path.startswith("docs/lab/"):
        for number, n in paragraphs(read(path)):
            if n > PARAGRAPH_WORDS:
                yield f"{path}:{number}: a paragraph of {n} words, and at most {PARAGRAPH_WORDS} are wanted"


def code_words():
    """Words that are no English, each of them another."""
    return ("x" + "".join(letters) for letters in itertools.product(string.ascii_lowercase, repeat=4))


def prose_of(text):
    """Returns the text without all that is not prose, line for line. Pieces of code and numbers become words, no two of
    them the same."""
    lines = dict(lines_outside_code(text))
    code = code_words()
    out = []
    for number in range(1, len(text.splitlines()) + 1):
        line = lines.get(number, "")
        line = "" if line.lstrip().startswith(("|", "<!--")) else re.sub(r"`[^`]*`|\d[\d.,]*", lambda _: next(code), line)
        line = re.sub(r"\]\([^)\s]*\)", "]", line)
        out.append(line + "." if line.startswith("#") else line)  # a heading is a sentence of its own
    return "\n".join(out) + "\n"


def sentences(fragments):
    """Returns a line for each list of fragments. A word after each fragment keeps it from running on into the next."""
    code = code_words()
    return "".join(" ".join(re.sub(r"\s+", " ", part).strip() + f" {next(code)}." for part in parts) + "\n" for parts in fragments)


def sentences_of_source(text):
    """Returns the string literals that are prose: words between blanks, without markup, patterns or formats."""
    literals = (LITERAL.findall(re.split(r"(?:^|\s)// ", line)[0]) for line in text.splitlines())
    return sentences([part for part in parts if part.count(" ") > 2 and re.fullmatch(r"[\w ,.;:()'/-]*", part)] for parts in literals)


def sentences_of_help(text):
    """Returns the descriptions of a help text: the text to the right of flags, and paragraphs."""
    return sentences([re.sub(r"^\s*-.*?(\s{2,}|$)|^(usage: |\s+)winnow .*", "", line)] for line in text.splitlines())


def prose_of_program(tool):
    """Yields (name, text) of the sentences that the tool can print."""
    for path in sorted((ROOT / "src").rglob("*.cc")):
        yield f"{path.relative_to(ROOT)}.md", sentences_of_source(path.read_text(encoding="utf-8"))
    for command in tool.commands() if tool else []:
        yield f"winnow-{command}-help.md", sentences_of_help(tool.output(command, "--help"))


def check_prose(files, tool):
    pages = {file: prose_of(read(file)) for file in files} | dict(prose_of_program(tool))
    with tempfile.TemporaryDirectory() as folder:
        for file, text in pages.items():
            copy = pathlib.Path(folder, file)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text, encoding="utf-8")
        # proselint reads the rules of its working folder and of the user, who has none here. (0.16.0 ignores --config.)
        pathlib.Path(folder, ".proselintrc.json").write_text(read("docs/prose.json"), encoding="utf-8")
        environment = {**os.environ, "HOME": folder, "XDG_CONFIG_HOME": folder}
        ran = subprocess.run([PROSELINT, "--output-format", "compact", "check", *pages], cwd=folder, env=environment,
                             capture_output=True, text=True)
        found = [line for line in ran.stdout.splitlines() if re.search(r"\.md:\d+:\d+: ", line)]
        if ran.returncode and not found:
            found = [f"proselint: {ran.stderr.strip()[-400:]}"]
        yield from (line.replace(folder + "/", "") for line in found)


class Tool:
    def __init__(self, path):
        self.path = path
        self.methods = {method["name"] for method in json.loads(self.output("methods", "--json", "-"))}

    def output(self, *arguments):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WINNOW_")}
        ran = subprocess.run([self.path, *arguments], capture_output=True, text=True, env=environment)
        return ran.stdout if ran.returncode == 0 else ""

    def commands(self):
        """Returns the names of the commands, from the tool's own list."""
        listed = self.output("--help").partition("Commands:")[2]
        return re.findall(r"^  ([a-z]+)  ", listed, re.M)

    @functools.cache
    def flags(self, command):
        """Returns the flags of a command, or None if there is no such command."""
        text = self.output(command, "--help")
        return {"--help", *FLAG.findall(text)} if text.startswith("usage: winnow " + command) else None


def shell_commands(text):
    """Yields (line number, words) of every winnow command in a block of sh."""
    for block in re.finditer(r"^ *```sh\n(.*?)^ *```", text, re.S | re.M):
        for line in re.finditer(r"(?:[^\n]*\\\n)*[^\n]*\n", block.group(1)):
            number = text.count("\n", 0, block.start(1) + line.start()) + 1
            yield from ((number, words) for words in winnow_words(line.group().replace("\\\n", " ")))


def winnow_words(line):
    """Yields the words after each `winnow` of a line, up to the end of its command."""
    line = re.sub(r"\$\([^()]*\)", "SUBSTITUTED", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        tokens = list(lexer)
    except ValueError:  # a quotation that continues in the next line
        return
    for at, token in enumerate(tokens):
        if token == "winnow" or token.endswith("/winnow"):
            end = next((i for i in range(at, len(tokens)) if re.fullmatch(r"[|&;<>()]+", tokens[i])), len(tokens))
            if at + 1 < end and re.fullmatch(r"[a-z]+|--?[a-z]+", tokens[at + 1]):
                yield tokens[at + 1:end]


def methods_of(words):
    """Yields names of methods after --kv-evict and --methods. In lists a NAME=VALUE belongs to the method before it."""
    for flag, value in zip(words, words[1:]):
        if flag == "--kv-evict":
            yield value.split(":")[0]
        elif flag == "--methods" and "SUBSTITUTED" not in value:
            separator = ";" if ";" in value else ","  # with semicolons, commas belong to a method
            yield from (part.split(":")[0] for part in value.split(separator) if part and "=" not in part.split(":")[0])


def check_commands(path, tool):
    for number, (command, *words) in shell_commands(read(path)):
        if command.startswith("-"):
            continue  # a flag of the tool itself: --help, --version
        flags = tool.flags(command)
        if flags is None:
            yield f"{path}:{number}: there is no `winnow {command}`"
            continue
        given = [word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)]
        yield from (f"{path}:{number}: `winnow {command}` has no flag {flag}" for flag in given if flag not in flags)
        # A page may define a method of its own first, as @winnow.scorer("NAME") or register_scorer("NAME").
        yield from (f"{path}:{number}: there is no method {name}" for name in methods_of(words)
                    if name not in tool.methods and f'"{name}"' not in read(path))


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/bin/winnow")
    tool = Tool(os.path.abspath(path)) if os.path.exists(path) else None
    files = markdown_files()
    wrong = []
    for file in files:
        wrong += [*check_links(file), *check_lengths(file)]
        if tool:
            wrong += check_commands(file, tool)
    has_linter = PROSELINT.exists()
    if has_linter:
        wrong += check_prose(files, tool)
    print("\n".join(wrong) if wrong else
          f"docs: {len(files)} pages" + ("" if tool else f", but no commands: there is no {path}") +
          ("" if has_linter else ", but not their prose: there is no proselint (make python-packages)"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
