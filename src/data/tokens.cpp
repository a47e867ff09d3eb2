// SPDX-License-Identifier: BSD-3-Clause
// Token files and byte-level text: sample i is a window of `sequence` tokens, its target the same
// window one token later.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "braid/core/error.h"
#include "data/fields.h"
#include "data/files.h"
#include "data/made.h"
#include "data/token_format.h"

namespace braid::data {
namespace {

// A run of tokens in a mapped file.
struct TokenRun {
  std::string file;
  std::shared_ptr<const MappedFile> bytes;
  int64_t offset = 0;  // of the first token
  int64_t width = 2;   // bytes a token
  int64_t count = 0;
};

template <class Word>
void copy_words(const uint8_t* from, int64_t count, int64_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    Word word;
    std::memcpy(&word, from + i * static_cast<int64_t>(sizeof(Word)), sizeof(Word));
    to[i] = static_cast<int64_t>(word);
  }
}

void copy_tokens(const TokenRun& run, int64_t first, int64_t count, int64_t* to) {
  const uint8_t* from = run.bytes->data() + run.offset + first * run.width;
  if (run.width == 1)
    copy_words<uint8_t>(from, count, to);
  else if (run.width == 2)
    copy_words<uint16_t>(from, count, to);
  else
    copy_words<uint32_t>(from, count, to);
}

class TokenSource final : public Source {
 public:
  TokenSource(std::vector<TokenRun> runs, int64_t sequence, std::optional<int64_t> limit)
      : runs_(std::move(runs)), sequence_(sequence) {
    first_ = {0};
    for (const TokenRun& run : runs_)  // a window and the token after it stay in one file
      first_.push_back(first_.back() + std::max<int64_t>(0, (run.count - 1) / sequence));
    size_ = first_.back();
    if (size_ == 0) complain_of_short();
    if (limit) size_ = std::min(size_, *limit);
    spec_.input = spec_.target = {{sequence}, c10::kLong};
    spec_.tokens = sequence;
  }

  int64_t size() const override { return size_; }
  const SampleSpec& spec() const override { return spec_; }

  void read(Access access, const Sample& out) const override {
    const auto [run, window] = place(access.index);
    copy_tokens(*run, window * sequence_, sequence_, out.input.mutable_data_ptr<int64_t>());
    copy_tokens(*run, window * sequence_ + 1, sequence_, out.target.mutable_data_ptr<int64_t>());
  }

  std::string describe(int64_t index) const override {
    const auto [run, window] = place(index);
    return fmt::format("{}, tokens {} to {}", run->file, window * sequence_,
                       (window + 1) * sequence_);
  }

 private:
  struct Place {
    const TokenRun* run;
    int64_t window;
  };

  Place place(int64_t index) const {
    const auto run =
        static_cast<size_t>(std::ranges::upper_bound(first_, index) - first_.begin()) - 1;
    return {&runs_[run], index - first_[run]};
  }

  [[noreturn]] void complain_of_short() const {
    int64_t most = 0;
    for (const TokenRun& run : runs_) most = std::max(most, run.count);
    throw DataError(
        {.what = fmt::format("{} holds {} tokens, too few for data.sequence = {}", runs_[0].file,
                             most, sequence_),
         .why = "a sample is `sequence` tokens and the one after them, from one file",
         .fix = fmt::format("set data.sequence to at most {}", std::max<int64_t>(most - 1, 1))});
  }

  std::vector<TokenRun> runs_;
  std::vector<int64_t> first_;  // global number of each run's first sample, and of the end
  int64_t sequence_, size_ = 0;
  SampleSpec spec_;
};

std::array<int32_t, token_header_words> header_of(const MappedFile& bytes) {
  std::array<int32_t, token_header_words> header = {};
  if (bytes.size() >= token_header_bytes)
    std::memcpy(header.data(), bytes.data(), token_header_bytes);
  return header;
}

void check_version(const std::string& file, int32_t version, int32_t expected) {
  if (version == expected) return;
  throw DataError(
      {.what = fmt::format("{} has version {} in its header", file, version),
       .why = fmt::format("with its magic number the version is {}", expected),
       .fix = "write the file again with a current tokeniser script, or braid data make tokens"});
}

TokenRun open_token_file(const std::filesystem::path& path, int64_t bare_width) {
  TokenRun run{.file = path.string(), .bytes = std::make_shared<MappedFile>(path)};
  const auto header = header_of(*run.bytes);
  const bool wide = header[0] == token_magic_u32, narrow = header[0] == token_magic_u16;
  if (narrow || wide) {
    check_version(run.file, header[1], wide ? token_version_u32 : token_version_u16);
    run.offset = token_header_bytes;
    run.width = wide ? 4 : 2;
  } else {
    run.width = bare_width;
  }
  const int64_t payload = run.bytes->size() - run.offset;
  run.count = payload / run.width;
  const int64_t promised = narrow || wide ? header[2] : run.count;
  if (promised != run.count || payload % run.width != 0)
    throw DataError(
        {.what = fmt::format("{} holds {} bytes of tokens of {} bytes, its header says {} tokens",
                             run.file, payload, run.width, promised),
         .why = "a truncated file, or tokens of another width",
         .fix =
             "fetch the file again; for tokens without a header set data.token_bytes to 2 or 4"});
  return run;
}

}  // namespace

std::shared_ptr<const Source> open_tokens(const DataOptions& options, Split split) {
  if (options.token_bytes != 2 && options.token_bytes != 4)
    throw ConfigError({.what = fmt::format("data.token_bytes = {}", options.token_bytes),
                       .why = "tokens are uint16 or uint32",
                       .fix = "set it to 2 or 4"});
  std::vector<TokenRun> runs;
  const std::string& where = split_path(options, split);
  for (const auto& path :
       find_files({.where = where,
                   .endings = {".bin"},
                   .key = fmt::format("data.{}", split_name(split)),
                   .fix = or_make(fmt::format("correct data.{}", split_name(split)), "tokens",
                                  where.empty() ? "data/train.bin" : where)}))
    runs.push_back(open_token_file(path, options.token_bytes));
  return std::make_shared<TokenSource>(std::move(runs), options.sequence,
                                       split_limit(options, split));
}

std::shared_ptr<const Source> open_text(const DataOptions& options, Split split) {
  const bool one_file = options.valid.empty() && options.test.empty();
  const std::string& where = one_file ? options.train : split_path(options, split);
  std::vector<TokenRun> runs;
  for (const auto& path :
       find_files({.where = where,
                   .endings = {".txt", ".md", ".tex"},
                   .key = fmt::format("data.{}", split_name(split)),
                   .fix = fmt::format("set data.{} to a text file", split_name(split))})) {
    TokenRun run{.file = path.string(), .bytes = std::make_shared<MappedFile>(path), .width = 1};
    const int64_t size = run.bytes->size();
    // One file for all: 90 % are for training, 5 % each for validation and test.
    const int64_t to_valid = size / 100 * 90 + size % 100 * 90 / 100,
                  to_test = to_valid + (size - to_valid) / 2;
    run.offset = !one_file || split == Split::train ? 0
                 : split == Split::valid            ? to_valid
                                                    : to_test;
    run.count = !one_file               ? size
                : split == Split::train ? to_valid
                : split == Split::valid ? to_test - to_valid
                                        : size - to_test;
    runs.push_back(std::move(run));
  }
  return std::make_shared<TokenSource>(std::move(runs), options.sequence,
                                       split_limit(options, split));
}

}  // namespace braid::data
