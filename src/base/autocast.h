#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <array>

namespace ahead {

/// The settings of autocast on a thread.
struct AutocastState {
  struct Device {
    at::DeviceType type;
    bool enabled;
    at::ScalarType dtype;
    bool operator==(const Device&) const = default;
  };
  std::array<Device, 2> devices;
  bool cache;

  /// The settings of this thread.
  static AutocastState current();
  /// These settings with autocast off on all devices.
  AutocastState off() const;
  /// Puts these settings into effect on this thread.
  void apply() const;
  bool operator==(const AutocastState&) const = default;
};

/// Whether autocast is on for any device on this thread.
bool is_autocast_enabled();

/// Puts settings into effect for a scope, at whose end the previous ones are restored.
class AutocastScope {
 public:
  explicit AutocastScope(const AutocastState& state) { state.apply(); }
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const AutocastState before_ = AutocastState::current();
};

}  // namespace ahead
