#pragma once

#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace ahead {

/// The device that tensors get where this one is asked for: `cuda` is the current one of them.
inline c10::Device with_index(c10::Device device) {
  if (device.is_cpu() || device.is_meta() || device.has_index()) return device;
  return c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

}  // namespace ahead
