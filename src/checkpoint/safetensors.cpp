// SPDX-License-Identifier: BSD-3-Clause
// Layout: 8 bytes length of the header (little-endian), header as JSON padded with spaces to a
// multiple of 8, then the tensors without gaps. "data_offsets" count from the end of the header.
#include "braid/checkpoint/safetensors.h"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "braid/core/error.h"
#include "braid/core/fs.h"
#include "braid/core/precision.h"
#include "checkpoint/tensor_file.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr int64_t longest_header = 100'000'000;  // as in the reference reader

struct DtypeName {
  const char* word;
  c10::ScalarType type;
};

constexpr DtypeName dtype_names[] = {
    {"F64", c10::kDouble},
    {"F32", c10::kFloat},
    {"F16", c10::kHalf},
    {"BF16", c10::kBFloat16},
    {"I64", c10::kLong},
    {"I32", c10::kInt},
    {"I16", c10::kShort},
    {"I8", c10::kChar},
    {"U8", c10::kByte},
    {"BOOL", c10::kBool},
    {"U16", c10::kUInt16},
    {"U32", c10::kUInt32},
    {"U64", c10::kUInt64},
    {"F8_E4M3", c10::kFloat8_e4m3fn},
    {"F8_E5M2", c10::kFloat8_e5m2},
};

struct Entry {
  std::string name;
  c10::ScalarType dtype;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;
};

StorageError not_safetensors(const fs::path& file, const std::string& why) {
  return StorageError({.what = fmt::format("{} is not a whole safetensors file", file.string()),
                       .why = why,
                       .fix = "copy or write it again"});
}

const char* word_of(const std::string& name, const at::Tensor& tensor) {
  for (const DtypeName& known : dtype_names)
    if (known.type == tensor.scalar_type()) return known.word;
  throw StorageError(
      {.what = fmt::format("tensor {} has dtype {}", name, c10::toString(tensor.scalar_type())),
       .why = "the safetensors format has no word for it",
       .fix = "convert it before saving"});
}

// Wide elements first, so that each tensor starts at a multiple of its element size.
std::vector<const Tensors::value_type*> in_file_order(const Tensors& tensors) {
  std::vector<const Tensors::value_type*> order;
  for (const auto& item : tensors) order.push_back(&item);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return a->second.element_size() > b->second.element_size();
  });
  return order;
}

std::string header_of(const std::vector<const Tensors::value_type*>& order,
                      const std::map<std::string, std::string>& metadata) {
  json header = json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t at = 0;
  for (const auto* item : order) {
    const at::Tensor& tensor = item->second;
    const int64_t end = at + static_cast<int64_t>(tensor.nbytes());
    header[item->first] = {{"dtype", word_of(item->first, tensor)},
                           {"shape", tensor.sizes().vec()},
                           {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

json parsed_header(FileReader& in) {
  uint64_t length = 0;
  if (in.size() < 8)
    throw not_safetensors(
        in.path(), fmt::format("it has {} bytes, fewer than the 8 of its length field", in.size()));
  in.read(&length, sizeof length);
  if (length > static_cast<uint64_t>(in.size() - 8) || length > longest_header)
    throw not_safetensors(in.path(), fmt::format("its header should take {} bytes, the file has {}",
                                                 length, in.size()));
  std::string text(length, '\0');
  in.read(text.data(), text.size());
  json header = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) throw not_safetensors(in.path(), "its header is not a JSON object");
  return header;
}

int64_t bytes_of(const Entry& entry, const fs::path& file) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(entry.dtype));
  for (const int64_t size : entry.shape)
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes))
      throw not_safetensors(file, fmt::format("tensor {} has the shape [{}]", entry.name,
                                              fmt::join(entry.shape, ", ")));
  return bytes;
}

Entry entry_of(const std::string& name, const json& value, const fs::path& file) {
  Entry entry{.name = name, .dtype = c10::kFloat, .shape = {}};
  try {
    const auto word = value.at("dtype").get<std::string>();
    const auto* known = std::find_if(std::begin(dtype_names), std::end(dtype_names),
                                     [&](const DtypeName& d) { return d.word == word; });
    if (known == std::end(dtype_names))
      throw not_safetensors(file, fmt::format("tensor {} has the unknown dtype {}", name, word));
    entry.dtype = known->type;
    entry.shape = value.at("shape").get<std::vector<int64_t>>();
    const auto offsets = value.at("data_offsets").get<std::vector<int64_t>>();
    if (offsets.size() != 2) throw not_safetensors(file, name + " lacks two data_offsets");
    entry.begin = offsets[0];
    entry.end = offsets[1];
  } catch (const json::exception& error) {
    throw not_safetensors(file,
                          fmt::format("the entry of tensor {} is broken: {}", name, error.what()));
  }
  const int64_t bytes = bytes_of(entry, file);
  if (entry.begin < 0 || entry.end < entry.begin || entry.end - entry.begin != bytes)
    throw not_safetensors(file, fmt::format("tensor {} needs {} bytes and has the offsets {} to {}",
                                            name, bytes, entry.begin, entry.end));
  return entry;
}

// The entries in file order. They must fill the file: no overlap, no gap, nothing past the end.
std::vector<Entry> entries_of(const json& header, const FileReader& in, int64_t data_bytes) {
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items())
    if (name != "__metadata__") entries.push_back(entry_of(name, value, in.path()));
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t at = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != at)
      throw not_safetensors(
          in.path(),
          fmt::format("tensor {} starts at {}, {} the end of the one before ({})", entry.name,
                      entry.begin, entry.begin < at ? "before" : "after", at));
    at = entry.end;
  }
  if (at != data_bytes)
    throw not_safetensors(
        in.path(),
        fmt::format("its tensors take {} bytes, the file has {} for them", at, data_bytes));
  return entries;
}

std::map<std::string, std::string> metadata_of(const json& header, const fs::path& file) {
  if (!header.contains("__metadata__")) return {};
  try {
    return header["__metadata__"].get<std::map<std::string, std::string>>();
  } catch (const json::exception&) {
    throw not_safetensors(file, "its __metadata__ is not a map of texts");
  }
}

}  // namespace

FileRecord write_tensors(const fs::path& path, const Tensors& tensors,
                         const std::map<std::string, std::string>& metadata) {
  const auto order = in_file_order(tensors);
  const std::string header = header_of(order, metadata);
  const uint64_t length = header.size();
  auto need = static_cast<int64_t>(sizeof length + header.size());
  for (const auto* item : order) need += static_cast<int64_t>(item->second.nbytes());
  FileWriter out(path, need);
  out.write(&length, sizeof length);
  out.write(header.data(), header.size());
  for (const auto* item : order) {
    const at::Tensor host = item->second.detach().to(c10::kCPU).contiguous();  // one at a time
    out.write(host.const_data_ptr(), host.nbytes());
  }
  return out.finish();
}

SafetensorsFile read_tensors(FileReader& in) {
  const json header = parsed_header(in);
  SafetensorsFile file;
  file.metadata = metadata_of(header, in.path());
  for (const Entry& entry : entries_of(header, in, in.size() - in.record().bytes)) {
    at::Tensor tensor = at::empty(entry.shape, at::TensorOptions(entry.dtype));
    in.read(tensor.mutable_data_ptr(), tensor.nbytes());
    file.tensors.emplace(entry.name, std::move(tensor));
  }
  return file;
}

SafetensorsFile read_safetensors(const fs::path& file) {
  FileReader in(file);
  return read_tensors(in);
}

void write_safetensors(const fs::path& file, const Tensors& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const fs::path temporary = file.string() + fmt::format(".tmp-{}", ::getpid());
  try {
    write_tensors(temporary, tensors, metadata);
    rename_durably(temporary, file);
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
}

}  // namespace braid::checkpoint
