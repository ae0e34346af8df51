#pragma once

#include <ATen/core/stack.h>

#include <vector>

#include "trace/dispatch/traced_op.h"
#include "trace/tracer.h"

namespace ahead::tracing {

/// The lowest handler: one operator call, functional and below autograd, whose tensors are fake. It
/// is written down, and its results are made from their metadata alone.
class FakeHandler {
 public:
  FakeHandler(const c10::OperatorHandle& handle, torch::jit::Stack& stack);

  void run();

  /// After run(), for an operator that writes to arguments: what they hold then.
  const std::vector<at::Tensor>& written() const { return written_; }

 private:
  at::Generator generator_argument() const;
  Node* record();
  bool find_tracer();
  void pass_through();
  bool read_size();
  void refuse_if_data_dependent() const;
  void refuse_if_symbolic() const;
  void refuse_if_host_reads_effect() const;
  void refuse_cast_inside() const;
  void refuse_write_through_unfold() const;
  void take_arguments();
  Argument take(c10::IValue& slot);
  Argument take_sizes(c10::IValue& slot);
  Argument take_tensor(at::Tensor& tensor);
  Argument take_list(c10::IValue& slot);
  void choose_device(const at::Tensor& tensor);
  void replace_device_argument();
  void wrap_results(Node* node);
  void wrap_list(Node* node, c10::IValue& slot);
  void wrap_result(Node* node, c10::IValue& slot, bool is_written);
  std::optional<TensorMeta> describe_result(const at::Tensor& meta, size_t result) const;
  at::Device device_of(size_t result) const;
  at::Tensor make_result(at::Tensor meta, Value* value, std::shared_ptr<const Layout> layout) const;
  void find_layouts();
  std::shared_ptr<const Layout> layout_of(size_t result) const;
  void note_written();
  void add_written(Node* node);

  const c10::OperatorHandle& handle_;
  torch::jit::Stack& stack_;
  TracedOp& op_;
  Tracer* tracer_ = nullptr;
  size_t first_;
  std::vector<Argument> arguments_;
  std::vector<at::Tensor> written_;
  /// Where sizes may change: the arguments as they came, and what follows for the results.
  std::vector<c10::IValue> symbolic_arguments_;
  std::vector<Layout> layouts_;
  at::Device device_ = at::kCPU;
  enum class DeviceFrom : uint8_t { Default, Scalar, Tensor, Argument };
  DeviceFrom device_from_ = DeviceFrom::Default;
};

}  // namespace ahead::tracing
