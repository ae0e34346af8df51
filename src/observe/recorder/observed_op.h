#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

#include "ahead/graph.h"

namespace ahead::observe {

/// What the recorder must know of an operator, found out once per thread.
struct ObservedOp {
  /// How an argument or result holds tensors.
  enum class Holds : uint8_t { Nothing, Tensor, List, OptionalList };
  struct Argument {
    Holds holds = Holds::Nothing;
    bool is_written = false;
    bool is_viewed = false;  ///< a result may be a view of it
  };

  explicit ObservedOp(const c10::OperatorHandle& handle);

  c10::OperatorHandle handle;
  const Operator* op;
  std::vector<Argument> arguments;
  std::vector<Holds> results;
  bool returns_tensors = false;
  /// It calls other operators, above autograd: these are recorded as well.
  bool is_composite = false;
  c10::DispatchKeySet autocast_keys;  ///< at which autocast handles it first
  bool reads_value = false;           ///< returns a value of a tensor rather than a tensor
  bool makes_unfilled = false;        ///< returns new memory that nobody has written to
  bool is_factory = false;            ///< the result depends on no other tensor's contents
  bool is_random = false;
  bool is_custom = false;
  /// Values may decide how large its results are.
  bool is_sized_by_values = false;
  /// It is traced by a decomposition (find_decomposition()) rather than by the operators it calls.
  bool has_decomposition = false;
};

/// What is known of this operator. The reference is good for the life of the process.
const ObservedOp& observed_op(const c10::OperatorHandle& handle);

}  // namespace ahead::observe
