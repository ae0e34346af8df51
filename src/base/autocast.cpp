#include "base/autocast.h"

#include <ATen/autocast_mode.h>

namespace ahead {
namespace {

AutocastState::Device read(at::DeviceType type) {
  return {type, at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)};
}

}  // namespace

AutocastState AutocastState::current() {
  return {{read(at::kCPU), read(at::kCUDA)}, at::autocast::is_autocast_cache_enabled()};
}

AutocastState AutocastState::off() const {
  AutocastState state = *this;
  for (Device& device : state.devices) device.enabled = false;
  return state;
}

void AutocastState::apply() const {
  for (const Device& device : devices) {
    at::autocast::set_autocast_enabled(device.type, device.enabled);
    at::autocast::set_autocast_dtype(device.type, device.dtype);
  }
  at::autocast::set_autocast_cache_enabled(cache);
}

bool is_autocast_enabled() {
  return at::autocast::is_autocast_enabled(at::kCPU) ||
         at::autocast::is_autocast_enabled(at::kCUDA);
}

AutocastScope::~AutocastScope() {
  const bool is_same = before_ == AutocastState::current();
  before_.apply();
  // The cache may hold casts of weights that were made under the settings of the scope.
  if (!is_same) at::autocast::clear_cache();
}

}  // namespace ahead
