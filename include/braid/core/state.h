// SPDX-License-Identifier: BSD-3-Clause
// What can be saved: named tensors and named texts. Parts of a run give their state and take it
// back.
//
//   State all;
//   all.put("optimizer", optimizer.state());
//   optimizer.load(all.part("optimizer"));
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "braid/core/param.h"

namespace braid {

struct State {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> values;
  std::map<std::string, Piece> pieces = {};  // of tensors that are not whole

  void put(std::string_view prefix, const State& part);  // adds its entries as "prefix/name"
  State part(std::string_view prefix) const;             // the entries under "prefix/", without it
  bool has(std::string_view name) const;

  void set(const std::string& name, int64_t number);
  void set(const std::string& name, double number);  // hexadecimal, so that it comes back bit-equal
  int64_t integer(const std::string& name) const;  // throws StorageError if missing or not a number
  double number(const std::string& name) const;
  const std::string& text(const std::string& name) const;
  const at::Tensor& tensor(const std::string& name) const;
  void set(const std::string& name, const at::Tensor& tensor, const Piece& piece);
};

}  // namespace braid
