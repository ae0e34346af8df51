#include <unordered_map>

#include "ahead/passes.h"
#include "base/text.h"
#include "ir/constants.h"
#include "ops/facts/node_facts.h"
#include "passes/merging.h"

namespace ahead::passes {
namespace {

constexpr uint16_t placement_tags =
    static_cast<uint16_t>(Tag::MustBeInForward) | static_cast<uint16_t>(Tag::MustBeInBackward) |
    static_cast<uint16_t>(Tag::MustSave) | static_cast<uint16_t>(Tag::MustRecompute) |
    static_cast<uint16_t>(Tag::PreferSave) | static_cast<uint16_t>(Tag::PreferRecompute);

/// Writes a node down so that nodes with equal texts compute the same.
class KeyWriter {
 public:
  /// False if the node has an argument that no text can tell from others.
  bool write(const Node& node, std::string& key) {
    key.clear();
    append_int(key, node.op().id());
    key += '!';
    append_int(key, node.tags() & placement_tags);
    for (const Argument& argument : node.args()) {
      if (!write(argument, key)) return false;
    }
    return true;
  }

 private:
  static bool write(const Argument& argument, std::string& key) {
    if (argument.is_graph()) return false;
    if (argument.is_value()) {
      key += '%';
      append_int(key, argument.value()->id());
      return true;
    }
    if (argument.is_constant()) {
      const c10::IValue& constant = argument.constant();
      if (constant.isGenerator() || constant.isObject() || constant.isCapsule()) return false;
      key += ',';
      append_constant(key, constant, nullptr);
      return true;
    }
    key += '[';
    for (const Argument& element : argument.list()) {
      if (!write(element, key)) return false;
    }
    key += ']';
    return true;
  }
};

/// How many equal nodes that must stay apart are remembered as places to merge others into.
constexpr size_t max_equals = 4;

class Eliminator {
 public:
  explicit Eliminator(Graph& graph) : graph_(graph), merger_(graph) {}

  size_t run() {
    size_t removed = 0;
    for (Node& node : graph_.nodes()) {
      if (!is_candidate(node) || !KeyWriter().write(node, key_)) continue;
      if (Node* equal = find_equal(node)) {
        replace(node, *equal);
        ++removed;
      } else if (auto& equals = known_[key_]; equals.size() < max_equals) {
        equals.push_back(&node);
      }
    }
    return removed;
  }

 private:
  static bool is_candidate(const Node& node) {
    return node.op().in_dispatcher() && !ops::is_ordered(node) && !ops::is_uninitialised(node);
  }

  Node* find_equal(const Node& node) {
    const auto found = known_.find(key_);
    if (found == known_.end()) return nullptr;
    for (Node* other : found->second) {
      if (may_replace(node, *other)) return other;
    }
    return nullptr;
  }

  bool may_replace(const Node& node, const Node& other) const {
    // Grad mode changes no result below autograd; but a second derivative replays the forward under
    // autograd, where a node without grad must not stand for one with it.
    const bool both_forward = node.phase == Phase::Forward && other.phase == Phase::Forward;
    if (both_forward && node.has(Tag::NoGrad) != other.has(Tag::NoGrad)) return false;
    if (node.results().size() != other.results().size()) return false;
    for (size_t i = 0; i < node.results().size(); ++i) {
      const Value *from = node.result(i), *to = other.result(i);
      if ((from == nullptr) != (to == nullptr)) return false;
      if (from != nullptr && !merger_.may_merge(from, to)) return false;
    }
    return true;
  }

  void replace(Node& node, const Node& other) {
    for (size_t i = 0; i < node.results().size(); ++i) {
      if (node.result(i) != nullptr) merger_.merge(node.result(i), other.result(i));
    }
    graph_.erase(&node);
  }

  Graph& graph_;
  Merger merger_;
  std::string key_;
  std::unordered_map<std::string, std::vector<Node*>> known_;
};

}  // namespace

size_t eliminate_common_subexpressions(Graph& graph) {
  return Eliminator(graph).run();
}

}  // namespace ahead::passes
