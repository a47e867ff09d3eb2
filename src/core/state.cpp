// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/state.h"

#include <fmt/format.h>

#include <cstdlib>

#include "braid/core/error.h"

namespace braid {
namespace {

StorageError missing_entry(const std::string& name) {
  return StorageError(
      {.what = fmt::format("the saved state has no entry \"{}\"", name),
       .why = "it was saved by another version or for another model",
       .fix = "resume with the config that wrote it, or start again without --resume"});
}

StorageError broken_number(const std::string& name, const std::string& text) {
  return StorageError({.what = fmt::format("entry \"{}\" of the saved state is \"{}\"", name, text),
                       .why = "a number is needed",
                       .fix = "resume from an older checkpoint"});
}

template <class Map>
void copy_under(Map& to, const Map& from, std::string_view prefix) {
  for (const auto& [name, value] : from) to[fmt::format("{}/{}", prefix, name)] = value;
}

template <class Map>
void copy_part(Map& to, const Map& from, const std::string& prefix) {
  for (auto it = from.lower_bound(prefix); it != from.end() && it->first.starts_with(prefix); ++it)
    to[it->first.substr(prefix.size())] = it->second;
}

}  // namespace

void State::put(std::string_view prefix, const State& part) {
  copy_under(tensors, part.tensors, prefix);
  copy_under(values, part.values, prefix);
  copy_under(pieces, part.pieces, prefix);
}

State State::part(std::string_view prefix) const {
  State result;
  const std::string start = fmt::format("{}/", prefix);
  copy_part(result.tensors, tensors, start);
  copy_part(result.values, values, start);
  copy_part(result.pieces, pieces, start);
  return result;
}

bool State::has(std::string_view name) const {
  const std::string key(name);
  return tensors.contains(key) || values.contains(key);
}

void State::set(const std::string& name, const at::Tensor& tensor, const Piece& piece) {
  tensors[name] = tensor;
  if (!piece.whole.empty()) pieces[name] = piece;
}

void State::set(const std::string& name, int64_t number) { values[name] = std::to_string(number); }

void State::set(const std::string& name, double number) {
  values[name] = fmt::format("{:a}", number);
}

const std::string& State::text(const std::string& name) const {
  const auto found = values.find(name);
  if (found == values.end()) throw missing_entry(name);
  return found->second;
}

int64_t State::integer(const std::string& name) const {
  const std::string& digits = text(name);
  char* end = nullptr;
  const int64_t number = std::strtoll(digits.c_str(), &end, 10);
  if (digits.empty() || *end != '\0') throw broken_number(name, digits);
  return number;
}

double State::number(const std::string& name) const {
  const std::string& digits = text(name);
  char* end = nullptr;
  const double number = std::strtod(digits.c_str(), &end);
  if (digits.empty() || *end != '\0') throw broken_number(name, digits);
  return number;
}

const at::Tensor& State::tensor(const std::string& name) const {
  const auto found = tensors.find(name);
  if (found == tensors.end()) throw missing_entry(name);
  return found->second;
}

}  // namespace braid
