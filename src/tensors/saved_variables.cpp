#include "tensors/saved_variables.h"

#include <torch/csrc/autograd/generated/Functions.h>

#include <typeindex>
#include <unordered_map>

namespace ahead {
namespace {

using torch::autograd::SavedVariable;
using Visit = c10::function_ref<void(SavedVariable&)>;
using Visitor = void (*)(torch::autograd::Node& node, Visit visit);

void visit_member(SavedVariable& member, Visit visit) {
  visit(member);
}

void visit_member(std::vector<SavedVariable>& member, Visit visit) {
  for (SavedVariable& one : member) visit(one);
}

template <class Node, auto... members>
void visit_members(torch::autograd::Node& node, Visit visit) {
  (visit_member(static_cast<Node&>(node).*members, visit), ...);
}

/// By type. The list is made from the header when the project is configured.
const std::unordered_map<std::type_index, Visitor>& visitors() {
  using namespace torch::autograd::generated;
#define AHEAD_NODE(Node, ...) {typeid(Node), &visit_members<Node, __VA_ARGS__>},
  static const auto* all = new std::unordered_map<std::type_index, Visitor>{
#include "saved_variables.inc"
  };
#undef AHEAD_NODE
  return *all;
}

}  // namespace

bool for_each_saved(torch::autograd::Node& node, Visit visit) {
  const auto found = visitors().find(typeid(node));
  if (found == visitors().end()) return false;
  found->second(node, visit);
  return true;
}

bool has_saved_tensor_hooks(torch::autograd::Node& node) {
  bool found = false;
  for_each_saved(node, [&](const SavedVariable& saved) { found |= saved.has_hooks(); });
  return found;
}

}  // namespace ahead
