#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ahead/export.h"

namespace ahead {

namespace detail {
class TreeWriter;
}

/// The structure of a tree: everything but its defined tensors. Non-tensor values are part of it,
/// and so is which tensors are undefined. It keeps objects inside an IValue alive and compares them
/// by identity.
class AHEAD_API TreeSpec {
 public:
  /// The number of defined tensors.
  size_t num_tensors() const { return num_tensors_; }
  bool operator==(const TreeSpec& other) const;
  bool operator!=(const TreeSpec& other) const { return !(*this == other); }
  /// Equal for equal structures, and the same in every process. Objects inside an IValue count by
  /// type.
  uint64_t hash() const;
  /// The floating-point numbers in it, in order.
  std::vector<double> reals() const;
  /// Whether two structures are equal but for the floating-point numbers in them.
  bool is_like(const TreeSpec& other) const;
  /// The structure in words, for example `(Tensor, 3, [Tensor, none], Batch{images: undefined})`.
  std::string str() const;

 private:
  friend class detail::TreeWriter;

  enum class Kind : uint8_t {
    Tensor,
    Undefined,
    None,
    Some,      ///< an optional around something that can be none itself; one child
    Constant,  ///< `value`
    Enum,      ///< `name`, `value`
    Tuple,     ///< `size` children
    List,      ///< `size` children
    Dict,      ///< `size` pairs of children
    Struct,    ///< `name`; `size` fields
    Field,     ///< `name`; one child
  };
  struct Item {
    Kind kind;
    size_t size = 0;
    std::string_view name;
    /// For a collection inside an IValue: its type.
    c10::IValue value;
  };

  size_t print(std::string& out, size_t position) const;
  size_t print_children(std::string& out, size_t position, const char* brackets) const;

  /// The tree in pre-order.
  std::vector<Item> items_;
  size_t num_tensors_ = 0;
};

/// A tree taken apart.
struct FlatTree {
  /// The defined tensors, in order. Those of a map stand in the order of its keys.
  std::vector<at::Tensor> leaves;
  TreeSpec spec;
};

}  // namespace ahead
