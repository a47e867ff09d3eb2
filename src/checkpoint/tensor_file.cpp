// SPDX-License-Identifier: BSD-3-Clause
// Layout: 8 bytes length of the header (little-endian), header as JSON padded with spaces to a
// multiple of 8, then the tensors without gaps. "data_offsets" count from the end of the header.
#include "checkpoint/tensor_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "braid/core/error.h"
#include "core/json.h"

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

StorageError not_safetensors(const fs::path& file, const std::string& why) {
  return StorageError({.what = fmt::format("{} is not a whole safetensors file", file.string()),
                       .why = why,
                       .fix = "copy or write it again"});
}

StorageError no_word(const TensorInfo& tensor) {
  return StorageError(
      {.what = fmt::format("tensor {} has dtype {}", tensor.name, c10::toString(tensor.dtype)),
       .why = "the safetensors format has no word for it",
       .fix = "convert it before saving"});
}

// Wide elements first, so that each tensor starts at a multiple of its element size. Offsets count
// from the end of the head.
void place_tensors(std::vector<TensorInfo>& tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    const auto wide = c10::elementSize(a.dtype), other = c10::elementSize(b.dtype);
    return wide != other ? wide > other : a.name < b.name;
  });
  int64_t at = 0;
  for (TensorInfo& tensor : tensors) {
    tensor.begin = at;
    at += elements_of(tensor.shape) * static_cast<int64_t>(c10::elementSize(tensor.dtype));
    tensor.end = at;
  }
}

std::string head_text(const std::vector<TensorInfo>& tensors, const Metadata& metadata) {
  json header = json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  for (const TensorInfo& tensor : tensors) {
    if (dtype_word(tensor.dtype).empty()) throw no_word(tensor);
    header[tensor.name] = {{"dtype", dtype_word(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::string head(sizeof length, '\0');
  std::memcpy(head.data(), &length, sizeof length);
  return head + text;
}

// The head of a file with these tensors; moves them to where they stand in the file.
std::string placed_head(std::vector<TensorInfo>& tensors, const Metadata& metadata) {
  place_tensors(tensors);
  std::string head = head_text(tensors, metadata);
  for (TensorInfo& tensor : tensors) {
    tensor.begin += static_cast<int64_t>(head.size());
    tensor.end += static_cast<int64_t>(head.size());
  }
  return head;
}

int64_t whole_size(const std::vector<TensorInfo>& tensors, const std::string& head) {
  return tensors.empty() ? static_cast<int64_t>(head.size()) : tensors.back().end;
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
  try {
    json header = parse_json(text, JsonKeys::unique);
    if (header.is_object()) return header;
  } catch (const JsonFault& fault) {
    throw not_safetensors(in.path(), fmt::format("its header is not valid: {}", fault.what()));
  }
  throw not_safetensors(in.path(), "its header is not a JSON object");
}

int64_t stored_bytes(const TensorInfo& entry, const fs::path& file) {
  // A size of 0 does not hide sizes that no memory has.
  int64_t room = static_cast<int64_t>(c10::elementSize(entry.dtype));
  for (const int64_t size : entry.shape)
    if (size < 0 || __builtin_mul_overflow(room, std::max<int64_t>(size, 1), &room))
      throw not_safetensors(file, fmt::format("tensor {} has the shape [{}]", entry.name,
                                              fmt::join(entry.shape, ", ")));
  return elements_of(entry.shape) * static_cast<int64_t>(c10::elementSize(entry.dtype));
}

const json& list_at(const json& value, const char* key) {
  const json& list = value.at(key);
  if (!list.is_array()) throw JsonFault(fmt::format("{} is not a list", key));
  return list;
}

TensorInfo entry_of(const std::string& name, const json& value, const fs::path& file) {
  TensorInfo entry{.name = name};
  const auto broken = [&](const std::exception& error) {
    return not_safetensors(
        file, fmt::format("the entry of tensor {} is broken: {}", name, json_fault(error)));
  };
  try {
    const auto word = value.at("dtype").get<std::string>();
    if (!dtype_called(word, entry.dtype))
      throw not_safetensors(file, fmt::format("tensor {} has the unknown dtype {}", name, word));
    for (const json& size : list_at(value, "shape"))
      entry.shape.push_back(integer_of(size, "a size"));
    const json& offsets = list_at(value, "data_offsets");
    if (offsets.size() != 2) throw not_safetensors(file, name + " lacks two data_offsets");
    entry.begin = integer_of(offsets[0], "an offset");
    entry.end = integer_of(offsets[1], "an offset");
  } catch (const json::exception& error) {
    throw broken(error);
  } catch (const JsonFault& error) {
    throw broken(error);
  }
  const int64_t bytes = stored_bytes(entry, file);
  if (entry.begin < 0 || entry.end < entry.begin || entry.end - entry.begin != bytes)
    throw not_safetensors(file, fmt::format("tensor {} needs {} bytes and has the offsets {} to {}",
                                            name, bytes, entry.begin, entry.end));
  return entry;
}

// The entries in file order. They must fill the file: no overlap, no gap, nothing past the end.
std::vector<TensorInfo> entries_of(const json& header, const FileReader& in, int64_t data_bytes) {
  std::vector<TensorInfo> entries;
  for (const auto& [name, value] : header.items())
    if (name != "__metadata__") entries.push_back(entry_of(name, value, in.path()));
  std::sort(entries.begin(), entries.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t at = 0;
  for (const TensorInfo& entry : entries) {
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

std::string_view dtype_word(c10::ScalarType type) {
  for (const DtypeName& known : dtype_names)
    if (known.type == type) return known.word;
  return {};
}

bool dtype_called(std::string_view word, c10::ScalarType& type) {
  for (const DtypeName& known : dtype_names) {
    if (known.word != word) continue;
    type = known.type;
    return true;
  }
  return false;
}

int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

TensorFileHead read_head(FileReader& in) {
  const json header = parsed_header(in);
  TensorFileHead head;
  head.bytes = in.record().bytes;
  head.metadata = metadata_of(header, in.path());
  head.tensors = entries_of(header, in, in.size() - head.bytes);
  for (TensorInfo& tensor : head.tensors) {
    tensor.begin += head.bytes;
    tensor.end += head.bytes;
  }
  return head;
}

TensorFileWriter::TensorFileWriter(const fs::path& path, std::vector<TensorInfo> tensors,
                                   const Metadata& metadata)
    : tensors_(std::move(tensors)),
      head_(placed_head(tensors_, metadata)),
      out_(path, whole_size(tensors_, head_)) {
  out_.write(head_.data(), head_.size());
  head_hash_ = out_.take_hash();
}

std::vector<uint64_t> TensorFileWriter::add(const at::Tensor& host) {
  std::vector<uint64_t> hashes;
  const char* data = static_cast<const char*>(host.const_data_ptr());
  const auto bytes = static_cast<int64_t>(host.nbytes());
  for (int64_t at = 0; at < bytes; at += hashed_run) {
    out_.write(data + at, static_cast<size_t>(std::min(hashed_run, bytes - at)));
    hashes.push_back(out_.take_hash());
  }
  return hashes;
}

FileRecord TensorFileWriter::finish() {
  FileRecord record = out_.finish();
  record.xxh3 = hex_of(head_hash_);
  return record;
}

}  // namespace braid::checkpoint
