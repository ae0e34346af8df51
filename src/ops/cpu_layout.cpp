#include "ops/cpu_layout.h"

#include <ATen/native/TypeProperties.h>

#include <string>
#include <unordered_set>

#include "ops/shapes/make.h"

namespace ahead::ops {
namespace {

bool is_comparison(const std::string& name) {
  static const auto* names = new std::unordered_set<std::string>{
      "aten::eq", "aten::ne",          "aten::lt",         "aten::le",         "aten::gt",
      "aten::ge", "aten::logical_and", "aten::logical_or", "aten::logical_xor"};
  return names->count(name) != 0;
}

// Arithmetic returns the common dtype; comparisons return truth values. A number takes part if it
// is the other operand, not if it is a factor such as alpha.
at::ScalarType common_type(const c10::FunctionSchema& schema,
                           const std::vector<c10::IValue>& arguments, const at::Tensor& result) {
  if (!is_comparison(schema.name())) return result.scalar_type();
  at::native::ResultTypeState state;
  size_t operands = 0;
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor() && argument.toTensor().defined()) {
      state = at::native::update_result_type_state(argument.toTensor(), state);
      ++operands;
    } else if (argument.isScalar() && operands < 2) {
      state = at::native::update_result_type_state(argument.toScalar(), state);
      ++operands;
    }
  }
  return at::native::result_type(state);
}

bool is_mask(const c10::Argument& argument) {
  return argument.name() == "mask";
}

}  // namespace

bool pack_converted_operands(const c10::FunctionSchema& schema, std::vector<c10::IValue>& arguments,
                             const at::Tensor& result) {
  const at::ScalarType common = common_type(schema, arguments, result);
  bool packed = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].isTensor() || !arguments[i].toTensor().defined()) continue;
    const at::Tensor& operand = arguments[i].toTensor();
    if (operand.scalar_type() == common || operand.is_non_overlapping_and_dense()) continue;
    if (!c10::canCast(operand.scalar_type(), common) || is_mask(schema.arguments()[i])) continue;
    arguments[i] = shapes::make_like(operand, common);
    packed = true;
  }
  return packed;
}

}  // namespace ahead::ops
