// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "braid/core/error.h"
#include "comm/c10d_store.h"
#include "comm/quiet_log.h"
#include "comm/sha256.h"

namespace braid::comm {
namespace {

using Bytes = std::vector<uint8_t>;
constexpr size_t seal_bytes = 32;

std::string_view text_in(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class SealedStore final : public c10d::Store {
 public:
  SealedStore(c10::intrusive_ptr<c10d::Store> inner, std::string token)
      : Store(inner->getTimeout()), inner_(std::move(inner)), token_(std::move(token)) {}

  c10::intrusive_ptr<c10d::Store> clone() override { return sealed(inner_->clone(), token_); }

  void set(const std::string& key, const Bytes& value) override {
    const QuietLog quiet;
    const std::string seal = seal_of(key, text_in(value));
    Bytes whole(seal.begin(), seal.end());
    whole.insert(whole.end(), value.begin(), value.end());
    inner_->set(key, whole);
  }

  Bytes get(const std::string& key) override {
    const QuietLog quiet;
    Bytes whole = inner_->get(key);
    const std::string_view all = text_in(whole);
    const std::string_view seal = all.substr(0, std::min(seal_bytes, all.size()));
    if (!same_bytes(seal, seal_of(key, all.substr(seal.size())))) throw_not_ours(key);
    whole.erase(whole.begin(), whole.begin() + seal_bytes);
    return whole;
  }

  int64_t add(const std::string& key, int64_t value) override {
    const QuietLog quiet;
    return inner_->add(key, value);
  }
  bool deleteKey(const std::string& key) override {
    const QuietLog quiet;
    return inner_->deleteKey(key);
  }
  bool check(const std::vector<std::string>& keys) override {
    const QuietLog quiet;
    return inner_->check(keys);
  }
  int64_t getNumKeys() override { return inner_->getNumKeys(); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    const QuietLog quiet;
    inner_->wait(keys, timeout);
  }

 private:
  std::string seal_of(const std::string& key, std::string_view text) const {
    return hmac_sha256(token_, fmt::format("text {} {} {}", key.size(), key, text));
  }

  [[noreturn]] static void throw_not_ours(const std::string& key) {
    throw ForeignText(
        {.what =
             fmt::format("the text at {} in the store was not written by a rank of this job", key),
         .why = "the store belongs to the launcher and takes texts from anyone who reaches its "
                "port; those of ranks carry a code made with the job's token",
         .fix = "give all ranks the same BRAID_JOB_TOKEN; keep strangers away from the port"});
  }

  const c10::intrusive_ptr<c10d::Store> inner_;
  const std::string token_;
};

}  // namespace

c10::intrusive_ptr<c10d::Store> sealed(c10::intrusive_ptr<c10d::Store> inner,
                                       const std::string& token) {
  return c10::make_intrusive<SealedStore>(std::move(inner), token);
}

}  // namespace braid::comm
