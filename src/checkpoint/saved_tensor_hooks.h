#pragma once

#include "base/front_engine.h"

namespace ahead::runtime {

/// While it exists, tensors that autograd saves on this thread go to a packer. The innermost
/// packer counts.
class PackerScope {
 public:
  explicit PackerScope(SavedTensorPacker& packer);
  ~PackerScope();
  PackerScope(const PackerScope&) = delete;
  PackerScope& operator=(const PackerScope&) = delete;

  /// Whether there is a packer on this thread.
  static bool is_active();

 private:
  SavedTensorPacker* outer_;
};

}  // namespace ahead::runtime
