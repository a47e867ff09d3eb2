// SPDX-License-Identifier: BSD-3-Clause
// comm::Backend over NCCL. Collectives of a group share one communicator and stream. Messages have
// a communicator for each direction and tag, made at the first one by a thread of their own: a
// receive that is first in line on both ends would else wait for ever.
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <future>
#include <map>
#include <stdexcept>

#include "comm/shares.h"
#include "cuda/nccl_line.h"

namespace braid::cuda {
namespace {

using comm::Call;
using comm::Kind;
using comm::Work;

class NcclWork final : public Work {
 public:
  NcclWork(std::shared_ptr<const NcclLine> line, NcclPoint end, Call call)
      : line_(std::move(line)), end_(std::move(end)), call_(std::move(call)) {}

  // The current stream waits; only a barrier is about the host.
  void wait() override {
    using namespace std::chrono_literals;
    line_->check();
    end_->hold_back(c10::cuda::getCurrentCUDAStream().stream());
    while (call_.kind == Kind::barrier && !end_->over()) std::this_thread::sleep_for(50us);
    line_->check();
  }
  bool done() const override { return end_->over(); }

 private:
  std::shared_ptr<const NcclLine> line_;
  NcclPoint end_;
  Call call_;
};

// Messages one way between two ranks, on one tag.
class NcclChannel {
 public:
  using Made = std::function<std::shared_ptr<NcclLine>()>;
  explicit NcclChannel(Made make) : worker_([this, make = std::move(make)] { work(make); }) {}
  ~NcclChannel() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    worker_.join();
  }
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;

  struct Started {
    std::shared_ptr<NcclLine> line;
    NcclPoint end;
  };
  std::shared_future<Started> add(std::shared_ptr<NcclEvent> begin, at::Tensor tensor, bool sends) {
    Message message{std::move(begin), std::move(tensor), sends, {}};
    const std::shared_future<Started> started = message.started.get_future();
    {
      const std::lock_guard lock(mutex_);
      messages_.push_back(std::move(message));
    }
    changed_.notify_all();
    return started;
  }
  void fail(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (line_) line_->fail(reason);
  }

 private:
  struct Message {
    std::shared_ptr<NcclEvent> begin;
    at::Tensor tensor;
    bool sends;
    std::promise<Started> started;
  };

  // The sender is rank 0 of the two.
  Started run(const Message& message) {
    const at::Tensor bytes = comm::as_bytes(message.tensor);
    NcclPoint end =
        line_->run(*message.begin, {message.tensor}, [&](ncclComm_t comm, cudaStream_t stream) {
          const auto count = static_cast<size_t>(bytes.numel());
          if (message.sends)
            nccl_must(ncclSend(bytes.const_data_ptr(), count, ncclInt8, 1, comm, stream), comm,
                      "ncclSend");
          else
            nccl_must(ncclRecv(bytes.mutable_data_ptr(), count, ncclInt8, 0, comm, stream), comm,
                      "ncclRecv");
        });
    return {line_, std::move(end)};
  }

  void work(const Made& make) {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || !messages_.empty(); });
      if (messages_.empty()) return;
      Message message = std::move(messages_.front());
      messages_.pop_front();
      lock.unlock();
      try {
        if (!line_) {
          std::shared_ptr<NcclLine> made = make();
          const std::lock_guard one(mutex_);
          line_ = std::move(made);
        }
        message.started.set_value(run(message));
      } catch (...) {
        message.started.set_exception(std::current_exception());
      }
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> messages_;
  std::shared_ptr<NcclLine> line_;
  bool stop_ = false;
  std::thread worker_;  // last: it uses all of the above
};

class NcclMessage final : public Work {
 public:
  NcclMessage(std::shared_future<NcclChannel::Started> started, Call call)
      : started_(std::move(started)), call_(std::move(call)) {}
  void wait() override {
    const NcclChannel::Started& started = started_.get();
    started.line->check();
    started.end->hold_back(c10::cuda::getCurrentCUDAStream().stream());
  }
  bool done() const override {
    using namespace std::chrono_literals;
    return started_.wait_for(0s) == std::future_status::ready && started_.get().end->over();
  }

 private:
  std::shared_future<NcclChannel::Started> started_;
  Call call_;
};

class Nccl final : public comm::Backend {
 public:
  Nccl(comm::NcclPlace place, std::string path)
      : place_(std::move(place)),
        path_(std::move(path)),
        line_(std::make_shared<NcclLine>(place_, path_ + "/id", place_.rank, place_.size)) {}
  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  std::string_view name() const override { return "nccl"; }
  std::unique_ptr<Work> start(const Call& call) override;
  std::shared_ptr<comm::Backend> split(const std::vector<int>& ranks,
                                       const std::string& name) override;
  void abort() override {
    const std::lock_guard lock(mutex_);
    for (const auto& part : parts_) part->abort();
    for (const auto& [way, channel] : channels_) channel->fail("this rank gave up the group");
    line_->fail("this rank gave up the group");
  }

 private:
  struct Way {
    int from, to, tag;
    auto operator<=>(const Way&) const = default;
  };
  void check_device(const at::Tensor& tensor) const;
  std::unique_ptr<Work> message(const Call& call, std::shared_ptr<NcclEvent> begin);
  NcclLine::Body body_of(const Call& call) const;
  NcclLine::Body gather_body(const Call& call) const;
  NcclLine::Body scatter_body(const Call& call) const;
  NcclLine::Body exchange_body(const Call& call) const;

  comm::NcclPlace place_;
  std::string path_;  // of the store's keys
  std::shared_ptr<NcclLine> line_;
  std::mutex mutex_;
  std::map<Way, std::unique_ptr<NcclChannel>> channels_;
  std::vector<std::shared_ptr<comm::Backend>> parts_;
  std::map<std::string, int> names_;
};

void Nccl::check_device(const at::Tensor& tensor) const {
  if (tensor.is_cuda() && tensor.device().index() == place_.device) return;
  throw std::runtime_error(fmt::format("a tensor on {}, but this rank of NCCL works on cuda:{}",
                                       tensor.device().str(), place_.device));
}

std::unique_ptr<Work> Nccl::start(const Call& given) {
  Call call = given;
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(place_.device));
  if (call.kind == Kind::barrier) {
    call.input = call.output = at::zeros(
        {1}, at::TensorOptions(at::kInt).device(at::kCUDA, guard.current_device().index()));
  }
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& tensor : {call.input, call.output}) {
    if (!tensor.defined()) continue;
    check_device(tensor);
    tensors.push_back(tensor);
  }
  auto begin = std::make_shared<NcclEvent>();
  begin->record(c10::cuda::getCurrentCUDAStream().stream());
  if (call.kind == Kind::send || call.kind == Kind::recv) return message(call, std::move(begin));
  NcclPoint end = line_->run(*begin, tensors, body_of(call));
  return std::make_unique<NcclWork>(line_, std::move(end), std::move(call));
}

NcclLine::Body Nccl::body_of(const Call& call) const {
  if (call.kind == Kind::all_gather) return gather_body(call);
  if (call.kind == Kind::reduce_scatter) return scatter_body(call);
  if (call.kind == Kind::all_to_all) return exchange_body(call);
  const at::Tensor& tensor = call.output;
  void* data = tensor.numel() == 0 ? nullptr : tensor.mutable_data_ptr();
  if (call.kind == Kind::broadcast)
    return [data, bytes = tensor.nbytes(), root = call.peer](ncclComm_t comm, cudaStream_t stream) {
      if (bytes > 0)
        nccl_must(ncclBroadcast(data, data, bytes, ncclInt8, root, comm, stream), comm,
                  "ncclBroadcast");
    };
  const ncclDataType_t type = nccl_type(tensor.scalar_type());
  return [data, type, count = static_cast<size_t>(tensor.numel()), op = nccl_op(call.op)](
             ncclComm_t comm, cudaStream_t stream) {
    if (count > 0)
      nccl_must(ncclAllReduce(data, data, count, type, op, comm, stream), comm, "ncclAllReduce");
  };
}

NcclLine::Body Nccl::gather_body(const Call& call) const {
  return [this, call](ncclComm_t comm, cudaStream_t stream) {
    auto* out = static_cast<char*>(call.output.data_ptr());
    const void* in = call.input.data_ptr();
    if (call.output_counts.empty()) {
      if (call.input.numel() > 0)
        nccl_must(ncclAllGather(in, out, call.input.nbytes(), ncclInt8, comm, stream), comm,
                  "ncclAllGather");
      return;
    }
    int root = 0;
    for (const int64_t bytes : comm::byte_counts(call.output, call.output_counts, size())) {
      if (bytes > 0)
        nccl_must(ncclBroadcast(in, out, static_cast<size_t>(bytes), ncclInt8, root, comm, stream),
                  comm, "ncclBroadcast");
      out += bytes;
      ++root;
    }
  };
}

NcclLine::Body Nccl::scatter_body(const Call& call) const {
  return [this, call](ncclComm_t comm, cudaStream_t stream) {
    const ncclDataType_t type = nccl_type(call.input.scalar_type());
    const ncclRedOp_t op = nccl_op(call.op);
    const auto* in = static_cast<const char*>(call.input.data_ptr());
    void* out = call.output.data_ptr();
    if (call.input_counts.empty()) {
      const auto count = static_cast<size_t>(call.output.numel());
      if (count > 0)
        nccl_must(ncclReduceScatter(in, out, count, type, op, comm, stream), comm,
                  "ncclReduceScatter");
      return;
    }
    const auto width = static_cast<int64_t>(call.input.element_size());
    int root = 0;
    for (const int64_t bytes : comm::byte_counts(call.input, call.input_counts, size())) {
      const auto count = static_cast<size_t>(bytes / width);
      if (count > 0)
        nccl_must(ncclReduce(in, out, count, type, op, root, comm, stream), comm, "ncclReduce");
      in += bytes;
      ++root;
    }
  };
}

NcclLine::Body Nccl::exchange_body(const Call& call) const {
  return [this, call](ncclComm_t comm, cudaStream_t stream) {
    const auto gives = comm::byte_counts(call.input, call.input_counts, size());
    const auto gets = comm::byte_counts(call.output, call.output_counts, size());
    const auto* from = static_cast<const char*>(call.input.data_ptr());
    auto* to = static_cast<char*>(call.output.data_ptr());
    for (int peer = 0; peer < size(); ++peer) {
      const auto out = static_cast<size_t>(gives[static_cast<size_t>(peer)]),
                 in = static_cast<size_t>(gets[static_cast<size_t>(peer)]);
      if (out > 0) nccl_must(ncclSend(from, out, ncclInt8, peer, comm, stream), comm, "ncclSend");
      if (in > 0) nccl_must(ncclRecv(to, in, ncclInt8, peer, comm, stream), comm, "ncclRecv");
      from += out;
      to += in;
    }
  };
}

std::unique_ptr<Work> Nccl::message(const Call& call, std::shared_ptr<NcclEvent> begin) {
  const bool sends = call.kind == Kind::send;
  const Way way = {sends ? rank() : call.peer, sends ? call.peer : rank(), call.tag};
  const std::lock_guard lock(mutex_);
  line_->check();
  std::unique_ptr<NcclChannel>& channel = channels_[way];
  if (!channel)
    channel = std::make_unique<NcclChannel>(
        [place = place_, sends,
         key = fmt::format("{}/message/{}-{}/{}", path_, way.from, way.to, way.tag)] {
          return std::make_shared<NcclLine>(place, key, sends ? 0 : 1, 2);
        });
  const at::Tensor& tensor = sends ? call.input : call.output;
  return std::make_unique<NcclMessage>(channel->add(std::move(begin), tensor, sends), call);
}

std::shared_ptr<comm::Backend> Nccl::split(const std::vector<int>& ranks, const std::string& name) {
  std::string key = fmt::format("{}/{}[{}]", path_, name, fmt::join(ranks, ","));
  const std::lock_guard lock(mutex_);
  key += fmt::format("#{}", names_[key]++);  // the same split again is a new group
  comm::NcclPlace place = place_;
  place.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
  place.size = static_cast<int>(ranks.size());
  parts_.push_back(std::make_shared<Nccl>(std::move(place), key));
  return parts_.back();
}

}  // namespace
}  // namespace braid::cuda

extern "C" __attribute__((visibility("default"))) const char* braid_nccl_missing() { return ""; }

extern "C" __attribute__((visibility("default"))) braid::comm::Backend* braid_nccl_backend(
    const braid::comm::NcclPlace& place) {
  return new braid::cuda::Nccl(place, "world");
}
