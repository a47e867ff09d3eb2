// SPDX-License-Identifier: BSD-3-Clause
#include "braid/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "checkpoint/hashed_file.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;

std::string bytes_of_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

void write_file(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

// A file with this header and so many bytes of data.
std::string crafted(const std::string& header, size_t data) {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data, 'x');
}

Tensors many_dtypes() {
  Tensors tensors;
  for (const auto dtype :
       {c10::kDouble, c10::kFloat, c10::kHalf, c10::kBFloat16, c10::kLong, c10::kInt, c10::kShort,
        c10::kChar, c10::kByte, c10::kBool, c10::kFloat8_e4m3fn, c10::kFloat8_e5m2})
    tensors[std::string("t.") + c10::toString(dtype)] =
        at::arange(6, at::kFloat).sub(2).abs().view({2, 3}).to(dtype);
  tensors["scalar"] = at::tensor(2.5);
  tensors["none"] = at::zeros({0, 3});
  tensors["turned"] = at::arange(6, at::kFloat).view({2, 3}).t();
  tensors["quote\"\\ and \u00e4"] = at::ones({3}, at::kByte);  // odd size before others
  return tensors;
}

TEST(Safetensors, EveryDtypeComesBackBitEqual) {
  const test::TempDir dir;
  const Tensors tensors = many_dtypes();
  write_safetensors(dir / "x.safetensors", tensors, {{"format", "pt"}});
  const SafetensorsFile file = read_safetensors(dir / "x.safetensors");
  EXPECT_EQ(file.metadata.at("format"), "pt");
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor& back = file.tensors.at(name);
    EXPECT_EQ(back.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_EQ(back.sizes(), tensor.sizes()) << name;
    const at::Tensor want = tensor.contiguous();
    if (want.numel() > 0)
      EXPECT_EQ(std::memcmp(back.const_data_ptr(), want.const_data_ptr(), want.nbytes()), 0)
          << name;
  }
  uint64_t header = 0;
  std::memcpy(&header, bytes_of_file(dir / "x.safetensors").data(), 8);
  EXPECT_EQ(header % 8, 0u);
}

TEST(Safetensors, PythonReadsOursAndWeReadPythons) {
  const fs::path python = fs::path(BRAID_SOURCE_DIR) / ".deps/venv/bin/python";
  if (!fs::exists(python)) GTEST_SKIP() << "no " << python << " (make test installs it)";
  const test::TempDir dir;
  write_safetensors(
      dir / "a.safetensors",
      {{"f", at::arange(6, at::kFloat).view({2, 3})}, {"i", at::arange(3, at::kLong)}},
      {{"made", "here"}});
  write_file(dir / "check.py",
             "import sys\n"
             "from safetensors import safe_open\n"
             "from safetensors.numpy import load_file, save_file\n"
             "t = load_file(sys.argv[1])\n"
             "assert t['f'].shape == (2, 3) and t['f'].tolist() == [[0, 1, 2], [3, 4, 5]], t\n"
             "assert t['i'].dtype == 'int64' and t['i'].tolist() == [0, 1, 2], t\n"
             "assert safe_open(sys.argv[1], 'np').metadata() == {'made': 'here'}\n"
             "save_file({'back': t['f'] * 2}, sys.argv[2], {'by': 'python'})\n");
  const std::string command = python.string() + " " + (dir / "check.py").string() + " " +
                              (dir / "a.safetensors").string() + " " +
                              (dir / "b.safetensors").string();
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const SafetensorsFile back = read_safetensors(dir / "b.safetensors");
  EXPECT_TRUE(back.tensors.at("back").equal(at::arange(6, at::kFloat).view({2, 3}).mul(2)));
  EXPECT_EQ(back.metadata.at("by"), "python");
}

TEST(Safetensors, BrokenFilesAreNamedWithTheReason) {
  const test::TempDir dir;
  const fs::path file = dir / "x.safetensors";
  write_safetensors(file, {{"w", at::arange(8, at::kFloat)}});
  const std::string good = bytes_of_file(file);
  const auto complaint = [&](const std::string& bytes) {
    write_file(file, bytes);
    const std::string text = error_of([&] { read_safetensors(file); });
    EXPECT_TRUE(contains(text, file.string()));
    return text;
  };
  EXPECT_TRUE(
      contains(complaint(good.substr(0, good.size() - 4)), "take 32 bytes, the file has 28"));
  EXPECT_TRUE(contains(complaint(good + "more"), "take 32 bytes, the file has 36"));
  EXPECT_TRUE(contains(complaint(good.substr(0, 5)), "it has 5 bytes"));
  EXPECT_TRUE(contains(complaint(good.substr(0, 20)), "header should take"));
  EXPECT_TRUE(contains(complaint(std::string(8, '\xff') + "{}"), "header should take"));
  EXPECT_TRUE(
      contains(complaint(crafted("not json", 0)), "its header is not valid: it is not JSON"));
  EXPECT_TRUE(contains(error_of([&] { read_safetensors(dir / "no"); }), "No such file"));
  EXPECT_TRUE(contains(error_of([&] { read_safetensors(dir.path()); }), "Is a directory"));
}

TEST(Safetensors, WrongEntriesAreNamedWithTheReason) {
  const test::TempDir dir;
  const auto complaint = [&](const std::string& header, size_t data) {
    write_file(dir / "x", crafted("{" + header + "}", data));
    return error_of([&] { read_safetensors(dir / "x"); });
  };
  const auto entry = [](const std::string& name, const std::string& from, const std::string& to) {
    return "\"" + name + R"(":{"dtype":"F32","shape":[2],"data_offsets":[)" + from + "," + to +
           "]}";
  };
  EXPECT_TRUE(contains(complaint(entry("a", "0", "8") + "," + entry("b", "4", "12"), 12),
                       "b starts at 4, before the end of the one before (8)"));
  EXPECT_TRUE(contains(complaint(entry("a", "0", "8") + "," + entry("b", "12", "20"), 20),
                       "b starts at 12, after"));
  EXPECT_TRUE(contains(complaint(entry("a", "-8", "0"), 8), "offsets -8 to 0"));
  EXPECT_TRUE(contains(complaint(entry("a", "0", "4"), 4), "needs 8 bytes"));
  EXPECT_TRUE(contains(complaint(R"("a":{"dtype":"Q3","shape":[],"data_offsets":[0,4]})", 4),
                       "unknown dtype Q3"));
  EXPECT_TRUE(contains(
      complaint(R"("a":{"dtype":"F32","shape":[4611686018427387904,8],"data_offsets":[0,4]})", 4),
      "the shape ["));
  EXPECT_TRUE(contains(complaint(R"("a":{"shape":[1]})", 4), "entry of tensor a is broken"));
}

TEST(Safetensors, FailedWriteLeavesTheOldFile) {
  const test::TempDir dir;
  const fs::path file = dir / "x.safetensors";
  write_safetensors(file, {{"w", at::ones({4})}});
  const at::Tensor complex = at::zeros({2}, at::kComplexFloat);
  EXPECT_TRUE(contains(error_of([&] { write_safetensors(file, {{"c", complex}}); }),
                       "tensor c has dtype ComplexFloat"));
  EXPECT_TRUE(read_safetensors(file).tensors.at("w").equal(at::ones({4})));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 1);
}

TEST(HashedFile, SaysThatTheDiskIsFull) {
  FileWriter full("/dev/full", 4096);
  const std::string text = error_of([&] { full.write("abc", 3); });
  EXPECT_TRUE(contains(text, "cannot write /dev/full: No space left on device"));
  EXPECT_TRUE(contains(text, "it needs 4.00 KiB"));
}

TEST(HashedFile, ReadAndWriteGiveTheSameHash) {
  const test::TempDir dir;
  const std::string bytes(3 << 20, 'q');  // several pieces
  FileWriter out(dir / "q", 3 << 20);
  out.write(bytes.data(), 5);
  out.write(bytes.data() + 5, bytes.size() - 5);
  const FileRecord written = out.finish();
  FileReader in(dir / "q");
  std::string back(bytes.size(), '\0');
  in.read(back.data(), back.size());
  EXPECT_EQ(in.record(), written);
  EXPECT_EQ(written.xxh3, xxh3_of(bytes));
  EXPECT_EQ(xxh3_of(""), "2d06800538d394c2");  // published value of XXH3_64bits
  EXPECT_TRUE(contains(error_of([&] { in.read(back.data(), 1); }), "ends after"));
}

}  // namespace
}  // namespace braid::checkpoint
