// SPDX-License-Identifier: BSD-3-Clause
#include "braid/comm/mismatch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <sstream>

#include "braid/core/error.h"

namespace braid::comm {
namespace {

// What must be the same on all ranks; of uneven shares only the counts and the sizes behind dim 0
// are.
std::string agreed_text(const Call& call) {
  const bool gathers = !call.output_counts.empty() && call.kind == Kind::all_gather;
  const bool scatters = !call.input_counts.empty() && call.kind == Kind::reduce_scatter;
  if (!gathers && !scatters) {
    if (call.kind != Kind::all_to_all || call.input_counts.empty()) return to_text(call);
    return fmt::format("all_to_all {} of rows [{}]", c10::toString(call.input.scalar_type()),
                       fmt::join(call.input.sizes().slice(1), ", "));
  }
  const at::Tensor& whole = gathers ? call.output : call.input;
  return fmt::format("{}{} {} [{}] in shares [{}]", to_text(call.kind),
                     scatters ? fmt::format(" {}", to_text(call.op)) : "",
                     c10::toString(whole.scalar_type()), fmt::join(whole.sizes(), ", "),
                     fmt::join(gathers ? call.output_counts : call.input_counts, ", "));
}

// The message as both ends see it.
std::string message_text(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes(), ", "));
}

[[noreturn]] void differ(std::string what) {
  throw CommError({.what = std::move(what),
                   .why = "all ranks of a group make the same calls in the same order",
                   .fix =
                       "find where the program of this rank took another way: a condition on its "
                       "rank, its data or its shapes"});
}

// Rows that a rank gives to and takes from each rank of an uneven all_to_all, as text.
std::string counts_text(const Call& call) {
  if (call.kind != Kind::all_to_all || call.input_counts.empty()) return "";
  return fmt::format("{} {}", fmt::join(call.input_counts, " "),
                     fmt::join(call.output_counts, " "));
}

// A receive whose start is put off until the sender's note is there and agrees: begun earlier, it
// could read a message of another size.
struct DeferredRecv {
  Call call;
  std::string key = {};
  std::unique_ptr<Work> work = {};
};

class Checked;

class CheckedRecv final : public Work {
 public:
  CheckedRecv(std::shared_ptr<Checked> owner, std::shared_ptr<DeferredRecv> recv)
      : owner_(std::move(owner)), recv_(std::move(recv)) {}
  void wait() override;
  bool done() const override { return recv_->work != nullptr && recv_->work->done(); }

 private:
  std::shared_ptr<Checked> owner_;
  std::shared_ptr<DeferredRecv> recv_;
};

class CheckedSend final : public Work {
 public:
  CheckedSend(std::shared_ptr<Checked> owner, Call call, std::string key,
              std::unique_ptr<Work> inner)
      : owner_(std::move(owner)),
        call_(std::move(call)),
        key_(std::move(key)),
        inner_(std::move(inner)) {}
  void wait() override;
  bool done() const override { return inner_->done(); }

 private:
  std::shared_ptr<Checked> owner_;
  Call call_;
  std::string key_;
  std::unique_ptr<Work> inner_;
};

class Checked final : public Backend, public std::enable_shared_from_this<Checked> {
 public:
  Checked(std::shared_ptr<Backend> inner, Store store, CheckedOptions options, std::string group)
      : inner_(std::move(inner)),
        store_(std::move(store)),
        options_(options),
        group_(std::move(group)) {}

  std::unique_ptr<Work> start(const Call& call) override {
    if (call.kind == Kind::send) return send(call);
    if (call.kind == Kind::recv) return defer(call);
    compare(call);
    return inner_->start(call);
  }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view name() const override { return inner_->name(); }
  std::shared_ptr<Backend> split(const std::vector<int>& ranks, const std::string& name) override;
  void abort() override { inner_->abort(); }

  void start_recv(const DeferredRecv& last);  // and those of the same sender and tag before it
  void compare_message(const Call& call, const std::string& key);  // with the note of the other end

 private:
  std::unique_ptr<Work> send(const Call& call);
  std::unique_ptr<Work> defer(const Call& call);
  std::string message_key(int from, int to, int tag);
  std::string call_key(int64_t call, int rank) const { return fmt::format("{}/{}", call, rank); }
  void compare(const Call& call);
  std::vector<std::string> collect(int64_t number);
  [[noreturn]] void name_missing(int64_t number, const std::vector<int>& missing);
  void compare_counts(const std::vector<std::string>& counts, int64_t number) const;

  std::shared_ptr<Backend> inner_;
  Store store_;
  CheckedOptions options_;
  std::string group_;
  std::atomic<int64_t> calls_{0};
  std::mutex mutex_;
  std::map<std::string, int64_t> messages_, splits_;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<DeferredRecv>>>
      deferred_;  // sender, tag
};

std::string Checked::message_key(int from, int to, int tag) {
  const std::string way = fmt::format("message/{}-{}-{}", from, to, tag);
  const std::lock_guard lock(mutex_);
  return fmt::format("{}/{}", way, messages_[way]++);
}

// Texts of all ranks for a call, in rank order.
std::vector<std::string> Checked::collect(int64_t number) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(options_.timeout_seconds);
  std::vector<std::string> texts(static_cast<size_t>(size()));
  std::vector<int> missing;
  for (int other = 0; other < size(); ++other) {
    const std::string key = call_key(number, other);
    const std::chrono::duration<double> left = end - std::chrono::steady_clock::now();
    try {
      texts[static_cast<size_t>(other)] = store_.get(key, std::max(left.count(), 0.05));
    } catch (const CommError&) {
      missing.push_back(other);
    }
  }
  if (!missing.empty()) name_missing(number, missing);
  return texts;
}

void Checked::name_missing(int64_t number, const std::vector<int>& missing) {
  std::vector<std::string> lasts;
  for (const int other : missing) {
    const std::string key = fmt::format("last/{}", other);
    lasts.push_back(
        fmt::format("rank {} made {} last", other, store_.has(key) ? store_.get(key) : "no call"));
  }
  throw CommError({.what = fmt::format(
                       "rank {} of group {} did not come to call {} within {} s; {}. Rank {} is "
                       "there with {}",
                       fmt::join(missing, ", "), group_, number, options_.timeout_seconds,
                       fmt::join(lasts, "; "), rank(), store_.get(fmt::format("last/{}", rank()))),
                   .why = "a call of a group begins when all of its ranks have come to it",
                   .fix = "find where the missing rank waits, ended, or went past the call"});
}

void Checked::compare(const Call& call) {
  const int64_t number = calls_.fetch_add(1);
  const std::string mine = agreed_text(call);
  store_.set(call_key(number, rank()), fmt::format("{}\n{}", mine, counts_text(call)));
  store_.set(fmt::format("last/{}", rank()), fmt::format("call {}: {}", number, mine));
  std::vector<std::string> texts = collect(number), counts;
  if (number > 0) store_.remove(call_key(number - 1, rank()));  // all have read it: they are here
  std::map<std::string, int> votes;
  for (std::string& text : texts) {
    const size_t end = std::min(text.find('\n'), text.size());
    counts.push_back(text.substr(std::min(end + 1, text.size())));
    text.resize(end);
    ++votes[text];
  }
  // What most ranks do is taken for right; of two equal camps, what rank 0 does.
  std::string right = texts[0];
  for (const auto& [text, count] : votes)
    if (count > votes[right]) right = text;
  for (size_t other = 0; other < texts.size(); ++other)
    if (texts[other] != right)
      differ(fmt::format("rank {} of group {} differs in call {}: {}, others {}", other, group_,
                         number, texts[other], right));
  if (!counts[0].empty()) compare_counts(counts, number);
}

// What a rank gives another is what that one takes from it. Every rank looks at all, so that all
// throw.
void Checked::compare_counts(const std::vector<std::string>& counts, int64_t number) const {
  const auto n = static_cast<size_t>(size());
  std::vector<std::vector<int64_t>> rows(n);
  for (size_t i = 0; i < n; ++i) {
    std::istringstream words(counts[i]);
    for (int64_t count = 0; words >> count;) rows[i].push_back(count);
    if (rows[i].size() != 2 * n)
      differ(fmt::format("the text of rank {} of group {} about call {} has {} row counts, not {}",
                         i, group_, number, rows[i].size(), 2 * n));
  }
  for (size_t from = 0; from < n; ++from)
    for (size_t to = 0; to < n; ++to)
      if (rows[from][to] != rows[to][n + from])
        differ(
            fmt::format("rank {} of group {} differs in call {}: all_to_all gives {} rows to rank "
                        "{}, which takes {}",
                        from, group_, number, rows[from][to], to, rows[to][n + from]));
}

std::unique_ptr<Work> Checked::send(const Call& call) {
  std::string key = message_key(rank(), call.peer, call.tag);
  store_.set(key + "/send", message_text(call.input));
  return std::make_unique<CheckedSend>(shared_from_this(), call, std::move(key),
                                       inner_->start(call));
}

std::unique_ptr<Work> Checked::defer(const Call& call) {
  auto recv = std::make_shared<DeferredRecv>(
      DeferredRecv{.call = call, .key = message_key(call.peer, rank(), call.tag)});
  store_.set(recv->key + "/recv", message_text(call.output));
  const std::lock_guard lock(mutex_);
  deferred_[{call.peer, call.tag}].push_back(recv);
  return std::make_unique<CheckedRecv>(shared_from_this(), std::move(recv));
}

void Checked::start_recv(const DeferredRecv& last) {
  while (last.work == nullptr) {
    std::shared_ptr<DeferredRecv> next;
    {
      const std::lock_guard lock(mutex_);
      auto& queue = deferred_[{last.call.peer, last.call.tag}];
      next = queue.front();
      queue.pop_front();
    }
    compare_message(next->call, next->key);
    next->work = inner_->start(next->call);
  }
}

void Checked::compare_message(const Call& call, const std::string& key) {
  const bool sends = call.kind == Kind::send;
  const std::string theirs_key = key + (sends ? "/recv" : "/send");
  std::string theirs;
  try {
    theirs = store_.get(theirs_key, options_.timeout_seconds);
  } catch (const CommError&) {
    throw CommError(
        {.what = fmt::format("rank {} of group {} did not come to its end of a message "
                             "within {} s; rank {} is there with {}",
                             call.peer, group_, options_.timeout_seconds, rank(), to_text(call)),
         .why = "every send has a recv with the same tag on the other rank",
         .fix = "find where the other rank waits, ended, or used another tag"});
  }
  store_.remove(theirs_key);
  const std::string mine = message_text(sends ? call.input : call.output);
  if (theirs != mine)
    differ(fmt::format("rank {} of group {} sends {}, tag {}; rank {} receives {}",
                       sends ? rank() : call.peer, group_, sends ? mine : theirs, call.tag,
                       sends ? call.peer : rank(), sends ? theirs : mine));
}

void CheckedRecv::wait() {
  owner_->start_recv(*recv_);
  recv_->work->wait();
}

void CheckedSend::wait() {
  owner_->compare_message(call_, key_);
  inner_->wait();
}

std::shared_ptr<Backend> Checked::split(const std::vector<int>& ranks, const std::string& name) {
  std::string key = fmt::format("split/{}[{}]", name, fmt::join(ranks, ","));
  {
    const std::lock_guard lock(mutex_);
    key += fmt::format("#{}", splits_[key]++);
  }
  return std::make_shared<Checked>(inner_->split(ranks, name), store_.under(key), options_, name);
}

}  // namespace

bool wants_checks(std::string_view debug) {
  std::string word(debug);
  std::transform(word.begin(), word.end(), word.begin(), [](char letter) {
    return static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  });
  if (word == "DETAIL") return true;
  if (word.empty() || word == "OFF" || word == "INFO") return false;
  throw ConfigError({.what = fmt::format("TORCH_DISTRIBUTED_DEBUG is \"{}\"", debug),
                     .why = "it is OFF, INFO or DETAIL; DETAIL compares the calls of all ranks",
                     .fix = "export TORCH_DISTRIBUTED_DEBUG=DETAIL, or unset it"});
}

std::shared_ptr<Backend> checked(std::shared_ptr<Backend> inner, const Store& store,
                                 CheckedOptions options, const std::string& group) {
  if (!options.on) return inner;
  return std::make_shared<Checked>(std::move(inner), store.under("checked"), options, group);
}

}  // namespace braid::comm
