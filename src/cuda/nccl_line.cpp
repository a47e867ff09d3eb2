// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/nccl_line.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>

namespace braid::cuda {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

std::string hex(const ncclUniqueId& id) {
  std::string text;
  for (const char c : id.internal) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

ncclUniqueId from_hex(const std::string& text) {
  ncclUniqueId id = {};
  if (text.size() != 2 * sizeof(id.internal))
    throw std::runtime_error("what the first rank left at the store is no NCCL id");
  for (size_t i = 0; i < sizeof(id.internal); ++i)
    id.internal[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return id;
}

c10::DeviceIndex index_of(int device) { return static_cast<c10::DeviceIndex>(device); }

}  // namespace

void nccl_must(ncclResult_t result, ncclComm_t comm, const char* what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* more = comm == nullptr ? "" : ncclGetLastError(comm);
  throw std::runtime_error(
      fmt::format("{}: {} {}", what, ncclGetErrorString(result), more == nullptr ? "" : more));
}

ncclDataType_t nccl_type(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::kDouble:
      return ncclFloat64;
    case c10::kFloat:
      return ncclFloat32;
    case c10::kHalf:
      return ncclFloat16;
    case c10::kBFloat16:
      return ncclBfloat16;
    case c10::kLong:
      return ncclInt64;
    case c10::kInt:
      return ncclInt32;
    case c10::kChar:
      return ncclInt8;
    case c10::kByte:
      return ncclUint8;
    default:
      throw std::runtime_error(fmt::format("NCCL adds no {}", c10::toString(dtype)));
  }
}

ncclRedOp_t nccl_op(comm::Op op) {
  if (op == comm::Op::max) return ncclMax;
  if (op == comm::Op::min) return ncclMin;
  return ncclSum;  // mean: the group has divided
}

NcclEvent::NcclEvent() {
  C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
}
NcclEvent::~NcclEvent() { C10_CUDA_CHECK_WARN(cudaEventDestroy(event_)); }
void NcclEvent::record(cudaStream_t stream) { C10_CUDA_CHECK(cudaEventRecord(event_, stream)); }
void NcclEvent::hold_back(cudaStream_t stream) const {
  C10_CUDA_CHECK(cudaStreamWaitEvent(stream, event_));
}
bool NcclEvent::over() const {
  const cudaError_t state = cudaEventQuery(event_);
  if (state == cudaErrorNotReady) {
    (void)cudaGetLastError();  // else the next check takes it for an error
    return false;
  }
  C10_CUDA_CHECK(state);
  return true;
}

NcclLine::NcclLine(const comm::NcclPlace& place, const std::string& key, int rank, int size)
    : timeout_seconds_(place.timeout_seconds),
      device_(place.device),
      stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, index_of(place.device))) {
  connect(place, key, rank, size);
  try {
    watcher_ = std::thread([this] { watch(); });
  } catch (const std::system_error& refused) {
    throw std::runtime_error(std::string("cannot start the thread that watches NCCL: ") +
                             refused.what() + " (see ulimit -u)");
  }
}

void NcclLine::connect(const comm::NcclPlace& place, const std::string& key, int rank, int size) {
  const c10::cuda::CUDAGuard guard(index_of(device_));
  ncclUniqueId id = {};
  if (rank == 0) {
    nccl_must(ncclGetUniqueId(&id), nullptr, "ncclGetUniqueId");
    place.set(key, hex(id));
  } else {
    id = from_hex(place.get(key));
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;  // else a rank that does not come holds this one for ever
  nccl_must(ncclCommInitRankConfig(&comm_, size, id, rank, &config), nullptr,
            "ncclCommInitRankConfig");
  try {
    settle("meeting the other ranks");
  } catch (...) {
    ncclCommAbort(comm_);
    throw;
  }
}

void NcclLine::settle(const char* what) const {
  using namespace std::chrono_literals;
  const auto begin = Clock::now();
  ncclResult_t state = ncclInProgress;
  while (true) {
    nccl_must(ncclCommGetAsyncError(comm_, &state), comm_, "ncclCommGetAsyncError");
    if (state != ncclInProgress) break;
    if (broken_) check();
    if (Seconds(Clock::now() - begin).count() > timeout_seconds_)
      throw std::runtime_error(fmt::format("{} took longer than {} s", what, timeout_seconds_));
    std::this_thread::sleep_for(100us);
  }
  nccl_must(state, comm_, what);
}

NcclLine::~NcclLine() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  watcher_.join();
  if (comm_ == nullptr) return;  // failed
  try {
    const c10::cuda::CUDAGuard guard(index_of(device_));
    nccl_must(ncclCommFinalize(comm_), comm_, "ncclCommFinalize");
    settle("taking leave of the other ranks");
    ncclCommDestroy(comm_);
  } catch (const std::exception&) {
    ncclCommAbort(comm_);  // a destructor does not throw, and the peers are gone
  }
}

void NcclLine::check() const {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw std::runtime_error(failure_);
}

void NcclLine::fail(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = reason;
  }
  broken_ = true;  // lets a call that settles leave its lock
  const std::lock_guard lock(calls_);
  ncclCommAbort(comm_);
  comm_ = nullptr;
}

NcclPoint NcclLine::run(const NcclEvent& begin, const std::vector<at::Tensor>& tensors,
                        const Body& body) {
  const c10::cuda::CUDAGuard guard(index_of(device_));
  const std::lock_guard lock(calls_);
  check();
  begin.hold_back(stream_.stream());
  nccl_must(ncclGroupStart(), comm_, "ncclGroupStart");
  try {
    body(comm_, stream_.stream());
  } catch (...) {
    ncclGroupEnd();
    throw;
  }
  nccl_must(ncclGroupEnd(), comm_, "ncclGroupEnd");
  settle("starting a call");
  // Memory goes back to the stream it was taken on, which may not know of this one.
  for (const at::Tensor& tensor : tensors)
    c10::cuda::CUDACachingAllocator::recordStream(tensor.storage().data_ptr(), stream_);
  auto end = std::make_shared<NcclEvent>();
  end->record(stream_.stream());
  const std::lock_guard flights(mutex_);
  flights_.push_back({end, Clock::now()});
  return end;
}

std::string NcclLine::trouble() {
  // Whoever holds the lock asks NCCL itself.
  if (const std::unique_lock call(calls_, std::try_to_lock); call && comm_ != nullptr) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
    if (asked == ncclSuccess && state != ncclSuccess && state != ncclInProgress)
      return fmt::format("NCCL reports: {}", ncclGetErrorString(state));
  }
  const std::lock_guard lock(mutex_);
  while (!flights_.empty() && flights_.front().end->over()) flights_.pop_front();
  if (flights_.empty()) return {};
  if (Seconds(Clock::now() - flights_.front().begin).count() > timeout_seconds_)
    return fmt::format("a call did not end within {} s", timeout_seconds_);
  return {};
}

void NcclLine::watch() {
  using namespace std::chrono_literals;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;  // else a capture elsewhere would end
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, 100ms, [this] { return stop_; })) {
    if (!failure_.empty()) return;
    lock.unlock();
    std::string reason;
    try {
      reason = trouble();
    } catch (const std::exception& error) {
      reason = error.what();
    }
    if (!reason.empty()) fail(reason);
    lock.lock();
  }
}

}  // namespace braid::cuda
