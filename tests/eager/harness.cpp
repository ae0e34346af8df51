#include "eager/harness.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

namespace ahead::test {
namespace {

at::Tensor contents_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  at::NoGradGuard no_grad;
  return tensor.detach().clone();
}

bool are_close(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() &&
         at::allclose(a.to_dense(), b.to_dense(), /*rtol=*/1e-4, /*atol=*/1e-6);
}

bool has_grad(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.is_leaf() || tensor.retains_grad());
}

}  // namespace

void Log::operator()(const std::string& name, const at::Tensor& tensor) {
  add_tensor(name, tensor);
  if (has_grad(tensor)) add_tensor(name + ".grad", tensor.grad());
}

void Log::add_tensor(const std::string& name, const at::Tensor& tensor) {
  items_.push_back({name, "", contents_of(tensor), TensorFlags(tensor)});
  if (!tensor.defined() || !tensor.is_sparse()) return;
  (*this)(name + ": is coalesced", static_cast<double>(tensor.is_coalesced()));
  add_tensor(name + ".indices", tensor._indices());
  add_tensor(name + ".values", tensor._values());
}

void Log::close(const std::string& name, const at::Tensor& tensor) {
  const size_t first = items_.size();
  (*this)(name, tensor);
  for (size_t i = first; i < items_.size(); ++i) items_[i].is_close = true;
}

void Log::close(const std::string& name, const torch::nn::Module& module) {
  const size_t first = items_.size();
  (*this)(name, module);
  for (size_t i = first; i < items_.size(); ++i) items_[i].is_close = true;
}

void Log::operator()(const std::string& name, const std::vector<at::Tensor>& tensors) {
  (*this)(name + ": how many", static_cast<double>(tensors.size()));
  for (size_t i = 0; i < tensors.size(); ++i)
    (*this)(name + "[" + std::to_string(i) + "]", tensors[i]);
}

void Log::operator()(const std::string& name, double number) {
  (*this)(name, at::scalar_tensor(number, at::kDouble));
}

void Log::operator()(const std::string& name, const std::string& text) {
  items_.push_back({name, text});
}

void Log::operator()(const std::string& name, const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) (*this)(name + "." + item.key(), item.value());
  for (const auto& item : module.named_buffers()) (*this)(name + "." + item.key(), item.value());
}

std::string Log::difference(const Log& other) const {
  const size_t common = std::min(items_.size(), other.items_.size());
  for (size_t i = 0; i < common; ++i) {
    const Item &mine = items_[i], &theirs = other.items_[i];
    const std::string where = "item " + std::to_string(i) + ", " + mine.name;
    if (mine.name != theirs.name)
      return where + ": the other is " + theirs.name + " " + theirs.text;
    if (mine.text != theirs.text) return where + ": expected " + mine.text + ", got " + theirs.text;
    for (const auto& [what, detail] : flag_differences(mine.flags, theirs.flags, false))
      return where + ": " + what + ": " + detail;
    if (mine.is_close && are_close(mine.contents, theirs.contents)) continue;
    const std::string found = tensor_difference(mine.contents, theirs.contents);
    if (!found.empty()) return where + ": " + found;
  }
  if (items_.size() == other.items_.size()) return "";
  return "expected " + std::to_string(items_.size()) + " items, got " +
         std::to_string(other.items_.size());
}

void Outcome::add(const CompileStats& other) {
  calls += other.calls;
  observed_calls += other.observed_calls;
  cache_hits += other.cache_hits;
  eager_calls += other.eager_calls;
  value_misses += other.value_misses;
  traces += other.traces;
  recompiles += other.recompiles;
  guard_failures += other.guard_failures;
}

std::string Outcome::str() const {
  return c10::str(calls, " calls: ", observed_calls, " observed, ", cache_hits, " hits, ",
                  eager_calls, " eager; ", value_misses, " value misses, ", traces, " traces",
                  explanation.empty() ? "" : "; ", explanation);
}

bool is_explained() {
  static const bool is_set = std::getenv("AHEAD_TEST_EXPLAIN") != nullptr;
  return is_set;
}

void say(const std::string& line) {
  std::cerr << "  " << line << "\n";
}

void seed() {
  torch::manual_seed(7);
}

void expect_same_run(const Log& eager, const Log& compiled, const std::string& error,
                     const Outcome& outcome) {
  if (is_explained()) say(outcome.str());
  EXPECT_GT(eager.size(), 1u) << "the program shows nothing";
  EXPECT_EQ(error, "") << outcome.str();
  const std::string difference = eager.difference(compiled);
  EXPECT_TRUE(difference.empty()) << difference << "\n" << outcome.str();
  EXPECT_GT(outcome.calls, 0u);
  EXPECT_EQ(outcome.calls, outcome.observed_calls + outcome.cache_hits + outcome.eager_calls)
      << outcome.str();
}

void expect_doubling(const Outcome& outcome) {
  uint64_t observed = 1;
  for (uint64_t call = 2; call <= outcome.calls; call *= 2) ++observed;
  EXPECT_EQ(outcome.observed_calls, observed) << outcome.str();
  EXPECT_EQ(outcome.cache_hits, outcome.calls - observed) << outcome.str();
  EXPECT_EQ(outcome.eager_calls, 0u) << outcome.str();
}

void expect_hits(const Outcome& outcome) {
  EXPECT_GE(3 * outcome.cache_hits, outcome.calls) << outcome.str();
  EXPECT_EQ(outcome.eager_calls, 0u) << outcome.str();
}

void expect_some_hits(const Outcome& outcome) {
  EXPECT_GT(outcome.cache_hits, 0u) << outcome.str();
  EXPECT_EQ(outcome.eager_calls, 0u) << outcome.str();
}

void expect_eager(const Outcome& outcome) {
  EXPECT_GE(3 * outcome.eager_calls, outcome.calls) << outcome.str();
}

void expect_settled(const Outcome& outcome) {
  EXPECT_GE(3 * (outcome.cache_hits + outcome.eager_calls), outcome.calls) << outcome.str();
}

}  // namespace ahead::test
