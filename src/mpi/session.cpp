// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/session.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <system_error>

namespace braid::mpi {
namespace {

using comm::Op;

// MPI has no 16-bit floats: each pair is combined in fp32.
template <class Half, class Combine>
void combine(void* from, void* into, int* count, MPI_Datatype*) {
  const auto* a = static_cast<const Half*>(from);
  auto* b = static_cast<Half*>(into);
  for (int i = 0; i < *count; ++i)
    b[i] = static_cast<Half>(Combine()(static_cast<float>(b[i]), static_cast<float>(a[i])));
}

struct Add {
  float operator()(float a, float b) const { return a + b; }
};
struct Max {
  float operator()(float a, float b) const { return std::max(a, b); }
};
struct Min {
  float operator()(float a, float b) const { return std::min(a, b); }
};

MPI_Op make_op(MPI_User_function* function) {
  MPI_Op op = MPI_OP_NULL;
  must(MPI_Op_create(function, /*commute=*/1, &op), "MPI_Op_create");
  return op;
}

MPI_Op plain_op(Op op) {
  if (op == Op::max) return MPI_MAX;
  if (op == Op::min) return MPI_MIN;
  return MPI_SUM;
}

bool complex(c10::ScalarType dtype) {
  return dtype == c10::kComplexFloat || dtype == c10::kComplexDouble;
}

}  // namespace

void must(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw std::runtime_error(
      fmt::format("{}: {}", call, std::string(text, static_cast<size_t>(length))));
}

Session& Session::get() {
  static Session session;
  return session;
}

Session::Session() {
  start_mpi();
  types_ = {{c10::kDouble, MPI_DOUBLE},
            {c10::kFloat, MPI_FLOAT},
            {c10::kLong, MPI_INT64_T},
            {c10::kInt, MPI_INT32_T},
            {c10::kShort, MPI_INT16_T},
            {c10::kChar, MPI_INT8_T},
            {c10::kByte, MPI_UINT8_T},
            {c10::kComplexFloat, MPI_C_FLOAT_COMPLEX},
            {c10::kComplexDouble, MPI_C_DOUBLE_COMPLEX}};
  make_halves();
  try {
    pusher_ = std::thread([this] { push_on(); });
  } catch (const std::system_error& refused) {
    throw std::runtime_error(std::string("cannot start the thread that drives MPI's messages: ") +
                             refused.what() + " (see ulimit -u)");
  }
}

void Session::start_mpi() {
  int started = 0, provided = MPI_THREAD_SINGLE;
  must(MPI_Initialized(&started), "MPI_Initialized");
  if (started != 0) {
    must(MPI_Query_thread(&provided), "MPI_Query_thread");
  } else {
    must(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    owner_ = true;
  }
  if (provided == MPI_THREAD_MULTIPLE) return;
  throw std::runtime_error(
      "this MPI does not let several threads call it (MPI_THREAD_MULTIPLE), and backward, the step "
      "and the watchdog are threads of their own");
}

void Session::make_halves() {
  for (const c10::ScalarType dtype : {c10::kHalf, c10::kBFloat16}) {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    must(MPI_Type_contiguous(2, MPI_BYTE, &type), "MPI_Type_contiguous");
    must(MPI_Type_commit(&type), "MPI_Type_commit");
    types_[dtype] = type;
  }
  half_ops_ = {{{c10::kHalf, Op::sum}, make_op(&combine<c10::Half, Add>)},
               {{c10::kHalf, Op::max}, make_op(&combine<c10::Half, Max>)},
               {{c10::kHalf, Op::min}, make_op(&combine<c10::Half, Min>)},
               {{c10::kBFloat16, Op::sum}, make_op(&combine<c10::BFloat16, Add>)},
               {{c10::kBFloat16, Op::max}, make_op(&combine<c10::BFloat16, Max>)},
               {{c10::kBFloat16, Op::min}, make_op(&combine<c10::BFloat16, Min>)}};
}

// Finalize is a meeting of all ranks: after a failure the others would not come to it.
Session::~Session() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (pusher_.joinable()) pusher_.join();
  if (owner_ && !broken_ && !ended()) MPI_Finalize();
}

bool Session::ended() const {
  int ended = 0;
  MPI_Finalized(&ended);
  return ended != 0;
}

Reduction Session::reduction(c10::ScalarType dtype, Op op) const {
  if (op == Op::mean) op = Op::sum;  // the group has divided
  const auto type = types_.find(dtype);
  if (type == types_.end() || (complex(dtype) && op != Op::sum))
    throw std::runtime_error(fmt::format("MPI has no {} of {}",
                                         op == Op::sum   ? "sum"
                                         : op == Op::max ? "max"
                                                         : "min",
                                         c10::toString(dtype)));
  const auto half = half_ops_.find({dtype, op});
  return {.type = type->second, .op = half == half_ops_.end() ? plain_op(op) : half->second};
}

void Session::begin_call() {
  const std::lock_guard lock(mutex_);
  if (calls_++ == 0) changed_.notify_all();
}

void Session::end_call() {
  const std::lock_guard lock(mutex_);
  --calls_;
}

void Session::push_on() {
  using namespace std::chrono_literals;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || calls_ > 0; });
    if (stop_) return;
    lock.unlock();
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
    std::this_thread::sleep_for(100us);
    lock.lock();
  }
}

}  // namespace braid::mpi
