#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The examples at the heads of public headers compile as they stand: in a function that says
`using namespace braid`, after the declarations of header_examples.txt.

  headers.py SOURCE_DIR TORCH_DIR [COMPILER]
"""
import pathlib
import re
import subprocess
import sys
import tempfile

root, torch = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
compiler = sys.argv[3] if len(sys.argv) > 3 else "g++"

FRONT = """#include <braid/braid.h>
#include <ATen/ATen.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>
#include <cmath>
#include <iostream>
{includes}
#define EXPECT_EQ(a, b) static_cast<void>((a) == (b))
namespace examples {{
using namespace braid;
template <class T> T& declared();
{common}
}}
"""


def examples(header):
    """Runs of lines of the comment at the head that are indented by three spaces, with their numbers."""
    pieces = []
    for number, line in enumerate(header.read_text().splitlines(), 1):
        if number > 1 and not line.startswith("//"):
            break
        if line.startswith("//   "):
            if not pieces or pieces[-1][-1][0] != number - 1:
                pieces.append([])
            pieces[-1].append((number, line[5:]))
    return pieces


def sections(text):
    found, name = {}, None
    for line in text.splitlines():
        head = re.fullmatch(r"\[(\S+)\]( outside)?", line)
        if head:
            name = head[1]
            found[name] = (head[2] is not None, [])
        elif name and not line.startswith("#"):
            found[name][1].append(line)
    return found


def at(file, number, line):
    return f'#line {number} "{file}"\n{line}\n'


def placed(name, piece):
    return "".join(at(f"include/braid/{name}", number, line) for number, line in piece)


def program():
    given = sections((root / "tests/rules/header_examples.txt").read_text())
    headers = sorted((root / "include/braid").rglob("*.h"))
    with_example = {str(h.relative_to(root / "include/braid")): examples(h) for h in headers}
    unknown = set(given) - {"common"} - {name for name, pieces in with_example.items() if pieces}
    if unknown:
        sys.exit(f"header_examples.txt names headers without an example: {', '.join(sorted(unknown))}")
    includes = "\n".join(f'#include "braid/{name}"' for name in with_example)
    text = FRONT.format(includes=includes, common="\n".join(given["common"][1]))
    for name, pieces in with_example.items():
        if not pieces or name == "braid.h":
            continue
        outside, declared = given.get(name, (False, []))
        space = re.sub(r"\W", "_", name)
        text += f"namespace in_{space} {{\nusing namespace examples;\nusing namespace braid;\n"
        if not outside:
            text += "[[maybe_unused]] auto example() {\n"
        left = list(pieces)
        for line in declared:  # a line %% is where the next piece goes; else all come behind
            text += placed(name, left.pop(0)) if line == "%%" else at(f"header_examples.txt [{name}]", 1, line)
        text += "".join(placed(name, piece) for piece in left)
        text += "}\n" if outside else "}\n}\n"
    return text, sum(1 for pieces in with_example.values() if pieces)


with tempfile.TemporaryDirectory() as folder:
    source = pathlib.Path(folder) / "examples.cpp"
    text, count = program()
    source.write_text(text)
    flags = ["-std=c++20", "-fsyntax-only", "-w", f"-I{root}/include", f"-isystem{torch}/include",
             f"-isystem{torch}/include/torch/csrc/api/include"]
    flags += ["-ferror-limit=0"] if "clang" in compiler else ["-fmax-errors=0"]
    result = subprocess.run([compiler, *flags, str(source)], capture_output=True, text=True)
errors = [line for line in result.stderr.splitlines() if re.search(r"\berror:", line)]
if result.returncode != 0:
    sys.exit("\n".join(errors) or result.stderr)
print(f"headers: the examples of {count} headers compile")
