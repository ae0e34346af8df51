#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "ahead/interpret.h"

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
  struct Call {
    const c10::OperatorHandle* op;  ///< null: run the sub-plan, or make a view
    bool no_grad;                   ///< recorded while grad mode was off
    int32_t view;                   ///< into views; kNothing: none
    int32_t reuse;                  ///< into reuses; kNothing: none
    std::shared_ptr<const Plan> sub_plan;
    int32_t first_operand;
    int32_t num_operands;  ///< list elements included
    int32_t num_returns;   ///< values the operator leaves on the stack
    int32_t first_result;
    int32_t num_results;
    int32_t first_return;
    /// Positions of the arguments that the operator writes to, which are results as well.
    c10::SmallVector<size_t, 2> written;
  };
  /// A chain of views of one tensor. Where that tensor is laid out as it was when traced, the last
  /// view is made from the recorded layout; otherwise the operators are called one by one.
  struct View {
    TensorMeta::Dims source_sizes, source_strides;
    TensorMeta::Dims sizes, strides;
    int64_t offset;      ///< from the source's own
    bool is_identity;    ///< the source itself may stand for the view
    int32_t source;      ///< register
    bool last_use;       ///< of the source
    int32_t result;      ///< register
    int32_t first_link;  ///< into links
    int32_t num_links;
  };
  /// A pointwise call whose first argument nobody needs any more: the result may take its memory.
  struct Reuse {
    const c10::OperatorHandle* writer;  ///< to the first argument
    bool names_result;  ///< the writer takes what it writes to once more, as its last argument
    TensorMeta::Dims sizes, strides;  ///< of the result; the argument must have the same
  };
  /// A constant that follows from sizes which each run is given.
  struct Sized {
    c10::IValue constant;
    bool is_tensor;  ///< a wrapped number
    bool is_float;   ///< of that type
  };
  struct Parameter {
    at::Tensor captured;
    bool is_captured;
    bool is_sizes;    ///< of which constants are made
    int32_t reg;      ///< kNothing: not used
    TensorMeta meta;  ///< what the graph was made for
  };
  struct Return {
    int32_t reg;  ///< kNothing: undefined
    bool last_use;
  };

  /// How chains of views are made: from the tensor that they lead back to, or one from the other as
  /// in the graph. History depends on it: gradients are added up where views part.
  enum class Views : uint8_t { AtOnce, OneByOne };

  explicit Plan(const Graph& graph, Views views = Views::AtOnce);
  std::vector<at::Tensor> run(std::vector<at::Tensor>&& args) const;
  std::vector<at::Tensor> replay(std::vector<at::Tensor>&& args) const;
  /// Whether a tensor is like the one that the graph was made for, but for its strides. Where sizes
  /// are an argument, or not known yet, they may be others.
  bool takes(const Parameter& parameter, const at::Tensor& given) const;

  std::vector<Parameter> parameters;
  bool has_sizes = false;  ///< one of these is the sizes
  std::vector<Call> calls;
  std::vector<View> views;
  std::vector<Reuse> reuses;
  /// The operators of all views; each takes the tensor before it and then its own operands.
  std::vector<Call> links;
  std::vector<Operand> operands;
  std::vector<c10::IValue> constants;
  std::vector<Sized> sized;
  /// Registers of results, in order; kNothing: dropped at once.
  std::vector<int32_t> results;
  /// For each plan-wide return value of a call, the length of the list, or -1 for a plain tensor.
  std::vector<int32_t> return_lengths;
  std::vector<Return> returns;
  int32_t num_registers = 0;
  int32_t num_free_parameters = 0;
  int32_t max_stack = 0;
};

/// A tensor that stands for a number, in its own type or as a float.
at::Tensor wrap_number(const at::Scalar& number, bool as_float);

}  // namespace ahead
