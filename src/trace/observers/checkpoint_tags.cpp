#include "trace/observers/checkpoint_tags.h"

#include "ops/facts/aliasing.h"

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

CheckpointTags::CheckpointTags(Tracer& tracer, const CheckpointPolicy& policy) : tracer_(tracer) {
  tracer_.enter_checkpoint(policy);
}

CheckpointTags::~CheckpointTags() {
  leave();
}

void CheckpointTags::leave() {
  if (!is_left_) tracer_.leave_checkpoint();
  is_left_ = true;
}

void CheckpointTags::finish(const std::vector<at::Tensor>& results) {
  std::vector<Node*> makers;
  for (const at::Tensor& result : results) {
    Node* maker = is_traced(result) ? maker_of(value_of(result)) : nullptr;
    if (maker != nullptr && is_tagged(*maker)) makers.push_back(maker);
  }
  leave();
  for (Node* maker : makers) tracer_.tag_for_checkpoint(*maker);
}

}  // namespace ahead::tracing
