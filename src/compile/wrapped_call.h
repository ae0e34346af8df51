#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ahead/executable.h"
#include "ahead/tree_spec.h"
#include "compile/wrapped_layout.h"
#include "observe/tape/parts.h"
#include "observe/tape/tape.h"
#include "runtime/compile_request.h"

/// Calls with wrappers (ahead/subclass.h): programs take and return the plain tensors inside.
namespace ahead::detail {

/// What a program for calls with wrappers does around its plan.
class WrappedProgram : public std::enable_shared_from_this<WrappedProgram> {
 public:
  /// For a recorded call with these arguments, which had these versions when it began. Throws
  /// Unsupported for what cannot be compiled.
  WrappedProgram(const observe::Tape& tape, const std::vector<at::Tensor>& arguments,
                 const std::vector<int64_t>& versions);

  /// The recording as a function of plain tensors, to be traced with arguments().
  aot::FlatFunction plain_function(const std::shared_ptr<const observe::Tape>& tape);
  /// The plain tensors of a call's arguments and then of what it captured; none: that is gone.
  std::optional<WrappedLayout::Apart> arguments(const std::vector<at::Tensor>& outer) const;
  /// Which of these belong to captured tensors, and are the same in all calls.
  runtime::StaticArguments static_arguments() const;
  /// Ends a trace. True: it found gradients that are made otherwise than was expected, so that the
  /// function has to be traced again. False: what it found out stays as it is.
  bool has_other_gradients();
  /// After that: the metadata of results and gradients that is none of the arguments'.
  std::vector<TreeSpec> constants() const;
  /// Ends a call: writes reach its arguments, and its results are made of the plan's.
  std::vector<at::Tensor> finish(const std::vector<at::Tensor>& outer,
                                 const WrappedLayout::Apart& given,
                                 std::vector<at::Tensor> plain) const;

 private:
  /// One view operator that leads from a tensor to a result.
  struct ViewCall {
    const observe::Step* step;
    size_t source;  ///< which of its arguments is viewed
    size_t result;  ///< which of its tensors is the view
    bool grad_mode;
  };
  /// How a result that is a wrapper is made. What the trace finds out is filled in by it.
  struct Result {
    enum class Kind : uint8_t { Made, Argument, ViewOfArgument, ViewOfResult };
    Kind kind = Kind::Made;
    size_t index = 0;  ///< the argument or result
    std::vector<ViewCall> views = {};
    bool is_reshaped = false;  ///< something between the root and it changes shape in place
    bool is_strided = false;   ///< Made: as_strided made it of a view, and may reach beyond that
    bool is_from_plan = true;  ///< a plain tensor that the plan makes
    std::shared_ptr<const subclass::Exchange> exchange = nullptr;  ///< Made: how
  };

  void find_results(const observe::Tape& tape);
  void check_written_alone(const std::vector<at::Tensor>& outer) const;
  static bool is_made_by(const Result& result, const char* view);
  static bool is_strided_view_of_view(const std::vector<ViewCall>& views);
  bool is_known_to_plan(const Result& result) const;
  void note_result(Result& result, const at::Tensor& made, std::vector<at::Tensor>& plain);
  std::vector<at::Tensor> run(const aot::FlatFunction& replay,
                              const std::vector<at::Tensor>& plain);
  std::vector<at::Tensor> all_outer(const std::vector<at::Tensor>& arguments) const;
  /// What view operators made in a call.
  using MadeByViews = std::unordered_map<const observe::Step*, std::vector<at::Tensor>>;
  static at::Tensor view(const Result& result, at::Tensor from, MadeByViews& made);

  std::shared_ptr<const observe::Tape> tape_;  ///< to which the views refer
  size_t num_arguments_;
  std::vector<observe::WeakTensor> captured_;
  observe::Part part_;
  std::optional<WrappedLayout> layout_;  ///< of arguments and captured tensors
  std::vector<int64_t> writes_;          ///< to each of these
  std::vector<bool> is_copied_;          ///< traces write to a copy, and to the argument once
  std::vector<Result> results_;
  std::vector<std::optional<subclass::Recipe>> found_;  ///< other gradients, by argument
  bool is_settled_ = false;
};

}  // namespace ahead::detail
