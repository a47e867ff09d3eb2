// SPDX-License-Identifier: BSD-3-Clause
#include "braid/plan/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "braid/core/error.h"
#include "braid/core/precision.h"
#include "braid/train/layout.h"
#include "plan/cost_messages.h"
#include "plan/cost_roofline.h"
#include "plan/cost_sized.h"
#include "plan/cost_surface.h"

namespace braid::plan {
namespace {

// Power of kernels that wait for memory, over what the board is given (OpCost::heat).
constexpr double heat_of_streams = 0.65;

c10::ScalarType curve_dtype(const std::string& name) {
  for (const c10::ScalarType type :
       {c10::kDouble, c10::kFloat, c10::kHalf, c10::kBFloat16, c10::kLong, c10::kInt, c10::kShort,
        c10::kChar, c10::kByte, c10::kBool, c10::kFloat8_e4m3fn})
    if (dtype_name(type) == name) return type;
  return c10::kFloat;  // tf32
}

bool is_attention(Work work) { return work == Work::attention || work == Work::attention_backward; }

bool is_product(Work work) {
  return work == Work::gemm || work == Work::batched || work == Work::grouped ||
         work == Work::convolution || work == Work::convolution_backward || is_attention(work);
}

// Products and convolutions are measured at sizes of layers, the rest on a grid.
Between between_points(Work work) {
  return is_product(work) && !is_attention(work) ? Between::nearest : Between::grid;
}

// "gemm_nt_by8", "gemm_nt", "gemm": a curve of the next simpler name serves as well.
std::vector<std::string> simpler_names(std::string kernel) {
  std::vector<std::string> names = {kernel};
  for (size_t cut = kernel.rfind('_'); cut != std::string::npos; cut = kernel.rfind('_')) {
    kernel.resize(cut);
    names.push_back(kernel);
  }
  if (kernel == "gemm") names.insert(names.end(), {"gemm_nt", "gemm_nn", "gemm_tn"});
  return names;
}

}  // namespace

std::string_view to_text(Bound bound) {
  constexpr std::array<std::string_view, 4> names = {"compute", "memory", "launch", "none"};
  return names.at(static_cast<size_t>(bound));
}

struct CostModel::State {
  State(Cluster given, CostOptions how)
      : cluster(std::move(given)), options(how), roofline(cluster.gpu, how.tf32) {
    for (const Curve& curve : cluster.gpu.curves) add(curve);
  }

  void add(const Curve& curve) {
    Sized sized;
    sized.work = work_of(curve.kernel);
    if (sized.work == Work::view || curve.points.empty()) return;
    if (curve.points.front().at.size() != sizes_of(sized.work))
      throw ConfigError(
          {.what = fmt::format("the curve {} has {} sizes a point, not {}", curve.kernel,
                               curve.points.front().at.size(), sizes_of(sized.work)),
           .why = "a time can be looked up only by the sizes that it depends on",
           .fix = "let `braid bench kernels` write the file again"});
    sized.kernel = curve.kernel;
    sized.dtype = curve_dtype(curve.dtype);
    const Roofline own(cluster.gpu, curve.dtype == "tf32");
    surfaces.emplace(std::pair(curve.kernel, curve.dtype),
                     Surface(curve, between_points(sized.work), [&](const std::vector<double>& at) {
                       sized.at = at;
                       return estimate(own, sized);
                     }));
  }

  // A dtype's own curve; of kernels that move bytes those of another dtype do as well, and the two
  // 16-bit ones always stand for each other, and for products of 8 bits (how far a size falls short
  // of the peak of its own dtype).
  std::vector<std::string> dtypes_for(const Sized& sized) const {
    const std::string own = options.tf32 && sized.dtype == c10::kFloat && is_product(sized.work)
                                ? "tf32"
                                : std::string(dtype_name(sized.dtype));
    const std::string twin = own == "bf16" ? "fp16" : own == "fp16" ? "bf16" : own;
    if (is_attention(sized.work)) return {own, twin, own == "tf32" ? "fp32" : own};
    if (is_product(sized.work) && own == "fp8") return {own, "bf16", "fp16"};
    if (is_product(sized.work)) return {own, twin};
    return {own, twin, "fp32", "bf16", "fp16"};
  }

  const Surface* surface_for(const Sized& sized) const {
    if (surfaces.empty()) return nullptr;
    for (const std::string& kernel : simpler_names(sized.kernel))
      for (const std::string& dtype : dtypes_for(sized)) {
        const auto found = surfaces.find({kernel, dtype});
        if (found != surfaces.end()) return &found->second;
      }
    return nullptr;
  }

  double seconds(const Sized& sized) const {
    const double guess = estimate(roofline, sized);
    const Surface* surface = surface_for(sized);
    const double beside = sized.beside > 0 ? roofline.stream(sized.beside, 0) : 0;
    return beside + (surface == nullptr ? guess : guess * surface->ratio(sized.at));
  }

  double heat(const Sized& sized) const {
    const bool tensor_cores = is_product(sized.work) && c10::elementSize(sized.dtype) <= 2;
    return tensor_cores ? cluster.gpu.hot : std::min(cluster.gpu.hot, heat_of_streams);
  }

  double host(int kernels) const {
    const Gpu& gpu = cluster.gpu;
    if (options.graph) return kernels * (gpu.graph_launch > 0 ? gpu.graph_launch : gpu.launch);
    if (kernels == 0) return gpu.view_launch;
    return gpu.launch * (1 + 0.3 * (kernels - 1));  // one way through the dispatcher for all
  }

  Cluster cluster;
  CostOptions options;
  Roofline roofline;  // looks at cluster.gpu
  std::map<std::pair<std::string, std::string>, Surface> surfaces;
};

CostModel::CostModel(Cluster cluster, CostOptions options)
    : state_(std::make_unique<State>(std::move(cluster), options)) {}
CostModel::~CostModel() = default;
CostModel::CostModel(CostModel&&) noexcept = default;
CostModel& CostModel::operator=(CostModel&&) noexcept = default;

const Cluster& CostModel::cluster() const { return state_->cluster; }

OpCost CostModel::cost(const memory::Operator& op) const {
  const Sized sized = sized_of(op);
  OpCost cost;
  cost.kernels = sized.at.empty() ? 0 : sized.kernels;
  cost.host = state_->host(cost.kernels);
  if (cost.kernels == 0) {
    cost.bound = Bound::none;
    return cost;
  }
  cost.seconds = state_->seconds(sized);
  cost.heat = state_->heat(sized);
  const double bytes = static_cast<double>(op.bytes);
  if (cost.seconds <= cost.host)
    cost.bound = Bound::launch;
  else if (is_product(sized.work) && state_->roofline.computes(op.flops, bytes, sized.dtype))
    cost.bound = Bound::compute;
  return cost;
}

CostModel cost_model(const Cluster& cluster, const train::RunOptions& options, int64_t world) {
  return CostModel(cluster, {.graph = train::replays_steps(options, world),
                             .tf32 = train::policy_of(options.train).tf32});
}

double CostModel::seconds(const Message& message, int rank) const {
  return message_seconds(state_->cluster, message, rank);
}

double CostModel::copy_seconds(int64_t bytes) const {
  const double rate = state_->cluster.host.copy_bandwidth;
  if (!(rate > 0))
    throw ConfigError(
        {.what = fmt::format("host.copy_bandwidth of {} is missing", state_->cluster.name),
         .why = "the step copies between host and GPU",
         .fix = "write bytes/s of one direction into the file, or let `braid bench "
                "kernels` measure it"});
  return state_->cluster.gpu.launch + static_cast<double>(bytes) / rate;
}

}  // namespace braid::plan
