#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Plain English in README, pages, help texts and messages: phrases that a reader stumbles over do not occur, outside of code.

  words.py SOURCE_DIR BRAID
"""
import pathlib
import re
import subprocess
import sys

root, braid = pathlib.Path(sys.argv[1]), sys.argv[2]
INSTEAD = {
    r"(is|are|was) told": "says, reports, describes",
    r"tells? that": "says that",
    r"told as": "reported as",
    r"is said by": "comes from, is set by",
    r"so (many|much)\b(?! (as|that|less|more))": "the number of, N",
    r"as it goes": "at run time",
    r"goe?s? with": "is compatible with, is combined with",
    r"anew": "again",
    r"of nobody|nobody": "no rank, no one",
    r"who do(es)? not come": "ranks that do not arrive",
    r"ends it": "stops it",
    r"in full": "in detail, completely",
    r"the way of": "like",
    r"nothing of (it|this)": "none of it",
    r"stands? (in|below|beside|at|there)": "is in, is below",
    r"(is|are) of (?!the (same|order))": "belongs to, has",
    r"(bytes|[GMK]i?B|samples|stages|tokens|seconds|processes|once|file|one|shares?|experts|times|threads|blocks|layers"
    r"|micro-batch(es)?|parts|tensors|messages|batch) a rank": "per rank",
}
BANNED = [(re.compile(rf"\b(?:{phrase})\b", re.I), better) for phrase, better in INSTEAD.items()]
NOT_YET = set()
MESSAGES_LEFT = 0  # in string literals of src: may only shrink
CODE = re.compile(r"^```(?!text).*?^```|`[^`\n]*`|<!--.*?-->", re.M | re.S)
LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')


def found(text):
    for pattern, better in BANNED:
        for match in pattern.finditer(text):
            yield match.start(), match.group(), better


def report(name, text):
    return [f"{name}:{text.count(chr(10), 0, at) + 1}: \"{phrase}\": rather {better}" for at, phrase, better in found(text)]


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def messages(source):
    """Literals of a source with neighbours joined, as the compiler does."""
    text = re.sub(r'"\s*\n\s*"', "", source.read_text())
    return report(source.relative_to(root), "\n".join(" ".join(LITERAL.findall(line)) for line in text.split("\n")))


def help_texts():
    def tell(*words):
        return subprocess.run([braid, *words, "--help"], capture_output=True, text=True).stdout
    flags = (root / "tests/golden/cli_flags.txt").read_text()
    commands = {re.split(r"(?:^| )-", line)[0] for line in flags.split("\n") if line}
    return {f"braid {name} --help": tell(*name.split()) for name in sorted(commands)} | {
        "braid help config": subprocess.run([braid, "help", "config"], capture_output=True, text=True).stdout}


bad, waiting = [], []
pages = [root / "README.md", *sorted(root.glob("docs/*.md"))]
for page in pages:
    name = str(page.relative_to(root))
    (waiting if name in NOT_YET else bad).extend(report(name, CODE.sub(blank, page.read_text())))
texts = help_texts()
for name, text in texts.items():
    bad += report(name, text)
said = [line for source in sorted(root.glob("src/**/*.cpp")) for line in messages(source)]
if len(said) > MESSAGES_LEFT:
    bad += said + [f"src: {len(said)} such phrases in messages, {MESSAGES_LEFT} were left"]
print("\n".join(bad) or f"words: {len(pages) - len(NOT_YET)} of {len(pages)} pages and {len(texts)} help texts are plain; "
      f"{len(waiting)} phrases are left in {len(NOT_YET)} pages, {len(said)} in messages")
sys.exit(bool(bad) or len(texts) < 10)
