#include "engine/part/node_calls.h"

#include <ATen/ops/clone.h>

#include <exception>
#include <unordered_map>

#include "base/compiler_interface.h"

namespace ahead::engine {
namespace {

using torch::autograd::variable_list;
using torch::dynamo::autograd::functional_apply_t;
using torch::dynamo::autograd::ivalue_list;
using torch::dynamo::autograd::PyCompilerInterface;

/// Built-in nodes announce their formula once per process, custom ones each time.
std::unordered_map<std::string, functional_apply_t>& formulas() {
  static auto* map = new std::unordered_map<std::string, functional_apply_t>;
  return *map;
}

thread_local std::exception_ptr problem;

/// What `call` returns; if it throws, `otherwise`.
template <class Result, class Call>
Result without_throwing(Result otherwise, Call&& call) {
  if (problem) return otherwise;
  try {
    return call();
  } catch (...) {
    problem = std::current_exception();
    return otherwise;
  }
}

class DirectCalls final : public PyCompilerInterface {
 public:
  std::string bind_function(PyObject*, const std::string& name, functional_apply_t formula,
                            std::vector<at::TypePtr>, bool is_custom,
                            bool is_traceable) const override {
    if (!is_traceable) problem = std::make_exception_ptr(OpaqueFunction());
    const std::string key = is_custom ? "custom " + name : name;
    formulas()[key] = std::move(formula);
    return key;
  }

  variable_list call_function(PyObject*, const char*, const std::string& name,
                              const variable_list& inputs, const ivalue_list& arguments,
                              const c10::IValue& metadata) const override {
    return without_throwing(variable_list(metadata.toList().size()),
                            [&] { return formulas().at(name)(inputs, arguments); });
  }

  variable_list call_copy_slices_prologue(PyObject*, const variable_list& inputs,
                                          const at::TensorGeometry& base,
                                          const at::TensorGeometry& view) const override {
    return without_throwing(variable_list(3), [&] {
      at::Tensor result = inputs[0].new_empty_strided_symint(base.sym_sizes(), base.sym_strides());
      result.copy_(inputs[0]);
      at::Tensor slice =
          result.as_strided_symint(view.sym_sizes(), view.sym_strides(),
                                   view.sym_storage_offset() - base.sym_storage_offset());
      return variable_list{result, slice, slice.clone(at::MemoryFormat::Contiguous)};
    });
  }

  variable_list call_copy_slices_epilogue(PyObject*, const std::vector<bool>& is_needed,
                                          const at::Tensor& result, const variable_list& gradients,
                                          const at::Tensor& slice) const override {
    return without_throwing(variable_list(is_needed.size()), [&] {
      variable_list outputs(is_needed.size());
      for (size_t i = 0; i < is_needed.size(); ++i) {
        if (!is_needed[i] || !gradients[i].defined()) continue;
        if (i == 0) slice.copy_(gradients[i]);
        outputs[i] = i == 0 ? result : gradients[i];
      }
      return outputs;
    });
  }
};

}  // namespace

NodeCalls::NodeCalls()
    : lock_(compiler_interface_mutex()), installed_(std::make_unique<DirectCalls>()) {}

void NodeCalls::clear_problem() {
  problem = nullptr;
}

void NodeCalls::rethrow_problem() {
  if (problem) std::rethrow_exception(std::exchange(problem, nullptr));
}

}  // namespace ahead::engine
