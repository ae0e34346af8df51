#include "checkpoint/saved_tensor_hooks.h"

#include <utility>

namespace ahead::runtime {

PackerScope::PackerScope(SavedTensorPacker& packer)
    : outer_(std::exchange(front_engine::packer(), &packer)) {
  front_engine::ensure_installed();
}

PackerScope::~PackerScope() {
  front_engine::packer() = outer_;
}

PackerScope::Pause::Pause() : paused_(std::exchange(front_engine::packer(), nullptr)) {}

PackerScope::Pause::~Pause() {
  front_engine::packer() = paused_;
}

bool PackerScope::is_active() {
  return front_engine::packer() != nullptr;
}

}  // namespace ahead::runtime
