// SPDX-License-Identifier: BSD-3-Clause
// A board of small texts by name that all ranks read and write: where ranks find each other.
//
//   comm::Store store = comm::Store::in_memory();           // ranks as threads
//   store.set("rank/0", "10.0.0.1:4711");
//   std::string address = store.get("rank/0", 30.0);        // waits until somebody has set it
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "braid/core/error.h"

namespace braid::comm {

struct TcpStoreOptions {
  std::string host = "127.0.0.1";
  int port = 0;                  // of the server; a server given 0 takes a free one, see port()
  bool server = false;           // one rank serves, the others connect
  int listener = -1;             // server: an open socket that listens already, now the store's
  double timeout_seconds = 300;  // for reaching the server and for its answers
  std::string token = "open";    // both ends prove that they know it; it never travels
};

// A text in the store of torchrun that no rank of this job wrote.
struct ForeignText : CommError {
  using CommError::CommError;
};

class Store {
 public:
  static Store in_memory();                                 // threads of one process
  static Store file(const std::string& path, int readers);  // processes that see one file system
  // Served by this process, without a port or a file: only processes that this one starts can
  // reach it. Each gets a socket of its own (invite) and opens it there (inherited).
  static Store private_server(double timeout_seconds = 300);
  static Store inherited(int socket, double timeout_seconds = 300);
  // Any processes that know the token. The server closes its port with shut().
  static Store tcp(const TcpStoreOptions& options);
  // The store that torchrun serves. It takes texts from anyone; those without a code made with the
  // token are not given to a reader.
  static Store torchrun(const TcpStoreOptions& options);

  // The same board with `name`/ before every key.
  Store under(const std::string& name) const;
  // The same board for another thread: a call that waits holds up nobody else.
  Store clone() const;

  void set(const std::string& key, const std::string& value) const;
  // Waits until the key is there; throws CommError naming it after the timeout.
  std::string get(const std::string& key, double timeout_seconds = 300) const;
  bool has(const std::string& key) const;
  void remove(const std::string& key) const;
  bool claim(const std::string& key) const;  // true for the first who asks, false for all others
  int invite() const;  // a socket for one process to be started; close it here when that is done
  void shut() const;   // all have come: the server closes its port, and none can join any more
  int port() const;    // that a server of tcp was given, else 0
  const std::string& place() const;  // "10.0.0.1:29500" of a tcp store, else a word

  struct State;
  const State& state() const { return *state_; }

 private:
  explicit Store(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

}  // namespace braid::comm
