#include "support/eager.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include <iomanip>
#include <limits>
#include <sstream>

#include "ahead/backend.h"
#include "ahead/subclass.h"

namespace ahead {
namespace {

/// Tests look at bits, which are eager's with the interpreter, unless another backend is named.
/// This runs before static objects are made, some of which are options.
[[gnu::constructor(101)]] void name_backend() {
  setenv("AHEAD_BACKEND", "interpreter", /*overwrite=*/0);
}

struct Identity : torch::autograd::Function<Identity> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& leaf) {
    return at::empty({0}, leaf.options())
        .set_(leaf.storage(), leaf.storage_offset(), leaf.sizes(), leaf.strides());
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*,
                                               torch::autograd::tensor_list gradients) {
    return gradients;
  }
};

/// Complex numbers as pairs.
at::Tensor as_plain(const at::Tensor& tensor) {
  const at::Tensor strided = tensor.detach();
  const at::Tensor dense = strided.layout() == at::kStrided ? strided : strided.to_dense();
  const at::Tensor plain = dense.resolve_conj().resolve_neg().contiguous();
  return plain.is_complex() ? at::view_as_real(plain) : plain;
}

/// All NaNs made equal and the rest as integers, so that `equal` compares bits.
at::Tensor as_bits(const at::Tensor& tensor) {
  at::Tensor plain = as_plain(tensor);
  if (!plain.is_floating_point()) return plain;
  plain = plain.masked_fill(plain.isnan(), std::numeric_limits<double>::quiet_NaN());
  const auto integer = plain.element_size() == 2   ? at::kShort
                       : plain.element_size() == 4 ? at::kInt
                                                   : at::kLong;
  return plain.view(integer);
}

std::string describe(const at::Tensor& tensor, CompareLayout layout) {
  if (!tensor.defined()) return "undefined";
  const at::Tensor detached = tensor.detach();
  if (detached.layout() != at::kStrided)
    return c10::str(detached.layout(), " ", detached.scalar_type(), detached.sizes());
  TensorMeta meta = TensorMeta::of(detached);
  if (layout == CompareLayout::Meaningful) return meaningful(std::move(meta)).str();
  meta.offset = 0;
  return meta.str() + (detached.is_conj() ? " conj" : "") + (detached.is_neg() ? " neg" : "");
}

bool is_wrapper(const at::Tensor& tensor) {
  return tensor.defined() && inside_of(tensor) != nullptr;
}

std::string class_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return is_wrapper(tensor) ? inside_of(tensor)->wrapper_class().name : "a plain tensor";
}

/// Without the strides that mean nothing.
WrapperLook meaningful_look(const at::Tensor& tensor) {
  WrapperLook look = WrapperLook::of(tensor);
  for (size_t dim = 0; dim < look.sizes.size(); ++dim) {
    if (look.sizes[dim] <= 1 || tensor.numel() == 0) look.strides[dim] = 1;
  }
  return look;
}

/// Of two tensors at least one of which is a wrapper.
std::string wrapper_difference(const at::Tensor& expected, const at::Tensor& actual,
                               CompareLayout layout) {
  if (class_of(expected) != class_of(actual))
    return "expected " + class_of(expected) + ", got " + class_of(actual);
  if (meaningful_look(expected) != meaningful_look(actual)) return "the wrapper looks otherwise";
  const auto left = inside_of(expected)->flatten().inner,
             right = inside_of(actual)->flatten().inner;
  for (size_t i = 0; i < left.size(); ++i) {
    const std::string difference = tensor_difference(left[i], right[i], layout);
    if (!difference.empty()) return "inner tensor " + std::to_string(i) + ": " + difference;
  }
  return "";
}

/// Names the first element that differs.
std::string first_difference(const at::Tensor& expected, const at::Tensor& actual) {
  const at::Tensor differs = at::ne(as_bits(expected), as_bits(actual)).flatten();
  const auto first = differs.to(at::kByte).argmax().item<int64_t>();
  const auto element = [&](const at::Tensor& tensor) {
    std::ostringstream text;
    text << std::setprecision(17) << as_plain(tensor).reshape(-1)[first].item().to<double>();
    return text.str();
  };
  return c10::str(differs.sum().item<int64_t>(), " of ", differs.numel(),
                  " elements differ; the first, at ", first, ", is ", element(actual),
                  " instead of ", element(expected));
}

/// Views of what was written to get their history when they are asked for it; some have none that
/// could be made.
const void* history_of(const at::Tensor& tensor) {
  try {
    return tensor.grad_fn().get();
  } catch (const std::exception&) {
    return nullptr;
  }
}

at::Tensor bytes_of(const at::Tensor& tensor) {
  if (tensor.is_meta() || !tensor.has_storage()) return {};
  at::NoGradGuard no_grad;
  return at::empty({0}, tensor.options().dtype(at::kByte)).set_(tensor.storage()).clone();
}

size_t count_hooks(const at::Tensor& tensor) {
  namespace impl = torch::autograd::impl;
  if (!tensor.requires_grad()) return 0;
  const auto node = tensor.is_leaf() ? impl::grad_accumulator(tensor) : tensor.grad_fn();
  return impl::hooks(tensor).size() + node->tensor_pre_hooks().size() + node->pre_hooks().size() +
         node->post_hooks().size();
}

}  // namespace

at::Tensor leaf(at::IntArrayRef sizes) {
  return at::randn(sizes).set_requires_grad(true);
}

at::Tensor as_non_leaf(const at::Tensor& leaf) {
  return Identity::apply(leaf);
}

std::vector<at::Tensor> plain_tensors(const at::Tensor& tensor) {
  const auto inside = tensor.defined() ? inside_of(tensor) : nullptr;
  if (inside == nullptr) return {tensor};
  std::vector<at::Tensor> plain;
  for (const at::Tensor& inner : inside->flatten().inner) {
    const std::vector<at::Tensor> more = plain_tensors(inner);
    plain.insert(plain.end(), more.begin(), more.end());
  }
  return plain;
}

at::Tensor random_tangent(at::Tensor empty, uint64_t seed) {
  if (inside_of(empty) != nullptr) {
    for (const at::Tensor& plain : plain_tensors(empty)) random_tangent(plain, seed++);
    return empty;
  }
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto wide = empty.is_complex() ? at::kComplexDouble : at::kDouble;
  return empty.copy_(at::randn(empty.sizes(), generator, wide));
}

at::Tensor random_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

std::string error_of(const std::function<void()>& action) {
  std::string text;
  try {
    action();
    return "";
  } catch (const c10::Error& error) {
    text = error.what_without_backtrace();
  } catch (const std::exception& error) {
    text = error.what();
  }
  return text.empty() ? "unknown" : text;
}

bool same_bits(const at::Tensor& expected, const at::Tensor& actual) {
  return at::equal(as_bits(expected), as_bits(actual));
}

double default_rounding() {
  static const double rounding = default_backend() == "native" ? kernel_rounding : 0;
  return rounding;
}

bool same_values(const at::Tensor& expected, const at::Tensor& actual, double rounding) {
  if (expected.sizes() != actual.sizes() || expected.dtype() != actual.dtype()) return false;
  if (rounding == 0 || !(expected.is_floating_point() || expected.is_complex()))
    return at::equal(as_plain(expected), as_plain(actual));
  if (expected.numel() == 0) return true;
  const at::Tensor exact = as_plain(expected).to(at::kDouble),
                   other = as_plain(actual).to(at::kDouble);
  const at::ScalarType type = expected.scalar_type();
  // What is float64 may come from a float32.
  const double relative = type == at::kHalf       ? 4 * 0x1p-10
                          : type == at::kBFloat16 ? 4 * 0x1p-7
                                                  : rounding * 0x1p-23;
  const double largest = exact.abs().nan_to_num(0, 0, 0).max().item<double>();
  const double absolute = relative * std::max(largest, 1.0);
  return at::allclose(exact, other, relative, absolute, /*equal_nan=*/true);
}

TensorMeta meaningful(TensorMeta meta) {
  for (size_t dim = 0; dim < meta.sizes.size(); ++dim) {
    if (meta.sizes[dim].fixed() <= 1 || meta.numel() == 0) meta.strides[dim] = 1;
  }
  return meta;
}

std::string layout_difference(const at::Tensor& expected, const at::Tensor& actual,
                              CompareLayout layout) {
  const std::string is = describe(actual, layout), should_be = describe(expected, layout);
  return is == should_be ? "" : "expected " + should_be + ", got " + is;
}

std::string tensor_difference(const at::Tensor& expected, const at::Tensor& actual,
                              CompareLayout layout, double rounding) {
  if (is_wrapper(expected) || is_wrapper(actual))
    return wrapper_difference(expected, actual, layout);
  const std::string otherwise = layout_difference(expected, actual, layout);
  if (!otherwise.empty()) return otherwise;
  if (!expected.defined() || expected.is_meta() || same_bits(expected, actual)) return "";
  if (rounding != 0 && same_values(expected, actual, rounding)) return "";
  return describe(actual, layout) + ": " + first_difference(expected, actual);
}

TensorFlags::TensorFlags(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  history_of(tensor);
  requires_grad = tensor.requires_grad();
  is_leaf = tensor.is_leaf();
  is_inference = tensor.is_inference();
  if (!is_inference) version = tensor._version();
}

std::vector<Difference> flag_differences(const TensorFlags& expected, const TensorFlags& actual,
                                         bool versions) {
  std::vector<Difference> found;
  const auto compare = [&](const char* what, int64_t eager, int64_t other) {
    if (eager != other) found.push_back({what, c10::str("expected ", eager, ", got ", other)});
  };
  compare("requires_grad", expected.requires_grad, actual.requires_grad);
  compare("is_leaf", expected.is_leaf, actual.is_leaf);
  compare("is_inference", expected.is_inference, actual.is_inference);
  const bool have_versions = !expected.is_inference && !actual.is_inference;
  if (versions && have_versions) compare("version", expected.version, actual.version);
  return found;
}

void expect_same(const std::vector<at::Tensor>& expected, const std::vector<at::Tensor>& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(tensor_difference(expected[i], actual[i]), "") << i;
    EXPECT_EQ(expected[i].defined() && expected[i].requires_grad(),
              actual[i].defined() && actual[i].requires_grad())
        << i;
  }
}

TensorSnapshot::TensorSnapshot(const at::Tensor& tensor)
    : memory_(bytes_of(tensor)),
      meta_(TensorMeta::of(tensor)),
      flags_(tensor),
      grad_fn_(history_of(tensor)),
      grad_(tensor.is_leaf() ? tensor.grad() : at::Tensor()),
      num_hooks_(count_hooks(tensor)) {}

std::string TensorSnapshot::difference(const TensorSnapshot& now) const {
  if (memory_.defined() && !at::equal(memory_, now.memory_)) return "contents";
  if (!(meta_ == now.meta_)) return "metadata";
  for (const Difference& flag : flag_differences(flags_, now.flags_, /*versions=*/true))
    return flag.what;
  if (grad_fn_ != now.grad_fn_) return "grad_fn";
  if (!grad_.is_same(now.grad_)) return ".grad";
  return num_hooks_ == now.num_hooks_ ? "" : "hooks";
}

}  // namespace ahead
