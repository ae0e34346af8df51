#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <memory>

#include "ahead/graph.h"
#include "ir/sizes/layout.h"
#include "tensors/wrapper_keys.h"

namespace ahead::tracing {

class Tracer;

/// Where a tracer notes what one of its fake tensors holds; null once that is gone.
using Holder = std::atomic<const Value*>;

/// A tensor without data: it looks like one on the real device, and knows its value in the graph
/// that its tracer is building.
class FakeTensor final : public c10::TensorImpl {
 public:
  /// `symbolic`: its layout if that may change from run to run; null: it may not.
  FakeTensor(at::Tensor meta, at::Device device, Value* value, c10::intrusive_ptr<Tracer> tracer,
             std::shared_ptr<const Layout> symbolic = nullptr);
  ~FakeTensor() override;

  /// A meta tensor of the same layout on the same storage, from which shapes are inferred. It is
  /// made anew each time: kept, it would fill the caches of the processor while nobody needs it.
  at::Tensor meta() const;
  Value* value() const { return value_; }
  Tracer& tracer() const { return *tracer_; }
  bool is_symbolic() const { return symbolic_ != nullptr; }

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                         bool allow_change) const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                         bool allow_change) const override;

 private:
  const char* tensorimpl_type_name() const override;
  c10::intrusive_ptr<TensorImpl> copy(c10::VariableVersion version, bool allow_change) const;

  Value* value_;
  c10::intrusive_ptr<Tracer> tracer_;
  Holder& holder_;  ///< of the tracer
  bool stands_for_number_;
  std::shared_ptr<const Layout> symbolic_;
  at::Tensor fixed_;  ///< the meta tensor, if the layout may change: as it is in this trace
};

/// True for fake tensors themselves, not for the functional wrappers around them.
inline bool is_fake(const at::Tensor& tensor) {
  return tensor.key_set().has(c10::DispatchKey::Fake) &&
         !tensor.key_set().has(c10::DispatchKey::Functionalize) && !tensors::is_wrapper(tensor);
}

/// True for what user code holds while tracing: a functional wrapper around a fake tensor.
inline bool is_traced(const at::Tensor& tensor) {
  return tensor.key_set().has(c10::DispatchKey::Functionalize);
}

/// The fake tensor behind `tensor`, for which is_fake holds.
inline FakeTensor& as_fake(const at::Tensor& tensor) {
  return *static_cast<FakeTensor*>(tensor.unsafeGetTensorImpl());
}

at::Tensor make_fake(at::Tensor meta, at::Device device, Value* value,
                     const c10::intrusive_ptr<Tracer>& tracer,
                     std::shared_ptr<const Layout> symbolic = nullptr);

/// What a traced tensor holds now, in the graph. Writes that it has not seen yet are recorded
/// first.
Value* value_of(const at::Tensor& traced);

/// A meta tensor with the layout, the storage size and the wrapped-number flag of a real one.
at::Tensor meta_copy(const at::Tensor& real);

}  // namespace ahead::tracing
