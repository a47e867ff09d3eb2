# SPDX-License-Identifier: BSD-3-Clause
"""Reads a pickle with Python's own reader and prints it as JSON, with its protocol and the names of its opcodes."""
import json
import pickle
import pickletools
import sys

with open(sys.argv[1], "rb") as file:
    data = file.read()
opcodes = sorted({opcode.name for opcode, _, _ in pickletools.genops(data)})
protocol = next(argument for opcode, argument, _ in pickletools.genops(data) if opcode.name == "PROTO")
print(json.dumps({"protocol": protocol, "opcodes": opcodes, "value": pickle.loads(data)}))
