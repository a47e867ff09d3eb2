// SPDX-License-Identifier: BSD-3-Clause
#include "braid/data/npy.h"

#include <gtest/gtest.h>

#include <fstream>

#include "data/tensor.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::data {
namespace {

using test::contains;
using test::error_of;

at::Tensor counting(const std::vector<int64_t>& shape, c10::ScalarType dtype) {
  at::Tensor tensor = empty_tensor(shape, c10::kDouble);
  for (int64_t i = 0; i < tensor.numel(); ++i)
    tensor.mutable_data_ptr<double>()[i] = static_cast<double>(i % 100);
  return tensor.to(dtype);
}

TEST(Npy, ComesBackAsItWasWritten) {
  test::TempDir dir;
  using c10::ScalarType;
  for (auto dtype :
       {ScalarType::Bool, ScalarType::Char, ScalarType::Byte, ScalarType::Short, ScalarType::Int,
        ScalarType::Long, ScalarType::Half, ScalarType::Float, ScalarType::Double}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {7}, {1, 3, 1, 1}, {2, 0}}) {
      const at::Tensor tensor = counting(shape, dtype);
      write_npy(dir / "a.npy", tensor);
      const at::Tensor back = read_npy(dir / "a.npy");
      EXPECT_EQ(back.scalar_type(), dtype);
      EXPECT_EQ(back.sizes(), tensor.sizes());
      EXPECT_TRUE(back.equal(tensor));
    }
  }
  write_npy(dir / "b.npy", counting({3}, c10::kBFloat16));
  EXPECT_EQ(read_npy(dir / "b.npy").scalar_type(), c10::kFloat);
}

TEST(Npy, BeginsItsDataAtAMultipleOf64) {
  test::TempDir dir;
  write_npy(dir / "a.npy", counting({5}, c10::kByte));
  EXPECT_EQ((std::filesystem::file_size(dir / "a.npy") - 5) % 64, 0U);
}

TEST(Npy, ReadsWhatNumpyWrote) {
  const std::string golden = std::string(BRAID_SOURCE_DIR) + "/tests/golden/data_";
  const at::Tensor fortran = read_npy(golden + "fortran.npy");
  EXPECT_TRUE(fortran.equal(counting({2, 3, 4}, c10::kDouble))) << "Fortran order";
  const at::Tensor half = read_npy(golden + "half.npy");
  EXPECT_EQ(half.scalar_type(), c10::kHalf);
  EXPECT_EQ(half.to(c10::kFloat).const_data_ptr<float>()[1], -2.25F);
}

TEST(Npy, SaysWhatIsWrong) {
  test::TempDir dir;
  EXPECT_TRUE(contains(error_of([&] { read_npy(dir / "none.npy"); }), "No such file"));
  std::ofstream(dir / "text.npy") << "1, 2, 3, and some more";
  EXPECT_TRUE(contains(error_of([&] { read_npy(dir / "text.npy"); }), "does not begin with"));
  write_npy(dir / "a.npy", counting({100}, c10::kFloat));
  std::filesystem::resize_file(dir / "a.npy", 400);
  EXPECT_TRUE(contains(error_of([&] { read_npy(dir / "a.npy"); }),
                       "truncated: 272 bytes of data, 400 are needed"));
  std::ofstream(dir / "c.npy", std::ios::binary)
      << std::string("\x93NUMPY\x01\x00\x3a\x00", 10)
      << "{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }    \n";
  EXPECT_TRUE(contains(error_of([&] { read_npy(dir / "c.npy"); }), "its dtype is <c8"));
  EXPECT_THROW(write_npy(dir / "no/such/folder/a.npy", counting({1}, c10::kFloat)), StorageError);
}

}  // namespace
}  // namespace braid::data
