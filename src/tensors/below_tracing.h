#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace ahead::tracing {

/// For a scope, operators on plain tensors run as if nothing were being traced.
class BelowTracing {
 public:
  BelowTracing() : guard_(keys()) {}

 private:
  static c10::DispatchKeySet keys() {
    return c10::DispatchKeySet{c10::DispatchKey::DeferredInit, c10::DispatchKey::Functionalize,
                               c10::DispatchKey::Fake} |
           c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  }
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

}  // namespace ahead::tracing
