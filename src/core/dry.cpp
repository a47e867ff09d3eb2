// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/dry.h"

#include <utility>

namespace braid {
namespace {

thread_local std::optional<c10::DeviceType> dry_device_now;

}  // namespace

std::optional<c10::DeviceType> dry_device() { return dry_device_now; }

DryDeviceGuard::DryDeviceGuard(c10::DeviceType device)
    : before_(std::exchange(dry_device_now, device)) {}
DryDeviceGuard::~DryDeviceGuard() { dry_device_now = before_; }

}  // namespace braid
