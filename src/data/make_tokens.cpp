// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "braid/core/error.h"
#include "braid/core/fs.h"
#include "braid/core/rng.h"
#include "braid/data/make.h"
#include "data/token_format.h"

namespace braid::data {
namespace {

// A Markov chain: after each word one of four others follows with 60, 20, 10 and 5 %, else any
// word.
class TokenChain {
 public:
  TokenChain(int64_t vocabulary, uint64_t seed)
      : vocabulary_(vocabulary),
        follow_(random_key(seed, "tokens.follow")),
        draw_(random_key(seed, "tokens.draw")) {}

  int64_t next() {
    const double u = random_uniform(draw_, drawn_++);
    const int choice = u < 0.6 ? 0 : u < 0.8 ? 1 : u < 0.9 ? 2 : u < 0.95 ? 3 : 4;
    token_ = choice == 4
                 ? random_below(draw_, drawn_++, vocabulary_)
                 : random_below(follow_, static_cast<uint64_t>(token_ * 4 + choice), vocabulary_);
    return token_;
  }

 private:
  int64_t vocabulary_, token_ = 0;
  uint64_t drawn_ = 0;
  RandomKey follow_, draw_;
};

std::string token_header(const TokensOptions& options, bool wide) {
  std::array<int32_t, token_header_words> header = {};
  header[0] = wide ? token_magic_u32 : token_magic_u16;
  header[1] = wide ? token_version_u32 : token_version_u16;
  header[2] = static_cast<int32_t>(options.tokens);
  return {reinterpret_cast<const char*>(header.data()), token_header_bytes};
}

void check_tokens(const TokensOptions& options) {
  if (options.tokens > 0 && options.vocabulary > 1 && options.vocabulary <= int64_t{1} << 32 &&
      (!options.header || options.tokens <= INT32_MAX))
    return;
  throw ConfigError(
      {.what = fmt::format("{} tokens of {} words", options.tokens, options.vocabulary),
       .why = "there are at least 2 words and at most 2^32, and the header counts up to 2^31 - 1 "
              "tokens",
       .fix = "make fewer tokens a file, or write no header"});
}

}  // namespace

void make_tokens(const std::filesystem::path& file, TokensOptions options,
                 const Progress& progress) {
  check_tokens(options);
  const bool wide = options.vocabulary > 65536;
  const std::filesystem::path part = fmt::format(
      "{}.{}.part", file.string(), ::getpid());  // ranks of one program may make it together
  if (file.has_parent_path()) make_dirs(file.parent_path());
  errno = 0;
  std::ofstream out(part, std::ios::binary);
  if (options.header) out << token_header(options, wide);
  TokenChain chain(options.vocabulary, options.seed);
  constexpr int64_t block = 1 << 16;
  for (int64_t done = 0; done < options.tokens && out;) {
    std::string bytes;
    const int64_t end = std::min(options.tokens, done + block);
    for (; done < end; ++done) {
      const auto token = static_cast<uint32_t>(chain.next());
      bytes.append(reinterpret_cast<const char*>(&token),
                   wide ? 4 : 2);  // little-endian: the low bytes come first
    }
    out << bytes;
    if (progress) progress(done, options.tokens);
  }
  out.close();
  if (!out) {
    const int error = errno;
    std::error_code ignored;
    std::filesystem::remove(part, ignored);
    throw_storage("write", file, error != 0 ? error : EIO);
  }
  rename_durably(part, file);
}

}  // namespace braid::data
