#include "subclass/wrapped_check.h"

namespace ahead::wrapped {

int64_t Tagged::calls = 0;

at::Tensor Tagged::make(at::Tensor inner, int64_t tag) {
  const WrapperLook look = WrapperLook::of(inner);
  return wrap(std::make_shared<const Tagged>(std::move(inner), tag), look);
}

void append_plain(const at::Tensor& tensor, Tensors& plain) {
  const auto inside = inside_of(tensor);
  if (inside == nullptr) return plain.push_back(tensor);
  for (const at::Tensor& inner : inside->flatten().inner) append_plain(inner, plain);
}

std::string classes_of(const at::Tensor& tensor) {
  const auto inside = inside_of(tensor);
  if (inside == nullptr) return tensor.defined() ? "Tensor" : "undefined";
  const WrapperParts parts = inside->flatten();
  std::string text = inside->wrapper_class().name + "(";
  for (const at::Tensor& inner : parts.inner) text += classes_of(inner) + ",";
  if (parts.metadata.isInt()) text += std::to_string(parts.metadata.toInt());
  return text + ")";
}

std::string difference(const at::Tensor& expected, const at::Tensor& actual) {
  const std::string classes = classes_of(expected);
  if (classes != classes_of(actual)) return classes + " against " + classes_of(actual);
  if (!expected.defined()) return "";
  if (expected.requires_grad() != actual.requires_grad()) return "requires_grad";
  if (expected.is_leaf() != actual.is_leaf()) return "is_leaf";
  if (inside_of(expected) != nullptr && WrapperLook::of(expected) != WrapperLook::of(actual))
    return "look";
  Tensors left, right;
  append_plain(expected, left);
  append_plain(actual, right);
  for (size_t i = 0; i < left.size(); ++i) {
    const std::string found = tensor_difference(left[i].detach(), right[i].detach());
    if (!found.empty()) return "inner tensor " + std::to_string(i) + ": " + found;
  }
  return "";
}

Outcome run(const Function& function, const Tensors& arguments) {
  Outcome outcome{arguments, function(arguments), {}};
  Tensors roots, tangents;
  torch::manual_seed(7);
  for (const at::Tensor& result : outcome.results) {
    if (!result.requires_grad()) continue;
    roots.push_back(result);
    tangents.push_back(at::randn_like(result.detach()));
  }
  if (!roots.empty()) torch::autograd::backward(roots, tangents);
  for (const at::Tensor& argument : arguments)
    outcome.grads.push_back(argument.is_leaf() ? argument.grad() : at::Tensor());
  return outcome;
}

namespace {

void compare(const char* what, const Tensors& expected, const Tensors& actual) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(difference(expected[i], actual[i]), "") << what << " " << i;
}

}  // namespace

void expect_same_outcome(const Outcome& expected, const Outcome& actual) {
  compare("result", expected.results, actual.results);
  compare("argument", expected.arguments, actual.arguments);
  compare("gradient", expected.grads, actual.grads);
  for (size_t i = 0; i < expected.arguments.size(); ++i)
    EXPECT_EQ(expected.arguments[i]._version(), actual.arguments[i]._version()) << i;
}

CompileStats check(const Function& function, const std::function<Tensors()>& make_arguments,
                   Options options) {
  options.backend = "interpreter";
  options.fullgraph = true;
  auto compiled = ahead::compile(function, options);
  for (int call = 0; call < 6; ++call) {
    SCOPED_TRACE("call " + std::to_string(call));
    torch::manual_seed(call);
    const Outcome expected = run(function, make_arguments());
    torch::manual_seed(call);
    const Outcome actual =
        run([&](const Tensors& args) { return compiled(args); }, make_arguments());
    expect_same_outcome(expected, actual);
  }
  const CompileStats stats = compiled.stats();
  EXPECT_EQ(stats.eager_calls, 0U);
  EXPECT_GE(stats.cache_hits, 3U);
  return stats;
}

at::Tensor two(at::IntArrayRef sizes, bool requires_grad) {
  return TwoTensor::make(at::randn(sizes), at::randn(sizes)).requires_grad_(requires_grad);
}

}  // namespace ahead::wrapped
