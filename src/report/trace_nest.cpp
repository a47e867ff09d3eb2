// SPDX-License-Identifier: BSD-3-Clause
#include "report/trace_nest.h"

#include <algorithm>
#include <unordered_map>

#include "braid/core/region.h"

namespace braid::report {
namespace {

constexpr std::string_view node_prefix = "autograd::engine::evaluate_function";

struct OpenSpan {
  size_t span;
  bool is_op = false, is_wait = false;
  double inner = 0, waited = 0;  // microseconds of operators and waits within
  int64_t node = -1;             // of the backward pass: number of the operator that made it
  bool backward = false;
  std::vector<uint32_t> modules = {};
};

class Nesting {
 public:
  explicit Nesting(const TraceSpans& trace) : trace_(trace) {}

  NestedTrace result() {
    find_main_thread();
    for (size_t i = 0; i < trace_.spans.size(); ++i)
      if (trace_.spans[i].kind <= SpanKind::annotation) add(i);
    for (auto& [thread, open] : open_)
      while (!open.empty()) close(open);
    for (const auto& [work, node] : nodes_) give_modules(nested_.operators[work], node);
    return std::move(nested_);
  }

 private:
  void find_main_thread() {
    for (const TraceSpan& span : trace_.spans)
      if (span.kind == SpanKind::annotation && mark_of(trace_.name(span), false) == Mark::step)
        nested_.main_thread = span.thread;
  }

  void add(size_t i) {
    const TraceSpan& span = trace_.spans[i];
    std::vector<OpenSpan>& open = open_[span.thread];
    while (!open.empty() && trace_.spans[open.back().span].end <= span.begin) close(open);
    OpenSpan next{.span = i};
    if (!open.empty()) {
      next.node = open.back().node;
      next.backward = open.back().backward;
      next.modules = open.back().modules;
    }
    if (span.kind == SpanKind::op)
      add_operator(span, next);
    else if (!add_annotation(i, next, !open.empty() && open.back().is_wait))
      return;
    open.push_back(std::move(next));
  }

  void add_operator(const TraceSpan& span, OpenSpan& next) {
    next.is_op = true;
    if (trace_.name(span).starts_with(node_prefix)) {
      next.node = span.sequence;
      next.backward = true;
    } else if (span.sequence >= 0 && !next.backward && span.thread == nested_.main_thread) {
      owners_[span.sequence] = next.modules;  // the last one that begins with a number makes it
    }
  }

  // False: it does not nest.
  bool add_annotation(size_t i, OpenSpan& next, bool in_wait) {
    const TraceSpan& span = trace_.spans[i];
    switch (mark_of(trace_.name(span), in_wait)) {
      case Mark::step:
        nested_.steps.push_back(i);
        break;
      case Mark::region:
        nested_.regions.push_back(i);
        break;
      case Mark::wait:
        nested_.waits.push_back(i);
        next.is_wait = true;
        break;
      case Mark::call:
        if (trace_.name(span) == "recv") nested_.messages.push_back(i);
        break;
      case Mark::transfer:
        nested_.transfers.push_back(i);
        return false;
      case Mark::module:
        if (next.modules.empty() || next.modules.back() != span.name)
          next.modules.push_back(span.name);
        break;
    }
    return true;
  }

  void close(std::vector<OpenSpan>& open) {
    const OpenSpan done = std::move(open.back());
    open.pop_back();
    const TraceSpan& span = trace_.spans[done.span];
    const double whole = span.end - span.begin;
    const bool counts = done.is_op || done.is_wait;
    if (!open.empty()) {
      open.back().inner += counts ? whole : done.inner;
      open.back().waited += done.is_wait ? whole : done.waited;
    }
    if (!done.is_op) return;
    OperatorWork work{.span = done.span,
                      .own = std::max(0.0, whole - done.inner),
                      .waited = done.waited,
                      .backward = done.backward,
                      .modules = done.modules};
    work.outermost = std::none_of(open.begin(), open.end(), [&](const OpenSpan& outer) {
      return outer.is_op && trace_.spans[outer.span].name == span.name;
    });
    nested_.operators.push_back(std::move(work));
    if (done.node >= 0) nodes_.emplace_back(nested_.operators.size() - 1, done.node);
  }

  void give_modules(OperatorWork& work, int64_t node) {
    const auto owner = owners_.find(node);
    if (owner != owners_.end() && work.modules.size() < owner->second.size())
      work.modules = owner->second;
  }

  const TraceSpans& trace_;
  NestedTrace nested_;
  std::map<int64_t, std::vector<OpenSpan>> open_;  // by thread
  std::unordered_map<int64_t, std::vector<uint32_t>> owners_;
  std::vector<std::pair<size_t, int64_t>> nodes_;  // work, number of its node
};

}  // namespace

Mark mark_of(std::string_view name, bool in_wait) {
  if (name.starts_with("ProfilerStep#")) return Mark::step;
  if (name == regions::communication) return Mark::wait;
  if (in_wait) return Mark::call;
  if (name.starts_with("## ")) return Mark::region;
  for (const std::string_view backend : {"gloo:", "nccl:", "mpi:"})
    if (name.starts_with(backend)) return Mark::transfer;
  return Mark::module;
}

NestedTrace nest(const TraceSpans& trace) { return Nesting(trace).result(); }

}  // namespace braid::report
