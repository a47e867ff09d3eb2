// SPDX-License-Identifier: BSD-3-Clause
// What a Store hides. Heavy: c10d costs 12 s to parse.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "braid/comm/store.h"

namespace braid::comm {

struct Store::State {
  c10::intrusive_ptr<c10d::Store> store;
  int port = 0;
  std::string place = {};
};

}  // namespace braid::comm
