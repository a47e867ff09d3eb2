// SPDX-License-Identifier: BSD-3-Clause
// Writes one TensorBoard events file. Free of protobuf and torch, whose protobuf headers must not
// meet.
//
//   EventsWriter events("runs/demo/events", /*first_step=*/0);
//   events.scalar("Loss/train", step, 0.25);
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace braid::report {

struct EventImage {
  int32_t width = 0;
  int32_t height = 0;
  std::string png;  // RGB
};

class EventsWriter {
 public:
  // A new file in `dir`, later in name than those there. A reader forgets what older files say of
  // steps > first_step.
  EventsWriter(const std::filesystem::path& dir, int64_t first_step);
  ~EventsWriter();
  EventsWriter(EventsWriter&&) noexcept;
  EventsWriter& operator=(EventsWriter&&) noexcept;

  void scalar(std::string_view tag, int64_t step, double value);
  void image(std::string_view tag, int64_t step, EventImage image);
  const std::filesystem::path& path() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid::report
