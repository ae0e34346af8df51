#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace ahead {

/// Which autocast the backward of a compiled function runs under.
enum class BackwardAutocast : uint8_t {
  AsCalled,       ///< the one in effect where backward() is called, as in eager
  SameAsForward,  ///< the one in effect where the function was called
  Off,            ///< none
};

/// Autocast for one kind of device.
struct AutocastSetting {
  at::DeviceType device = at::DeviceType::CPU;
  at::ScalarType dtype = at::ScalarType::BFloat16;
};

/// A BackwardAutocast, or settings of the user's.
class BackwardAutocastChoice {
 public:
  BackwardAutocastChoice(BackwardAutocast kind) : kind_(kind) {}
  /// Autocast is on for the CPU and CUDA devices named, and off for others. Off: an empty list.
  BackwardAutocastChoice(std::vector<AutocastSetting> settings)
      : kind_(BackwardAutocast::Off), settings_(std::move(settings)) {}

  BackwardAutocast kind() const { return kind_; }
  const std::vector<AutocastSetting>& settings() const { return settings_; }

 private:
  BackwardAutocast kind_ = BackwardAutocast::AsCalled;
  std::vector<AutocastSetting> settings_;
};

}  // namespace ahead
