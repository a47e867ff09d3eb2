// SPDX-License-Identifier: BSD-3-Clause
#include "memory/recompute_error.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <new>
#include <utility>

#include "braid/memory/ledger.h"

namespace braid::memory {
namespace {

constexpr const char* depends_on_inputs =
    "make the block a function of its inputs and parameters: no counters, no random numbers but "
    "from torch's default generators, or leave it out of recompute";

std::string computed_again(const std::string& segment) {
  return fmt::format("segment {}, computed again in the backward pass", segment);
}

// Who catches errors goes by their type.
[[noreturn]] void throw_as(Exit code, Complaint complaint) {
  switch (code) {
    case Exit::config:
      throw ConfigError(std::move(complaint));
    case Exit::data:
      throw DataError(std::move(complaint));
    case Exit::comm:
      throw CommError(std::move(complaint));
    case Exit::storage:
      throw StorageError(std::move(complaint));
    case Exit::not_finite:
      throw NotFiniteError(std::move(complaint));
    case Exit::memory:
      throw MemoryError(std::move(complaint));
    default:
      throw InternalError(std::move(complaint));
  }
}

}  // namespace

InternalError other_value(const Difference& d) {
  const std::string which = fmt::format("value {} of {}", d.number + 1, d.all);
  if (d.first.bits != d.second.bits && to_text(d.first) == to_text(d.second))
    return InternalError({.what = fmt::format("{}: {}, {}, has other bits than in the forward pass",
                                              computed_again(d.segment), which, to_text(d.first)),
                          .why = "gradients would belong to other values than the loss",
                          .fix = depends_on_inputs});
  return InternalError(
      {.what = fmt::format("{}: {} is {}, in the forward pass it was {}", computed_again(d.segment),
                           which, to_text(d.second), to_text(d.first)),
       .why = "both runs must save the same tensors for the backward pass",
       .fix = depends_on_inputs});
}

InternalError missing_values(const std::string& segment, size_t came, size_t all,
                             const std::string& next) {
  return InternalError(
      {.what = fmt::format("{}: it saves {} tensors for the backward pass, the first time {}; the "
                           "next would be {}",
                           computed_again(segment), came, all, next),
       .why = "both runs must save the same tensors for the backward pass",
       .fix = depends_on_inputs});
}

InternalError changed_input(const std::string& segment, size_t input, const std::string& when) {
  return InternalError(
      {.what =
           fmt::format("input {} of segment {} was changed in place {}", input + 1, segment, when),
       .why = "the backward pass computes the segment again from its inputs",
       .fix = "use the operator that gives a new tensor, e.g. add instead of add_"});
}

InternalError changed_value(const std::string& segment, size_t number, const std::string& value) {
  return InternalError(
      {.what = fmt::format("{}: value {}, {}, was changed in place after it was saved",
                           computed_again(segment), number + 1, value),
       .why = "the backward pass needs it as it was",
       .fix = "use the operator that gives a new tensor, e.g. add instead of add_"});
}

void throw_in_segment(const std::string& segment) {
  try {
    throw;
  } catch (const DoesNotFit&) {
    throw;  // names its module, and is asked for its numbers
  } catch (const std::bad_alloc&) {
    throw;
  } catch (c10::Error& error) {
    error.add_context(computed_again(segment));
    throw;
  } catch (const Error& error) {
    if (error.complaint().what.find("segment ") != std::string::npos) throw;
    Complaint complaint = error.complaint();
    complaint.what = computed_again(segment) + ": " + complaint.what;
    throw_as(error.code(), std::move(complaint));
  } catch (const std::exception& error) {
    throw InternalError({.what = computed_again(segment) + ": " + error.what(),
                         .why = "it did not throw in the forward pass",
                         .fix = depends_on_inputs});
  }
}

}  // namespace braid::memory
