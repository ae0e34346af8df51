#include <unordered_map>

#include "ahead/passes.h"
#include "base/hash.h"
#include "ir/tensor_meta.h"
#include "passes/merging.h"

namespace ahead::passes {
namespace {

bool is_named(const Node& node, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (node.op().name() == name) return true;
  }
  return false;
}

/// Whether the node copies its operand into memory of the same kind and layout.
bool is_plain_copy(const Node& node) {
  if (!is_named(node, {"aten.clone", "aten._to_copy"}) || !node.args()[0].is_value()) return false;
  constexpr size_t pin_memory = 4;
  if (node.args().size() > pin_memory && node.args()[pin_memory].constant().isBool() &&
      node.args()[pin_memory].constant().toBool())
    return false;
  return same_layout(node.result()->meta, node.args()[0].value()->meta);
}

class ViewCleaner {
 public:
  explicit ViewCleaner(Graph& graph)
      : graph_(graph), merger_(graph), root_(graph.value_capacity(), nullptr) {}

  size_t run() {
    for (Node& node : graph_.nodes()) {
      if (ops::is_layout_view(node)) {
        clean_view(node);
      } else if (is_plain_copy(node)) {
        replace(node, node.args()[0].value());
      }
    }
    return changes_;
  }

 private:
  /// The value that this one is a view of by a chain of layout views.
  Value* root(Value* value) const {
    Value* known = root_[value->id()];
    return known == nullptr ? value : known;
  }

  void clean_view(Node& node) {
    Value* result = node.result();
    Value* source = root(node.args()[0].value());
    root_[result->id()] = source;
    // Where elements overlap, views of different elements may have one layout, which they need not
    // have if the source arrives with other strides.
    if (fill_of(source->meta) == Fill::Overlaps) return;
    if (same_layout(result->meta, source->meta) && replace(node, source)) return;
    auto& views = views_[hash_of(*source, result->meta)];
    for (Value* view : views) {
      if (root(view) == source && same_layout(view->meta, result->meta) && replace(node, view))
        return;
    }
    views.push_back(result);
    shorten(node, source);
  }

  static uint64_t hash_of(const Value& source, const TensorMeta& meta) {
    uint64_t hash = hash_combine(source.id(), meta.offset.hash());
    for (const Dim& size : meta.sizes) hash = hash_combine(hash, size.hash());
    for (const Dim& stride : meta.strides) hash = hash_combine(hash, stride.hash());
    return hash;
  }

  bool replace(Node& node, Value* by) {
    if (!merger_.may_merge(node.result(), by)) return false;
    merger_.merge(node.result(), by);
    graph_.erase(&node);
    ++changes_;
    return true;
  }

  /// Lets a view at the end of a chain take the root of the chain, if both are contiguous.
  void shorten(Node& node, Value* source) {
    const TensorMeta& meta = node.result()->meta;
    if (!is_named(node, {"aten.view", "aten._unsafe_view"}) || node.args()[0].value() == source ||
        source->meta.numel() != meta.numel() || source->meta.offset != meta.offset ||
        !source->meta.is_contiguous() || !meta.is_contiguous())
      return;
    graph_.set_argument(&node, 0, source);
    ++changes_;
  }

  Graph& graph_;
  Merger merger_;
  std::vector<Value*> root_;  ///< by Value::id(); null: the value itself
  std::unordered_map<uint64_t, std::vector<Value*>> views_;
  size_t changes_ = 0;
};

}  // namespace

size_t clean_views(Graph& graph) {
  return ViewCleaner(graph).run();
}

}  // namespace ahead::passes
