#pragma once

#include <cstdint>
#include <optional>

#include "ahead/graph.h"

/// What is known of an operator beyond its schema. Most of it is derived from the schema's alias
/// annotations and from PyTorch's operator tags; what cannot be derived stands in one table
/// (fact_table.cpp). Operators outside `aten` have derived facts only.
namespace ahead::ops {

/// What sort of computation an operator is: what a partitioner or a fusing backend asks first.
enum class OpClass : uint8_t {
  Pointwise,      ///< each element of the result depends on the same element of the operands
  Reduction,      ///< fewer elements out than in, scans and searches along a dimension included
  MatMul,         ///< products of matrices and vectors
  Convolution,    ///< convolutions and their gradients
  GatherScatter,  ///< moves elements to places that data decides
  Factory,        ///< makes a tensor from numbers alone
  Copy,           ///< moves elements to places that shapes decide: cat, pad, clone, flip
  View,           ///< new metadata on the same storage
  Normalisation,  ///< softmax, layer, group and batch norm with their gradients
  Attention,      ///< fused attention kernels with their gradients
  Opaque,         ///< everything else: one kernel nobody looks into
};

/// How results relate to the storage of the operands.
enum class ViewKind : uint8_t {
  None,        ///< always new storage
  View,        ///< the result is a view of the first tensor
  MultiView,   ///< the results are several views of the first tensor
  MaybeAlias,  ///< the result may share storage with an operand, whatever the schema says
};

/// What limits the operator's speed.
enum class Cost : uint8_t { Free, Memory, Compute };

/// How to count floating point operations; only for operators with Cost::Compute.
enum class FlopFormula : uint8_t {
  None,
  MatMul,               ///< 2 · (elements of the result) · (length contracted)
  Convolution,          ///< 2 · (elements of the result) · (elements of one filter)
  ConvolutionBackward,  ///< one Convolution for each gradient asked for
  Attention,            ///< two products of queries × keys × head size
  AttentionBackward,    ///< five of them
  Factorisation,        ///< proportional to n³ for each matrix
  Fourier,              ///< proportional to n · log n for each transform
  Recurrent,            ///< two products for each step, layer and direction
};

/// Whether a partitioner should rather compute a value again than save it.
enum class Recompute : uint8_t {
  Free,       ///< views and factories: nothing is gained by saving
  Cheap,      ///< one pass over memory that a backend can fuse with others
  Expensive,  ///< gives the same value, but slower than loading the saved one
  Never,      ///< a second run would draw other random numbers or repeat an effect
};

/// The facts about one operator. Immutable.
struct OpFacts {
  /// Draws from a random number generator.
  bool random = false;
  /// Random only if the argument with this index is given and is neither false nor zero; -1:
  /// always.
  int8_t random_if = -1;
  /// Writes an argument, prints, throws on values, or talks to something outside the graph.
  bool effectful = false;
  /// It is known to act on something that is no tensor, rather than only suspected: it was declared
  /// to be an effect, or it is a custom operator that writes to no argument and returns nothing, or
  /// is given an object of a custom class.
  bool is_known_effect = false;
  /// A known effect whose kernel calls other operators: it is called as one, and never taken apart.
  bool is_whole = false;
  /// Why the operator cannot be traced: it reads values. Null if it can. Operators that read values
  /// for some arguments only (index.Tensor with a mask) are null here; their shape rule refuses.
  const char* data_dependent = nullptr;

  OpClass op_class = OpClass::Opaque;
  ViewKind view = ViewKind::None;
  Cost cost = Cost::Memory;
  FlopFormula flops = FlopFormula::None;
  Recompute recompute = Recompute::Expensive;
  /// The reason for `recompute`, in words for `explain`.
  const char* recompute_reason = "";

  /// Arguments that the operator writes, as its schema says.
  c10::SmallVector<uint8_t, 2> writes;
  /// Arguments that the operator writes although its schema does not say so.
  c10::SmallVector<uint8_t, 2> hidden_writes;
  /// For an operator that writes arguments: the one that returns the new contents instead, after
  /// the operator's own results unless those are the written arguments themselves. Null if none
  /// exists.
  const Operator* functional = nullptr;
  /// The reverse: the operator that writes its first argument in place. Null if none exists.
  const Operator* in_place = nullptr;

  /// May be run twice, dropped when unused, and merged with an equal call.
  bool pure() const { return !random && !effectful; }
};

/// Whether the operator is none of PyTorch's own (`aten`, `prims`, `prim`, as upstream has it): no
/// rule or kernel of a trace need know it, and what is said of it, its author says.
bool is_custom(const Operator& op);

/// The argument without which the operator leaves another one alone that its schema says it writes:
/// optimizers write to gradients only to divide them by a scale. Nothing: it is written always.
std::optional<size_t> written_only_with(const Operator& op, size_t written);

/// The facts about an operator; computed once and kept. Safe to call from any thread, without
/// locks.
const OpFacts& facts(const Operator& op);

/// What somebody said about the effects of an operator.
enum class Declared : uint8_t { Nothing, Effect, Pure };

/// From now on facts() says this of the operator. What it returned before stays as it was. Returns
/// whether something is otherwise now that somebody had asked for.
bool declare(const Operator& op, Declared declared);

}  // namespace ahead::ops
