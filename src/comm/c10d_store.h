// SPDX-License-Identifier: BSD-3-Clause
// What a Store hides. Heavy: c10d costs 12 s to parse.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "braid/comm/store.h"

namespace braid::comm {

class StoreServer;
class StoreClient;

struct Store::State {
  c10::intrusive_ptr<c10d::Store> store;
  std::string place = {};
  int port = 0;
  std::shared_ptr<StoreServer> server = nullptr;  // where this process serves it
  std::shared_ptr<StoreClient> client = nullptr;  // of a store that braid serves
};

// Over a store that others can write into: every text carries a MAC of its key and its bytes under
// the token, and one without is not given to anybody.
c10::intrusive_ptr<c10d::Store> sealed(c10::intrusive_ptr<c10d::Store> inner,
                                       const std::string& token);

}  // namespace braid::comm
