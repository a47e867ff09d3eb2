// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <chrono>
#include <cmath>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include "braid/core/accelerator.h"
#include "braid/plan/calibrate.h"

namespace braid::plan {
namespace {

using comm::Kind;
using Clock = std::chrono::steady_clock;

constexpr Kind measured_kinds[] = {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather,
                                   Kind::broadcast,  Kind::all_to_all,     Kind::send};

// Bytes that a ring puts on a link for a byte of the tensor.
double ring_share(Kind kind, int ranks) {
  const double n = ranks;
  switch (kind) {
    case Kind::all_reduce:
      return 2 * (n - 1) / n;
    case Kind::reduce_scatter:
    case Kind::all_gather:
    case Kind::all_to_all:
      return (n - 1) / n;
    default:
      return 1;
  }
}

// Steps of a ring, each of which waits for the one before.
double ring_hops(Kind kind, int ranks) {
  return kind == Kind::all_reduce ? 2.0 * (ranks - 1) : ranks - 1.0;
}

class CommClock {
 public:
  CommClock(const comm::Group& group, const CommOptions& options, int64_t bytes)
      : group_(group), options_(options) {
    const int64_t n = group.size();
    const int64_t count = std::max<int64_t>(1, bytes / 4 / n) * n;
    const at::TensorOptions there = at::TensorOptions().device(options.device).dtype(c10::kFloat);
    whole_ = at::ones({count}, there);
    other_ = at::ones({count}, there);
    share_ = at::ones({count / n}, there);
  }
  int64_t bytes() const { return whole_.numel() * 4; }

  // The slowest rank's time of the middle repetition.
  double seconds(Kind kind) {
    once(kind);
    once(kind);
    std::vector<double> times;
    for (int i = 0; i < options_.repetitions; ++i) {
      group_.barrier().wait();
      finish();
      const auto start = Clock::now();
      once(kind);
      finish();
      times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    std::nth_element(times.begin(), times.begin() + options_.repetitions / 2, times.end());
    const double middle = times[static_cast<size_t>(options_.repetitions / 2)];
    return slowest(kind == Kind::send ? middle / 2 : middle);  // there and back
  }

 private:
  void finish() const {
    if (options_.device.is_cuda()) accelerator()->synchronize(options_.device.index());
  }

  double slowest(double seconds) const {
    const at::Tensor all = at::full({1}, seconds, whole_.options());
    group_.all_reduce(all, comm::Op::max).wait();
    return all.cpu().data_ptr<float>()[0];
  }

  void once(Kind kind) {
    switch (kind) {
      case Kind::all_reduce:
        group_.all_reduce(whole_, comm::Op::max).wait();  // sums would grow without end
        return;
      case Kind::reduce_scatter:
        group_.reduce_scatter(share_, whole_, comm::Op::max).wait();
        return;
      case Kind::all_gather:
        group_.all_gather(whole_, share_).wait();
        return;
      case Kind::broadcast:
        group_.broadcast(whole_, 0).wait();
        return;
      case Kind::all_to_all:
        group_.all_to_all(other_, whole_).wait();
        return;
      default:
        there_and_back();
    }
  }

  void there_and_back() {
    if (group_.rank() == 0) {
      group_.send(whole_, 1).wait();
      group_.recv(other_, 1).wait();
    } else if (group_.rank() == 1) {
      group_.recv(other_, 0).wait();
      group_.send(whole_, 0).wait();
    }
  }

  const comm::Group& group_;
  const CommOptions& options_;
  at::Tensor whole_, other_, share_;
};

}  // namespace

std::vector<CommPoint> measure_comm(const comm::Group& group, const CommOptions& options) {
  std::vector<int64_t> sizes;
  for (int64_t bytes = options.smallest; bytes <= options.largest; bytes *= 4)
    sizes.push_back(bytes);
  const auto all = static_cast<int64_t>(sizes.size() * std::size(measured_kinds));
  std::vector<CommPoint> points;
  for (const Kind kind : measured_kinds)
    for (const int64_t bytes : sizes) {
      CommClock clock(group, options, bytes);
      CommPoint point{.kind = kind, .bytes = clock.bytes(), .seconds = clock.seconds(kind)};
      point.algorithm = static_cast<double>(point.bytes) / point.seconds;
      point.bus = point.algorithm * ring_share(kind, group.size());
      points.push_back(point);
      if (options.progress) options.progress(static_cast<int64_t>(points.size()), all);
    }
  return points;
}

// Errors count as shares of the time, so that small messages say what a hop costs and large ones
// what a byte costs.
Link fit_link(const std::vector<CommPoint>& points, int ranks) {
  double hh = 0, hb = 0, bb = 0, h1 = 0, b1 = 0;
  double fastest = 0, least = 1e9;
  for (const CommPoint& point : points) {
    if (point.kind != Kind::all_reduce && point.kind != Kind::reduce_scatter &&
        point.kind != Kind::all_gather)
      continue;
    const double hops = ring_hops(point.kind, ranks);
    const double h = hops / point.seconds;
    const double b =
        ring_share(point.kind, ranks) * static_cast<double>(point.bytes) / point.seconds;
    hh += h * h;
    hb += h * b;
    bb += b * b;
    h1 += h;
    b1 += b;
    fastest = std::max(fastest, point.bus);
    least = std::min(least, point.seconds / hops);
  }
  Link link;
  link.share = 1;
  if (hh == 0 || bb == 0) return link;
  const double determinant = hh * bb - hb * hb;
  double latency = 0, a_byte = 0;
  if (determinant > 1e-12 * hh * bb) {
    latency = (h1 * bb - b1 * hb) / determinant;
    a_byte = (b1 * hh - h1 * hb) / determinant;
  }
  link.latency = latency > 0 ? latency : least;
  link.bandwidth = a_byte > 0 ? 1 / a_byte : fastest;
  return link;
}

}  // namespace braid::plan
