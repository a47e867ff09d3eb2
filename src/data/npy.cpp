// SPDX-License-Identifier: BSD-3-Clause
#include "braid/data/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>

#include "braid/core/error.h"
#include "braid/core/fs.h"
#include "data/files.h"
#include "data/tensor.h"

namespace braid::data {
namespace {

struct NpyType {
  const char* name;  // as NumPy writes it, without the byte order
  c10::ScalarType dtype;
};

constexpr std::array<NpyType, 9> npy_types = {{{"b1", c10::kBool},
                                               {"i1", c10::kChar},
                                               {"u1", c10::kByte},
                                               {"i2", c10::kShort},
                                               {"i4", c10::kInt},
                                               {"i8", c10::kLong},
                                               {"f2", c10::kHalf},
                                               {"f4", c10::kFloat},
                                               {"f8", c10::kDouble}}};

struct NpyHeader {
  c10::ScalarType dtype = c10::kFloat;
  bool fortran = false;
  std::vector<int64_t> shape;
  int64_t bytes = 0;  // of the header with its preamble
};

[[noreturn]] void complain_of_npy(const std::filesystem::path& file, const std::string& problem) {
  throw DataError(
      {.what = fmt::format("{} is not a readable .npy file: {}", file.string(), problem),
       .why = "braid reads arrays of bool, i1 to i8, u1, f2, f4 and f8, little-endian",
       .fix = "write it again with numpy.save(file, array.astype('float32'))"});
}

// The text after 'key': in the dictionary of the header.
std::string_view npy_entry(std::string_view header, std::string_view key) {
  const size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) return {};
  header.remove_prefix(at + key.size() + 3);
  while (header.starts_with(' ')) header.remove_prefix(1);
  return header;
}

// Nothing if a number is larger than 64 bits hold.
std::optional<std::vector<int64_t>> npy_shape(std::string_view text) {
  std::vector<int64_t> shape;
  for (size_t i = 1; i < text.size() && text[i] != ')';) {
    if (text[i] < '0' || text[i] > '9') {
      ++i;
      continue;
    }
    int64_t number = 0;
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i)
      if (__builtin_mul_overflow(number, 10, &number) ||
          __builtin_add_overflow(number, text[i] - '0', &number))
        return std::nullopt;
    shape.push_back(number);
  }
  return shape;
}

c10::ScalarType npy_dtype(const std::filesystem::path& file, std::string_view text) {
  const std::string_view descr =
      text.starts_with('\'') ? text.substr(1, text.find('\'', 1) - 1) : "";
  const bool foreign = descr.starts_with('>') && !descr.ends_with('1');
  for (const NpyType& type : npy_types)
    if (descr.size() > 1 && descr.substr(1) == type.name && !foreign) return type.dtype;
  complain_of_npy(file, fmt::format("its dtype is {}", descr.empty() ? "a structure" : descr));
}

NpyHeader read_npy_header(const std::filesystem::path& file, const MappedFile& bytes) {
  constexpr std::string_view magic = "\x93NUMPY";
  const auto* at = bytes.data();
  if (bytes.size() < 12 || std::memcmp(at, magic.data(), magic.size()) != 0)
    complain_of_npy(file, "it does not begin with \\x93NUMPY");
  const bool old = at[6] == 1;  // version 1 has a length of two bytes, later ones of four
  const int64_t start = old ? 10 : 12;
  int64_t length = at[8] | at[9] << 8;
  if (!old) length |= static_cast<int64_t>(at[10]) << 16 | static_cast<int64_t>(at[11]) << 24;
  if (start + length > bytes.size()) complain_of_npy(file, "it ends within its header");
  const std::string_view text(reinterpret_cast<const char*>(at) + start,
                              static_cast<size_t>(length));
  const auto shape = npy_shape(npy_entry(text, "shape"));
  if (!shape) complain_of_npy(file, "a side of its shape is larger than 64 bits hold");
  return {npy_dtype(file, npy_entry(text, "descr")),
          npy_entry(text, "fortran_order").starts_with("True"), *shape, start + length};
}

// Compared with the file before memory is taken: a head may say any shape, also one of no elements
// with sides that nobody can multiply.
void check_npy_size(const std::filesystem::path& file, const NpyHeader& header, int64_t there) {
  auto bytes = static_cast<int64_t>(c10::elementSize(header.dtype));
  bool countable = true;
  for (const int64_t side : header.shape)
    countable &= !__builtin_mul_overflow(bytes, std::max<int64_t>(side, 1), &bytes);
  if (!countable)
    complain_of_npy(
        file, fmt::format("its shape [{}] is larger than any file", fmt::join(header.shape, ", ")));
  const bool empty = std::ranges::count(header.shape, 0) > 0;
  if (!empty && there < bytes)
    complain_of_npy(file,
                    fmt::format("it is truncated: {} bytes of data, {} are needed", there, bytes));
}

}  // namespace

at::Tensor read_npy(const std::filesystem::path& file) {
  const MappedFile bytes(file);
  const NpyHeader header = read_npy_header(file, bytes);
  std::vector<int64_t> shape = header.shape;
  if (header.fortran) shape = {header.shape.rbegin(), header.shape.rend()};
  check_npy_size(file, header, bytes.size() - header.bytes);
  at::Tensor tensor = empty_tensor(shape, header.dtype);
  const auto wanted = static_cast<int64_t>(tensor.nbytes());
  if (wanted > 0)
    std::memcpy(tensor.mutable_data_ptr(), bytes.data() + header.bytes,
                static_cast<size_t>(wanted));
  if (!header.fortran) return tensor;
  std::vector<int64_t> reversed;
  for (int64_t dim = tensor.dim() - 1; dim >= 0; --dim) reversed.push_back(dim);
  return tensor.permute(reversed).contiguous();
}

void write_npy(const std::filesystem::path& file, const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().to(c10::kCPU).contiguous();
  std::string name;
  for (const NpyType& type : npy_types)
    if (type.dtype == host.scalar_type()) name = type.name;
  if (name.empty())
    return write_npy(file, host.to(c10::kFloat));  // bfloat16: NumPy has none, f4 holds it exactly
  const char order = host.element_size() == 1 ? '|' : '<';
  const auto sizes = host.sizes();
  std::string text =
      fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}", order, name,
                  fmt::join(sizes.begin(), sizes.end(), ", "), sizes.size() == 1 ? "," : "");
  text.append(63 - (10 + text.size()) % 64, ' ');  // the data begin at a multiple of 64
  text += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(text.size() & 0xff);
  bytes += static_cast<char>(text.size() >> 8);
  bytes += text;
  bytes.append(static_cast<const char*>(host.const_data_ptr()), host.nbytes());
  write_atomic(file, bytes);
}

}  // namespace braid::data
