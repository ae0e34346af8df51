#include "ir/signature.h"

#include <ATen/core/jit_type.h>

#include "ir/constants.h"

namespace ahead {
namespace {

std::string count_of(size_t count, const char* thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

std::string describe(const Argument& argument) {
  if (argument.is_value()) return argument.value() == nullptr ? "a null value" : "a tensor";
  if (argument.is_list()) return "a list of tensors";
  if (argument.is_graph()) return "a graph";
  std::string text = "the constant ";
  append_constant(text, argument.constant(), nullptr);
  return text;
}

bool fits_tensor(const c10::Type& type, const Argument& argument) {
  if (argument.is_value()) return argument.value() != nullptr;
  return argument.is_constant() && accepts_constant(type, argument.constant());
}

bool fits_tensor_list(const c10::Type& type, const Argument& argument) {
  if (argument.is_constant()) {
    return argument.constant().isNone() && type.kind() == c10::TypeKind::OptionalType;
  }
  if (!argument.is_list()) return false;
  const auto& element = *without_optional(type).castRaw<c10::ListType>()->getElementType();
  for (const Argument& item : argument.list()) {
    if (!fits_tensor(element, item)) return false;
  }
  return true;
}

bool fits(const c10::Type& type, const Argument& argument) {
  if (is_tensor_type(type)) return fits_tensor(type, argument);
  if (is_tensor_list_type(type)) return fits_tensor_list(type, argument);
  return argument.is_constant() && accepts_constant(type, argument.constant());
}

/// `ahead.call(graph, args…)` takes what its graph takes.
std::string call_arguments_problem(const Node& node) {
  if (node.args().empty() || !node.args()[0].is_graph() || node.args()[0].graph() == nullptr) {
    return "its first argument must be a graph";
  }
  const auto& inputs = node.args()[0].graph()->inputs();
  const size_t given = node.args().size() - 1;
  if (given != inputs.size()) {
    return "its graph has " + count_of(inputs.size(), "input") + ", but " + std::to_string(given) +
           (given == 1 ? " is given" : " are given");
  }
  for (size_t i = 0; i < given; ++i) {
    const Argument& argument = node.args()[i + 1];
    if (!argument.is_value() || argument.value() == nullptr) {
      return "argument " + std::to_string(i + 1) + " must be a value, not " + describe(argument);
    }
  }
  return {};
}

std::string call_results_problem(const Node& node) {
  const auto& outputs = node.args()[0].graph()->outputs();
  for (int32_t length : node.return_lengths()) {
    if (length != -1) return "a graph returns no lists";
  }
  if (node.results().size() != outputs.size()) {
    return "its graph has " + count_of(outputs.size(), "output") + ", the node " +
           count_of(node.results().size(), "result");
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if ((outputs[i].value == nullptr) != (node.result(i) == nullptr)) {
      return "result " + std::to_string(i) + " is undefined in either the node or its graph only";
    }
  }
  return {};
}

/// Looks at one of the node's returns, which should be of this type and whose flattened results
/// start at `first`.
std::string return_problem(const Node& node, size_t index, const c10::Type& type, size_t first) {
  const std::string subject = "return " + std::to_string(index);
  const bool is_list = node.return_lengths()[index] >= 0;
  if (is_list != is_tensor_list_type(type)) {
    return subject + " is " + (is_list ? "a list" : "a plain tensor") +
           ", but the operator returns " + type.str();
  }
  if (!is_list && !is_tensor_type(type) && node.result(first) != nullptr) {
    return subject + " is a value, but the operator returns " + type.str() +
           ", which must stand as undefined";
  }
  return {};
}

/// The types of a node's results: the operator's returns, then the arguments it writes to.
c10::SmallVector<const c10::Type*, 4> result_types(const Operator& op) {
  c10::SmallVector<const c10::Type*, 4> types;
  for (const c10::Argument& ret : op.schema().returns()) types.push_back(ret.real_type().get());
  for (size_t i : written_arguments(op)) {
    types.push_back(op.schema().arguments()[i].real_type().get());
  }
  return types;
}

}  // namespace

std::string argument_problem(const c10::Argument& expected, const Argument& argument) {
  if (fits(*expected.real_type(), argument)) return {};
  return "argument '" + expected.name() + "' must be " + expected.real_type()->str() + ", not " +
         describe(argument);
}

std::string arguments_problem(const Node& node) {
  if (!node.op().in_dispatcher()) return call_arguments_problem(node);
  const auto& expected = node.op().schema().arguments();
  if (node.args().size() != expected.size()) {
    return "it takes " + count_of(expected.size(), "argument") + ", the node has " +
           std::to_string(node.args().size());
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    std::string problem = argument_problem(expected[i], node.args()[i]);
    if (!problem.empty()) return problem;
  }
  return {};
}

c10::SmallVector<size_t, 2> written_arguments(const Operator& op) {
  c10::SmallVector<size_t, 2> written;
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite())
      written.push_back(i);
  }
  return written;
}

std::string results_problem(const Node& node) {
  if (!node.op().in_dispatcher()) return call_results_problem(node);
  const auto expected = result_types(node.op());
  const size_t announced = node.return_lengths().size();
  if (announced != expected.size()) {
    return "it returns " + count_of(expected.size(), "value") + ", the node has " +
           std::to_string(announced);
  }
  size_t first = 0;
  for (size_t i = 0; i < announced; ++i) {
    std::string problem = return_problem(node, i, *expected[i], first);
    if (!problem.empty()) return problem;
    first += node.return_lengths()[i] < 0 ? 1 : static_cast<size_t>(node.return_lengths()[i]);
  }
  return {};
}

}  // namespace ahead
