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

bool PackerScope::is_active() {
  return front_engine::packer() != nullptr;
}

}  // namespace ahead::runtime
