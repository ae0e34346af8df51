#include "native/rule_cases.h"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "native/build/kernel_library.h"
#include "native/build/target.h"
#include "native/launch/kernel_call.h"
#include "native/lower/lower.h"
#include "native/lower/nest.h"
#include "native/lower/strict.h"
#include "native/print/print_kernel.h"
#include "support/eager.h"
#include "tensors/unit_in_last_place.h"

namespace ahead::native::test {
namespace {

using Tensors = std::vector<at::Tensor>;

const c10::FunctionSchema& schema_of(const std::string& op) {
  return Operator::find(op)->schema();
}

bool is_number(const c10::IValue& value) {
  return value.isInt() || value.isDouble() || value.isBool();
}

/// All arguments of a call.
std::vector<c10::IValue> all_arguments(const RuleCase& from) {
  std::vector<c10::IValue> args = from.args;
  const auto& expected = schema_of(from.op).arguments();
  while (args.size() < expected.size())
    args.push_back(expected[args.size()].default_value().value_or(c10::IValue()));
  return args;
}

/// What ATen gives; an undefined tensor where it gives none.
Tensors call(const RuleCase& from, std::vector<c10::IValue> stack) {
  for (size_t i = 0; i < stack.size(); ++i) {
    const bool is_tensor =
        schema_of(from.op).arguments()[i].type()->kind() == c10::TensorType::Kind;
    if (!is_tensor || !is_number(stack[i])) continue;
    at::Tensor wrapped = at::scalar_tensor(stack[i].toScalar(), stack[i].isInt()    ? at::kLong
                                                                : stack[i].isBool() ? at::kBool
                                                                                    : at::kDouble);
    wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
    stack[i] = wrapped;
  }
  Operator::find(from.op)->handle().callBoxed(&stack);
  Tensors results;
  for (const c10::IValue& value : stack) results.push_back(value.toTensor());
  return results;
}

double least_normal(at::ScalarType dtype) {
  return dtype == at::kDouble ? std::numeric_limits<double>::min()
         : dtype == at::kHalf ? 0x1p-14
                              : std::numeric_limits<float>::min();
}

/// The magnitudes of numbers, of which those that are none or infinite do not count.
at::Tensor magnitudes(const at::Tensor& numbers) {
  return numbers.to(at::kDouble).abs().nan_to_num(0, 0, 0);
}

/// What the tolerance of a result is relative to.
at::Tensor scale_of(const RuleCase& from, const RuleGraph& graph, size_t result) {
  at::Tensor scale = magnitudes(graph.expected[result]);
  if (from.against == Against::Operands) {
    for (const at::Tensor& input : graph.inputs) scale = scale + magnitudes(input);
    for (const c10::IValue& arg : from.args)
      if (is_number(arg)) scale = scale + std::fabs(arg.toScalar().toDouble());
  } else if (from.against == Against::Largest) {
    double largest = scale.max().item<double>();
    for (const at::Tensor& input : graph.inputs)
      largest = std::max(largest, magnitudes(input).max().item<double>());
    scale = at::full_like(scale, largest);
  } else if (from.against == Against::Magnitudes) {
    std::vector<c10::IValue> args = all_arguments(from);
    for (c10::IValue& arg : args)
      if (arg.isTensor() && arg.toTensor().is_floating_point())
        arg = magnitudes(arg.toTensor()).to(arg.toTensor().scalar_type());
    scale = magnitudes(call(from, args)[result]);
  }
  return scale;
}

/// Says at which position two numbers differ, and which they are.
std::string at_position(const at::Tensor& wrong, const at::Tensor& expected,
                        const at::Tensor& actual, const Tensors& inputs) {
  const int64_t at = wrong.reshape(-1).nonzero()[0].item<int64_t>();
  std::ostringstream text;
  text.precision(17);
  const auto number_in = [&](const at::Tensor& tensor) {
    return tensor.reshape(-1)[at].to(at::kDouble).item<double>();
  };
  text << "element " << at << " (" << wrong.sum().item<int64_t>() << " of " << wrong.numel()
       << " differ): " << number_in(actual) << ", by ATen " << number_in(expected) << ", of";
  for (const at::Tensor& input : inputs) {
    if (at::is_expandable_to(input.sizes(), expected.sizes()))
      text << " " << number_in(input.expand(expected.sizes()));
  }
  return text.str();
}

bool has_loops(const Graph& graph) {
  Nests nests(graph);
  std::string reason;
  const Member* member = nests.member(graph.first());
  return member != nullptr && nests.join({member}, &reason).has_value();
}

/// Results are the same to the bit where arguments are given away, to be written over.
void expect_same_in_place(const KernelCall& run, const Tensors& inputs, const Tensors& expected) {
  Tensors given;
  for (const at::Tensor& input : inputs) {
    given.push_back(input.clone(at::MemoryFormat::Preserve));
    if (given.back().strides() != input.strides()) given.back() = input;  // expanded
  }
  const Tensors actual = run(std::move(given), std::vector<bool>(inputs.size(), true));
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i].strides(), expected[i].strides());
    EXPECT_TRUE(ahead::same_bits(expected[i], actual[i])) << "result " << i << ", in place";
  }
}

}  // namespace

std::string RuleCase::str() const {
  std::ostringstream text;
  text << op << "(";
  for (const c10::IValue& arg : args) {
    if (arg.isTensor()) {
      text << (arg.toTensor().defined() ? TensorMeta::of(arg.toTensor()).str() : "none") << ", ";
    } else {
      text << arg << ", ";
    }
  }
  return text.str() + ")";
}

RuleGraph::RuleGraph(const RuleCase& from) {
  std::vector<Argument> args;
  const std::vector<c10::IValue> values = all_arguments(from);
  for (const c10::IValue& value : values) {
    if (!value.isTensor()) {
      args.emplace_back(value);
      continue;
    }
    const Slot slot{Slot::Kind::Primal, static_cast<int32_t>(inputs.size())};
    inputs.push_back(value.toTensor());
    args.emplace_back(graph.add_input(slot, TensorMeta::of(inputs.back())));
  }
  expected = call(from, values);
  Node* node = graph.add_node(*Operator::find(from.op), std::move(args));
  int32_t index = 0;
  for (const at::Tensor& result : expected) {
    std::optional<TensorMeta> meta;
    if (result.defined()) meta = TensorMeta::of(result);
    Value* value = graph.add_return(node, meta);
    if (value != nullptr) graph.add_output(value, {Slot::Kind::Output, index++});
  }
  expected.erase(std::remove_if(expected.begin(), expected.end(),
                                [](const at::Tensor& result) { return !result.defined(); }),
                 expected.end());
}

std::string difference(const RuleCase& from, const RuleGraph& graph, const Tensors& actual) {
  if (actual.size() != graph.expected.size()) return "another number of results";
  for (size_t i = 0; i < actual.size(); ++i) {
    const at::Tensor &expected = graph.expected[i], &result = actual[i];
    if (TensorMeta::of(expected) != TensorMeta::of(result))
      return "result " + std::to_string(i) + " is " + TensorMeta::of(result).str() + ", by ATen " +
             TensorMeta::of(expected).str();
    const at::Tensor are_nan = at::isnan(expected) & at::isnan(result);
    at::Tensor right = (expected == result) | are_nan;
    if (from.against != Against::Exact && expected.is_floating_point()) {
      const double ulps = from.ulps * unit_in_last_place(expected.scalar_type());
      const at::Tensor bound =
          scale_of(from, graph, i) * ulps + 4 * least_normal(expected.scalar_type());
      const at::Tensor off = (expected.to(at::kDouble) - result.to(at::kDouble)).abs();
      right = right | (off <= bound);
    }
    const at::Tensor wrong = ~right;
    if (wrong.any().item<bool>())
      return "result " + std::to_string(i) + ", " +
             at_position(wrong, expected, result, graph.inputs);
  }
  return "";
}

namespace {

/// A case that a kernel computes.
struct Checked {
  const RuleCase* from;
  std::unique_ptr<RuleGraph> graph;
  Kernel kernel;
  PrintedKernel printed;
};

/// The cases that have loops, and their kernels.
std::vector<Checked> lower_all(const std::vector<RuleCase>& cases, bool strict) {
  std::vector<Checked> taken;
  for (const RuleCase& from : cases) {
    SCOPED_TRACE(from.str());
    std::unique_ptr<RuleGraph> graph;
    EXPECT_NO_THROW(graph = std::make_unique<RuleGraph>(from));
    if (graph == nullptr) continue;
    const Node& node = *graph->graph.first();
    EXPECT_EQ(work_of(node).has_value(), from.taken);
    EXPECT_TRUE(!strict || has_exact_rule(node));
    if (!has_loops(graph->graph)) continue;
    Kernel kernel = lower(graph->graph, strict);
    PrintedKernel printed = print_kernel(kernel, host_target().vector_bytes);
    taken.push_back({&from, std::move(graph), std::move(kernel), std::move(printed)});
  }
  return taken;
}

template <class Check>
size_t check_all(const std::vector<RuleCase>& cases, bool strict, const Check& check) {
  std::vector<Checked> taken = lower_all(cases, strict);
  std::vector<KernelSource> sources;
  for (const Checked& one : taken)
    sources.push_back({one.printed.name, one.printed.text, one.printed.lanes});
  const std::vector<KernelAddress> addresses = build_kernels(sources);
  for (size_t i = 0; i < taken.size(); ++i) {
    auto& [from, graph, kernel, printed] = taken[i];
    SCOPED_TRACE(from->str());
    if (addresses[i] == nullptr) {
      ADD_FAILURE() << "does not compile\n" << printed.text;
      continue;
    }
    const std::string text = kernel.str();
    const KernelCall run(graph->graph, std::move(kernel), std::move(printed), addresses[i]);
    const Tensors actual = run(Tensors(graph->inputs), std::vector<bool>(graph->inputs.size()));
    EXPECT_EQ(check(*from, *graph, actual), "") << text;
    expect_same_in_place(run, graph->inputs, actual);
  }
  return taken.size();
}

std::string difference_in_bits(const RuleGraph& graph, const Tensors& actual) {
  for (size_t i = 0; i < actual.size(); ++i) {
    const at::Tensor &expected = graph.expected[i], &result = actual[i];
    if (TensorMeta::of(expected) != TensorMeta::of(result)) return "another layout";
    if (ahead::same_bits(expected, result)) continue;
    const at::Tensor are_nan = at::isnan(expected) & at::isnan(result);
    const at::Tensor same_sign = at::signbit(expected) == at::signbit(result);
    const at::Tensor wrong = ~(((expected == result) & same_sign) | are_nan);
    return at_position(wrong, expected, result, graph.inputs);
  }
  return "";
}

}  // namespace

size_t check_rules(const std::vector<RuleCase>& cases) {
  return check_all(cases, /*strict=*/false, difference);
}

size_t check_exact_rules(const std::vector<RuleCase>& cases) {
  return check_all(cases, /*strict=*/true,
                   [](const RuleCase&, const RuleGraph& graph, const Tensors& actual) {
                     return difference_in_bits(graph, actual);
                   });
}

}  // namespace ahead::native::test
