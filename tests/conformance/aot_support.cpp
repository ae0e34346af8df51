#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace {

template <class Slots>
std::string joined(const Slots& slots) {
  std::string text;
  for (const auto& entry : slots) text += (text.empty() ? "" : ", ") + entry.slot.str();
  return text;
}

}  // namespace

Tensors with_grad(const Tensors& inputs) {
  Tensors copies;
  for (const at::Tensor& input : inputs) {
    const bool can = at::isFloatingType(input.scalar_type()) || input.is_complex();
    copies.push_back(input.detach().clone().set_requires_grad(can));
  }
  return copies;
}

void expect_with_and_without_grad(const aot::FlatFunction& function, const Tensors& inputs,
                                  CompiledCheck check) {
  {
    SCOPED_TRACE("without grad");
    expect_compiled_like_eager(function, inputs, check);
  }
  SCOPED_TRACE("with grad");
  check.non_leaf_inputs = true;
  expect_compiled_like_eager(function, with_grad(inputs), check);
}

std::string input_slots(const Graph& graph) {
  return joined(graph.inputs());
}

std::string output_slots(const Graph& graph) {
  return joined(graph.outputs());
}

Compiled<aot::FlatFunction> compiled_once(const aot::FlatFunction& function, const Tensors& inputs,
                                          Options options) {
  auto compiled = compile(function, std::move(options));
  compiled(inputs);
  return compiled;
}

}  // namespace ahead::conformance
