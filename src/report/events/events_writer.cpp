// SPDX-License-Identifier: BSD-3-Clause
#include "report/events/events_writer.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

#include "braid/core/fs.h"
#include "events.pb.h"
#include "report/append_file.h"
#include "report/events/crc32c.h"

namespace braid::report {
namespace {

constexpr std::string_view events_prefix = "events.out.tfevents.";

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Readers take the files of a folder in the order of their names, so a resumed run must sort behind
// the broken one.
int64_t next_stamp(const std::filesystem::path& dir) {
  auto stamp = static_cast<int64_t>(wall_time());
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(events_prefix)) continue;
    stamp = std::max<int64_t>(stamp, std::atoll(name.c_str() + events_prefix.size()) + 1);
  }
  return stamp;
}

std::filesystem::path new_events_path(const std::filesystem::path& dir) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0)
    std::snprintf(host.data(), host.size(), "host");
  std::array<char, 24> stamp{};
  std::snprintf(stamp.data(), stamp.size(), "%010lld", static_cast<long long>(next_stamp(dir)));
  return dir / (std::string(events_prefix) + stamp.data() + "." + host.data() + "." +
                std::to_string(getpid()));
}

void append_little_endian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>((value >> (8 * i)) & 0xFF));
}

// TFRecord: length, masked CRC of the length, data, masked CRC of the data.
std::string framed(const std::string& data) {
  std::string record;
  record.reserve(data.size() + 16);
  append_little_endian(record, data.size(), 8);
  append_little_endian(record, masked_crc32c(record), 4);
  record += data;
  append_little_endian(record, masked_crc32c(data), 4);
  return record;
}

}  // namespace

struct EventsWriter::State {
  AppendFile file;

  void write(events::Event& event, int64_t step) {
    event.set_wall_time(wall_time());
    event.set_step(step);
    file.write(framed(event.SerializeAsString()));
  }
};

EventsWriter::EventsWriter(const std::filesystem::path& dir, int64_t first_step) {
  make_dirs(dir);
  state_ = std::make_unique<State>(State{AppendFile(new_events_path(dir))});
  events::Event version;
  version.set_file_version("brain.Event:2");
  state_->write(version, 0);
  events::Event start;
  start.mutable_session_log()->set_status(events::SessionLog::START);
  state_->write(start, first_step > 0 ? first_step + 1 : 0);
}

EventsWriter::~EventsWriter() = default;
EventsWriter::EventsWriter(EventsWriter&&) noexcept = default;
EventsWriter& EventsWriter::operator=(EventsWriter&&) noexcept = default;

void EventsWriter::scalar(std::string_view tag, int64_t step, double value) {
  events::Event event;
  auto* entry = event.mutable_summary()->add_value();
  entry->set_tag(std::string(tag));
  entry->set_simple_value(static_cast<float>(value));
  state_->write(event, step);
}

void EventsWriter::image(std::string_view tag, int64_t step, EventImage image) {
  events::Event event;
  auto* entry = event.mutable_summary()->add_value();
  entry->set_tag(std::string(tag));
  entry->mutable_image()->set_width(image.width);
  entry->mutable_image()->set_height(image.height);
  entry->mutable_image()->set_colorspace(3);
  entry->mutable_image()->set_encoded_image_string(std::move(image.png));
  state_->write(event, step);
}

const std::filesystem::path& EventsWriter::path() const { return state_->file.path(); }

}  // namespace braid::report
