// SPDX-License-Identifier: BSD-3-Clause
#include "data/readers.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/core/error.h"
#include "braid/core/thread.h"
#include "data/finite.h"

namespace braid::data {
namespace {

int64_t weight_of(const at::Tensor& target) {
  if (target.scalar_type() != c10::kLong) return 1;
  constexpr int64_t ignored = -100;
  const auto* first = target.const_data_ptr<int64_t>();
  return target.numel() - std::count(first, first + target.numel(), ignored);
}

}  // namespace

Readers::Readers(std::shared_ptr<const Source> source, const LoaderOptions& options)
    : source_(std::move(source)), options_(options) {
  try {
    for (int64_t i = 0; i < options.workers; ++i)
      threads_.push_back(start_thread("read data (data.workers)", [this] { work(); }));
  } catch (...) {
    end();
    throw;
  }
}

Readers::~Readers() { end(); }

void Readers::end() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_there_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Readers::start(std::shared_ptr<BatchJob> job) {
  job->weights.assign(static_cast<size_t>(job->count()), 0);
  if (threads_.empty() || job->count() == 0) {
    job->claimed = job->count();
    return run(*job, 0, job->count());
  }
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  work_there_.notify_all();
}

void Readers::wait(BatchJob& job) {
  std::unique_lock lock(mutex_);
  job_ready_.wait(lock, [&] { return job.ready; });
  if (job.error) std::rethrow_exception(job.error);
}

bool Readers::ready(const BatchJob& job) {
  const std::lock_guard lock(mutex_);
  return job.ready && !job.error;
}

void Readers::forget() {
  const std::lock_guard lock(mutex_);
  jobs_.clear();
}

void Readers::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_there_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    const std::shared_ptr<BatchJob> job = jobs_.front();
    // Single samples where there are few, handfuls where there are many: a lock for each of 1000
    // points would cost more than the points.
    const int64_t share = job->count() / (options_.workers * 4);
    const int64_t first = job->claimed,
                  end = std::min(job->count(), first + std::max<int64_t>(share, 1));
    job->claimed = end;
    if (end == job->count()) jobs_.pop_front();
    lock.unlock();
    run(*job, first, end);
    lock.lock();
  }
}

void Readers::run(BatchJob& job, int64_t first, int64_t end) {
  std::exception_ptr error;
  int64_t at = first;
  try {
    for (; at < end; ++at) read_sample(job, at);
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  // The earliest bad sample of the batch is reported, whichever thread came upon one first.
  if (error && (job.failed_at < 0 || at < job.failed_at)) {
    job.failed_at = at;
    job.error = error;
  }
  job.finished += end - first;
  if (job.finished < job.count()) return;
  job.ready = true;
  job_ready_.notify_all();
}

void Readers::read_sample(BatchJob& job, int64_t k) const {
  const int64_t index = job.plan.samples[static_cast<size_t>(k)];
  const Sample sample{job.host->input.select(0, k), job.host->target.select(0, k)};
  try {
    const Access access{.index = index, .epoch = job.plan.epoch};
    if (options_.device >= 0)
      source_->read_unscaled(access, sample);  // the device does the rest
    else
      source_->read(access, sample);
  } catch (const Error& error) {
    Complaint complaint = error.complaint();
    const std::string place = source_->describe(index);
    complaint.what += fmt::format(" (sample {}: {})", index, place);
    throw DataError(std::move(complaint));
  }
  if (options_.check_finite) {
    check_finite(sample.input, "input", index);
    check_finite(sample.target, "target", index);
  }
  if (k < job.plan.real) job.weights[static_cast<size_t>(k)] = weight_of(sample.target);
}

void Readers::check_finite(const at::Tensor& values, const char* part, int64_t index) const {
  if (values.scalar_type() != c10::kFloat) return;
  const auto* data = values.const_data_ptr<float>();
  const int64_t at = first_not_finite(data, values.numel());
  if (at < 0) return;
  std::string place = fmt::format("element {}", at);
  if (values.dim() == 3) {
    const int64_t width = values.size(2), plane = values.size(1) * width;
    place =
        fmt::format("channel {}, row {}, column {}", at / plane, at % plane / width, at % width);
  }
  throw DataError(
      {.what = fmt::format("{} in sample {} ({}): {}, {}", not_finite_name(data[at]), index,
                           source_->describe(index), part, place),
       .why = "data.check_finite is on, and one such value spoils all weights",
       .fix = "repair or leave out the file; braid data check DIR lists all such places"});
}

}  // namespace braid::data
