// SPDX-License-Identifier: BSD-3-Clause
// Tensors inside the values of a boxed call.
#pragma once
#include <ATen/core/ivalue.h>

#include <optional>
#include <vector>

namespace braid::memory {

template <class Visit>
void each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const c10::IValue& item : value.toListRef())
      if (item.isTensor()) visit(item.toTensor());
  }
}

template <class Change>
void change_tensors(c10::IValue& value, const Change& change) {
  if (value.isTensor()) {
    value = change(value.toTensor());
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> list = value.toTensorVector();
    for (at::Tensor& tensor : list) tensor = change(tensor);
    value = c10::List<at::Tensor>(list);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& item : value.toListRef())
      list.push_back(item.isNone() ? std::nullopt
                                   : std::optional<at::Tensor>(change(item.toTensor())));
    value = list;
  }
}

}  // namespace braid::memory
