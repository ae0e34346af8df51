#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "ahead/interpret.h"
#include "ir/sizes/size_guards.h"

namespace ahead {

/// A graph flattened into what the run loop needs, in the order in which it needs it.
struct Interpreter::Plan {
  static constexpr int32_t kNothing = -1;

  /// How to make one argument of a call.
  struct Operand {
    enum class Kind : uint8_t { Constant, Sized, Copy, Move, TensorList, OptionalTensorList };
    Kind kind;
    /// Constant: index into constants. Sized: index into sized. Copy, Move: the register. Lists:
    /// the number of element operands that follow.
    int32_t index;
  };
  /// A call of an operator or of a sub-graph, or a chain of views.
  struct Call {
    const c10::OperatorHandle* op;  ///< null: run the sub-graph, or make a view
    bool no_grad;                   ///< recorded while grad mode was off
    int32_t view;                   ///< into views; kNothing: none
    int32_t reuse;                  ///< into reuses; kNothing: none
    int32_t promise;                ///< into promises; kNothing: none
    int32_t size_read;              ///< into size_reads; kNothing: none
    aot::Executable sub_graph;
    int32_t first_operand;
    int32_t num_operands;  ///< list elements included
    int32_t num_returns;   ///< values the operator leaves on the stack
    int32_t first_result;
    int32_t num_results;
    int32_t first_return;
    /// Positions of the arguments that the operator writes to, which are results as well.
    c10::SmallVector<size_t, 2> written;
  };
  /// A chain of views of one tensor. Where that tensor is laid out as the graph says, the last view
  /// is made from the layout that the graph says; otherwise the operators are called one by one.
  struct View {
    Dims source_sizes, source_strides;
    Dims sizes, strides;
    Dim offset;          ///< from the source's own
    bool is_fixed;       ///< all these are the same in all runs
    bool is_identity;    ///< the source itself may stand for the view
    int32_t source;      ///< register
    bool last_use;       ///< of the source
    int32_t result;      ///< register
    int32_t first_link;  ///< into links
    int32_t num_links;
  };
  /// A pointwise call whose first argument nobody needs any more: the result may take its memory.
  struct Reuse {
    const c10::OperatorHandle* writer;  ///< the overload that writes to its first argument
    bool names_result;    ///< the writer takes the first argument again, as the last: its `out`
    Dims sizes, strides;  ///< of the result; the argument must have the same
    bool is_fixed;        ///< these are the same in all runs
  };
  /// What the results of a custom operator looked like when it was traced. Nobody but its author
  /// knows whether they always do. Where sizes are read from tensors, what all operators return is
  /// looked at.
  struct Promise {
    std::vector<std::optional<TensorMeta>> results;  ///< none: nothing is expected
  };
  /// A size that a call reads from a tensor.
  struct SizeRead {
    uint32_t symbol;
    size_t num_sized_before;  ///< how many of the constants are computed without it
  };
  /// A constant that is computed from the sizes given to each run, in the order in which they
  /// become known.
  struct Sized {
    c10::IValue constant;
    bool is_tensor;  ///< a wrapped number
    bool is_float;   ///< the wrapped number is a float
  };
  /// One graph input.
  struct Parameter {
    at::Tensor captured;
    bool is_captured;
    bool is_sizes;    ///< holds the sizes that Sized constants are computed from
    int32_t reg;      ///< kNothing: not used
    TensorMeta meta;  ///< what the graph was made for
    /// After so many calls nothing reads its memory any more; where outputs are handed over.
    size_t read_until = 0;
  };
  /// One graph output.
  struct Return {
    int32_t reg;  ///< kNothing: undefined
    bool last_use;
    bool is_only = false;  ///< no other output has this register
    /// After so many calls it is made, and none of those that follow touches its memory.
    size_t ready = 0;
  };

  /// How chains of views are made: from their root at once, or one by one as in the graph. The
  /// autograd nodes of a replay depend on it: gradients are summed where views branch.
  enum class Views : uint8_t { AtOnce, OneByOne };

  /// Sub-graphs are run by what `sub_graphs` makes of them, or, if that is empty, by plans.
  /// `donated`: as in CompileRequest.
  explicit Plan(const Graph& graph, Views views = Views::AtOnce,
                const aot::GraphCompiler& sub_graphs = {}, const std::vector<bool>& donated = {});
  /// Interpreter::operator(), for a caller that is below autograd and autocast already.
  std::vector<at::Tensor> run(std::vector<at::Tensor>&& args) const;
  /// Interpreter::replay(). Constants made of sizes are those of a trace whose sizes change, which
  /// notes there what it decides.
  std::vector<at::Tensor> replay(std::vector<at::Tensor>&& args,
                                 const std::shared_ptr<SizeGuards>& guards = nullptr) const;
  /// The overload for numbers of an operator that is called with wrapped ones; null: there is none.
  static const Operator* with_number(const Operator& op);
  /// Whether a tensor is like the one that the graph was made for, but for its strides. Where sizes
  /// are an argument, or not known yet, they may be others.
  bool takes(const Parameter& parameter, const at::Tensor& given) const;

  std::vector<Parameter> parameters;
  bool has_sizes = false;  ///< one of these is the sizes
  std::vector<Call> calls;
  std::vector<View> views;
  std::vector<Reuse> reuses;
  std::vector<Promise> promises;
  std::vector<SizeRead> size_reads;
  /// The operators of all views; each takes the tensor before it and then its own operands.
  std::vector<Call> links;
  std::vector<Operand> operands;
  std::vector<c10::IValue> constants;
  std::vector<Sized> sized;
  /// Registers of results, in order; kNothing: dropped at once.
  std::vector<int32_t> results;
  /// For each return of each call, the length of the list, or -1 for a plain tensor.
  std::vector<int32_t> return_lengths;
  std::vector<Return> returns;
  int32_t num_registers = 0;
  int32_t num_free_parameters = 0;
  int32_t max_stack = 0;
};

/// A tensor that stands for a number, in its own type or as a float.
at::Tensor wrap_number(const at::Scalar& number, bool as_float);

}  // namespace ahead
