#include "ahead/errors.h"
#include "ahead/subclass.h"
#include "tensors/wrapper_call.h"
#include "tensors/wrapper_impl.h"
#include "trace/dispatch/fallbacks.h"

namespace ahead {
namespace {

/// One run of an operator over each inner tensor of the wrappers of a class.
class ByPart {
 public:
  ByPart(const WrapperTensor& self, const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : class_(self.wrapper_class()), parts_(self.flatten()), op_(op), stack_(stack) {}

  void run() {
    check_writes_to_wrappers();
    std::vector<torch::jit::Stack> results;
    for (size_t part = 0; part < parts_.inner.size(); ++part) results.push_back(call(part));
    stack_ = std::move(results.front());
    for (size_t i = 0; i < stack_.size(); ++i) {
      std::vector<c10::IValue> values;
      for (torch::jit::Stack& result : results)
        values.push_back(&result == &results.front() ? stack_[i] : std::move(result[i]));
      stack_[i] = join(values);
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Unsupported("subclass", c10::toString(op_.operator_name()) + ": " + why);
  }

  bool is_own(const at::Tensor& tensor) const {
    return tensors::is_wrapper(tensor) &&
           *tensors::as_wrapper(tensor).inside()->wrapper_class().type == *class_.type;
  }

  /// The parts of a wrapper would be written over each other.
  void check_writes_to_wrappers() const {
    for (size_t i = 0; i < stack_.size(); ++i) {
      const c10::AliasInfo* alias = op_.schema().arguments()[i].alias_info();
      if (alias == nullptr || !alias->isWrite()) continue;
      tracing::for_each_tensor(stack_[i], [&](const at::Tensor& tensor) {
        if (!is_own(tensor))
          refuse("it writes a wrapper of class " + class_.name +
                 " to a tensor that is none. Write to a wrapper, or to its inner tensors.");
      });
    }
  }

  torch::jit::Stack call(size_t part) const {
    torch::jit::Stack stack = stack_;
    for (c10::IValue& argument : stack) {
      tracing::map_tensors(argument, [&](const at::Tensor& tensor) {
        return is_own(tensor) ? part_of(tensor, part) : tensor;
      });
    }
    op_.callBoxed(stack);
    return stack;
  }

  at::Tensor part_of(const at::Tensor& wrapper, size_t part) const {
    const WrapperParts parts = tensors::as_wrapper(wrapper).inside()->flatten();
    if (parts.inner.size() != parts_.inner.size())
      refuse("wrappers of class " + class_.name + " meet that have " +
             std::to_string(parts.inner.size()) + " and " + std::to_string(parts_.inner.size()) +
             " inner tensors.");
    if (is_storage_relative() && WrapperLook::of(parts.inner[part]) != WrapperLook::of(wrapper))
      refuse("it reaches elements by where they lie in memory, and an inner tensor of class " +
             class_.name + " lies otherwise than the wrapper says.");
    return parts.inner[part];
  }

  bool is_storage_relative() const {
    return op_.operator_name().name.rfind("aten::as_strided", 0) == 0;
  }

  c10::IValue join(std::vector<c10::IValue>& values) const {
    if (values.front().isTensor()) {
      std::vector<at::Tensor> inner;
      for (c10::IValue& value : values) inner.push_back(std::move(value).toTensor());
      return join(std::move(inner));
    }
    if (values.front().isTensorList()) {
      std::vector<std::vector<at::Tensor>> lists;
      for (const c10::IValue& value : values) lists.push_back(value.toTensorVector());
      std::vector<at::Tensor> joined;
      for (size_t i = 0; i < lists.front().size(); ++i) {
        std::vector<at::Tensor> inner;
        for (const auto& list : lists) inner.push_back(list.at(i));
        joined.push_back(join(std::move(inner)));
      }
      return joined;
    }
    for (const c10::IValue& value : values) {
      if (!value.equals(values.front()).toBool())
        refuse("its result is no tensor, and another one for each inner tensor of class " +
               class_.name + ".");
    }
    return values.front();
  }

  at::Tensor join(std::vector<at::Tensor> inner) const {
    if (!inner.front().defined()) return {};
    const WrapperLook look = WrapperLook::of(inner.front());
    return wrap(class_.unflatten({std::move(inner), parts_.metadata}), look);
  }

  const WrapperClass& class_;
  const WrapperParts parts_;
  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
};

}  // namespace

WrapperLook WrapperLook::of(const at::Tensor& tensor) {
  return {tensor.sizes().vec(), tensor.strides().vec(), tensor.storage_offset(),
          tensor.scalar_type(), tensor.device()};
}

at::Tensor WrapperTensor::coerce_tangent(const at::Tensor& self) const {
  return self;
}

at::Tensor WrapperTensor::coerce_same_metadata_as_tangent(const at::Tensor&, const WrapperClass&,
                                                          const c10::IValue&) const {
  return {};
}

void WrapperTensor::dispatch_to_each(const c10::OperatorHandle& op,
                                     torch::jit::Stack& stack) const {
  ByPart(*this, op, stack).run();
}

at::Tensor wrap(std::shared_ptr<const WrapperTensor> inside, const WrapperLook& look) {
  tracing::ensure_fallbacks_registered();
  for (const at::Tensor& inner : inside->flatten().inner) {
    if (!inner.requires_grad()) continue;
    throw UserError("subclass", inside->wrapper_class().name +
                                    ": an inner tensor requires grad. Pass its detach(), and let "
                                    "the wrapper require grad.");
  }
  return at::Tensor(c10::make_intrusive<tensors::WrapperImpl>(std::move(inside), look));
}

std::shared_ptr<const WrapperTensor> inside_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensors::is_wrapper(tensor)) return nullptr;
  return tensors::as_wrapper(tensor).inside();
}

}  // namespace ahead
