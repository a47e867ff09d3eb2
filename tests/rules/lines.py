#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every command that README and docs print runs, in the order of its page, at a small size; what pages show as output is what
comes out. README and getting_started run first; every other page starts from the files that those two left.

  lines.py SOURCE_DIR BRAID [PAGE...]

A block of commands is fenced as ```sh, output and listings as ```text. Comments above a fence say how it is tested; a quoted
part restricts a comment to the lines that contain it:
  <!-- test: --set train.steps=4 -->         added to each command of the block; `small`: the sizes of tiny.py
  <!-- test "make demo": braid ... -->       run instead of the line
  <!-- parse "--ranks 8": needs 8 GPUs -->   not run: its flags, keys and config must exist
  <!-- fails "limit": 8 -->                  ends with this exit code instead of 0
  <!-- file: own.yaml -->                    the block is written to that file
  <!-- output -->, <!-- output exact -->     lines of the output of the last command, in this order; `...` is any text, and so is
                                             every number unless exact
  <!-- show: a folder -->                    not checked
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import tiny

root, braid = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
FIRST = ["README.md", "docs/getting_started.md"]
UNCHECKED = set()  # pages whose lines are not run yet: may only shrink
FENCE = re.compile(r"((?:^<!--.*?-->\n+)*)^```(\w*)\n(.*?)^```$", re.M | re.S)
COMMENT = re.compile(r'<!-- (test|parse|fails|file|output|show)(?: "([^"]*)")?( exact)?(?:: (.*?))? -->')
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
STAMP = re.compile(r"^[-\d]+ [:,\d]+ - root - [A-Z]+ - ")
SPEC = re.compile(r"(?<=\s)([\w./]+\.(?:yaml|json)(?::\w+)?)(?=\s|$)")
SECONDS = 150  # the longest that a line may take


def call(command, folder, seconds=SECONDS):
    environment = {**os.environ, "PATH": f"{braid.parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, timeout=seconds, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        return 124, f"took longer than {seconds} s"
    return done.returncode, done.stdout


def split_comment(line):
    match = re.search(r"\s+#\s.*$", line)
    return (line[:match.start()], match.group()) if match else (line, "")


def small(command):
    """The --set words that make the config of a command small; its own --set words come later and win."""
    spec = SPEC.search(command)
    model = pathlib.Path(spec.group(1)).stem.split("_")[0].replace("moe", "gpt")
    channels = "4" if spec.group(1).endswith(":demo") else "20"
    return [f"--set '{s}'".replace("{channels_in}", channels) for s in tiny.MODEL[model] + tiny.SHORT]


def smaller(command, words):
    """Sizes go behind the config, where the line's own --set words win; other words go to the end, where they win."""
    words = words.split(" ")
    head = re.match(r"\s*braid \w+ [^-\s]\S*", command)
    sizes = small(command) if "small" in words else []
    start = head.group() if head else ""
    return " ".join([start, *sizes]) + command[len(start):] + "".join(f" {word}" for word in words if word != "small")


class Page:
    def __init__(self, name, folder):
        self.name, self.folder, self.output, self.bad = name, folder, "", []
        self.ran = self.compared = self.files = 0
        self.parsed, self.slow = [], []

    def fail(self, line, why):
        self.bad.append(f"{self.name}: {line}\n    {why.strip()[-700:]}")

    def run(self):
        for comments, language, body in FENCE.findall((root / self.name).read_text()):
            marks = [match.groups() for match in COMMENT.finditer(comments)]
            if len(marks) != comments.count("<!--") or any(part and part not in body for _, part, _, _ in marks):
                self.fail(comments.strip(), "a comment above a fence that is not understood, or names no line of it")
            kinds = {kind: (exact, words) for kind, part, exact, words in marks if part is None or part == ""}
            if "file" in kinds:
                (self.folder / kinds["file"][1]).write_text(body)
                self.files += 1
            elif language == "sh":
                self.commands(body, marks)
            elif "output" in kinds:
                self.compare(body, bool(kinds["output"][0]))
            elif language in ("", "text", "yaml") and "show" not in kinds:
                self.fail(body.split("\n")[0], "a fence is sh, or text with <!-- output --> or <!-- show: what -->")

    def commands(self, body, marks):
        lines = re.sub(r"\\\n\s*", "", body).rstrip("\n").split("\n")
        whole = next((words for kind, part, _, words in marks if kind == "parse" and not part), None)
        if whole and body.startswith("#!"):
            lines = [body.rstrip("\n")]
        for line in lines:
            mine = {kind: words for kind, part, _, words in marks if not part or part in line}
            if "parse" in mine:
                self.parse(line, mine["parse"])
            elif line.strip():
                self.execute(line, mine.get("test"), int(mine.get("fails", 0)))

    def execute(self, line, test, wanted):
        command, comment = split_comment(line)
        if test and test.startswith(("--", "small")):
            command = smaller(command, test)
        elif test:
            command = test
        start = time.monotonic()
        code, self.output = call(command, self.folder)
        self.ran += 1
        self.slow.append((time.monotonic() - start, line))
        if code != wanted:
            self.fail(line, f"exit code {code}, not {wanted}\n{self.output}")

    def parse(self, line, why):
        self.parsed.append(why)
        code, said = call(f"bash -n <<'END'\n{line}\nEND", self.folder)
        if code != 0:
            self.fail(line, said)
        for command in re.findall(r"\bbraid [a-z]+ [^#\n;|]*", line):
            self.parse_braid(line, command)
        script = line.split()[0]
        if re.match(r"(bench|tools|examples|tests)/", script) and not (root / script).exists():
            self.fail(line, f"there is no {script}")
        target = re.match(r"make ([a-z-]+)", line)
        if target and f"\n{target.group(1)}:" not in (root / "Makefile").read_text():
            self.fail(line, f"make has no target {target.group(1)}")

    def parse_braid(self, line, command):
        words = command.split()
        name = " ".join(words[1:3] if words[1] in ("data", "bench") else words[1:2])
        known = help_of(name)
        for flag in re.findall(r"(?<=\s)--?[a-z][a-z-]*", command):
            if not re.search(rf"(?<![\w-]){flag}(?![\w-])", known):
                self.fail(line, f"braid {name} has no {flag}")
        spec = SPEC.search(command)
        if spec and (root / spec.group(1).split(":")[0]).exists():
            sets = " ".join(re.findall(r"""--set (?:"[^"]*"|'[^']*'|\S+)""", command))
            code, said = call(f"braid inspect {spec.group(1)} {sets} --json > /dev/null", self.folder)
            if code != 0:
                self.fail(line, said)

    def compare(self, body, exact):
        self.compared += 1
        at = 0
        said = [plain(line, exact) for line in self.output.splitlines()]
        for line in body.splitlines():
            pattern = ".*".join(re.escape(part) for part in plain(line, exact).split("..."))
            found = next((n for n in range(at, len(said)) if re.fullmatch(pattern, said[n])), None)
            if found is None:
                self.fail(line, f"is not in the output\n{self.output}")
                return
            at = found + 1


def plain(line, exact):
    line = " ".join(STAMP.sub("", line).split())
    return line if exact else NUMBER.sub("#", line)


HELP = {}


def help_of(name):
    if name not in HELP:
        HELP[name] = call(f"braid {name} --help", root)[1]
    return HELP[name]


def copy_of(base, folder):
    shutil.copytree(base, folder, symlinks=True)
    return folder


def test(temporary):
    base = pathlib.Path(temporary, "first")
    base.mkdir()
    for name in ("configs", "bench", "tools", "examples", "clusters", "docs"):
        (base / name).symlink_to(root / name)
    names = sys.argv[3:] or ["CONTRIBUTING.md", *(str(page.relative_to(root)) for page in sorted(root.glob("docs/*.md")))]
    wanted = [name for name in names if name not in FIRST and name not in UNCHECKED]
    done = [Page(name, base) for name in FIRST if name not in UNCHECKED]
    for page in done:
        page.run()
    pages = [Page(name, copy_of(base, pathlib.Path(temporary, pathlib.Path(name).stem))) for name in wanted]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(Page.run, pages))
    return done + pages


def main():
    with tempfile.TemporaryDirectory() as temporary:
        pages = test(temporary)
    bad = [line for page in pages for line in page.bad]
    reasons = [why for page in pages for why in page.parsed]
    ran = sum(page.ran for page in pages)
    print("\n".join(bad))
    print(f"lines: {len(pages)} pages, {ran + len(reasons)} commands: {ran} ran, {len(reasons)} only parsed; "
          f"{sum(page.compared for page in pages)} outputs compared, {sum(page.files for page in pages)} files; {len(bad)} bad")
    for why in sorted(set(reasons)):
        print(f"  parsed: {why} ({reasons.count(why)})")
    for seconds, line in sorted((slow for page in pages for slow in page.slow), reverse=True)[:3]:
        print(f"  {seconds:.1f} s: {line}")
    for name in sorted(UNCHECKED):
        print(f"  not checked yet: {name}")
    sys.exit(bool(bad) or ran == 0)


main()
