// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/pipeline_mail.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace braid::parallel {
namespace {

bool is_gradient(Act act) { return act == Act::send_gradient || act == Act::recv_gradient; }

// One for each boundary and direction: messages of the same tag arrive in the order of sending.
int tag_of(const Message& message) {
  return 2 * message.send.stage + (is_gradient(message.send.act) ? 1 : 0);
}

// Known for some backends, see comm::Work::done.
bool arrived(const std::vector<comm::Pending>& messages) {
  return std::all_of(messages.begin(), messages.end(),
                     [](const comm::Pending& message) { return message.done(); });
}

// The pass of the receiving rank that uses a message.
Action user_of(const Message& message, const Places& places) {
  const Action& recv = message.recv;
  if (is_gradient(recv.act)) return places.backward_of(recv.stage, recv.micro);
  return {Act::forward, recv.stage, recv.micro};
}

}  // namespace

void PipelineMail::post(const Action& recv) {
  const Message message = message_of(schedule_, recv);
  const int tag = tag_of(message);
  const auto [place, fresh] = expected_.try_emplace({tag, recv.micro});
  if (!fresh) return;
  const bool gradient = is_gradient(recv.act);
  const int boundary = gradient ? recv.stage + 1 : recv.stage;  // the stage that is carried to
  for (const CarrySpec& spec : options_.carried(boundary, recv.micro)) {
    at::Tensor& tensor = place->second.tensors.emplace_back();
    if (gradient && !c10::isFloatingType(spec.dtype)) continue;
    tensor = at::empty(spec.shape, c10::TensorOptions(options_.device).dtype(spec.dtype));
    place->second.messages.push_back(axis_.recv(tensor, message.from, tag));
  }
}

Carry PipelineMail::take(const Action& recv) {
  post(recv);
  const Message message = message_of(schedule_, recv);
  const auto place = expected_.find({tag_of(message), recv.micro});
  wait_for(place->second.messages);  // where give_up() finds what is left of them
  Carry tensors = std::move(place->second.tensors);
  expected_.erase(place);
  hear(message);
  return tensors;
}

void PipelineMail::send(const Action& send, const Carry& tensors) {
  const Message message = message_of(schedule_, send);
  keep_window(send);
  std::erase_if(sent_, [](const Sent& sent) { return arrived(sent.messages); });
  Sent& sent = sent_.emplace_back();
  sent.to = message.to;
  sent.send = send;
  sent.used_at = places_.of(user_of(message, places_)).value_or(0);
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined())
      sent.messages.push_back(axis_.send(tensor.detach(), message.to, tag_of(message)));
}

// What the other rank used before it sent this has arrived there.
void PipelineMail::hear(const Message& message) {
  size_t& heard = heard_[static_cast<size_t>(message.from)];
  heard = std::max(heard, places_.of(message.send).value_or(0));
  for (Sent& sent : sent_)
    if (sent.to == message.from && sent.used_at < heard) wait_for(sent.messages);
  std::erase_if(sent_, [](const Sent& sent) { return sent.messages.empty(); });
}

void PipelineMail::keep_window(const Action& send) {
  if (options_.window == 0) return;
  const auto same = [&](const Sent& sent) { return sent.send.stage == send.stage; };
  while (static_cast<size_t>(std::count_if(sent_.begin(), sent_.end(), same)) >= options_.window) {
    const auto oldest = std::find_if(sent_.begin(), sent_.end(), same);
    wait_for(oldest->messages);
    sent_.erase(oldest);
  }
}

void PipelineMail::finish() {
  for (Sent& sent : sent_) wait_for(sent.messages);
  sent_.clear();
}

void PipelineMail::give_up() {
  const auto end = [](std::vector<comm::Pending>& messages) {
    for (comm::Pending& message : messages) try {
        message.wait();
      } catch (const std::exception&) {
        // The error that led here is on its way to the caller.
      }
    messages.clear();
  };
  for (Sent& sent : sent_) end(sent.messages);
  for (auto& [key, expected] : expected_) end(expected.messages);
}

void PipelineMail::wait_for(std::vector<comm::Pending>& messages) {
  for (comm::Pending& message : messages) message.wait();
  messages.clear();
}

}  // namespace braid::parallel
