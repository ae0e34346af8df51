#pragma once

#include <c10/util/flat_hash_map.h>

#include <string>
#include <unordered_set>
#include <vector>

#include "observe/tape/tape.h"

namespace ahead::observe {

/// A tensor that the user's code made, if it is still there.
struct MadeTensor {
  VariableId id;
  WeakTensor tensor;
};

/// Tells which tensors user code stored somewhere, by counting who else has them: autograd, which
/// saves them for the backward, views of them, and the call's results.
class OwnerCount {
 public:
  /// Looks at autograd nodes with sequence numbers from `first_sequence` on; the call itself made
  /// those from `first_of_call` on.
  OwnerCount(uint64_t first_sequence, uint64_t first_of_call)
      : first_sequence_(first_sequence), first_of_call_(first_of_call) {}

  /// Counts the caller's handles on a result, and the tensors that its history saved.
  void add_result(const at::Tensor& tensor, size_t handles);
  /// Counts a hook as an owner of a tensor that it captured.
  void add_handle(const WeakTensor& tensor) { ++owners_[tensor._unsafe_get_target()]; }
  /// Counts the tensors that a node, and all nodes behind it, saved.
  void add_node(const NodePtr& node) { count_saved({node}); }
  /// Counts a tensor as an owner of its `.grad` and of its base.
  void add_owner(const at::Tensor& tensor);
  /// How many owners a tensor has that are not known.
  size_t unknown_owners(const WeakTensor& tensor) const;
  /// The tensors among `made` that have more owners than are known.
  std::vector<StoredTensor> find_stored(const std::vector<MadeTensor>& made);
  /// Lets the call's nodes save alias_of() the tensor instead, so that they do not own the tensor
  /// itself.
  void let_go(const at::Tensor& tensor);

  /// A node that the call made and that has hooks, by name; empty: there is none.
  const std::string& hooked() const { return hooked_; }

 private:
  void count_saved(std::vector<NodePtr> open);
  bool is_chained(const at::Tensor& tensor) const;

  const uint64_t first_sequence_, first_of_call_;
  ska::flat_hash_map<const c10::TensorImpl*, size_t> owners_;
  ska::flat_hash_map<const torch::autograd::Node*, NodePtr> walked_;
  std::unordered_set<const c10::TensorImpl*> chained_bases_;
  std::string hooked_;
};

}  // namespace ahead::observe
