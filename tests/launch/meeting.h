// SPDX-License-Identifier: BSD-3-Clause
// Ranks of a job as threads of a test.
#pragma once
#include <string>
#include <thread>
#include <vector>

#include "braid/core/error.h"
#include "braid/launch/world.h"
#include "launch/address.h"

namespace braid::launch {

inline int free_port() { return port_of(listen_at(0, true)); }

inline Environment place(int rank, int world, int port, const std::string& host = "127.0.0.1") {
  Environment here;
  here.launcher = Launcher::torchrun;
  here.rank = rank;
  here.world = here.local_world = world;
  here.master_address = host;
  here.master_port = port;
  here.host = "h" + std::to_string(rank);
  here.cores = {0, 1, 2, 3, 4, 5, 6};
  return here;
}

inline const Options quick = {.timeout = {20}};

// What each rank of a job threw, "" if nothing.
template <class Body>
std::vector<std::string> as_threads(const std::vector<Environment>& ranks, Body body) {
  std::vector<std::string> errors(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        body(ranks[i]);
      } catch (const Error& error) {
        errors[i] = explain(error.complaint());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace braid::launch
