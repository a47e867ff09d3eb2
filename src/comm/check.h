// SPDX-License-Identifier: BSD-3-Clause
// What a call must look like, checked once where it enters the group.
#pragma once
#include "braid/comm/backend.h"

namespace braid::comm {

struct Place {  // whose call it is, for the sentence
  int rank = 0;
  int size = 1;
  const std::string& group;
};

// Throws InternalError: a wrong call is a mistake of the program, the same on every run.
void check(const Call& call, const Place& place);

}  // namespace braid::comm
