// SPDX-License-Identifier: BSD-3-Clause
// The keys of a cluster file, and the lines of its curves.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "braid/core/error.h"
#include "braid/plan/cluster.h"
#include "plan/cluster_curves.h"

namespace braid::plan {
namespace {

constexpr const char* peak_dtypes[] = {"fp64", "fp32", "tf32", "bf16", "fp16", "fp8"};

[[noreturn]] void refuse_curve(const std::string& line, const std::string& why) {
  throw ConfigError({.what = fmt::format("the curve line \"{}\" {}", line, why),
                     .why = "a line is: kernel dtype sizes... seconds, as in gemm bf16 4096 768 "
                            "3072 4.2e-05",
                     .fix = "let `braid bench kernels` write it again, or take the line out"});
}

}  // namespace

// Peaks as a section of its own, so that an unknown dtype is answered with the nearest.
struct PeakFields {
  std::map<std::string, double>& peak;
};

void describe(Fields& fields, PeakFields& peaks) {
  for (const char* dtype : peak_dtypes) {
    const auto found = peaks.peak.find(dtype);
    std::optional<double> value;
    if (found != peaks.peak.end()) value = found->second;
    fields.field(dtype, value, "FLOP/s of dense products", {.above = 0});
    if (value) peaks.peak[dtype] = *value;
  }
}

void describe(Fields& fields, Gpu& gpu) {
  PeakFields peaks{gpu.peak};
  fields.field("name", gpu.name, "of the GPU, as the driver says it");
  fields.field("memory", gpu.memory, "of the device", {.above = 0});
  fields.field("bandwidth", gpu.bandwidth, "bytes/s of its memory", {.above = 0});
  fields.section("peak", peaks, "FLOP/s by dtype, dense");
  fields.field("launch", gpu.launch, "seconds of the host for a kernel", {.above = 0});
  fields.field("graph_launch", gpu.graph_launch, "the same within a graph; 0: as one by one",
               {.at_least = 0});
  fields.field("view_launch", gpu.view_launch, "seconds of the host for a view", {.at_least = 0});
  fields.field("multiprocessors", gpu.multiprocessors, "of the GPU: products come in waves",
               {.at_least = 0});
  fields.field("context", gpu.context, "bytes of the driver before the first tensor",
               {.at_least = 0});
  fields.field("gemm_workspace", gpu.gemm_workspace, "bytes of cuBLAS", {.at_least = 0});
  fields.field("gemm_share", gpu.gemm_share, "of the peak that large products reach",
               {.at_least = 0, .at_most = 1});
  fields.field("stream_share", gpu.stream_share, "of the bandwidth that kernels reach",
               {.at_least = 0, .at_most = 1});
  fields.field("older_share", gpu.older_share,
               "of the peak with the tensor cores' older instructions; 0: 1",
               {.at_least = 0, .at_most = 1});
  fields.field(
      "hot", gpu.hot,
      "times that 16-bit products take under steady load, when power is short; 0: not said",
      {.at_least = 0});
  fields.field("fitted_on", gpu.fitted_on, "rows that the two shares come from; empty: measured");
  std::vector<std::string> lines = curve_lines(gpu.curves);
  fields.field("curves", lines, "kernel, dtype, sizes, seconds: by braid bench kernels");
  gpu.curves = parse_curves(lines);
}

void describe(Fields& fields, Host& host) {
  fields.field("cores", host.cores, "of a node", {.at_least = 0});
  fields.field("memory", host.memory, "of a node", {.at_least = 0});
  fields.field("copy_bandwidth", host.copy_bandwidth,
               "bytes/s between page-locked memory and a GPU, one direction", {.above = 0});
  fields.field("read_bandwidth", host.read_bandwidth, "bytes/s of a node from its file system",
               {.above = 0});
  fields.field("write_bandwidth", host.write_bandwidth, "bytes/s of a node to it", {.above = 0});
}

void describe(Fields& fields, Link& link) {
  fields.field("latency", link.latency, "seconds a hop", {.at_least = 0});
  fields.field("bandwidth", link.bandwidth, "bytes/s of a GPU, one direction", {.above = 0});
  fields.field("share", link.share, "of it that large collectives reach",
               {.above = 0, .at_most = 1});
}

void describe(Fields& fields, Cluster& cluster) {
  fields.field("name", cluster.name, "short, as --cluster takes it");
  fields.field("title", cluster.title, "what it is");
  fields.field("source", cluster.source, "where its numbers come from");
  fields.field("gpus_per_node", cluster.gpus_per_node, "of a node",
               {.at_least = 1, .at_most = 4096});
  fields.field("nodes", cluster.nodes, "most that a job gets", {.at_least = 1, .at_most = 1e6});
  fields.section("host", cluster.host, "of a node");
  fields.section("inside", cluster.inside, "links within a node");
  fields.section("between", cluster.between, "links between nodes, of one GPU when all talk");
  fields.section("gpu", cluster.gpu, "each of the GPUs");
}

std::vector<std::string> curve_lines(const std::vector<Curve>& curves) {
  std::vector<std::string> lines;
  for (const Curve& curve : curves)
    for (const CurvePoint& point : curve.points) {
      std::string line = fmt::format("{} {}", curve.kernel, curve.dtype);
      for (const double size : point.at) line += fmt::format(" {:.10g}", size);
      lines.push_back(line + fmt::format(" {:.5g}", point.seconds));
    }
  return lines;
}

std::vector<Curve> parse_curves(const std::vector<std::string>& lines) {
  std::vector<Curve> curves;
  for (const std::string& line : lines) {
    std::istringstream words(line);
    std::string kernel, dtype, word;
    words >> kernel >> dtype;
    CurvePoint point;
    while (words >> word) {
      const std::optional<double> number = parse_number(word);
      if (!number) refuse_curve(line, fmt::format("has {}, which is not a number", word));
      if (!(*number > 0)) refuse_curve(line, fmt::format("has {}: sizes are above zero", word));
      point.at.push_back(*number);
    }
    if (point.at.size() < 2) refuse_curve(line, "has no sizes or no seconds");
    point.seconds = point.at.back();
    point.at.pop_back();
    add_point(curves, kernel, dtype, std::move(point));
  }
  for (const Curve& curve : curves)
    for (const CurvePoint& point : curve.points)
      if (point.at.size() != curve.points.front().at.size())
        refuse_curve(fmt::format("{} {} {}", curve.kernel, curve.dtype, fmt::join(point.at, " ")),
                     "has another number of sizes than the lines before it");
  return curves;
}

void add_point(std::vector<Curve>& curves, const std::string& kernel, const std::string& dtype,
               CurvePoint point) {
  const auto same = [&](const Curve& curve) {
    return curve.kernel == kernel && curve.dtype == dtype;
  };
  auto curve = std::find_if(curves.begin(), curves.end(), same);
  if (curve == curves.end()) curve = curves.insert(curves.end(), Curve{kernel, dtype, {}});
  for (CurvePoint& old : curve->points)
    if (old.at == point.at) {
      old.seconds = point.seconds;
      return;
    }
  curve->points.push_back(std::move(point));
}

}  // namespace braid::plan
