// SPDX-License-Identifier: BSD-3-Clause
// One rank's trace: where the time of its steps went. On a GPU by its kernels, on a CPU by the
// operators of the thread that trains.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "braid/core/error.h"
#include "braid/core/region.h"
#include "braid/report/trace.h"
#include "report/trace_nest.h"

namespace braid::report {
namespace {

using nlohmann::json;

constexpr double second = 1e-6;  // of microseconds

class Analysis {
 public:
  Analysis(const RankProfile& rank, const TraceSpans& trace)
      : rank_(rank), trace_(trace), nested_(nest(trace)) {
    for (const TraceSpan& span : trace.spans) {
      if (span.kind == SpanKind::kernel) on_gpu_ = true;
      if (span.kind >= SpanKind::kernel && span.external >= 0)
        device_time_[span.external] += span.end - span.begin;
    }
    window_ = window();
    data_ = region(regions::data);
    for (const std::string_view name : {regions::forward, regions::backward, regions::optimizer})
      regions_.push_back(region(name));
    find_busy();
  }

  json result() const {
    json steps = json::array();
    for (const size_t i : nested_.steps) {
      const TraceSpan& span = trace_.spans[i];
      steps.push_back({{"name", trace_.name(span)}, {"seconds", (span.end - span.begin) * second}});
    }
    return {{"steps", steps},           {"row", row()},
            {"regions", region_rows()}, {"operators", operator_rows()},
            {"modules", module_rows()}, {"device", on_gpu_ ? "gpu" : "cpu"}};
  }

 private:
  double steps() const { return static_cast<double>(nested_.steps.size()); }
  double a_step(double microseconds) const { return microseconds * second / steps(); }

  Intervals spans_of(const std::vector<size_t>& indices) const {
    std::vector<Intervals::Interval> all;
    for (const size_t i : indices) all.emplace_back(trace_.spans[i].begin, trace_.spans[i].end);
    return Intervals(std::move(all));
  }

  Intervals region(std::string_view name) const {
    std::vector<size_t> chosen;
    for (const size_t i : nested_.regions)
      if (trace_.name(trace_.spans[i]) == name) chosen.push_back(i);
    return spans_of(chosen);
  }

  // Kernels of the last step run on when the host is done.
  Intervals window() const {
    std::vector<Intervals::Interval> all = spans_of(nested_.steps).all();
    double last = 0;
    for (const TraceSpan& span : trace_.spans)
      if (span.kind >= SpanKind::kernel) last = std::max(last, span.end);
    if (!all.empty() && last > all.back().second) all.back().second = last;
    return Intervals(std::move(all));
  }

  bool is_transfer(const TraceSpan& span) const {
    return trace_.name(span).find("nccl") != std::string::npos;
  }

  // busy_[0..2] by region, busy_[3] elsewhere.
  void find_busy() {
    std::vector<std::vector<Intervals::Interval>> busy(4);
    std::vector<Intervals::Interval> transfers, messages;
    if (on_gpu_)
      find_kernels(busy, transfers, messages);
    else
      find_operators(busy[3]);
    Intervals waits = on_gpu_ ? Intervals(transfers) : spans_of(nested_.waits);
    const Intervals recv = on_gpu_ ? Intervals(messages) : spans_of(nested_.messages);
    communication_ = (on_gpu_ ? waits : waits | spans_of(nested_.transfers)) & window_;
    for (const auto& part : busy) busy_.push_back(Intervals(part) & window_);
    if (!on_gpu_) {
      const Intervals working = (busy_[3] - waits) - data_;
      busy_[3] = working;
      for (size_t i = 0; i < 3; ++i) {
        busy_[i] = working & regions_[i];
        busy_[3] = busy_[3] - regions_[i];
      }
    }
    all_busy_ = busy_[0] | busy_[1] | busy_[2] | busy_[3];
    waits = (waits & window_) - all_busy_;
    bubble_ = rank_.pipelined ? waits & recv : Intervals();
    exposed_ = waits - bubble_;
    data_ = ((data_ & window_) - all_busy_) - waits;
  }

  void find_operators(std::vector<Intervals::Interval>& all) const {
    for (const TraceSpan& span : trace_.spans)
      if (span.kind == SpanKind::op && span.thread == nested_.main_thread)
        all.emplace_back(span.begin, span.end);
  }

  // A kernel belongs to the region that its operator was launched in.
  void find_kernels(std::vector<std::vector<Intervals::Interval>>& busy,
                    std::vector<Intervals::Interval>& transfers,
                    std::vector<Intervals::Interval>& messages) const {
    std::unordered_map<int64_t, double> launched;
    for (const TraceSpan& span : trace_.spans)
      if (span.kind == SpanKind::op && span.external >= 0) launched[span.external] = span.begin;
    for (const TraceSpan& span : trace_.spans) {
      if (span.kind < SpanKind::kernel) continue;
      if (is_transfer(span)) {
        transfers.emplace_back(span.begin, span.end);
        if (trace_.name(span).find("SendRecv") != std::string::npos)
          messages.emplace_back(span.begin, span.end);
        continue;
      }
      const auto op = launched.find(span.external);
      size_t part = 3;
      for (size_t i = 0; i < 3 && op != launched.end(); ++i)
        if (regions_[i].contains(op->second)) part = i;
      busy[part].emplace_back(span.begin, span.end);
    }
  }

  json row() const {
    const Intervals idle = (((window_ - all_busy_) - exposed_) - bubble_) - data_;
    return {{"rank", rank_.rank},
            {"seconds", a_step(window_.length())},
            {"forward", a_step(busy_[0].length())},
            {"backward", a_step(busy_[1].length())},
            {"optimizer", a_step(busy_[2].length())},
            {"data", a_step(data_.length())},
            {"communication", a_step(communication_.length())},
            {"exposed_communication", a_step(exposed_.length())},
            {"bubble", a_step(bubble_.length())},
            {"host_gap", a_step(idle.length())},
            {"other", a_step(busy_[3].length())}};
  }

  json region_rows() const {
    const std::array<double, 3> flops = {rank_.forward_flops, rank_.backward_flops,
                                         rank_.optimizer_flops};
    const std::array<const char*, 3> names = {"forward", "backward", "optimizer"};
    json rows = json::array();
    for (size_t i = 0; i < 3; ++i)
      rows.push_back(
          {{"name", names[i]},
           {"seconds", a_step(on_gpu_ ? busy_[i].length() : (regions_[i] & window_).length())},
           {"flops", flops[i]}});
    return rows;
  }

  bool counted(const OperatorWork& work) const {
    return window_.contains(trace_.spans[work.span].begin);
  }

  double own_time(const OperatorWork& work) const {
    if (!on_gpu_) return work.own;
    const auto time = device_time_.find(trace_.spans[work.span].external);
    return time == device_time_.end() ? 0 : time->second;
  }

  json operator_rows() const {
    struct Sum {
      double calls = 0, own = 0, whole = 0;
    };
    std::map<std::string, Sum> sums;
    for (const OperatorWork& work : nested_.operators) {
      if (!counted(work)) continue;
      const TraceSpan& span = trace_.spans[work.span];
      Sum& sum = sums[trace_.name(span)];
      sum.calls += 1;
      sum.own += own_time(work);
      if (work.outermost) sum.whole += span.end - span.begin - work.waited;
    }
    std::map<std::string, const OperatorCost*> costs;
    for (const OperatorCost& cost : rank_.costs) costs[cost.name] = &cost;
    json rows = json::array();
    for (const auto& [name, sum] : sums) {
      const auto cost = costs.find(name);
      // Of an operator that is made of others the whole time computes its FLOPs.
      const double computing = on_gpu_ ? sum.own : sum.whole;
      rows.push_back({{"name", name},
                      {"calls", sum.calls / steps()},
                      {"seconds", a_step(sum.own)},
                      {"computing", a_step(computing)},
                      {"flops", cost == costs.end() ? 0.0 : cost->second->flops},
                      {"bytes", cost == costs.end() ? 0.0 : cost->second->bytes}});
    }
    return rows;
  }

  json module_rows() const {
    std::map<uint32_t, std::pair<double, double>> sums;
    for (const OperatorWork& work : nested_.operators) {
      if (!counted(work)) continue;
      std::vector<uint32_t> modules = work.modules;
      std::sort(modules.begin(), modules.end());
      modules.erase(std::unique(modules.begin(), modules.end()), modules.end());
      for (const uint32_t module : modules)
        (work.backward ? sums[module].second : sums[module].first) += own_time(work);
    }
    json rows = json::array();
    for (const auto& [name, times] : sums)
      rows.push_back({{"name", trace_.names[name]},
                      {"forward", a_step(times.first)},
                      {"backward", a_step(times.second)}});
    return rows;
  }

  const RankProfile& rank_;
  const TraceSpans& trace_;
  NestedTrace nested_;
  bool on_gpu_ = false;
  std::unordered_map<int64_t, double> device_time_;  // of kernels, by what launched them
  Intervals window_, data_, communication_, exposed_, bubble_, all_busy_;
  std::vector<Intervals> regions_, busy_;
};

}  // namespace

std::string rank_profile(const RankProfile& rank) {
  const TraceSpans trace = read_spans(rank.file);
  const bool has_step = std::any_of(trace.names.begin(), trace.names.end(), [](const auto& name) {
    return mark_of(name, false) == Mark::step;
  });
  if (!has_step)
    throw DataError({.what = fmt::format("{} has no ProfilerStep", rank.file.string()),
                     .why = "times are reported per step",
                     .fix = "make it again with braid profile CONFIG"});
  return Analysis(rank, trace).result().dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace braid::report
