#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "ahead/two_tensor.h"
#include "ops/sample.h"
#include "support/eager.h"
#include "support/fuzzing.h"

/// The samples with TwoTensor arguments, eagerly: they must do what two plain calls do.
namespace ahead::samples {
namespace wrappers_test {

/// What one call and its backward left.
struct Outcome {
  Tensors results, arguments, gradients;
};

Outcome run(const Sample& sample, const Tensors& leaves) {
  Tensors arguments, roots, tangents;
  for (const at::Tensor& leaf : leaves)
    arguments.push_back(leaf.requires_grad() ? leaf.view_as(leaf).clone() : leaf);
  Outcome outcome{sample.make_function()(arguments), arguments, {}};
  for (const at::Tensor& result : outcome.results) {
    if (!result.defined() || !result.requires_grad() || result.is_complex()) continue;
    roots.push_back(result);
    tangents.push_back(at::ones_like(result.detach()));
  }
  if (!roots.empty() && sample.differentiable) torch::autograd::backward(roots, tangents);
  for (const at::Tensor& leaf : leaves) outcome.gradients.push_back(leaf.grad());
  return outcome;
}

std::string difference(const char* what, const Tensors& first, const Tensors& second,
                       const Tensors& wrapped) {
  if (first.size() != wrapped.size()) return std::string(what) + ": another number";
  for (size_t i = 0; i < first.size(); ++i) {
    const Tensors parts = plain_tensors(wrapped[i].defined() ? wrapped[i].detach() : wrapped[i]);
    const auto compare = [](const at::Tensor& x, const at::Tensor& y) {
      if (!x.defined() || !y.defined()) return x.defined() == y.defined();
      if (x.sizes() != y.sizes() || x.dtype() != y.dtype()) return false;
      // Some kernels round by where operands lie in memory.
      return same_bits(x.detach(), y.detach()) ||
             (!at::isIntegralType(x.scalar_type(), /*includeBool=*/true) &&
              at::allclose(x.detach(), y.detach(), 1e-3, 1e-4, /*equal_nan=*/true));
    };
    if (!compare(first[i], parts.front()) || !compare(second[i], parts.back()))
      return c10::str(what, " ", i, " differs");
  }
  return "";
}

bool share_memory(const Tensors& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (size_t k = 0; k < i; ++k)
      if (tensors[i].is_alias_of(tensors[k])) return true;
  }
  return false;
}

/// What differs, or what is thrown; empty: nothing. Samples that cannot be run twice are left out.
std::string problem(const Sample& sample) {
  const Tensors first = sample.make_arguments(), second = sample.make_arguments();
  const auto is_plain = [](const at::Tensor& x) {
    return x.defined() && x.layout() == at::kStrided && !x.is_quantized() && x.is_leaf();
  };
  if (sample.random || sample.reads_values || first.empty() || share_memory(first)) return "";
  if (!std::all_of(first.begin(), first.end(), is_plain)) return "";
  Tensors wrapped;
  for (size_t i = 0; i < first.size(); ++i) {
    const at::NoGradGuard no_grad;
    if (second[i].is_floating_point() && second[i].is_non_overlapping_and_dense())
      second[i].mul_(0.5);
    wrapped.push_back(TwoTensor::make(first[i].clone(), second[i].clone()));
    const bool is_differentiated = sample.differentiable && first[i].is_floating_point();
    for (const at::Tensor& leaf : {first[i], second[i], wrapped[i]})
      leaf.set_requires_grad(is_differentiated);
  }
  Outcome a, b;
  if (!error_of([&] { a = run(sample, first), b = run(sample, second); }).empty()) return "";
  Outcome both;
  const std::string error = error_of([&] { both = run(sample, wrapped); });
  if (!error.empty()) return error.substr(0, error.find('\n'));
  for (const auto& [what, member] : {std::pair{"result", &Outcome::results},
                                     {"argument", &Outcome::arguments},
                                     {"gradient", &Outcome::gradients}}) {
    const std::string text = difference(what, a.*member, b.*member, both.*member);
    if (!text.empty()) return text;
  }
  return "";
}

/// Refusals that say what to do instead, of what wrappers do not have.
bool is_refusal(const std::string& text) {
  return text.find("Metadata mutations are currently not allowed on tensor subclasses") !=
             std::string::npos ||
         text.find("to a tensor that is none") != std::string::npos;
}

/// Operators some samples of which differ, and why.
std::map<std::string, std::string> known_differences() {
  std::map<std::string, std::string> known = {
      {"aten._embedding_bag_forward_only", "a result without meaning is left as it was allocated"},
      {"aten.native_channel_shuffle", "the kernel needs memory without gaps"},
      {"aten.prod",
       "the gradient's formula does not look for zeros in wrappers: bf16 rounds otherwise"},
      {"aten.resolve_neg", "lazy bits are those of the tensors inside"}};
  if (TORCH_VERSION_MINOR < 13) {
    known["aten.cumprod"] = "the gradient's formula: bf16 and f16 round otherwise";
    known["aten._grid_sampler_2d_cpu_fallback"] = "the operator reads memory itself";
  }
  return known;
}

/// Of each operator; some have thousands.
constexpr size_t most_samples = 100;

TEST(Wrappers, DoWhatTwoPlainCallsDo) {
  const test::QuietWarnings quiet;
  at::set_num_threads(1);
  const std::map<std::string, std::string> known = known_differences();
  std::set<std::string> differing;
  for (const SampleTable::Op& op : sample_table().ops()) {
    for (size_t i = 0; i < std::min(op.samples.size(), most_samples); ++i) {
      const Sample& sample = op.samples[i];
      const std::string text = problem(sample);
      if (text.empty() || is_refusal(text)) continue;
      differing.insert(op.name);
      EXPECT_EQ(known.count(op.name), 1U) << op.name << " (" << sample.label << "): " << text;
    }
  }
  for (const auto& [name, why] : known) EXPECT_EQ(differing.count(name), 1U) << name << ": " << why;
}

}  // namespace wrappers_test
}  // namespace ahead::samples
