// SPDX-License-Identifier: BSD-3-Clause
#include "braid/plan/calibrate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <thread>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include "braid/core/accelerator.h"
#include "braid/core/error.h"
#include "braid/core/precision.h"
#include "braid/memory/instruments.h"
#include "plan/calibrate_clock.h"
#include "plan/calibrate_launch.h"
#include "plan/calibrate_tasks.h"
#include "plan/cluster_curves.h"
#include "plan/cost_sized.h"

namespace braid::plan {
namespace {

// Longer ones say nothing that shorter ones of the same kernel do not.
double most_flops(const Task& task, const CalibrateOptions& options) {
  if (!options.device.is_cuda()) return 2e9;
  if (c10::elementSize(task.dtype) == 2) return 5e12;
  return task.tf32 ? 3e12 : 4e11;
}

// What every cluster needs, whatever kernels were asked for: rates of products and of copies.
bool is_rate(const Task& task) { return task.name == "copy" || task.name == "gemm_nn"; }

bool is_asked(const Task& task, const CalibrateOptions& options) {
  return options.only.empty() || task.name.find(options.only) != std::string::npos;
}

std::vector<Task> tasks_for(const CalibrateOptions& options, int64_t pool) {
  TaskOptions how{options.dtypes, options.small, options.device.is_cuda()};
  std::vector<Task> all, kept;
  if (!how.gpu) std::erase(how.dtypes, "tf32");
  add_product_tasks(how, all);
  add_attention_tasks(how, all);
  add_row_tasks(how, all);
  add_stream_tasks(how, all);
  add_norm_tasks(how, all);
  add_own_tasks(how, all);
  for (Task& task : all) {
    if (!is_asked(task, options) && !is_rate(task)) continue;
    if (task.flops > most_flops(task, options)) continue;
    if (task.bytes > 0.8 * static_cast<double>(pool)) continue;
    kept.push_back(std::move(task));
  }
  return kept;
}

// Which kernel and sizes the run of a task is, by its own operator log.
std::optional<Sized> sized_run(const Task& task, const std::function<void()>& run) {
  memory::OperatorLog log;
  {
    const memory::Instruments on({.log = &log});
    run();
  }
  std::optional<Sized> found;
  for (const memory::Operator& op : log.operators()) {
    const Sized sized = sized_of(op);
    if (sized.work == task.work) found = sized;
  }
  return found;
}

struct BestRates {
  std::map<std::string, double> flops;  // a second, by dtype
  double bytes = 0;                     // a second
};

class Calibration {
 public:
  Calibration(const CalibrateOptions& options, int64_t pool_bytes)
      : options_(options), pool_(options.device, pool_bytes), clock_(options.device) {}

  // A device may lack a kernel, or memory for this size.
  void try_to(const Task& task) {
    try {
      measure(task);
    } catch (const c10::Error&) {
      missing.insert(task.name);
    } catch (const Error&) {
      missing.insert(task.name);
    }
  }

  void measure(const Task& task) {
    if (accelerator() != nullptr) accelerator()->allow_tf32(task.tf32);
    pool_.begin();
    const std::function<void()> run = task.prepare(pool_);
    const std::optional<Sized> sized = sized_run(task, run);
    if (!sized || sized->at.empty()) {  // of other operators on this device
      missing.insert(task.name);
      return;
    }
    const double seconds = clock_.seconds(run);
    const std::string dtype = task.tf32 ? "tf32" : std::string(dtype_name(sized->dtype));
    if (is_asked(task, options_)) add_point(curves, sized->kernel, dtype, {sized->at, seconds});
    if (task.work == Work::gemm)
      best.flops[dtype] = std::max(best.flops[dtype], task.flops / seconds);
    if (task.name == "copy" || task.name == "pointwise")
      best.bytes = std::max(best.bytes, sized->at[0] / seconds);
  }

  // Large products of 16 bits: seconds under steady load over those of a short run.
  double hot(const std::vector<Task>& tasks) {
    double logs = 0;
    int count = 0;
    for (const Task& task : tasks) {
      const bool half = c10::elementSize(task.dtype) == 2;
      if (task.work != Work::gemm || !half || task.flops < 1e12 || count == 4) continue;
      pool_.begin();
      const std::function<void()> run = task.prepare(pool_);
      run();
      clock_.finish();
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // a cool start
      const double alone = clock_.seconds(run);
      logs += std::log(clock_.steady_seconds(run) / alone);
      ++count;
    }
    return count == 0 ? 0 : std::max(1.0, std::exp(logs / count));
  }

  std::vector<Curve> curves;
  BestRates best;
  std::set<std::string> missing;

 private:
  CalibrateOptions options_;
  Pool pool_;
  DeviceClock clock_;
};

std::string device_words(c10::Device device) {
  if (device.is_cuda()) return accelerator()->name(device.index());
  return fmt::format("CPU with {} threads", at::get_num_threads());
}

int64_t host_bytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
}

// The data sheet of a GPU that a known cluster has; else what was seen is all there is.
void fill_rates(Cluster& cluster, const BestRates& best) {
  Gpu& gpu = cluster.gpu;
  for (const std::string& name : known_clusters()) {
    const Cluster known = load_cluster(name);
    if (known.gpu.name != gpu.name) continue;
    gpu.bandwidth = known.gpu.bandwidth;
    gpu.peak = known.gpu.peak;
    gpu.graph_launch = known.gpu.graph_launch;
    gpu.multiprocessors = known.gpu.multiprocessors;
    gpu.gemm_workspace = known.gpu.gemm_workspace;
    gpu.older_share = known.gpu.older_share;
    cluster.source = fmt::format("braid bench kernels; data sheet as in {}", name);
  }
  if (gpu.bandwidth == 0) gpu.bandwidth = best.bytes;
  if (gpu.peak.empty()) gpu.peak = best.flops;
  const auto share = [](double part, double whole) {
    return whole > 0 ? std::clamp(part / whole, 0.01, 1.0) : 0;
  };
  double top = 0;
  for (const auto& [dtype, flops] : best.flops)
    if (gpu.peak.count(dtype) != 0) top = std::max(top, share(flops, gpu.peak.at(dtype)));
  gpu.gemm_share = top;
  gpu.stream_share = share(best.bytes, gpu.bandwidth);
}

void fill_memory(Cluster& cluster, c10::Device device) {
  cluster.host.cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  cluster.host.memory = {host_bytes()};
  cluster.gpu.memory = {host_bytes()};
  if (!device.is_cuda()) return;
  const Accelerator& gpu = *accelerator();
  const int64_t total = gpu.total_bytes(device.index());
  const int64_t reserved = gpu.memory(device.index()).reserved;
  cluster.gpu.memory = {total};
  cluster.gpu.context = {std::max<int64_t>(0, total - gpu.free_bytes(device.index()) - reserved)};
}

}  // namespace

Cluster measure_kernels(const CalibrateOptions& options) {
  const int64_t pool = options.small              ? int64_t{64} << 20
                       : options.device.is_cuda() ? int64_t{6} << 30
                                                  : int64_t{512} << 20;
  const auto start = std::chrono::steady_clock::now();
  const auto spent = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  Cluster cluster;
  cluster.name = "measured";
  cluster.gpu.name = device_words(options.device);
  cluster.title = fmt::format("one {}", cluster.gpu.name);
  cluster.source = "braid bench kernels";
  const LaunchCosts launch = measure_launch(options.device, options.small);
  cluster.gpu.launch = launch.kernel;
  cluster.gpu.view_launch = launch.view;
  cluster.host.copy_bandwidth = measure_copies(options.device);

  if (options.device.is_cuda()) accelerator()->tune_products(true);  // as in training
  const std::vector<Task> tasks = tasks_for(options, pool);
  Calibration calibration(options, pool);
  // In a scattered order: where the time runs out, a bit of everything was measured.
  const auto count = static_cast<int64_t>(tasks.size());
  const int64_t stride = 7919;  // a prime: meets every task once
  int64_t done = 0;
  for (int64_t i = 0; i < count && spent() < options.seconds; ++i, ++done) {
    calibration.try_to(tasks[static_cast<size_t>(count % stride == 0 ? i : i * stride % count)]);
    if (options.progress) options.progress(i + 1, count);
  }
  if (accelerator() != nullptr) accelerator()->allow_tf32(false);
  if (options.device.is_cuda() && !options.small) cluster.gpu.hot = calibration.hot(tasks);
  cluster.gpu.curves = std::move(calibration.curves);
  fill_memory(cluster, options.device);
  fill_rates(cluster, calibration.best);
  cluster.source += fmt::format(", {} of {} sizes in {:.0f} s", done, count, spent());
  if (!calibration.missing.empty())
    cluster.source += fmt::format("; not all sizes of {}", fmt::join(calibration.missing, ", "));
  for (Curve& curve : cluster.gpu.curves)
    std::sort(curve.points.begin(), curve.points.end(),
              [](const CurvePoint& a, const CurvePoint& b) { return a.at < b.at; });
  std::sort(cluster.gpu.curves.begin(), cluster.gpu.curves.end(),
            [](const Curve& a, const Curve& b) {
              return std::pair(a.kernel, a.dtype) < std::pair(b.kernel, b.dtype);
            });
  return cluster;
}

}  // namespace braid::plan
