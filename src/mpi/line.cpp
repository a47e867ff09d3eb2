// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>
#include <thread>

namespace braid::mpi {
namespace {

using Clock = std::chrono::steady_clock;

// The same on every rank: std::hash need not be.
int tag_of(const std::vector<int>& ranks, const std::string& name) {
  uint32_t hash = 2166136261u;
  for (const char c : fmt::format("{}[{}]", name, fmt::join(ranks, ",")))
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return Line::first_split + static_cast<int>(hash % 30000);  // below the smallest MPI_TAG_UB
}

bool all_over(std::vector<MPI_Request>& requests) {
  int over = 0;
  must(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &over, MPI_STATUSES_IGNORE),
       "MPI_Testall");
  return over != 0;
}

}  // namespace

Line::Line(MPI_Comm comm, double timeout_seconds) : comm_(comm), timeout_seconds_(timeout_seconds) {
  must(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  must(MPI_Comm_dup(comm_, &side_), "MPI_Comm_dup");
  must(MPI_Comm_set_errhandler(side_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  must(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  must(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
}

Line::~Line() {
  if (quitter_ >= 0 || Session::get().ended()) return;  // calls may still be under way
  MPI_Comm_free(&side_);
  MPI_Comm_free(&comm_);
}

void Line::check() const {
  if (quitter_ < 0) {
    int found = 0;
    MPI_Status status = {};
    must(MPI_Iprobe(MPI_ANY_SOURCE, gave_up, side_, &found, &status), "MPI_Iprobe");
    if (found != 0) quitter_ = status.MPI_SOURCE;
  }
  if (quitter_ < 0) return;
  Session::get().broken();
  throw std::runtime_error(quitter_ == rank_ ? "this rank gave up the group"
                                             : fmt::format("rank {} gave up the group", +quitter_));
}

void Line::wait_for(const std::function<bool()>& over) const {
  using namespace std::chrono_literals;
  const auto begin = Clock::now();
  while (!over()) {
    check();
    const auto waited = Clock::now() - begin;
    if (waited > std::chrono::duration<double>(timeout_seconds_)) {
      Session::get().broken();
      throw std::runtime_error(fmt::format("it did not end within {} s", timeout_seconds_));
    }
    if (waited < 1ms)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(50us);
  }
}

void Line::give_up() {
  using namespace std::chrono_literals;
  int nobody = -1;
  if (!quitter_.compare_exchange_strong(nobody, rank_)) return;
  Session::get().broken();
  std::vector<MPI_Request> told;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    MPI_Isend(nullptr, 0, MPI_BYTE, peer, gave_up, side_, &told.emplace_back());
  }
  const auto begin = Clock::now();
  while (!all_over(told) && Clock::now() - begin < 200ms) std::this_thread::sleep_for(1ms);
}

// MPI_Comm_create_group waits for ever for a rank that does not come: so all say first that they
// are here.
void Line::meet(const std::vector<int>& ranks, int tag) const {
  std::vector<MPI_Request> sent, got;
  for (const int peer : ranks) {
    must(MPI_Isend(nullptr, 0, MPI_BYTE, peer, tag, side_, &sent.emplace_back()), "MPI_Isend");
    must(MPI_Irecv(nullptr, 0, MPI_BYTE, peer, tag, side_, &got.emplace_back()), "MPI_Irecv");
  }
  try {
    wait_for([&] { return all_over(got) && all_over(sent); });
  } catch (const std::exception& error) {
    std::vector<int> missing;
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i] == MPI_REQUEST_NULL) continue;
      int here = 0;
      MPI_Test(&got[i], &here, MPI_STATUS_IGNORE);
      if (here == 0) missing.push_back(ranks[i]);
    }
    throw std::runtime_error(fmt::format("rank {} did not come to the new group: {}",
                                         fmt::join(missing, ", "), error.what()));
  }
}

MPI_Comm Line::make(const std::vector<int>& ranks, const std::string& name) const {
  const int tag = tag_of(ranks, name);
  meet(ranks, tag);
  MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
  must(MPI_Comm_group(comm_, &all), "MPI_Comm_group");
  must(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some), "MPI_Group_incl");
  MPI_Comm made = MPI_COMM_NULL;
  must(MPI_Comm_create_group(comm_, some, tag, &made), "MPI_Comm_create_group");
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  return made;
}

}  // namespace braid::mpi
