// SPDX-License-Identifier: BSD-3-Clause
// The threads of a CUDA block on the CPU, one after the other: each is a fiber that runs until it
// waits for others. In which order they run changes from block to block, so that a missing barrier
// shows. Kernels read threadIdx and the like as on a GPU; there is one grid at a time.
//
//   run_grid({.blocks = {4}, .threads = {256}, .shared = 1024}, [&] { kernel(x, y); });
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace braid::emulated {

struct Size3 {
  unsigned x = 1, y = 1, z = 1;
};

struct GridSize {
  Size3 blocks, threads;
  size_t shared = 0;  // bytes
};

// Throws if threads wait for others that never come.
void run_grid(const GridSize& grid, const std::function<void()>& thread);

// What the thread that runs now can do.
void wait_for_block();
void wait_for_warp();
void wait_for_some(int barrier, int threads);
unsigned char* shared_bytes();  // as many as the launch asked for; others are poisoned

// Ends the program: a kernel has no other way out.
void require(bool holds, const char* what);

// Given to the warp and seen by all of its lanes.
using LaneWords = std::array<uint32_t, 6>;
const std::array<LaneWords, 32>& share_in_warp(const LaneWords& mine);

// Copies that are done when their group was waited for, not before.
void copy_later(void* to, const void* from, size_t bytes);
void close_group();
void wait_for_groups(size_t pending);

}  // namespace braid::emulated

using dim3 = braid::emulated::Size3;
inline dim3 threadIdx, blockIdx, blockDim, gridDim;
