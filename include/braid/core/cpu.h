// SPDX-License-Identifier: BSD-3-Clause
// What a process that computes on a CPU sets right first: faults of the machine that would end a
// run or make it differ from the one before, and an allocator made for small blocks.
//
//   // First thing in main:
//   if (const std::string note = avoid_broken_amx(); !note.empty()) log.warning(note);
#pragma once
#include <string>

namespace braid {

// Some virtual machines announce AMX but do not describe its tiles (CPUID leaf 0x1d): oneDNN then
// sets up none and the first bf16 matrix product dies of an illegal instruction. This tells oneDNN
// to leave AMX alone there, unless ONEDNN_MAX_CPU_ISA is set already. Call it before the first
// tensor operation. Returns what was done, "" if nothing.
std::string avoid_broken_amx();

// MKL chooses the code of each vector function (exp, tanh, ...) at its first call, and two threads
// that come first together may get other code, once: the last bit of a value then differs from run
// to run (of 1500 processes 7). This makes those first calls from one thread. Costs a millisecond,
// once a process; call it before threads compute.
void settle_math();

// Memory that this process frees stays with it: handed back and taken again, as the system's
// allocator does with large blocks, every page of them is cleared and mapped anew in each step. A
// training step on a CPU takes 4 to 6 % less time. False where another allocator has taken the
// system's place.
bool keep_freed_memory();

}  // namespace braid
