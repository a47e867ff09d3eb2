// SPDX-License-Identifier: BSD-3-Clause
#include "braid/data/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>

#include "braid/core/accelerator.h"
#include "braid/core/error.h"
#include "data/buffers.h"
#include "data/device_ring.h"
#include "data/order.h"
#include "data/readers.h"

namespace braid::data {
namespace {

Accelerator* pinning_device(const LoaderOptions& options) {
  if (options.device < 0) return nullptr;
  if (accelerator() != nullptr) return accelerator();
  throw ConfigError(
      {.what = fmt::format("batches are to go to GPU {}, but there is none", options.device),
       .why = accelerator_status().reason,
       .fix = "train on the CPU, or run braid doctor"});
}

}  // namespace

struct Loader::Impl {
  Impl(std::shared_ptr<const Source> from, const LoaderOptions& with, Shard part)
      : source(std::move(from)),
        options(with),
        order(source->size(), options, part),
        pool(source->spec(), order.largest(), pinning_device(options)),
        ring(options.device < 0
                 ? nullptr
                 : std::make_unique<DeviceRing>(*source, order.largest(), options.device)),
        readers(source, options) {}

  std::shared_ptr<const Source> source;
  LoaderOptions options;
  BatchOrder order;
  BufferPool pool;
  std::unique_ptr<DeviceRing> ring;         // null: batches stay on the CPU
  int64_t epoch = 0, step = 0;              // of the batch that the caller gets next
  int64_t ahead_epoch = 0, ahead_step = 0;  // of the batch that readers begin next
  std::deque<std::shared_ptr<BatchJob>> jobs;
  Readers readers;  // last: its threads end first

  void begin_next();
  void fill(size_t count);
  void seek(int64_t to_epoch, int64_t to_step);
  void send();        // the next batch, if it is not on its way
  void send_ahead();  // the one after, beside the step that reads this one
  Batch give(BatchJob& job) const;
};

void Loader::Impl::begin_next() {
  auto job = std::make_shared<BatchJob>();
  job->plan = order.plan(ahead_epoch, ahead_step);
  job->host = pool.take();
  jobs.push_back(job);
  if (++ahead_step == order.steps()) ++ahead_epoch, ahead_step = 0;
  readers.start(std::move(job));
}

void Loader::Impl::fill(size_t count) {
  while (jobs.size() < count) begin_next();
}

void Loader::Impl::seek(int64_t to_epoch, int64_t to_step) {
  readers.forget();
  jobs.clear();  // a sample being read keeps its buffer until it is done
  if (ring != nullptr) ring->release();
  epoch = ahead_epoch = to_epoch;
  step = ahead_step = to_step;
  if (ahead_step >= order.steps()) ++ahead_epoch, ahead_step = 0;
}

void Loader::Impl::send() {
  if (ring != nullptr && !jobs.front()->device_input.defined()) ring->send(*jobs.front());
}

// What reads the batch before was given to the device: its memory is next.
void Loader::Impl::send_ahead() {
  if (ring == nullptr) return;
  ring->release();
  if (!jobs.empty() && readers.ready(*jobs.front())) send();
}

Batch Loader::Impl::give(BatchJob& job) const {
  Batch batch;
  batch.samples = job.plan.real;
  batch.first = job.plan.first;
  batch.global_samples = job.plan.global;
  batch.weights = std::move(job.weights);
  batch.epoch = job.plan.epoch;
  batch.step = job.plan.step;
  if (options.device >= 0) {
    job.host->copied->stream_wait();
    batch.input = std::move(job.device_input);
    batch.target = std::move(job.device_target);
    batch.fixed = true;
    return batch;
  }
  const bool full = job.count() == job.host->input.size(0);
  batch.input = full ? job.host->input : job.host->input.narrow(0, 0, job.count());
  batch.target = full ? job.host->target : job.host->target.narrow(0, 0, job.count());
  return batch;
}

Loader::Loader(std::shared_ptr<const Source> source, LoaderOptions options, Shard shard)
    : impl_(std::make_unique<Impl>(std::move(source), options, shard)) {}
Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;

std::optional<Batch> Loader::next() {
  Impl& my = *impl_;
  if (my.step == my.order.steps()) {
    ++my.epoch, my.step = 0;
    return std::nullopt;
  }
  if (my.ring != nullptr) my.ring->wait_for_room();  // for the step, not for data
  const auto start = std::chrono::steady_clock::now();
  my.fill(1);
  my.readers.wait(*my.jobs.front());
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  my.send();
  Batch batch = my.give(*my.jobs.front());
  batch.wait = waited.count();
  my.jobs.pop_front();
  ++my.step;
  if (my.options.workers > 0) my.fill(static_cast<size_t>(std::max<int64_t>(my.options.queue, 1)));
  my.send_ahead();
  return batch;
}

int64_t Loader::steps_per_epoch() const { return impl_->order.steps(); }
int64_t Loader::epoch() const {
  return impl_->step == impl_->order.steps() ? impl_->epoch + 1 : impl_->epoch;
}
int64_t Loader::given() const { return impl_->epoch * impl_->order.steps() + impl_->step; }

State Loader::state() const {
  State state;
  state.set("epoch", impl_->epoch);
  state.set(
      "seen",
      impl_->step * impl_->options.global_batch);  // of the epoch: any batch size can go on from it
  state.set("finished", static_cast<int64_t>(impl_->step == impl_->order.steps()));
  state.set("size", impl_->source->size());
  state.set("seed", static_cast<int64_t>(impl_->options.seed));
  return state;
}

void Loader::load(const State& state) {
  const auto expect = [&](const char* name, int64_t now) {
    if (state.integer(name) == now) return;
    throw StorageError(
        {.what = fmt::format("the saved data position has {} {}, this run has {}", name,
                             state.integer(name), now),
         .why = "with another data set or seed the order of samples is another one",
         .fix = "resume with the data and seed of the saved run, or start a new run"});
  };
  expect("size", impl_->source->size());
  expect("seed", static_cast<int64_t>(impl_->options.seed));
  const int64_t seen = state.integer("seen"), batch = impl_->options.global_batch;
  if (state.integer("finished") != 0)
    return impl_->seek(state.integer("epoch"), impl_->order.steps());
  if (seen % batch != 0)
    throw StorageError(
        {.what = fmt::format(
             "{} samples of the epoch were seen, no multiple of the global batch {}", seen, batch),
         .why = "a run goes on at the border of a global batch",
         .fix = "resume with the global batch of the saved run"});
  impl_->seek(state.integer("epoch"), std::min(seen / batch, impl_->order.steps()));
}

}  // namespace braid::data
