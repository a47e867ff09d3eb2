// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/async_sgd_wire.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "braid/core/error.h"
#include "braid/core/observe.h"
#include "braid/core/rng.h"

namespace braid::parallel {
namespace {

constexpr int64_t wire_head = 2;  // word and number

int64_t words_of(const at::Tensor& tensor) {
  return (static_cast<int64_t>(tensor.nbytes()) + 7) / 8;
}

// The same for parameters of the same names, shapes and dtypes.
int64_t wire_fingerprint(const std::vector<Param>& params) {
  std::string text;
  for (const Param& param : params)
    text += fmt::format("{} {} [{}] ", param.name, c10::toString(param.tensor.scalar_type()),
                        fmt::join(param.tensor.sizes(), ","));
  return static_cast<int64_t>(random_key(0, text).bits);
}

}  // namespace

AsyncMessage::AsyncMessage(const std::vector<Param>& params) {
  const MemoryScope buffers(MemoryKind::communication);
  int64_t words = wire_head;
  for (const Param& param : params) words += words_of(param.tensor);
  bytes = at::empty({words}, c10::kLong);
  int64_t first = wire_head;
  for (const Param& param : params) {
    const at::Tensor room = bytes.narrow(0, first, words_of(param.tensor));
    parts.push_back(room.view(param.tensor.scalar_type())
                        .narrow(0, 0, param.tensor.numel())
                        .view(param.tensor.sizes()));
    first += words_of(param.tensor);
  }
}

void AsyncMessage::set(AsyncWord word, int64_t number) const {
  head()[0] = static_cast<int64_t>(word);
  head()[1] = number;
}

AsyncWire::AsyncWire(const comm::Group& group, int server, int worker)
    : pair_(group.split({server, worker}, fmt::format("async-{}", worker))),
      server_(server),
      worker_(worker) {}

void AsyncWire::meet(const std::vector<Param>& params) const {
  const at::Tensor both = at::empty({2}, c10::kLong), mine = at::empty({1}, c10::kLong);
  *mine.mutable_data_ptr<int64_t>() = wire_fingerprint(params);
  pair_.all_gather(both, mine).wait();
  const int64_t* prints = both.const_data_ptr<int64_t>();
  if (prints[0] == prints[1]) return;
  throw InternalError(
      {.what = fmt::format("worker rank {} has other parameters than the server, rank {}", worker_,
                           server_),
       .why = "gradients and weights travel without their names, shapes and dtypes",
       .fix = "build the same model on all ranks"});
}

void AsyncWire::send(const AsyncMessage& message) const {
  pair_.send(message.bytes, 1 - pair_.rank()).wait();
}

void AsyncWire::receive(const AsyncMessage& message) const {
  pair_.recv(message.bytes, 1 - pair_.rank()).wait();
}

}  // namespace braid::parallel
