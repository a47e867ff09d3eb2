// SPDX-License-Identifier: BSD-3-Clause
// Collectives of GPU tensors: NCCL with one rank and with two processes that share the GPU, and
// Gloo through host memory. Skipped without a GPU.
#include "braid/comm/nccl.h"

#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <cstdlib>

#include "braid/comm/differentiable.h"
#include "braid/core/rng.h"
#include "braid/parallel/replicate.h"
#include "comm/collectives.h"
#include "support/cuda.h"
#include "support/drawn.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid {
namespace {

class OnNccl : public OnGpu {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (const std::string reason = comm::nccl_missing(); !reason.empty()) GTEST_SKIP() << reason;
  }
  static std::shared_ptr<comm::Backend> alone() {
    return comm::nccl(comm::Store::in_memory(), 0, 1);
  }
};

// A group of one rank asks no backend, so the backend is asked without a group.
struct Asked {
  std::shared_ptr<comm::Backend> backend;

  struct Under {
    std::unique_ptr<comm::Work> work;
    void wait() const { work->wait(); }
  };
  int rank() const { return backend->rank(); }
  int size() const { return backend->size(); }
  Under ask(const comm::Call& call) const { return {backend->start(call)}; }
  Under all_reduce(const at::Tensor& x, comm::Op op = comm::Op::sum) const {
    return ask({.kind = comm::Kind::all_reduce, .op = op, .input = x, .output = x});
  }
  Under reduce_scatter(const at::Tensor& out, const at::Tensor& in, comm::Op op = comm::Op::sum,
                       const std::vector<int64_t>& counts = {}) const {
    return ask({.kind = comm::Kind::reduce_scatter,
                .op = op,
                .input = in,
                .output = out,
                .input_counts = counts});
  }
  Under all_gather(const at::Tensor& out, const at::Tensor& in,
                   const std::vector<int64_t>& counts = {}) const {
    return ask(
        {.kind = comm::Kind::all_gather, .input = in, .output = out, .output_counts = counts});
  }
  Under broadcast(const at::Tensor& x, int root) const {
    return ask({.kind = comm::Kind::broadcast, .input = x, .output = x, .peer = root});
  }
  Under all_to_all(const at::Tensor& out, const at::Tensor& in,
                   const std::vector<int64_t>& out_counts = {},
                   const std::vector<int64_t>& in_counts = {}) const {
    return ask({.kind = comm::Kind::all_to_all,
                .input = in,
                .output = out,
                .input_counts = in_counts,
                .output_counts = out_counts});
  }
  Under send(const at::Tensor& x, int peer, int tag = 0) const {
    return ask({.kind = comm::Kind::send, .input = x, .peer = peer, .tag = tag});
  }
  Under recv(const at::Tensor& x, int peer, int tag = 0) const {
    return ask({.kind = comm::Kind::recv, .output = x, .peer = peer, .tag = tag});
  }
  Under barrier() const { return ask({.kind = comm::Kind::barrier}); }
};

TEST_F(OnNccl, OneRankGivesWhatOneProcessComputes) {
  test::check_everything(Asked{alone()}, gpu());
}

TEST_F(OnNccl, TheStreamWaitsAndTheHostGoesOn) {
  const Asked world{alone()};
  const at::Tensor a = at::full({8192, 8192}, 0.001f, at::TensorOptions(at::kFloat).device(gpu()));
  at::Tensor b = at::matmul(a, a);  // warms up
  world.all_reduce(b).wait();
  accelerator()->synchronize(0);
  for (int i = 0; i < 40; ++i) b = at::matmul(a, a);  // more than a tenth of a second
  const Asked::Under sum = world.all_reduce(b);
  sum.wait();
  EXPECT_FALSE(sum.work->done()) << "the host waited for the GPU";
  const at::Tensor copy = b.clone();  // on the stream that waits
  accelerator()->synchronize(0);
  EXPECT_TRUE(sum.work->done());
  EXPECT_TRUE(copy.equal(at::matmul(a, a)));
}

TEST_F(OnNccl, ATensorElsewhereIsRefused) {
  const Asked world{alone()};
  try {
    world.all_reduce(at::zeros({2})).wait();
    ADD_FAILURE() << "no error";
  } catch (const std::exception& error) {
    EXPECT_TRUE(test::contains(error.what(), "a tensor on cpu"));
  }
}

TEST_F(OnNccl, AGroupThatWasGivenUpSaysSo) {
  const Asked world{alone()};
  world.backend->abort();
  try {
    world.barrier().wait();
    ADD_FAILURE() << "no error";
  } catch (const std::exception& error) {
    EXPECT_TRUE(test::contains(error.what(), "this rank gave up the group"));
  }
}

// NCCL refuses two ranks on one GPU of one host; by another name each process is a host of its own.
comm::Group nccl_of_processes(const comm::Group& over, double timeout_seconds = 60) {
  setenv("NCCL_HOSTID", std::to_string(over.rank()).c_str(), 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("NCCL_IB_DISABLE", "1", 1);
  const at::Tensor port = at::zeros({1}, at::kLong);
  std::optional<comm::Store> store;
  if (over.rank() == 0) {
    store = comm::Store::tcp({.server = true});
    port.fill_(store->port());
  }
  over.broadcast(port, 0).wait();
  if (over.rank() != 0) store = comm::Store::tcp({.port = static_cast<int>(port.item<int64_t>())});
  return comm::Group(
      comm::nccl(*store, over.rank(), over.size(), {.timeout_seconds = timeout_seconds}));
}

TEST_F(OnNccl, TwoProcessesGiveWhatOneComputes) {
  test::on_processes(2,
                     [](comm::Group host) {
                       const comm::Group world = nccl_of_processes(host);
                       EXPECT_EQ(world.backend()->name(), "nccl");
                       test::check_everything(world, gpu());
                       test::check_everything(world.split({1, 0}, "turned"), gpu());
                       host.barrier().wait();
                     },
                     {.limit_seconds = 150});
}

TEST_F(OnNccl, ACallThatDoesNotEndBreaksTheGroup) {
  test::on_processes(
      2,
      [](comm::Group host) {
        const comm::Group world = nccl_of_processes(host, 5);
        const at::Tensor mine = at::full({3}, 1, at::TensorOptions(at::kFloat).device(gpu()));
        world.all_reduce(mine).wait();
        accelerator()->synchronize(0);
        if (host.rank() == 0) {
          world.all_reduce(mine).wait();  // the other one does not come
          accelerator()->synchronize(0);  // ends when the watch ends the call
          EXPECT_TRUE(test::contains(test::error_of([&] { world.all_reduce(mine).wait(); }),
                                     "a call did not end within 5 s"));
        }
        host.barrier().wait();
      },
      {.limit_seconds = 60});
}

// As processes: ranks that are threads would share the one thread that autograd has for a GPU, and
// a collective there would wait for itself.
class GlooOnGpu : public OnGpu {};

TEST_F(GlooOnGpu, TwoRanksOnOneGpuGiveWhatOneProcessComputes) {
  test::on_processes(2, [](comm::Group world) { test::check_everything(world, gpu()); });
}

TEST_F(GlooOnGpu, CollectivesAreDifferentiable) {
  test::on_processes(2, [](comm::Group world) {
    const at::TensorOptions like = at::TensorOptions(at::kDouble).device(gpu());
    const at::Tensor x = test::values(world.rank(), {4, 3}, like).requires_grad_();
    const at::Tensor weight = test::values(5, {4, 3}, like);
    comm::reduce_from(x, world).mul(weight).sum().backward();
    EXPECT_TRUE(x.grad().equal(weight));
    x.mutable_grad().reset();
    const at::Tensor whole = comm::all_gather(x, world, 0);
    EXPECT_TRUE(whole.equal(at::cat(test::values_of_ranks(2, {4, 3}, like))));
    const at::Tensor weights = test::values(6, {8, 3}, like);
    whole.mul(weights).sum().backward();
    EXPECT_TRUE(x.grad().equal(weights.narrow(0, 4 * world.rank(), 4).mul(2)));
  });
}

at::Tensor gpu_drawn(at::IntArrayRef sizes, uint64_t seed) {
  return test::drawn(sizes, seed, "nccl").to(at::Device(at::kCUDA, 0));
}

struct TwoLayers {
  std::vector<Param> params = {{"a", gpu_drawn({6, 8}, 1).requires_grad_()},
                               {"b", gpu_drawn({8, 2}, 2).requires_grad_()}};
  at::Tensor loss(const at::Tensor& x) const {
    return at::matmul(at::matmul(x, params[0].tensor).tanh(), params[1].tensor).square().mean();
  }
};

void check_replicas(const comm::Group& world) {
  const at::Tensor batch = gpu_drawn({12, 6}, 3);
  TwoLayers one, mine;
  one.loss(batch).backward();
  parallel::Replicate replicas(mine.params, world, {.bucket_bytes = 200});
  for (int step = 0; step < 3; ++step) {  // the second step finds the buckets in another order
    for (const Param& param : mine.params) param.tensor.mutable_grad().reset();
    mine.loss(batch.chunk(world.size())[static_cast<size_t>(world.rank())]).backward();
    replicas.finish();
    for (size_t i = 0; i < 2; ++i)
      EXPECT_TRUE(mine.params[i].tensor.grad().allclose(one.params[i].tensor.grad(), 1e-12, 1e-14));
  }
}

TEST_F(OnNccl, ReplicasOfOneRankAreTheModel) { check_replicas(comm::Group(alone())); }

TEST_F(OnNccl, ReplicasOfTwoProcessesGiveTheWholeBatch) {
  test::on_processes(2,
                     [](comm::Group host) {
                       const comm::Group world = nccl_of_processes(host);
                       check_replicas(world);
                       host.barrier().wait();
                     },
                     {.limit_seconds = 150});
}

TEST_F(GlooOnGpu, ReplicasOfTwoRanksGiveTheWholeBatch) { test::on_processes(2, check_replicas); }

}  // namespace
}  // namespace braid
