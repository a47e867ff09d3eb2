// SPDX-License-Identifier: BSD-3-Clause
#include "emulated/block.h"

#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace braid::emulated {
namespace {

constexpr size_t stack_bytes = 256 * 1024, arena_bytes = 256 * 1024;
constexpr unsigned warp_lanes = 32;
alignas(128) unsigned char arena[arena_bytes];  // shared memory of the block

class Stack {
 public:
  Stack()
      : at_(::mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (at_ == MAP_FAILED) throw std::runtime_error("emulated block: no memory for a stack");
  }
  ~Stack() { ::munmap(at_, stack_bytes); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  void* bottom() const { return at_; }

 private:
  void* at_;
};

// The context of one that does not run. swapcontext would call the kernel each time, for signals.
struct Context {
  void* place[5];
};
[[gnu::noinline, noreturn]] void jump(Context& to) { __builtin_longjmp(to.place, 1); }
[[gnu::noinline]] void change(Context& from, Context& to) {
  if (__builtin_setjmp(from.place) == 0) jump(to);
}

// Those who wait go on when as many as are needed have come.
struct Barrier {
  unsigned arrived = 0;
  uint64_t turn = 0;

  bool opens(unsigned needed) {
    if (arrived == 0 || arrived < needed) return false;
    arrived = 0;
    ++turn;
    return true;
  }
};

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

struct Fiber {
  Stack stack;
  Context context = {};
  bool begun = false;          // its stack: it runs one thread after the other
  void* fake_stack = nullptr;  // of the address sanitizer
  dim3 index;
  unsigned number = 0;
  bool done = true;
  Barrier* waits = nullptr;
  uint64_t turn = 0;                     // of the barrier that it waits at
  unsigned exchanges = 0;                // with its warp
  std::deque<std::vector<Copy>> groups;  // closed, not yet waited for
  std::vector<Copy> open;
};

struct Warp {
  Barrier barrier;
  unsigned alive = 0;
  // A lane may be one exchange ahead of another that has yet to read.
  std::array<std::array<LaneWords, warp_lanes>, 2> words;
};

class Block {
 public:
  void run(const GridSize& grid, const std::function<void()>& thread, uint64_t number);

  Fiber& now() { return *fibers_[current_]; }
  Warp& warp() { return warps_[current_ / warp_lanes]; }
  void wait_at(Barrier& barrier, unsigned needed);
  Barrier& all() { return all_; }
  Barrier& some(int id) { return some_[id]; }
  unsigned alive() const { return alive_; }

 private:
  static void enter();
  void begin(const GridSize& grid);
  bool step(unsigned which);
  void begin_stack(Fiber& fiber);
  void finish();
  void give_way();
  [[noreturn]] void complain();

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  std::map<int, Barrier> some_;
  Barrier all_;
  const std::function<void()>* thread_ = nullptr;
  Context scheduler_ = {};
  void* scheduler_fake_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_bytes_ = 0;
  unsigned current_ = 0, count_ = 0, alive_ = 0;
};

Block& block() {
  static Block only;
  return only;
}

void Block::begin(const GridSize& grid) {
  count_ = alive_ = grid.threads.x * grid.threads.y * grid.threads.z;
  while (fibers_.size() < count_) fibers_.push_back(std::make_unique<Fiber>());
  warps_.assign((count_ + warp_lanes - 1) / warp_lanes, {});
  some_.clear();
  all_ = {};
  __asan_unpoison_memory_region(arena, arena_bytes);
  std::memset(arena, 0xff, grid.shared);  // not a number, in every format
  __asan_poison_memory_region(arena + grid.shared, arena_bytes - grid.shared);
  for (unsigned i = 0; i < count_; ++i) {
    Fiber& fiber = *fibers_[i];
    fiber.number = i;
    fiber.index = {i % grid.threads.x, i / grid.threads.x % grid.threads.y,
                   i / grid.threads.x / grid.threads.y};
    fiber.done = false;
    fiber.waits = nullptr;
    fiber.exchanges = 0;
    fiber.groups.clear();
    fiber.open.clear();
    ++warps_[i / warp_lanes].alive;
  }
}

void Block::enter() {
  Block& self = block();
  __sanitizer_finish_switch_fiber(nullptr, &self.scheduler_stack_, &self.scheduler_bytes_);
  while (true) {
    (*self.thread_)();
    self.finish();
  }
}

[[gnu::noinline]] void Block::begin_stack(Fiber& fiber) {
  fiber.begun = true;
  ucontext_t fresh;
  ::getcontext(&fresh);
  fresh.uc_stack.ss_sp = fiber.stack.bottom();
  fresh.uc_stack.ss_size = stack_bytes;
  fresh.uc_link = nullptr;
  ::makecontext(&fresh, &Block::enter, 0);
  if (__builtin_setjmp(scheduler_.place) == 0) ::setcontext(&fresh);
}

// A thread that has ended is waited for by nobody.
void Block::finish() {
  Fiber& fiber = now();
  fiber.done = true;
  --alive_;
  Warp& own = warp();
  --own.alive;
  all_.opens(alive_);
  own.barrier.opens(own.alive);
  give_way();
}

void Block::give_way() {
  Fiber& fiber = now();
  __sanitizer_start_switch_fiber(&fiber.fake_stack, scheduler_stack_, scheduler_bytes_);
  change(fiber.context, scheduler_);
  __sanitizer_finish_switch_fiber(fiber.fake_stack, &scheduler_stack_, &scheduler_bytes_);
}

void Block::wait_at(Barrier& barrier, unsigned needed) {
  Fiber& fiber = now();
  ++barrier.arrived;
  if (barrier.opens(needed)) return;
  fiber.waits = &barrier;
  fiber.turn = barrier.turn;
  give_way();
}

// Whether the thread could go on.
bool Block::step(unsigned which) {
  Fiber& fiber = *fibers_[which];
  if (fiber.done || (fiber.waits != nullptr && fiber.waits->turn == fiber.turn)) return false;
  fiber.waits = nullptr;
  current_ = which;
  threadIdx = fiber.index;
  __sanitizer_start_switch_fiber(&scheduler_fake_, fiber.stack.bottom(), stack_bytes);
  fiber.begun ? change(scheduler_, fiber.context) : begin_stack(fiber);
  __sanitizer_finish_switch_fiber(scheduler_fake_, nullptr, nullptr);
  return true;
}

void Block::complain() {
  unsigned first = 0;
  while (fibers_[first]->done) ++first;
  fibers_.clear();  // they are in the midst of it
  throw std::runtime_error("emulated block (" + std::to_string(blockIdx.x) + ", " +
                           std::to_string(blockIdx.y) + ", " + std::to_string(blockIdx.z) +
                           "): " + std::to_string(alive_) + " of " + std::to_string(count_) +
                           " threads wait for others that never come, the first is thread " +
                           std::to_string(first));
}

// Forwards, backwards, or in leaps, from block to block.
void Block::run(const GridSize& grid, const std::function<void()>& thread, uint64_t number) {
  begin(grid);
  thread_ = &thread;
  unsigned leap = count_ > 2 ? count_ * 5 / 8 : 1;
  while (std::gcd(leap, count_) != 1) ++leap;
  while (alive_ > 0) {
    bool moved = false;
    for (unsigned i = 0; i < count_; ++i) {
      const unsigned orders[] = {i, count_ - 1 - i,
                                 static_cast<unsigned>(uint64_t{i} * leap % count_)};
      while (step(orders[number % 3])) moved = true;
    }
    if (!moved) complain();
  }
}

}  // namespace

void run_grid(const GridSize& grid, const std::function<void()>& thread) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  if (grid.shared > arena_bytes) throw std::runtime_error("emulated block: too much shared memory");
  blockDim = grid.threads;
  gridDim = grid.blocks;
  uint64_t number = 0;
  for (unsigned z = 0; z < grid.blocks.z; ++z)
    for (unsigned y = 0; y < grid.blocks.y; ++y)
      for (unsigned x = 0; x < grid.blocks.x; ++x) {
        blockIdx = {x, y, z};
        block().run(grid, thread, number++);
      }
  __asan_unpoison_memory_region(arena, arena_bytes);
}

void wait_for_block() { block().wait_at(block().all(), block().alive()); }
void wait_for_warp() { block().wait_at(block().warp().barrier, block().warp().alive); }
void wait_for_some(int barrier, int threads) {
  block().wait_at(block().some(barrier), static_cast<unsigned>(threads));
}
unsigned char* shared_bytes() { return arena; }

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "emulated block (%u, %u, %u), thread (%u, %u, %u): %s\n", blockIdx.x,
               blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, what);
  std::abort();
}

const std::array<LaneWords, 32>& share_in_warp(const LaneWords& mine) {
  Fiber& fiber = block().now();
  auto& words = block().warp().words[fiber.exchanges++ % 2];
  words[fiber.number % warp_lanes] = mine;
  wait_for_warp();
  return words;
}

void copy_later(void* to, const void* from, size_t bytes) {
  block().now().open.push_back({to, from, bytes});
}

void close_group() {
  Fiber& fiber = block().now();
  fiber.groups.push_back(std::exchange(fiber.open, {}));
}

void wait_for_groups(size_t pending) {
  for (auto& groups = block().now().groups; groups.size() > pending; groups.pop_front())
    for (const Copy& copy : groups.front()) std::memcpy(copy.to, copy.from, copy.bytes);
}

}  // namespace braid::emulated
