// SPDX-License-Identifier: BSD-3-Clause
// How a client and a store's server prove the job's token to each other. The token never travels,
// and both nonces are new for each connection, so that what was overheard proves nothing.
//
//   server: "BRAID 1\n" and its nonce          (greeting)
//   client: its nonce and HMAC(token, "client" nonces)
//   server: HMAC(token, "server" nonces); or zeros, and it hangs up
#pragma once
#include <string>
#include <string_view>

#include "comm/sha256.h"

namespace braid::comm {

constexpr std::string_view store_magic = "BRAID 1\n";
constexpr size_t nonce_bytes = 32;
constexpr size_t greeting_bytes = 8 + nonce_bytes;
constexpr size_t proof_bytes = nonce_bytes + 32;
constexpr size_t welcome_bytes = 32;

inline std::string store_mac(const std::string& token, std::string_view who,
                             std::string_view server_nonce, std::string_view client_nonce) {
  return hmac_sha256(
      token, std::string("braid store ").append(who).append(server_nonce).append(client_nonce));
}

inline std::string proof_of(const std::string& token, std::string_view server_nonce,
                            const std::string& client_nonce) {
  return client_nonce + store_mac(token, "client", server_nonce, client_nonce);
}

// What the server answers to this proof; "" if the proof is wrong.
inline std::string welcome_for(const std::string& token, std::string_view server_nonce,
                               std::string_view proof) {
  const std::string_view nonce = proof.substr(0, nonce_bytes);
  if (!same_bytes(proof.substr(nonce_bytes), store_mac(token, "client", server_nonce, nonce)))
    return "";
  return store_mac(token, "server", server_nonce, nonce);
}

}  // namespace braid::comm
