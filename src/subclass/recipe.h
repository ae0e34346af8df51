#pragma once

#include <string>
#include <vector>

#include "ahead/subclass.h"
#include "ahead/tree_spec.h"

namespace ahead::subclass {

/// How a tensor is made of plain ones: its class, metadata and look, and how its inner tensors are
/// made. Holds no tensors.
struct Recipe {
  const WrapperClass* type = nullptr;  ///< null: it is a plain tensor
  c10::IValue metadata = {};
  WrapperLook look = {};
  std::vector<Recipe> inner = {};

  static Recipe of(const at::Tensor& tensor);
  bool is_plain() const { return type == nullptr; }
  /// How many plain tensors it takes.
  size_t num_plain() const;
  /// Whether a tensor is made in this way. Looks of plain tensors do not count.
  bool holds(const at::Tensor& tensor) const;
  /// Whether classes and metadata are the same, whatever tensors look like.
  bool is_like(const Recipe& other) const;
  /// Classes and metadata, for example `TwoTensor(Tensor, Tensor)`.
  std::string str() const;
};

/// Whether two constants that wrappers have as metadata are the same.
bool is_same_metadata(const c10::IValue& a, const c10::IValue& b);

/// The same for tensors of the same classes, whatever their metadata; rarely for others.
uint64_t hash_of_classes(const at::Tensor& tensor);

/// Appends the metadata of a tensor and of those inside of it, where there is any.
void append_metadata(const Recipe& recipe, std::vector<TreeSpec>& metadata);

/// Appends the plain tensors that a tensor is made of, depth first; a plain one is itself.
void append_plain(const at::Tensor& tensor, std::vector<at::Tensor>& plain);

/// Makes the tensor of the next plain ones, which do not require grad, and moves on behind them.
at::Tensor assemble(const Recipe& recipe, const at::Tensor*& next);

}  // namespace ahead::subclass
