// SPDX-License-Identifier: BSD-3-Clause
#include "braid/checkpoint/safetensors.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "braid/core/fs.h"
#include "checkpoint/tensor_file.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;

void write_all(const fs::path& file, const Tensors& tensors, const Metadata& metadata) {
  std::vector<TensorInfo> infos;
  for (const auto& [name, tensor] : tensors)
    infos.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  TensorFileWriter out(file, std::move(infos), metadata);
  for (const TensorInfo& info : out.tensors())
    out.add(tensors.at(info.name).detach().to(c10::kCPU).contiguous());
  out.finish();
}

}  // namespace

SafetensorsFile read_safetensors(const fs::path& file) {
  FileReader in(file);
  TensorFileHead head = read_head(in);
  SafetensorsFile result;
  result.metadata = std::move(head.metadata);
  for (const TensorInfo& info : head.tensors) {
    at::Tensor tensor = at::empty(info.shape, at::TensorOptions(info.dtype));
    in.read(tensor.mutable_data_ptr(), tensor.nbytes());
    result.tensors.emplace(info.name, std::move(tensor));
  }
  return result;
}

void write_safetensors(const fs::path& file, const Tensors& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const fs::path temporary = file.string() + fmt::format(".tmp-{}", ::getpid());
  try {
    write_all(temporary, tensors, metadata);
    rename_durably(temporary, file);
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
}

}  // namespace braid::checkpoint
