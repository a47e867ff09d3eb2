// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/product_choice.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/Exceptions.h>
#include <c10/cuda/CUDAException.h>
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <tuple>
#include <vector>

namespace braid::cuda {
namespace {

constexpr double worth_a_choice = 1e9;  // FLOPs: a few microseconds
constexpr int offered = 16;             // algorithms asked for
constexpr float clearly = 0.98F;        // of the first one's time: what is less is noise

enum class Added : uint8_t { nothing, bias, matrix };

// A matrix in memory by columns, as cuBLAS reads it: that of a tensor by rows is its transpose.
struct Side {
  bool by_rows = true;
  int64_t lead = 0;  // elements from a row (column) to the next
};

std::optional<Side> side_of(const at::Tensor& t) {
  const int64_t rows = t.size(0), columns = t.size(1);
  if (t.stride(1) == 1 && t.stride(0) >= std::max<int64_t>(columns, 1))
    return Side{true, t.stride(0)};
  if (t.stride(0) == 1 && t.stride(1) >= std::max<int64_t>(rows, 1))
    return Side{false, t.stride(1)};
  return std::nullopt;
}

Added added_of(const Product& p) {
  if (!p.added.defined()) return Added::nothing;
  return p.added.dim() == 1 ? Added::bias : Added::matrix;
}

bool in_place(const Product& p) {
  return p.added.defined() && p.added.const_data_ptr() == p.out.const_data_ptr();
}

uint32_t alignment_of(const at::Tensor& t) {
  const auto address = reinterpret_cast<uintptr_t>(t.const_data_ptr());
  uint32_t bytes = 256;
  while (address % bytes != 0) bytes /= 2;
  return bytes;
}

cudaDataType_t type_of(const at::Tensor& t) {
  if (t.scalar_type() == at::kFloat) return CUDA_R_32F;
  return t.scalar_type() == at::kHalf ? CUDA_R_16F : CUDA_R_16BF;
}

// What the choice depends on.
using Key = std::tuple<std::array<int64_t, 8>, std::array<uint32_t, 5>, std::array<int, 6>>;

Key key_of(const Product& p, Added added) {
  const Side left = *side_of(p.left), right = *side_of(p.right), out = *side_of(p.out);
  const int64_t lead = added == Added::matrix ? side_of(p.added)->lead : 0;
  const at::Tensor& other = added == Added::nothing ? p.out : p.added;
  const int64_t before = p.before.defined() ? side_of(p.before)->lead : 0;
  return {{p.left.size(0), p.right.size(1), p.left.size(1), left.lead, right.lead, out.lead, lead,
           before},
          {alignment_of(p.left), alignment_of(p.right), alignment_of(p.out), alignment_of(other),
           p.before.defined() ? alignment_of(p.before) : 0},
          {p.left.get_device(), static_cast<int>(p.left.scalar_type()),
           static_cast<int>(p.out.scalar_type()), static_cast<int>(added),
           static_cast<int>(left.by_rows), static_cast<int>(right.by_rows)}};
}

// Owners of cuBLASLt's descriptions.
template <class Handle, cublasStatus_t (*destroy)(Handle)>
struct Owned {
  Handle handle = nullptr;
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle != nullptr) destroy(handle);
  }
};
using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Matrix = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Wishes = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

template <class Value>
void set(const Operation& to, cublasLtMatmulDescAttributes_t what, const Value& value) {
  TORCH_CUDABLAS_CHECK(cublasLtMatmulDescSetAttribute(to.handle, what, &value, sizeof value));
}
template <class Value>
void set(const Wishes& to, cublasLtMatmulPreferenceAttributes_t what, const Value& value) {
  TORCH_CUDABLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(to.handle, what, &value, sizeof value));
}

// The workspace that torch holds for cuBLAS on this thread and stream: nothing is taken besides.
struct Workspace {
  void* memory = nullptr;
  size_t bytes = 0;
};

Workspace workspace_here() {
  void* handle = at::cuda::getCurrentCUDABlasHandle();  // makes the workspace, too
  void* stream = at::cuda::getCurrentCUDAStream().stream();
  auto& all = at::cuda::cublas_handle_stream_to_workspace();
  const std::shared_lock lock(all.mutex);
  const auto found = all.map.find({handle, stream});
  if (found == all.map.end()) return {};
  return {found->second.get(), at::cuda::getChosenWorkspaceSize()};
}

// out^T = right^T left^T: rows become columns.
class Described {
 public:
  explicit Described(const Product& p) : p_(p), added_(added_of(p)) {
    TORCH_CUDABLAS_CHECK(
        cublasLtMatmulDescCreate(&operation_.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    describe(right_, p.right, CUBLASLT_MATMUL_DESC_TRANSA);
    describe(left_, p.left, CUBLASLT_MATMUL_DESC_TRANSB);
    layout(out_, p.out, p.out.size(1), p.out.size(0), side_of(p.out)->lead);
    const at::Tensor& c = added_ == Added::matrix ? p.added : p.out;
    layout(added_layout_, c, c.size(1), c.size(0), side_of(c)->lead);
    if (added_ == Added::bias) add_bias();
  }

  std::vector<cublasLtMatmulAlgo_t> algorithms(int most, size_t workspace) const {
    Wishes wishes;
    TORCH_CUDABLAS_CHECK(cublasLtMatmulPreferenceCreate(&wishes.handle));
    set(wishes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    set(wishes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p_.right));
    set(wishes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p_.left));
    set(wishes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(c()));
    set(wishes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p_.out));
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        at::cuda::getCurrentCUDABlasLtHandle(), operation_.handle, right_.handle, left_.handle,
        added_layout_.handle, out_.handle, wishes.handle, most, results.data(), &found);
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    if (status != CUBLAS_STATUS_SUCCESS) return algorithms;
    for (int i = 0; i < found; ++i) algorithms.push_back(results[static_cast<size_t>(i)].algo);
    return algorithms;
  }

  bool run(const cublasLtMatmulAlgo_t& algorithm, const Workspace& workspace) const {
    const auto alpha = static_cast<float>(p_.alpha);
    const float beta = added_ == Added::matrix ? static_cast<float>(p_.beta) : 0;
    const cublasStatus_t status = cublasLtMatmul(
        at::cuda::getCurrentCUDABlasLtHandle(), operation_.handle, &alpha,
        p_.right.const_data_ptr(), right_.handle, p_.left.const_data_ptr(), left_.handle, &beta,
        c().const_data_ptr(), added_layout_.handle, p_.out.mutable_data_ptr(), out_.handle,
        &algorithm, workspace.memory, workspace.bytes, at::cuda::getCurrentCUDAStream());
    return status == CUBLAS_STATUS_SUCCESS;
  }

 private:
  void add_bias() {
    set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE,
        p_.before.defined() ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_BIAS);
    set(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p_.added.const_data_ptr());
    set(operation_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p_.added));
    if (!p_.before.defined()) return;
    set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p_.before.mutable_data_ptr());
    set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, side_of(p_.before)->lead);
  }

  const at::Tensor& c() const { return added_ == Added::matrix ? p_.added : p_.out; }

  static void layout(Matrix& matrix, const at::Tensor& t, int64_t rows, int64_t columns,
                     int64_t lead) {
    TORCH_CUDABLAS_CHECK(cublasLtMatrixLayoutCreate(&matrix.handle, type_of(t),
                                                    static_cast<uint64_t>(rows),
                                                    static_cast<uint64_t>(columns), lead));
  }

  void describe(Matrix& matrix, const at::Tensor& t, cublasLtMatmulDescAttributes_t what) {
    const Side side = *side_of(t);
    const cublasOperation_t turned = side.by_rows ? CUBLAS_OP_N : CUBLAS_OP_T;
    set(operation_, what, turned);
    layout(matrix, t, t.size(side.by_rows ? 1 : 0), t.size(side.by_rows ? 0 : 1), side.lead);
  }

  const Product& p_;
  Added added_;
  Operation operation_;
  Matrix left_, right_, out_, added_layout_;
};

class Stopwatch {
 public:
  Stopwatch() {
    C10_CUDA_CHECK(cudaEventCreate(&begin_));
    C10_CUDA_CHECK(cudaEventCreate(&end_));
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    C10_CUDA_CHECK_WARN(cudaEventDestroy(begin_));
    C10_CUDA_CHECK_WARN(cudaEventDestroy(end_));
  }

  // Milliseconds of one run, the least of three rounds after one that warms up.
  float time(const std::function<void()>& run, int runs) const {
    const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
    run();
    float least = 0;
    for (int round = 0; round < 3; ++round) {
      C10_CUDA_CHECK(cudaEventRecord(begin_, stream));
      for (int i = 0; i < runs; ++i) run();
      C10_CUDA_CHECK(cudaEventRecord(end_, stream));
      C10_CUDA_CHECK(cudaEventSynchronize(end_));
      float all = 0;
      C10_CUDA_CHECK(cudaEventElapsedTime(&all, begin_, end_));
      const float each = all / static_cast<float>(runs);
      least = round == 0 ? each : std::min(least, each);
    }
    return least;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// The algorithm, or none: torch's way.
using Choice = std::optional<cublasLtMatmulAlgo_t>;

double flops_of(const Product& p) {
  return 2.0 * static_cast<double>(p.left.size(0)) * static_cast<double>(p.left.size(1)) *
         static_cast<double>(p.right.size(1));
}

// Each candidate writes the same result, so all may run.
Choice fastest(const Product& p, const Described& described, const Workspace& workspace,
               const std::function<void()>& by_torch) {
  const std::vector<cublasLtMatmulAlgo_t> all = described.algorithms(offered, workspace.bytes);
  const Stopwatch watch;
  const int runs = std::clamp(static_cast<int>(2e11 / flops_of(p)), 1, 10);
  const float torch_time = watch.time(by_torch, runs);
  float least = torch_time * clearly;
  Choice best;
  for (const cublasLtMatmulAlgo_t& algorithm : all) {
    if (!described.run(algorithm, workspace)) continue;
    const float each = watch.time([&] { described.run(algorithm, workspace); }, runs);
    if (each >= least) continue;
    least = each;
    best = algorithm;
  }
  return best;
}

bool may_measure(const Product& p) {
  if (at::globalContext().deterministicAlgorithms() || in_place(p)) return false;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(at::cuda::getCurrentCUDAStream(), &status));
  return status == cudaStreamCaptureStatusNone;
}

struct Choices {
  std::mutex mutex;
  std::map<Key, Choice> made;
};

Choices& choices() {
  static Choices all;
  return all;
}

std::optional<Choice> remembered(const Key& key) {
  const std::lock_guard lock(choices().mutex);
  const auto found = choices().made.find(key);
  return found == choices().made.end() ? std::nullopt : std::optional(found->second);
}

// Rows of whole 16 bytes, as cuBLASLt wants them.
bool fits_before(const Product& p) {
  const at::Tensor& h = p.before;
  if (!p.added.defined() || p.added.dim() != 1 || p.out.scalar_type() != p.left.scalar_type())
    return false;
  if (h.scalar_type() != p.out.scalar_type() || h.sizes() != p.out.sizes()) return false;
  const std::optional<Side> side = side_of(h);
  return side && side->by_rows && side->lead % 8 == 0 && alignment_of(h) >= 16;
}

}  // namespace

bool fits(const Product& p) {
  const at::ScalarType dtype = p.left.scalar_type(), to = p.out.scalar_type();
  if (dtype != at::kBFloat16 && dtype != at::kHalf) return false;
  if (p.right.scalar_type() != dtype || (to != dtype && to != at::kFloat)) return false;
  if (p.left.dim() != 2 || p.right.dim() != 2 || p.out.dim() != 2) return false;
  if (flops_of(p) < worth_a_choice || !side_of(p.left) || !side_of(p.right)) return false;
  const std::optional<Side> out = side_of(p.out);
  if (!out || !out->by_rows || (p.before.defined() && !fits_before(p))) return false;
  if (!p.added.defined()) return true;
  if (p.added.dim() == 1)
    return p.added.scalar_type() == to && p.added.is_contiguous() && p.alpha == 1 && p.beta == 1 &&
           p.added.size(0) == p.out.size(1);
  if (p.added.dim() != 2 || p.added.scalar_type() != to || p.added.sizes() != p.out.sizes())
    return false;
  const std::optional<Side> added = side_of(p.added);
  return added && added->by_rows;
}

void compute(const Product& p, const std::function<void()>& by_torch) {
  if (p.before.defined() && at::globalContext().deterministicAlgorithms()) return by_torch();
  // A sum into its own place cannot be run twice: it follows the plain product of that shape.
  const Key key = key_of(p, in_place(p) ? Added::nothing : added_of(p));
  std::optional<Choice> choice = remembered(key);
  if (choice && !choice->has_value()) return by_torch();
  const Described described(p);
  const Workspace workspace = workspace_here();
  if (!choice && may_measure(p)) {
    choice = fastest(p, described, workspace, by_torch);
    const std::lock_guard lock(choices().mutex);
    choices().made.emplace(key, *choice);
  }
  if (!choice && p.before.defined()) return by_torch();
  if (!choice) {
    const auto first = described.algorithms(1, workspace.bytes);
    choice = first.empty() ? Choice() : Choice(first.front());
  }
  if (!choice->has_value() || !described.run(**choice, workspace)) by_torch();
}

}  // namespace braid::cuda
