// SPDX-License-Identifier: BSD-3-Clause
// Finds ranks that do not make the same calls, before the calls run: a wrapper around any backend.
//
//   comm::Group world(comm::checked(backend, store, {.timeout_seconds = 30}));
//   world.all_reduce(grad).wait();
//   // braid: rank 2 of group world differs in call 7: all_reduce sum Float [3],
//   // others all_reduce sum Float [4]
//
// The ranks compare what they are about to do through the store, so a call begins only when all
// ranks have come to it: for finding mistakes, not for speed. The two ends of a message are
// compared in wait().
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "braid/comm/backend.h"
#include "braid/comm/store.h"

namespace braid::comm {

struct CheckedOptions {
  double timeout_seconds = 30;  // after that, the ranks that did not come are named
  bool on = true;               // false: the backend is given back as it is, at no cost
};

// What PyTorch's variable TORCH_DISTRIBUTED_DEBUG asks for: "DETAIL" compares calls, "INFO", "OFF"
// and an unset one do not. Throws ConfigError for other words.
bool wants_checks(std::string_view debug);

// Groups split off are checked, too: wrapping the backend of the world switches it on for all.
// Every rank throws CommError that names the differing rank and both calls, or the missing rank and
// the last call it made.
std::shared_ptr<Backend> checked(std::shared_ptr<Backend> inner, const Store& store,
                                 CheckedOptions options = {}, const std::string& group = "world");

}  // namespace braid::comm
