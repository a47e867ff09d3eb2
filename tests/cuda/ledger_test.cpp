// SPDX-License-Identifier: BSD-3-Clause
// The ledger on a real GPU: every byte that the allocator is asked for, and pinned host memory.
#include <gtest/gtest.h>

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <memory>

#include "braid/memory/instruments.h"
#include "support/cuda.h"

namespace braid {
namespace {

TEST_F(OnGpu, TheLedgerCountsWhatTheAllocatorIsAskedFor) {
  memory::Ledger ledger;
  const memory::Instruments on({.ledger = &ledger});
  const int64_t before = accelerator()->requested(0);
  {
    const at::Tensor x = at::zeros({1000}, at::TensorOptions().device(gpu()));
    const at::Tensor y = x.add(1);
    EXPECT_EQ(ledger.live(memory::cuda(0)), 8000);
    EXPECT_EQ(ledger.live(memory::cuda(0)), accelerator()->requested(0) - before);
  }
  EXPECT_EQ(ledger.live(memory::cuda(0)), 0);
  EXPECT_EQ(ledger.highest(memory::cuda(0)), 8000);
}

TEST_F(OnGpu, SavedVariablesAreActivationsOnTheDeviceThreadToo) {
  memory::Ledger ledger;
  memory::OperatorLog log;
  const memory::Instruments on({.ledger = &ledger, .log = &log});
  const at::Tensor w = at::ones({64, 64}, at::TensorOptions().device(gpu())).requires_grad_();
  mark(w, MemoryKind::parameter);
  at::Tensor loss;
  {
    const ModuleScope here("square");
    loss = w.mm(w).pow(2).sum();
  }
  const memory::Peak held = ledger.peak(memory::cuda(0));
  EXPECT_EQ(held.by_kind[static_cast<size_t>(MemoryKind::activation)], 64 * 64 * 4);
  loss.backward();
  int products = 0;
  for (const memory::Operator& op : log.operators())
    products += op.backward && op.name == "aten::mm" && op.module == "square";
  EXPECT_EQ(products, 2);
}

TEST_F(OnGpu, PinnedMemoryHasAPlaceOfItsOwn) {
  memory::Ledger ledger;
  const memory::Instruments on({.ledger = &ledger});
  const at::Tensor host = at::ones({256, 4});
  at::Tensor pinned = accelerator()->pinned_like(host);
  pinned.copy_(host);
  EXPECT_EQ(ledger.live(memory::pinned_host), 4096);
  const at::Tensor copy = at::zeros({256, 4}, at::TensorOptions().device(gpu()));
  accelerator()->copy_beside(copy, pinned)->host_wait();
  EXPECT_TRUE(copy.cpu().equal(host));
  pinned.reset();
  EXPECT_EQ(ledger.live(memory::pinned_host), 0);
}

}  // namespace
}  // namespace braid
