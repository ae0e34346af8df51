#include "support/memory_sharing.h"

namespace ahead {
namespace {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;

/// The arguments and then the results.
Tensors visible(const Graph& graph, const Tensors& args) {
  Tensors all;
  for (const Tensor& arg : args) all.push_back(arg.detach());
  const Tensors results = interpret(graph, all);
  all.insert(all.end(), results.begin(), results.end());
  return all;
}

enum class Sharing { None, Memory, Tensor };

Sharing sharing(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return Sharing::None;
  if (a.is_same(b)) return Sharing::Tensor;
  return a.numel() > 0 && b.numel() > 0 && a.is_alias_of(b) ? Sharing::Memory : Sharing::None;
}

}  // namespace

std::string sharing_difference(const Graph& expected, const Graph& actual,
                               const std::vector<Tensor>& args) {
  const Tensors before = visible(expected, args), after = visible(actual, args);
  const auto name = [&](size_t i) {
    return i < args.size() ? expected.inputs()[i].slot.str()
                           : expected.outputs()[i - args.size()].slot.str();
  };
  for (size_t i = args.size(); i < before.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      const Sharing is = sharing(after[k], after[i]), was = sharing(before[k], before[i]);
      if (is > was) return name(k) + " and " + name(i) + " share more than they did";
      if (is == Sharing::None && was != Sharing::None)
        return name(k) + " and " + name(i) + " share memory no more";
    }
  }
  return "";
}

}  // namespace ahead
