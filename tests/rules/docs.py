#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The pages: links lead somewhere, README lists every page and command, and keys that pages set exist. The messages: flags and keys
that they name exist.

  docs.py SOURCE_DIR BRAID
"""
import pathlib
import re
import subprocess
import sys

root, braid = pathlib.Path(sys.argv[1]), sys.argv[2]
FENCE = re.compile(r"^```.*?^```", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)")
LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"')
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
FOREIGN = {"--help", "--version", "--mpi"}  # the last one of srun
MISSPELT = {"train.stpes"}  # what a page shows the message of
SET = re.compile(r"--set(?:-braid)? ([a-z_0-9]+(?:\.[a-z_0-9]+)+)=")


def tell(*arguments):
    return subprocess.run([braid, *arguments], capture_output=True, text=True, check=True).stdout


def anchors_of(page):
    titles = re.findall(r"^#+ (.*)", FENCE.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def wrong_link(page, link):
    if re.match(r"[a-z]+:", link):
        return False
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return not target.exists() or bool(anchor) and anchor not in anchors_of(target)


pages = sorted([*root.glob("*.md"), *root.glob("docs/*.md")])
readme = (root / "README.md").read_text()
listed = set(LINK.findall(readme))
keys = {line.split()[0] for line in tell("help", "config").splitlines() if re.match(r"\s*[a-z_0-9]+(\.|\s|$)", line)}
commands = re.findall(r"^  ([a-z]+) ", re.split("subcommands:", tell("--help"), flags=re.I)[-1], re.M)

bad = [f"README.md does not link {page.relative_to(root)}" for page in root.glob("docs/*.md")
       if str(page.relative_to(root)) not in listed]
bad += [f"README.md does not list braid {command}" for command in commands if f"| `braid {command}" not in readme]
examples = "\n".join(file.read_text() for file in root.glob("examples/*.cpp"))  # those are built and run by the tests
count = 0
for page in pages:
    name, text = page.relative_to(root), page.read_text()
    links, sets = LINK.findall(FENCE.sub("", text)), SET.findall(text)
    count += len(links) + len(sets)
    bad += [f"{name}: {link} leads nowhere" for link in links if wrong_link(page, link)]
    bad += [f"{name}: there is no key {key}" for key in sets if key not in keys | MISSPELT]
    bad += [f"{name}: the program at `int main` is no example" for block in FENCE.findall(text)
            if block.startswith("```cpp\n") and "int main()" in block and block[7:-4] not in examples]
flags = FOREIGN | set(FLAG.findall((root / "tests/golden/cli_flags.txt").read_text()))
for source in sorted(root.glob("src/**/*.cpp")):
    text = " ".join(LITERAL.findall(source.read_text()))
    named, sets = FLAG.findall(text), SET.findall(text)
    count += len(named) + len(sets)
    bad += [f"{source.relative_to(root)}: there is no flag {flag}" for flag in named if flag not in flags]
    bad += [f"{source.relative_to(root)}: there is no key {key}" for key in sets if key not in keys | {"path.key"}]
print("\n".join(bad) or f"docs: {len(pages)} pages, {count} links, keys and flags")
sys.exit(bool(bad) or not commands or not keys)
