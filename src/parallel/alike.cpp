// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/alike.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <sstream>

#include "braid/comm/texts.h"
#include "braid/core/dry.h"
#include "braid/core/error.h"
#include "braid/memory/instruments.h"

namespace braid::parallel {
namespace {

// One line per parameter.
std::string described(const std::vector<Param>& params) {
  std::string text;
  for (const Param& param : params)
    text += fmt::format("{} {} [{}]{}\n", param.name, c10::toString(param.tensor.scalar_type()),
                        fmt::join(param.tensor.sizes(), ", "),
                        param.tensor.requires_grad() ? "" : " not trained");
  return text;
}

// 64 bits of a text on the device that the group sends from.
bool same_everywhere(const comm::Group& group, const std::string& text, c10::Device device) {
  const at::Tensor mine = at::empty({1}, c10::kLong);
  if (has_data(mine))
    *mine.mutable_data_ptr<int64_t>() = static_cast<int64_t>(std::hash<std::string>()(text));
  const at::Tensor sent = mine.to(device);
  const at::Tensor all = at::empty({group.size()}, sent.options());
  group.all_gather(all, sent).wait();
  if (!has_data(all)) return true;  // a dry run
  const at::Tensor host = all.cpu();
  const int64_t* hashes = host.const_data_ptr<int64_t>();
  return std::all_of(hashes, hashes + host.numel(),
                     [&](int64_t hash) { return hash == hashes[0]; });
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

CommError unlike(const char* who, const comm::Group& group, const std::vector<std::string>& texts) {
  size_t other = 1;
  while (texts[other] == texts[0]) ++other;
  const std::vector<std::string> here = lines_of(texts[0]), there = lines_of(texts[other]);
  size_t at = 0;
  while (at < here.size() && at < there.size() && here[at] == there[at]) ++at;
  const auto line = [&](const std::vector<std::string>& lines) {
    return at < lines.size() ? lines[at] : std::string("missing");
  };
  const auto rank = [&](size_t member) { return group.ranks()[member]; };
  return CommError(
      {.what = fmt::format("{} was given other parameters on rank {} than on rank {}: parameter "
                           "{} is {} there and {} here ({} and {} parameters)",
                           who, rank(other), rank(0), at + 1, line(there), line(here), there.size(),
                           here.size()),
       .why = "the ranks add their gradients one parameter after the other",
       .fix = "build the same module on every rank, and freeze the same parameters"});
}

}  // namespace

void expect_alike(const char* who, const comm::Group& group, const std::vector<Param>& params) {
  if (group.size() == 1) return;
  const std::string text = described(params);
  const c10::Device device = params.empty() ? c10::kCPU : params.front().tensor.device();
  if (same_everywhere(group, text, device)) return;
  throw unlike(who, group, comm::exchange_texts(group, text, device));
}

void expect_alike(const char* who, ReplicaGroups& groups, const std::vector<Param>& params) {
  if (params.empty()) groups.number_of({});  // the others wait for this rank
  std::vector<size_t> numbers;
  for (const Param& param : params) numbers.push_back(groups.number_of(param));
  for (size_t number = 0; number < groups.all().size(); ++number) {
    std::vector<Param> some;
    for (size_t i = 0; i < params.size(); ++i)
      if (numbers[i] == number) some.push_back(params[i]);
    expect_alike(who, groups.at(number), some);
  }
}

int64_t print_of(const at::Tensor& tensor) {
  if (!has_data(tensor) || tensor.numel() == 0) return 0;
  const at::NoGradGuard no_grad;
  const memory::Instruments uncounted({});
  const c10::ScalarType bits = tensor.element_size() == 8   ? c10::kLong
                               : tensor.element_size() == 4 ? c10::kInt
                               : tensor.element_size() == 2 ? c10::kShort
                                                            : c10::kChar;
  return tensor.detach().contiguous().view(bits).sum(c10::kLong).item<int64_t>();
}

BufferShare::BufferShare(ReplicaGroups& groups, const std::vector<Param>& buffers) {
  std::vector<std::vector<at::Tensor>> tensors;
  for (const Param& buffer : buffers) {
    const size_t number = groups.number_of(buffer);
    tensors.resize(groups.all().size());
    tensors[number].push_back(buffer.tensor.detach());
  }
  for (size_t number = 0; number < tensors.size(); ++number)
    if (!tensors[number].empty() && groups.at(number).size() > 1)
      flights_.push_back(groups.at(number).broadcast(tensors[number], 0));
}

void BufferShare::wait() {
  for (comm::Pending& flight : flights_) flight.wait();
}

}  // namespace braid::parallel
