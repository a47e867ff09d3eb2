// SPDX-License-Identifier: BSD-3-Clause
// What a store's server and its clients send each other: [size:4][kind:1][id:8] and words, each
// [size:4][bytes], all little-endian.
#pragma once
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace braid::comm {

// How much one text, and all texts of a board together, may hold.
constexpr size_t most_message_bytes = size_t{64} << 20;
constexpr size_t most_board_bytes = size_t{1} << 30;

enum class StoreWord : uint8_t {
  // Of a client. Those above `get` are not answered.
  set,     // key, value
  remove,  // key
  cancel,  // of the request of this id: nobody waits for its answer any more
  shut,    // the port is closed: all members have come
  get,     // key: answered when the key is there
  wait,    // keys: answered when all are there
  check,   // keys: yes if all are there
  add,     // key, number: gives the sum
  swap,    // key, expected, desired: gives what is there now
  count,
  // Of the server.
  yes,      // with a value where one was asked for
  no,       // `check` only
  refused,  // a sentence; id 0: about a request without an answer
};

struct StoreMessage {
  StoreWord kind = StoreWord::set;
  uint64_t id = 0;
  std::vector<std::string> words = {};
};

inline void put_size(std::string& into, size_t size) {
  for (int shift = 0; shift < 32; shift += 8) into += static_cast<char>(size >> shift & 0xff);
}

inline size_t size_at(std::string_view bytes) {  // of at least 4 bytes
  size_t size = 0;
  for (size_t i = 0; i < 4; ++i)
    size |= static_cast<size_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return size;
}

inline std::string encode(const StoreMessage& message) {
  std::string body(1, static_cast<char>(message.kind));
  put_size(body, message.id & 0xffffffff);
  put_size(body, message.id >> 32);
  for (const std::string& word : message.words) {
    put_size(body, word.size());
    body += word;
  }
  std::string frame;
  frame.reserve(body.size() + 4);
  put_size(frame, body.size());
  return frame += body;
}

// Nothing if the body is no message.
inline std::optional<StoreMessage> decode(std::string_view body) {
  if (body.size() < 9) return std::nullopt;
  const auto kind = static_cast<uint8_t>(body[0]);
  if (kind > static_cast<uint8_t>(StoreWord::refused)) return std::nullopt;
  StoreMessage message{
      .kind = static_cast<StoreWord>(kind),
      .id = size_at(body.substr(1)) | static_cast<uint64_t>(size_at(body.substr(5))) << 32};
  for (body.remove_prefix(9); !body.empty();) {
    if (body.size() < 4) return std::nullopt;
    const size_t size = size_at(body);
    body.remove_prefix(4);
    if (size > body.size()) return std::nullopt;
    message.words.emplace_back(body.substr(0, size));
    body.remove_prefix(size);
  }
  return message;
}

// Cuts messages out of the bytes that came so far.
class StoreFrames {
 public:
  std::string& bytes() { return bytes_; }
  bool broken() const { return broken_; }  // what came is no message: nothing more is read

  std::optional<StoreMessage> next() {
    const std::string_view rest = std::string_view(bytes_).substr(at_);
    const size_t size = rest.size() < 4 ? 0 : size_at(rest);
    broken_ = broken_ || size > most_message_bytes;
    if (broken_ || rest.size() < 4 || rest.size() - 4 < size) {
      bytes_.erase(0, std::exchange(at_, 0));
      return std::nullopt;
    }
    std::optional<StoreMessage> message = decode(rest.substr(4, size));
    at_ += 4 + size;
    broken_ = !message.has_value();
    return message;
  }

 private:
  std::string bytes_;
  size_t at_ = 0;
  bool broken_ = false;
};

}  // namespace braid::comm
