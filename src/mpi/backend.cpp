// SPDX-License-Identifier: BSD-3-Clause
// comm::Backend over MPI: every call becomes nonblocking ones of MPI, in pieces where it is larger
// than their int counts.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "comm/plugin.h"
#include "comm/shares.h"
#include "mpi/line.h"

namespace braid::mpi {
namespace {

using comm::Call;
using comm::Kind;
using comm::Work;

// The requests of one call. Tensors of a call that never ended stay for good: MPI may still write
// to them.
class MpiWork final : public Work {
 public:
  MpiWork(std::shared_ptr<const Line> line, Call call)
      : line_(std::move(line)), call_(std::move(call)) {
    Session::get().begin_call();
  }
  ~MpiWork() override {
    Session::get().end_call();
    if (over_) return;
    Session::get().broken();
    for (at::Tensor* held : {&call_.input, &call_.output, &rows_})
      (void)held->unsafeReleaseTensorImpl();
  }
  MpiWork(const MpiWork&) = delete;
  MpiWork& operator=(const MpiWork&) = delete;

  MPI_Request* next() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
  void add_rows(at::Tensor rows) { rows_ = std::move(rows); }

  void wait() override {
    line_->wait_for([this] { return done(); });
    if (rows_.defined()) reduce_rows(call_.output, rows_, call_.op);
  }
  bool done() const override {
    if (over_) return true;
    int over = 0;
    must(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &over,
                     MPI_STATUSES_IGNORE),
         "MPI_Testall");
    return over_ = over != 0;
  }

 private:
  std::shared_ptr<const Line> line_;
  Call call_;
  at::Tensor rows_;  // of all ranks, added up at the end of a reduce-scatter
  mutable std::vector<MPI_Request> requests_;
  mutable bool over_ = false;
};

class Mpi final : public comm::Backend {
 public:
  Mpi(MPI_Comm comm, comm::MpiOptions options)
      : options_(options),
        line_(std::make_shared<Line>(comm, options.timeout_seconds)),
        exceptions_(std::uncaught_exceptions()) {}
  // An exception ends this rank's part: the peers are told, else they would wait for it.
  ~Mpi() override {
    if (std::uncaught_exceptions() > exceptions_) line_->give_up();
  }
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;

  int rank() const override { return line_->rank(); }
  int size() const override { return line_->size(); }
  std::string_view name() const override { return "mpi"; }
  std::unique_ptr<Work> start(const Call& call) override;
  std::shared_ptr<comm::Backend> split(const std::vector<int>& ranks,
                                       const std::string& name) override {
    const std::lock_guard lock(mutex_);
    parts_.push_back(std::make_shared<Mpi>(line_->make(ranks, name), options_));
    return parts_.back();
  }
  void abort() override {
    const std::lock_guard lock(mutex_);
    for (const auto& part : parts_) part->abort();
    line_->give_up();
  }

 private:
  template <class Piece>
  void in_pieces(int64_t count, Piece piece) const;
  void all_reduce(const Call& call, MpiWork& work) const;
  void reduce_scatter(const Call& call, MpiWork& work) const;
  void all_gather(const Call& call, MpiWork& work) const;
  void broadcast(char* data, int64_t bytes, int root, MpiWork& work) const;
  void exchange(const at::Tensor& out, const std::vector<int64_t>& out_bytes, const at::Tensor& in,
                const std::vector<int64_t>& in_bytes, MpiWork& work) const;
  void message(const Call& call, MpiWork& work) const;

  comm::MpiOptions options_;
  std::shared_ptr<Line> line_;
  int exceptions_;
  std::mutex mutex_;  // MPI takes the collectives of a communicator from one thread at a time
  std::vector<std::shared_ptr<comm::Backend>> parts_;
};

char* data_of(const at::Tensor& tensor) { return static_cast<char*>(tensor.data_ptr()); }

// Calls piece(first, count) for shares of at most largest_count.
template <class Piece>
void Mpi::in_pieces(int64_t count, Piece piece) const {
  for (int64_t first = 0; first < count; first += options_.largest_count)
    piece(first, static_cast<int>(std::min(options_.largest_count, count - first)));
}

std::unique_ptr<Work> Mpi::start(const Call& call) {
  const std::lock_guard lock(mutex_);
  line_->check();
  auto work = std::make_unique<MpiWork>(line_, call);
  const int n = size();
  if (call.kind == Kind::barrier) {
    must(MPI_Ibarrier(line_->comm(), work->next()), "MPI_Ibarrier");
  } else if (call.kind == Kind::all_reduce) {
    all_reduce(call, *work);
  } else if (call.kind == Kind::reduce_scatter) {
    reduce_scatter(call, *work);
  } else if (call.kind == Kind::all_gather) {
    all_gather(call, *work);
  } else if (call.kind == Kind::broadcast) {
    broadcast(data_of(call.output), static_cast<int64_t>(call.output.nbytes()), call.peer, *work);
  } else if (call.kind == Kind::all_to_all) {
    exchange(call.output, comm::byte_counts(call.output, call.output_counts, n), call.input,
             comm::byte_counts(call.input, call.input_counts, n), *work);
  } else {
    message(call, *work);
  }
  return work;
}

void Mpi::all_reduce(const Call& call, MpiWork& work) const {
  const Reduction how = Session::get().reduction(call.output.scalar_type(), call.op);
  char* data = data_of(call.output);
  const auto width = static_cast<int64_t>(call.output.element_size());
  in_pieces(call.output.numel(), [&](int64_t first, int count) {
    must(MPI_Iallreduce(MPI_IN_PLACE, data + first * width, count, how.type, how.op, line_->comm(),
                        work.next()),
         "MPI_Iallreduce");
  });
}

// Open MPI's own one passes everything through the first rank. Here every rank gets what the others
// hold of its share and adds it up: the bytes of a ring, and one order of additions on every run.
void Mpi::reduce_scatter(const Call& call, MpiWork& work) const {
  const at::Tensor rows = comm::rank_rows(call.output, size());
  work.add_rows(rows);
  const std::vector<int64_t> mine(static_cast<size_t>(size()),
                                  static_cast<int64_t>(call.output.nbytes()));
  exchange(rows, mine, call.input, comm::byte_counts(call.input, call.input_counts, size()), work);
}

void Mpi::broadcast(char* data, int64_t bytes, int root, MpiWork& work) const {
  in_pieces(bytes, [&](int64_t first, int count) {
    must(MPI_Ibcast(data + first, count, MPI_BYTE, root, line_->comm(), work.next()), "MPI_Ibcast");
  });
}

void Mpi::all_gather(const Call& call, MpiWork& work) const {
  const std::vector<int64_t> bytes = comm::byte_counts(call.output, call.output_counts, size());
  const auto total = static_cast<int64_t>(call.output.nbytes());
  char* out = data_of(call.output);
  if (call.output_counts.empty() && total <= options_.largest_count) {
    const int share = static_cast<int>(total / size());
    const char* in = data_of(call.input);
    const bool there = in == out + int64_t{share} * rank();  // MPI wants to be told
    must(MPI_Iallgather(there ? MPI_IN_PLACE : in, share, MPI_BYTE, out, share, MPI_BYTE,
                        line_->comm(), work.next()),
         "MPI_Iallgather");
    return;
  }
  // Displacements are int, too: each rank sends its own to all.
  for (int root = 0; root < size(); ++root) {
    const int64_t count = bytes[static_cast<size_t>(root)];
    if (root == rank() && count > 0 && out != data_of(call.input))
      std::memcpy(out, data_of(call.input), static_cast<size_t>(count));
    broadcast(out, count, root, work);
    out += count;
  }
}

// Pairs agree on their bytes, and nobody knows those of all: so only pairs can choose pieces.
void Mpi::exchange(const at::Tensor& out, const std::vector<int64_t>& out_bytes,
                   const at::Tensor& in, const std::vector<int64_t>& in_bytes,
                   MpiWork& work) const {
  char *to = data_of(out), *from = data_of(in);
  for (int peer = 0; peer < size(); ++peer) {
    const int64_t gets = out_bytes[static_cast<size_t>(peer)],
                  gives = in_bytes[static_cast<size_t>(peer)];
    if (peer == rank()) {
      if (gets > 0) std::memcpy(to, from, static_cast<size_t>(gets));
    } else {
      in_pieces(gets, [&](int64_t first, int count) {
        must(MPI_Irecv(to + first, count, MPI_BYTE, peer, Line::exchange, line_->side(),
                       work.next()),
             "MPI_Irecv");
      });
      in_pieces(gives, [&](int64_t first, int count) {
        must(MPI_Isend(from + first, count, MPI_BYTE, peer, Line::exchange, line_->side(),
                       work.next()),
             "MPI_Isend");
      });
    }
    to += gets;
    from += gives;
  }
}

void Mpi::message(const Call& call, MpiWork& work) const {
  const bool sends = call.kind == Kind::send;
  const at::Tensor& tensor = sends ? call.input : call.output;
  char* data = data_of(tensor);
  in_pieces(static_cast<int64_t>(tensor.nbytes()), [&](int64_t first, int count) {
    if (sends)
      must(
          MPI_Isend(data + first, count, MPI_BYTE, call.peer, call.tag, line_->comm(), work.next()),
          "MPI_Isend");
    else
      must(
          MPI_Irecv(data + first, count, MPI_BYTE, call.peer, call.tag, line_->comm(), work.next()),
          "MPI_Irecv");
  });
}

}  // namespace
}  // namespace braid::mpi

extern "C" __attribute__((visibility("default"))) braid::comm::Backend* braid_mpi_backend(
    const braid::comm::MpiOptions& options) {
  using namespace braid::mpi;
  Session::get();
  MPI_Comm own = MPI_COMM_NULL;
  must(MPI_Comm_dup(MPI_COMM_WORLD, &own), "MPI_Comm_dup");
  return new Mpi(own, options);
}
