#include "trace/observers/checkpoint_tags.h"

#include "ops/facts/aliasing.h"
#include "trace/tensor/fake_tensor.h"

namespace ahead::tracing {
namespace {

/// The node that makes the memory which a value is a view of; null: it is an input's.
Node* maker_of(const Value* value) {
  Node* node = value->producer();
  while (node != nullptr && ops::is_view(*node)) node = node->args()[0].value()->producer();
  return node;
}

/// Whether it was made in a checkpointed function.
bool is_tagged(const Node& node) {
  return node.has(Tag::MustSave) || node.has(Tag::PreferSave) || node.has(Tag::PreferRecompute) ||
         node.has(Tag::MustRecompute);
}

}  // namespace

void Checkpoints::tag(Node& node) const {
  constexpr Tag tags[] = {Tag::MustSave, Tag::PreferSave, Tag::PreferRecompute, Tag::MustRecompute};
  const Saving saving = policies_.empty() ? Saving::MustSave : (*policies_.back())(node.op());
  uint16_t others = node.tags();
  for (Tag tag : tags) others &= static_cast<uint16_t>(~static_cast<uint16_t>(tag));
  node.set_tags(others);
  node.set(tags[static_cast<size_t>(saving)]);
}

CheckpointTags::CheckpointTags(Checkpoints& checkpoints, const CheckpointPolicy& policy)
    : checkpoints_(checkpoints) {
  checkpoints_.enter(policy);
}

CheckpointTags::~CheckpointTags() {
  leave();
}

void CheckpointTags::leave() {
  if (!is_left_) checkpoints_.leave();
  is_left_ = true;
}

void CheckpointTags::finish(const std::vector<at::Tensor>& results) {
  std::vector<Node*> makers;
  for (const at::Tensor& result : results) {
    Node* maker = is_traced(result) ? maker_of(value_of(result)) : nullptr;
    if (maker != nullptr && is_tagged(*maker)) makers.push_back(maker);
  }
  leave();
  for (Node* maker : makers) checkpoints_.tag(*maker);
}

}  // namespace ahead::tracing
