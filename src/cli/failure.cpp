// SPDX-License-Identifier: BSD-3-Clause
#include "cli/failure.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <new>
#include <string_view>
#include <vector>

#include "braid/core/fs.h"
#include "braid/core/printable.h"

namespace braid::cli {
namespace {

// A failure that libtorch or the standard library reports by its own text alone.
struct KnownText {
  std::vector<std::string_view> words;  // any of them
  Exit code;
  std::string_view what, fix;
};

const std::array<KnownText, 3>& known_texts() {
  static const std::array<KnownText, 3> texts = {{
      {.words = {"size calculation overflowed", "Stride calculation overflowed",
                 "integer multiplication overflow", "larger than max_size()", "vector::reserve",
                 "_M_default_append"},
       .code = Exit::config,
       .what = "a tensor or list that this config asks for is larger than any memory",
       .fix = "look for a size with too many digits: model.*, data.samples, data.sequence, "
              "train.global_batch"},
      {.words = {"can't allocate memory", "not enough memory", "alloc_cpu.cpp",
                 "CUDA out of memory", "std::bad_alloc"},
       .code = Exit::memory,
       .what = "out of memory",
       .fix = "a smaller train.micro_batch or model needs less; ulimit -v shows what this process "
              "may take"},
      {.words = {"Too many open files", "Unable to open /dev/urandom"},
       .code = Exit::storage,
       .what = "too many open files",
       .fix = "allow more of them: ulimit -n 1024"},
  }};
  return texts;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string text_of(const std::exception& error) {
  const auto* torch = dynamic_cast<const c10::Error*>(&error);  // without addresses of the stack
  return torch != nullptr ? torch->what_without_backtrace() : error.what();
}

Failure failure_with(const KnownText& known, const std::string& text) {
  return {known.code, explain({.what = std::string(known.what),
                               .why = first_line(text),
                               .fix = std::string(known.fix)})};
}

Failure path_failure(const std::filesystem::filesystem_error& error) {
  try {
    throw_storage("use", error.path1(), error.code().value());
  } catch (const Error& told) {
    return {told.code(), explain(told.complaint())};
  }
}

}  // namespace

Failure failure_of(const std::exception& error) {
  if (const auto* known = dynamic_cast<const Error*>(&error))
    return {known->code(), explain(known->complaint())};
  if (const auto* path = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return path_failure(*path);
  const std::string text = text_of(error);
  for (const KnownText& known : known_texts())
    if (std::any_of(known.words.begin(), known.words.end(),
                    [&](std::string_view words) { return text.find(words) != std::string::npos; }))
      return failure_with(known, text);
  return {Exit::internal, printable(fmt::format("braid: {}", text))};
}

}  // namespace braid::cli
