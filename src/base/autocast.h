#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <array>

namespace ahead {

/// Autocast's settings on a thread.
struct AutocastState {
  struct Device {
    at::DeviceType type;
    bool enabled;
    at::ScalarType dtype;
    bool operator==(const Device&) const = default;
  };
  std::array<Device, 2> devices;
  bool cache;

  /// As they are on this thread.
  static AutocastState current();
  /// The same with autocast off.
  AutocastState off() const;
  /// Puts them into effect on this thread.
  void apply() const;
  bool operator==(const AutocastState&) const = default;
};

/// Whether autocast is on for any device on this thread.
bool is_autocast_enabled();

/// Puts settings into effect, and those that were there back at its end.
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
