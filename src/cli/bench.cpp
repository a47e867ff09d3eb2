// SPDX-License-Identifier: BSD-3-Clause
// braid bench kernels, braid bench comm: what this machine computes and carries, as a cluster file
// that braid plan reads.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "braid/core/accelerator.h"
#include "braid/core/fs.h"
#include "braid/core/precision.h"
#include "braid/plan/calibrate.h"
#include "braid/train/trainer.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/usage.h"

namespace braid::cli {
namespace {

struct KernelArguments {
  std::string device, out, only, name;
  std::vector<std::string> dtypes;
  double seconds = 120;
  bool small = false, json = false;
};

// How close the fastest size of each kernel comes to what the GPU could do.
nlohmann::json kernels_json(const plan::Cluster& cluster) {
  nlohmann::json curves = nlohmann::json::array();
  for (const plan::Curve& curve : cluster.gpu.curves) {
    nlohmann::json points = nlohmann::json::array();
    for (const plan::CurvePoint& point : curve.points)
      points.push_back({{"at", point.at}, {"seconds", point.seconds}});
    curves.push_back({{"kernel", curve.kernel}, {"dtype", curve.dtype}, {"points", points}});
  }
  const plan::Gpu& gpu = cluster.gpu;
  return {{"gpu", gpu.name},
          {"memory_bytes", gpu.memory.count},
          {"launch_seconds", gpu.launch},
          {"view_launch_seconds", gpu.view_launch},
          {"gemm_share", gpu.gemm_share},
          {"stream_share", gpu.stream_share},
          {"copy_bytes_per_second", cluster.host.copy_bandwidth},
          {"source", cluster.source},
          {"curves", std::move(curves)}};
}

void print_kernels(const plan::Cluster& cluster) {
  const plan::Gpu& gpu = cluster.gpu;
  fmt::print("{}: {}\n", gpu.name, cluster.source);
  fmt::print("{:<28} {:<6} {:>7} {:>14} {:>14}\n{:-<73}\n", "kernel", "dtype", "sizes", "fastest",
             "slowest", "");
  for (const plan::Curve& curve : gpu.curves) {
    double least = curve.points.front().seconds, most = 0;
    for (const plan::CurvePoint& point : curve.points) {
      least = std::min(least, point.seconds);
      most = std::max(most, point.seconds);
    }
    fmt::print("{:<28} {:<6} {:>7} {:>14} {:>14}\n", curve.kernel, curve.dtype, curve.points.size(),
               to_text(Seconds{least}), to_text(Seconds{most}));
  }
  fmt::print("{:-<73}\n", "");
  fmt::print("large products reach {:.0f} % of the peak, copies {:.0f} % of the bandwidth\n",
             100 * gpu.gemm_share, 100 * gpu.stream_share);
  fmt::print("the host takes {:.1f} us for a kernel, {:.2f} us for a view\n", 1e6 * gpu.launch,
             1e6 * gpu.view_launch);
  if (cluster.host.copy_bandwidth > 0)
    fmt::print("between host and GPU: {:.1f} GB/s\n", cluster.host.copy_bandwidth / 1e9);
}

void check_dtypes(const std::vector<std::string>& dtypes) {
  const std::vector<std::string> known = {"bf16", "fp16", "fp32", "tf32", "fp64"};
  for (const std::string& dtype : dtypes) {
    if (std::find(known.begin(), known.end(), dtype) != known.end()) continue;
    const std::string near = nearest(dtype, known);
    throw ConfigError({.what = fmt::format("--dtype {} is not known", dtype),
                       .why = fmt::format("kernels are measured in {}", fmt::join(known, ", ")),
                       .fix = fmt::format("--dtype {}", near.empty() ? "bf16" : near)});
  }
}

Exit kernels_command(const KernelArguments& arguments) {
  plan::CalibrateOptions options;
  options.device = bench_device(arguments.device);
  if (!arguments.dtypes.empty()) options.dtypes = arguments.dtypes;
  check_dtypes(options.dtypes);
  options.only = arguments.only;
  options.seconds = arguments.seconds;
  options.small = arguments.small;
  options.progress = progress_line("kernels");
  plan::Cluster cluster = plan::measure_kernels(options);
  if (!arguments.out.empty()) {
    cluster.name = arguments.name.empty() ? std::filesystem::path(arguments.out).stem().string()
                                          : arguments.name;
    write_atomic(arguments.out, plan::to_yaml(cluster));
  }
  if (arguments.json) {
    fmt::print("{}\n", kernels_json(cluster).dump());
    return Exit::ok;
  }
  print_kernels(cluster);
  if (!arguments.out.empty())
    fmt::print("wrote {}; use it with braid plan CONFIG --cluster {}\n", arguments.out,
               arguments.out);
  return Exit::ok;
}

void add_kernels(CLI::App& bench, Action& action) {
  auto arguments = std::make_shared<KernelArguments>();
  CLI::App* command =
      bench.add_subcommand("kernels", "time kernels of many sizes on this machine's GPU or CPU");
  command
      ->add_option("--device", arguments->device,
                   "device to measure: cuda or cpu (default: cuda if there is one)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_option("-o,--out", arguments->out, "cluster file to write")->type_name("FILE");
  command->add_option("--name", arguments->name,
                      "name of the cluster (default: the name of the file)");
  command
      ->add_option("--dtype", arguments->dtypes,
                   "dtypes to time, e.g. bf16,fp32; of bf16, fp16, fp32, tf32, fp64")
      ->delimiter(',');
  command->add_option("--only", arguments->only,
                      "time only kernels whose name contains this text, e.g. gemm");
  command->add_option("--seconds", arguments->seconds, "time limit in seconds")
      ->check(above_zero())
      ->capture_default_str();
  command->add_flag("--small", arguments->small,
                    "time a few small sizes of each kernel; takes seconds");
  add_json(*command, arguments->json);
  command->footer(
      "The times of bf16 also stand for fp16 unless --dtype names fp16. Peak rates and bandwidth "
      "come from the data sheet if a known cluster has this GPU, otherwise they are the highest "
      "measured rates.");
  command->callback(
      [&action, arguments] { action = [arguments] { return kernels_command(*arguments); }; });
}

}  // namespace

c10::Device bench_device(const std::string& word) {
  train::TrainOptions options;
  if (!word.empty()) options.device = word;
  return train::device_of(options);
}

void add_bench(CLI::App& app, Action& action) {
  CLI::App* bench =
      app.add_subcommand("bench", "measure the kernels and links of this machine for braid plan");
  bench->require_subcommand(1);
  add_kernels(*bench, action);
  add_bench_comm(*bench, action);
}

}  // namespace braid::cli
